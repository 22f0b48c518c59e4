import type { LifePair } from './align.ts';
import { nameWithin, namer, type Namer } from './by-nature.ts';
import { CallNames, settled } from './changes.ts';
import { differences, type Difference } from './differences.ts';
import type { KeptCall, KeptLife } from './kept-calls.ts';
import { movedCalls } from './order.ts';

/** One side of a call. */
export interface CallSide {
  /** Since the pod's first call. */
  readonly offsetMs: number;
  readonly durationMs: number | null;
  readonly outcome: string;
  readonly count: number;
}

/** A call that both kubelets made, or one of them. */
export interface ComparedCall {
  readonly name: string;
  readonly a: CallSide | null;
  readonly b: CallSide | null;
  /** Fields of the request, `outcome`, `order`; paths as within the request. */
  readonly differences: readonly Difference[];
  /** Fields that differ between any two runs: ids, times, addresses. */
  readonly byNature: readonly Difference[];
}

export interface ComparedPod {
  readonly name: string;
  /** `namespace/name` in each recording; null where it is not. */
  readonly a: string | null;
  readonly b: string | null;
  /** In the first's order, what only the second made where it made it. */
  readonly calls: readonly ComparedCall[];
  /** Calls that only look; how often is not compared. */
  readonly looks: readonly ComparedCall[];
  /** Containers that one has started more often; their calls stand nowhere else. */
  readonly attempts: readonly Difference[];
}

export interface CompareOptions {
  readonly method?: string;
  /** Fill in `byNature`. */
  readonly all: boolean;
}

/** Of a request that stands in a call's name. */
const MAX_FORM = 100;

interface Named {
  readonly name: string;
  readonly call: KeptCall;
}

function namersOf({ a, b }: LifePair): [Namer, Namer] {
  const sameName = a?.pod?.name === b?.pod?.name;
  const sameNamespace = a?.pod?.namespace === b?.pod?.namespace;
  const of = (life: KeptLife | null): Namer => {
    const texts = new Map<string, string>();
    const pod = life?.pod ?? null;
    if (pod !== null) {
      if (!sameNamespace) texts.set(pod.namespace, '<namespace>');
      if (!sameName) texts.set(pod.name, '<pod>');
      texts.set(pod.uid.replaceAll('-', '_'), '<pod_uid>');
      texts.set(pod.uid, '<pod uid>');
      for (const ip of pod.ips) texts.set(ip, '<pod ip>');
    }
    return namer({ texts }, true);
  };
  return [of(a), of(b)];
}

function attemptsOf(changes: readonly KeptCall[]): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>();
  for (const { method, about } of changes) {
    if (method !== 'CreateContainer') continue;
    const name = about.replace(/#\d+$/, '');
    found.set(name, (found.get(name) ?? new Set()).add(about));
  }
  return found;
}

/** Containers that one side has started more often than the other, and the attempts that only it has. */
function attemptDifferences(a: readonly KeptCall[], b: readonly KeptCall[]): { attempts: Difference[]; alone: Set<string> } {
  const [ofA, ofB] = [attemptsOf(a), attemptsOf(b)];
  const attempts: Difference[] = [];
  const alone = new Set<string>();
  for (const [name, inA] of ofA) {
    const inB = ofB.get(name);
    if (inB === undefined || inA.size === inB.size) continue;
    attempts.push({ path: `attempts of ${name}`, a: inA.size, b: inB.size });
    for (const about of inA.symmetricDifference(inB)) if (!about.endsWith('#0')) alone.add(about);
  }
  return { attempts, alone };
}

function named(changes: readonly KeptCall[], alone: ReadonlySet<string>, method: string | undefined): Named[] {
  const names = new CallNames();
  const inOrder = [...changes].sort((x, y) => x.startMs - y.startMs);
  return settled(inOrder, ({ about }) => about).flatMap((call) => {
    if (alone.has(call.about) || (method !== undefined && call.method !== method)) return [];
    return [{ name: names.next(call.method, call.about), call }];
  });
}

function side(call: KeptCall, firstMs: number): CallSide {
  return {
    offsetMs: call.startMs - firstMs,
    durationMs: call.endMs === null ? null : call.count > 1 ? call.totalMs / call.count : call.endMs - call.startMs,
    outcome: call.outcome,
    count: call.count,
  };
}

function firstOf(life: KeptLife | null): number {
  let first = Infinity;
  for (const { startMs } of life?.changes ?? []) first = Math.min(first, startMs);
  if (first === Infinity) for (const { startMs } of life?.looks.values() ?? []) first = Math.min(first, startMs);
  return first;
}

class Comparison {
  readonly #namers: [Namer, Namer];
  readonly #firstMs: [number, number];
  readonly #options: CompareOptions;

  constructor(pair: LifePair, options: CompareOptions) {
    this.#namers = namersOf(pair);
    this.#firstMs = [firstOf(pair.a), firstOf(pair.b)];
    this.#options = options;
  }

  /** A request with names for what was made up; the text of it tells whether two are the same. */
  form(call: KeptCall, which: 0 | 1): unknown {
    return nameWithin(JSON.parse(call.request), this.#namers[which]);
  }

  /** A name without what was made up. */
  named(name: string, which: 0 | 1): string {
    return this.#namers[which](name);
  }

  pair(name: string, a: KeptCall | undefined, b: KeptCall | undefined, moved?: Difference): ComparedCall {
    const found: Difference[] = [];
    let byNature: Difference[] = [];
    if (a !== undefined && b !== undefined) {
      if (a.outcome !== b.outcome) found.push({ path: 'outcome', a: outcomeText(a), b: outcomeText(b) });
      if (moved !== undefined) found.push(moved);
      if (a.request !== b.request) {
        const fields = differences(this.form(a, 0), this.form(b, 1));
        found.push(...fields);
        if (this.#options.all) {
          const told = new Set(fields.map(({ path }) => path));
          byNature = differences(JSON.parse(a.request), JSON.parse(b.request)).filter(({ path }) => !told.has(path));
        }
      }
    }
    return {
      name,
      a: a === undefined ? null : side(a, this.#firstMs[0]),
      b: b === undefined ? null : side(b, this.#firstMs[1]),
      differences: found,
      byNature,
    };
  }
}

function outcomeText({ outcome, message }: KeptCall): string {
  return message === '' ? outcome : `${outcome}: ${message}`;
}

function changeCalls(comparison: Comparison, a: readonly Named[], b: readonly Named[]): ComparedCall[] {
  const inB = new Map(b.map(({ name, call }) => [name, call]));
  const inA = new Set(a.map(({ name }) => name));
  const moved = movedCalls(a, b);
  const out: ComparedCall[] = [];
  let next = 0;
  // What only the second made comes after the call that it came after there.
  const onlyInB = (until: string | null): void => {
    for (; next < b.length && b[next]?.name !== until; next += 1) {
      const { name, call } = b[next] as Named;
      if (!inA.has(name)) out.push(comparison.pair(name, undefined, call));
    }
  };
  const placeInB = new Map(b.map(({ name }, at) => [name, at]));
  for (const { name, call } of a) {
    const other = inB.get(name);
    if (other !== undefined && (placeInB.get(name) ?? 0) >= next) onlyInB(name);
    out.push(comparison.pair(name, call, other, moved.get(name)));
  }
  onlyInB(null);
  return out;
}

/** Calls that only look by what they are about, then by what they say once what is made up is named. */
function lookForms(comparison: Comparison, life: KeptLife | null, which: 0 | 1, method: string | undefined): Map<string, Map<string, KeptCall>> {
  const found = new Map<string, Map<string, KeptCall>>();
  for (const call of life?.looks.values() ?? []) {
    if (method !== undefined && call.method !== method) continue;
    const key = comparison.named(`${call.method} ${call.about}`.trimEnd(), which);
    const forms = found.get(key) ?? new Map<string, KeptCall>();
    found.set(key, forms);
    const text = JSON.stringify(comparison.form(call, which));
    const known = forms.get(text);
    forms.set(text, known === undefined ? call : { ...known, count: known.count + call.count, totalMs: known.totalMs + call.totalMs });
  }
  return found;
}

function lookCalls(comparison: Comparison, { a, b }: LifePair, method: string | undefined): ComparedCall[] {
  const [inA, inB] = [lookForms(comparison, a, 0, method), lookForms(comparison, b, 1, method)];
  return [...new Set([...inA.keys(), ...inB.keys()])].flatMap((key) => {
    const [formsA, formsB] = [inA.get(key) ?? new Map<string, KeptCall>(), inB.get(key) ?? new Map<string, KeptCall>()];
    const [onlyA, onlyB] = [
      formsA
        .keys()
        .filter((text) => !formsB.has(text))
        .toArray(),
      formsB
        .keys()
        .filter((text) => !formsA.has(text))
        .toArray(),
    ];
    const [aloneA = '', aloneB = ''] = [onlyA[0], onlyB[0]];
    const other = onlyA.length === 1 && onlyB.length === 1 ? aloneB : null;
    const count = new Set([...formsA.keys(), ...formsB.keys()]).size - (other === null ? 0 : 1);
    // Where there are several, what they say tells them apart.
    const nameOf = (text: string): string => (count === 1 || text === '{}' ? key : `${key} ${text.length <= MAX_FORM ? text : `${text.slice(0, MAX_FORM)}…`}`);
    const out = [...formsA].map(([text, call]) =>
      comparison.pair(nameOf(text), call, formsB.get(text) ?? (other !== null && text === aloneA ? formsB.get(other) : undefined)),
    );
    if (other === null) for (const text of onlyB) out.push(comparison.pair(nameOf(text), undefined, formsB.get(text)));
    return out;
  });
}

/** Compares what two kubelets did with one pod: calls by what they are about, requests field by field, order, outcome. */
export function comparePods(pair: LifePair, options: CompareOptions): ComparedPod {
  const { a, b } = pair;
  const identity = { name: pair.name, a: a === null ? null : (a.pod?.key ?? pair.name), b: b === null ? null : (b.pod?.key ?? pair.name) };
  if (a === null || b === null) return { ...identity, calls: [], looks: [], attempts: [] };
  const comparison = new Comparison(pair, options);
  const { attempts, alone } = attemptDifferences(a.changes, b.changes);
  return {
    ...identity,
    calls: changeCalls(comparison, named(a.changes, alone, options.method), named(b.changes, alone, options.method)),
    looks: lookCalls(comparison, pair, options.method),
    attempts: options.method === undefined || options.method === 'CreateContainer' ? attempts : [],
  };
}
