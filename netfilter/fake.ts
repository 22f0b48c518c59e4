import { OpError } from '../base/errors.ts';
import type { KubeApi, KubeObject, ReflectHandler, ResourceRef } from '../base/kubeapi/types.ts';
import type { Observed } from './core/diff.ts';
import { isAffinitySet, valueText } from './core/diff.ts';
import type { Family } from './core/ip.ts';
import { COMMENT_MAX } from './core/names.ts';
import type { Element, Op, Rule, SetSpec, Statement } from './core/ops.ts';
import type { CommitResult, NftKernel } from './io/kernel.ts';

/** The outside in memory: a table that refuses what the kernel refuses, and an API server that only lists and watches. */

const NAME_MAX = 255;

interface FakeTable {
  chains: Map<string, Rule[]>;
  sets: Map<string, { spec: SetSpec; elements: Map<string, Element> }>;
  counters: Set<string>;
}

function copy(table: FakeTable | undefined): FakeTable | undefined {
  if (table === undefined) return undefined;
  return {
    chains: new Map([...table.chains].map(([name, rules]) => [name, [...rules]])),
    sets: new Map([...table.sets].map(([name, { spec, elements }]) => [name, { spec, elements: new Map(elements) }])),
    counters: new Set(table.counters),
  };
}

function chainsIn(statement: Statement): readonly string[] {
  if (statement.kind === 'goto-random') return statement.chains;
  return statement.kind === 'verdict' && statement.verdict.kind !== 'drop' ? [statement.verdict.chain] : [];
}

function setsIn(statement: Statement): readonly string[] {
  if (statement.kind === 'in-set' || statement.kind === 'remember') return [statement.set];
  return statement.kind === 'verdict-map' || statement.kind === 'dnat-random' ? [statement.map] : [];
}

export class FakeKernel implements NftKernel {
  readonly tables = new Map<Family, FakeTable>();
  /** All committed transactions. */
  readonly commits: { family: Family; ops: readonly Op[] }[] = [];
  /** Lets a test refuse operations: return a reason, or null to let it pass. */
  refuse: (op: Op, family: Family) => string | null = () => null;
  #generation = 1;

  async commit(family: Family, ops: readonly Op[]): Promise<CommitResult> {
    if (ops.length === 0) return { ok: true };
    const before = copy(this.tables.get(family));
    for (const [index, op] of ops.entries()) {
      const reason = this.refuse(op, family) ?? this.#apply(family, op);
      if (reason === null) continue;
      if (before === undefined) this.tables.delete(family);
      else this.tables.set(family, before);
      return { ok: false, error: new OpError('failed', 'write nftables rules', `${op.op}: ${reason}`), failedOps: [index] };
    }
    this.commits.push({ family, ops });
    return { ok: true };
  }

  #apply(family: Family, op: Op): string | null {
    if (op.op === 'add-table') {
      if (!this.tables.has(family)) this.tables.set(family, { chains: new Map(), sets: new Map(), counters: new Set() });
      return null;
    }
    const table = this.tables.get(family);
    if (table === undefined) return 'no such table';
    switch (op.op) {
      case 'delete-table':
        this.tables.delete(family);
        return null;
      case 'add-chain':
        if (op.chain.length > NAME_MAX) return 'name too long';
        if (!table.chains.has(op.chain)) table.chains.set(op.chain, []);
        return null;
      case 'flush-chain':
        return table.chains.has(op.chain) ? (table.chains.set(op.chain, []), null) : 'no such chain';
      case 'delete-chain':
        return this.#deleteChain(table, op.chain);
      case 'add-rule':
        return this.#addRule(table, op.chain, op.rule);
      case 'add-set':
        if (op.set.name.length > NAME_MAX) return 'name too long';
        if (table.sets.has(op.set.name))
          return table.sets.get(op.set.name)!.spec.timeoutSeconds === op.set.timeoutSeconds ? null : 'set exists with another timeout';
        table.sets.set(op.set.name, { spec: op.set, elements: new Map() });
        return null;
      case 'flush-set':
        return table.sets.has(op.set.name) ? (table.sets.get(op.set.name)!.elements.clear(), null) : 'no such set';
      case 'delete-set':
        if (!table.sets.has(op.set.name)) return 'no such set';
        if (this.#statements(table).some((statement) => setsIn(statement).includes(op.set.name))) return 'set is used';
        table.sets.delete(op.set.name);
        return null;
      case 'add-element':
      case 'delete-element':
        return this.#element(table, op.op, op.set, op.element);
      case 'add-targets':
        for (const [index, target] of op.targets.entries()) {
          const reason = this.#element(table, 'add-element', op.set, { key: [String(op.first + index)], target });
          if (reason !== null) return reason;
        }
        return null;
      case 'add-counter':
        table.counters.add(op.counter);
        return null;
      case 'delete-counter':
        if (this.#statements(table).some((statement) => statement.kind === 'count' && statement.counter === op.counter)) return 'counter is used';
        return table.counters.delete(op.counter) ? null : 'no such counter';
    }
  }

  #statements(table: FakeTable): Statement[] {
    return [...table.chains.values()].flat().flatMap((rule) => [...rule.statements]);
  }

  #deleteChain(table: FakeTable, chain: string): string | null {
    const rules = table.chains.get(chain);
    if (rules === undefined) return 'no such chain';
    const elements = [...table.sets.values()].flatMap((set) => [...set.elements.values()]);
    const used = elements.some(({ verdict }) => verdict !== undefined && verdict.kind !== 'drop' && verdict.chain === chain);
    if (used || this.#statements(table).some((statement) => chainsIn(statement).includes(chain))) return 'chain is used';
    table.chains.delete(chain);
    return null;
  }

  #addRule(table: FakeTable, chain: string, rule: Rule): string | null {
    const rules = table.chains.get(chain);
    if (rules === undefined) return 'no such chain';
    if ((rule.comment ?? '').length > COMMENT_MAX) return 'comment too long';
    for (const statement of rule.statements) {
      for (const name of chainsIn(statement)) if (!table.chains.has(name)) return `no chain ${name}`;
      if (statement.kind === 'count' && !table.counters.has(statement.counter)) return `no counter ${statement.counter}`;
      for (const name of setsIn(statement)) if (!table.sets.has(name)) return `no set ${name}`;
    }
    rules.push(rule);
    return null;
  }

  #element(table: FakeTable, kind: 'add-element' | 'delete-element', spec: SetSpec, element: Element): string | null {
    const set = table.sets.get(spec.name);
    if (set === undefined) return 'no such set';
    const key = element.key.join(' . ');
    if (kind === 'delete-element') return set.elements.delete(key) ? null : 'no such element';
    if ((element.comment ?? '').length > COMMENT_MAX) return 'comment too long';
    const { verdict } = element;
    if (verdict !== undefined && verdict.kind !== 'drop' && !table.chains.has(verdict.chain)) return `no chain ${verdict.chain}`;
    const there = set.elements.get(key);
    if (there !== undefined && valueText({ ...there, comment: undefined }) !== valueText({ ...element, comment: undefined }))
      return 'element exists with another value';
    if (there === undefined) set.elements.set(key, element);
    return null;
  }

  async observe(family: Family): Promise<Observed | 'absent'> {
    const table = this.tables.get(family);
    if (table === undefined) return 'absent';
    const elements = new Map<string, ReadonlyMap<string, string>>();
    const affinitySets = new Map<string, number>();
    for (const [name, set] of table.sets) {
      if (isAffinitySet(name)) affinitySets.set(name, set.spec.timeoutSeconds ?? 0);
      else elements.set(name, new Map([...set.elements].map(([key, element]) => [key, valueText(element)])));
    }
    return { chains: [...table.chains.keys()], affinitySets, elements };
  }

  async ruleCounts(family: Family): Promise<ReadonlyMap<string, number>> {
    return new Map([...(this.tables.get(family)?.chains ?? [])].filter(([, rules]) => rules.length > 0).map(([name, rules]) => [name, rules.length]));
  }

  async generation(): Promise<number> {
    return this.#generation;
  }

  /** Somebody else changes something. */
  meddle(change: (tables: Map<Family, FakeTable>) => void): void {
    change(this.tables);
    this.#generation += 1;
  }
}

/** Only `list` and `reflect` do something; objects are put and removed by the test. */
export class FakeApi {
  readonly #objects = new Map<string, Map<string, KubeObject>>();
  readonly #handlers = new Map<string, ReflectHandler<KubeObject>[]>();

  #kind(resource: string): Map<string, KubeObject> {
    const kind = this.#objects.get(resource) ?? new Map<string, KubeObject>();
    this.#objects.set(resource, kind);
    return kind;
  }

  put(resource: string, object: KubeObject): void {
    const kind = this.#kind(resource);
    const key = `${object.metadata.namespace ?? ''}/${object.metadata.name ?? ''}`;
    const type = kind.has(key) ? 'MODIFIED' : 'ADDED';
    kind.set(key, object);
    for (const handler of this.#handlers.get(resource) ?? []) handler.changed(type, handler.trim?.(object) ?? object);
  }

  remove(resource: string, namespace: string, name: string): void {
    const key = `${namespace}/${name}`;
    const object = this.#kind(resource).get(key);
    if (object === undefined) return;
    this.#kind(resource).delete(key);
    for (const handler of this.#handlers.get(resource) ?? []) handler.changed('DELETED', object);
  }

  clear(): void {
    for (const [resource, kind] of this.#objects) {
      if (resource === 'nodes') continue;
      for (const object of kind.values()) this.remove(resource, object.metadata.namespace ?? '', object.metadata.name ?? '');
    }
  }

  /** As the seam has it. */
  get api(): KubeApi {
    const refuse = async (): Promise<never> => {
      throw new OpError('unsupported', 'call the fake API server', 'it only lists and watches');
    };
    return {
      get: refuse,
      list: async (ref: ResourceRef) => ({ metadata: {}, items: [...this.#kind(ref.resource).values()] as never[] }),
      create: refuse,
      update: refuse,
      patch: refuse,
      delete: refuse,
      raw: refuse,
      reflect: async (ref: ResourceRef, _selector: unknown, handler: ReflectHandler<never>, signal: AbortSignal) => {
        const known = handler as unknown as ReflectHandler<KubeObject>;
        this.#handlers.set(ref.resource, [...(this.#handlers.get(ref.resource) ?? []), known]);
        known.replaced([...this.#kind(ref.resource).values()].map((object) => known.trim?.(object) ?? object));
        if (!signal.aborted) await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
        this.#handlers.set(
          ref.resource,
          (this.#handlers.get(ref.resource) ?? []).filter((other) => other !== known),
        );
      },
      [Symbol.asyncDispose]: async () => {},
    } as KubeApi;
  }
}
