import { Histogram } from './histogram.ts';
import { isCri, type SeenCall } from './seen-calls.ts';
import { WhoAsks, type Asker } from './who-asks.ts';

/** Of one method. */
export interface MethodNumbers {
  readonly method: string;
  readonly calls: number;
  readonly perMinute: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
  readonly errors: number;
  /** Who asks, the most frequent first. */
  readonly askers: readonly { readonly asker: Asker; readonly calls: number }[];
}

/** Of one caller: a connection, or all closed ones of a kind. */
export interface CallerNumbers {
  readonly connection: number;
  /** What it calls itself. */
  readonly caller: string;
  /** `not CRI`: it asks for what else the runtime serves, as cAdvisor does of containerd. */
  readonly kind: 'kubelet' | 'not CRI' | 'other';
  readonly calls: number;
  readonly errors: number;
  readonly perMinute: number;
}

export interface Numbers {
  readonly fromMs: number;
  readonly toMs: number;
  readonly calls: number;
  readonly errors: number;
  readonly methods: readonly MethodNumbers[];
  /** By who asks, the most frequent first. */
  readonly askers: readonly { readonly asker: Asker; readonly calls: number; readonly perMinute: number }[];
  readonly callers: readonly CallerNumbers[];
  /** Callers that were too many to be told apart. */
  readonly callersLeftOut: number;
}

interface OfMethod {
  errors: number;
  calls: number;
  readonly durations: Histogram;
  readonly askers: Map<Asker, number>;
}

interface OfCaller {
  readonly connection: number;
  readonly caller: string;
  readonly isCri: boolean;
  calls: number;
  errors: number;
}

const MAX_CALLERS = 1_000;

/** Counts calls; what it holds does not grow with them. */
export class CallStatistics {
  readonly #who = new WhoAsks();
  readonly #methods = new Map<string, OfMethod>();
  readonly #callers = new Map<string, OfCaller>();
  #fromMs = Infinity;
  #toMs = -Infinity;
  #leftOut = 0;

  take(call: SeenCall): void {
    if (call.kind === 'event') return;
    const endMs = call.endMs ?? call.startMs;
    this.#fromMs = Math.min(this.#fromMs, call.startMs);
    this.#toMs = Math.max(this.#toMs, endMs);
    const of = this.#method(call.method);
    of.calls += 1;
    if (call.hasFailed) of.errors += 1;
    // A stream lasts as long as somebody listens: that is no time of an answer.
    if (call.endMs !== null && call.method !== 'GetContainerEvents') of.durations.add(endMs - call.startMs);
    const { asker, revision } = this.#who.of(call);
    add(of.askers, asker, 1);
    if (revision !== null) {
      const revised = this.#method(revision.method).askers;
      add(revised, revision.from, -1);
      add(revised, revision.to, 1);
    }
    this.#caller(call);
  }

  /** @param nowMs the end of the time that it is about; the last call's when absent */
  numbers(nowMs = this.#toMs): Numbers {
    const fromMs = Number.isFinite(this.#fromMs) ? this.#fromMs : nowMs;
    const toMs = Math.max(fromMs, Number.isFinite(nowMs) ? nowMs : fromMs);
    // Less than a second says nothing about a minute.
    const minutes = Math.max(toMs - fromMs, 1_000) / 60_000;
    const perMinute = (calls: number): number => Number((calls / minutes).toFixed(1));
    const askers = new Map<Asker, number>();
    const methods = [...this.#methods].map(([method, of]) => {
      for (const [asker, calls] of of.askers) add(askers, asker, calls);
      return {
        ...{ method, calls: of.calls, perMinute: perMinute(of.calls), errors: of.errors },
        ...{ p50Ms: round(of.durations.quantile(0.5)), p99Ms: round(of.durations.quantile(0.99)), maxMs: round(of.durations.maxMs) },
        askers: mostFirst(of.askers).map(([asker, calls]) => ({ asker, calls })),
      };
    });
    const sum = (what: 'calls' | 'errors'): number => methods.reduce((total, one) => total + one[what], 0);
    return {
      ...{ fromMs, toMs, calls: sum('calls'), errors: sum('errors') },
      methods: methods.sort((a, b) => b.calls - a.calls),
      askers: mostFirst(askers).map(([asker, calls]) => ({ asker, calls, perMinute: perMinute(calls) })),
      callers: [...this.#callers.values()]
        .sort((a, b) => b.calls - a.calls)
        .map(({ connection, caller, isCri: speaksCri, calls, errors }) => ({
          ...{ connection, caller, calls, errors, perMinute: perMinute(calls) },
          kind: this.#who.isKubelet(connection) ? 'kubelet' : speaksCri ? 'other' : 'not CRI',
        })),
      callersLeftOut: this.#leftOut,
    };
  }

  #method(name: string): OfMethod {
    let of = this.#methods.get(name);
    if (of === undefined) this.#methods.set(name, (of = { errors: 0, calls: 0, durations: new Histogram(), askers: new Map() }));
    return of;
  }

  #caller(call: SeenCall): void {
    const key = `${call.connection} ${call.caller}`;
    let of = this.#callers.get(key);
    if (of === undefined) {
      if (this.#callers.size >= MAX_CALLERS) {
        this.#leftOut += 1;
        return;
      }
      this.#callers.set(key, (of = { connection: call.connection, caller: call.caller, isCri: isCri(call), calls: 0, errors: 0 }));
    }
    of.calls += 1;
    if (call.hasFailed) of.errors += 1;
  }
}

function add(counts: Map<Asker, number>, asker: Asker, calls: number): void {
  const sum = (counts.get(asker) ?? 0) + calls;
  if (sum > 0) counts.set(asker, sum);
  else counts.delete(asker);
}

function mostFirst(counts: ReadonlyMap<Asker, number>): [Asker, number][] {
  return [...counts].sort(([, a], [, b]) => b - a);
}

function round(ms: number): number {
  return Number(ms.toFixed(3));
}
