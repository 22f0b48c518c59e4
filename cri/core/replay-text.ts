import type { Difference } from './differences.ts';
import { shown } from './shown.ts';
import { tableText } from './table.ts';

/** One call of a replay beside what was recorded. */
export interface ComparedCall {
  readonly method: string;
  readonly subject: string;
  readonly recorded: { readonly status: string; readonly durationMs: number };
  readonly seen: { readonly status: string; readonly message: string; readonly durationMs: number };
  /** Fields of the answer; `a` recorded, `b` seen. */
  readonly differences: readonly Difference[];
  readonly matched: boolean;
}

interface MethodTally {
  readonly method: string;
  readonly calls: number;
  readonly differ: number;
  /** Medians, milliseconds. */
  readonly recordedMs: number;
  readonly seenMs: number;
}

const MAX_SAMPLES = 10_000;

function median(samples: readonly number[]): number {
  return samples.toSorted((a, b) => a - b)[samples.length >> 1] ?? 0;
}

/** Counts of a replay, by method. */
export class Tally {
  readonly #methods = new Map<string, { calls: number; differ: number; recorded: number[]; seen: number[] }>();
  readonly #skipped = new Map<string, number>();
  #made = 0;
  #differ = 0;

  add({ method, recorded, seen, matched }: ComparedCall): void {
    const one = this.#methods.get(method) ?? { calls: 0, differ: 0, recorded: [], seen: [] };
    this.#methods.set(method, one);
    one.calls += 1;
    this.#made += 1;
    if (!matched) {
      one.differ += 1;
      this.#differ += 1;
    }
    if (one.recorded.length >= MAX_SAMPLES) return;
    one.recorded.push(recorded.durationMs);
    one.seen.push(seen.durationMs);
  }

  skip(method: string, why: string): void {
    const key = `${why} (${method})`;
    this.#skipped.set(key, (this.#skipped.get(key) ?? 0) + 1);
  }

  progress(): string {
    return `${this.#made} calls made, ${this.#differ} differ`;
  }

  summary(): { made: number; differ: number; notReplayed: number; methods: MethodTally[]; reasons: Record<string, number> } {
    return {
      made: this.#made,
      differ: this.#differ,
      notReplayed: [...this.#skipped.values()].reduce((sum, count) => sum + count, 0),
      methods: [...this.#methods]
        .map(([method, { calls, differ, recorded, seen }]) => ({ method, calls, differ, recordedMs: round(median(recorded)), seenMs: round(median(seen)) }))
        .sort((a, b) => (a.method < b.method ? -1 : 1)),
      reasons: Object.fromEntries(this.#skipped),
    };
  }

  text(): string {
    const { made, differ, notReplayed, methods, reasons } = this.summary();
    const table = tableText(
      ['METHOD', 'CALLS', 'DIFFER', 'RECORDED P50', 'SEEN P50'],
      methods.map((one) => [one.method, String(one.calls), String(one.differ), `${one.recordedMs} ms`, `${one.seenMs} ms`]),
    );
    const left = Object.entries(reasons).map(([why, count]) => `  ${count} not made again: ${shown(why)}\n`);
    return `${table}${made} calls made, ${differ} differ${notReplayed === 0 ? '' : `, ${notReplayed} not made again`}\n${left.join('')}`;
  }
}

function round(ms: number): number {
  return Number(ms.toFixed(1));
}

/** `RunPodSandbox  default/web  OK 312.0 ms → Unknown 20.1 ms: no network`. */
export function callLine({ method, subject, recorded, seen }: ComparedCall): string {
  const words = (one: { status: string; durationMs: number }): string => `${one.status} ${round(one.durationMs)} ms`;
  return shown(
    `${method.padEnd(20)} ${subject === '' ? '' : `${subject}  `}${words(recorded)} → ${words(seen)}${seen.message === '' ? '' : `: ${seen.message}`}`,
  );
}

/** One line for each field that differs, each with its end. */
export function differenceLines({ differences }: ComparedCall): string[] {
  const short = (value: unknown): string => (value === undefined ? '–' : JSON.stringify(value).slice(0, 200));
  return differences.map(({ path, a, b }) => `  ${shown(`${path}: ${short(a)} → ${short(b)}`)}\n`);
}
