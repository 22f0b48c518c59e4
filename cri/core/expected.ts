import type { Difference } from './differences.ts';

/** A difference that is there, and may be: `path` as differences tell it; `*` stands for any text in both. */
export interface Known {
  readonly pod: string;
  readonly path: string;
  readonly reason: string;
  /** Depends on how fast a machine is: it may be there or not. */
  readonly sometimes?: boolean;
}

export interface Judged {
  readonly pod: string;
  readonly difference: Difference;
  /** Why it may be; null when nobody has said. */
  readonly reason: string | null;
}

/** A text in which `*` stands for any text. */
export function pattern(path: string): RegExp {
  return new RegExp(`^${path.replaceAll(/[.+?^${}()|[\]\\]/g, '\\$&').replaceAll('*', '.*')}$`, 's');
}

/** Finds reasons for differences; each known one is read once. */
export class Expectations<K extends Known> {
  readonly #known: readonly { readonly known: K; readonly pod: RegExp; readonly path: RegExp }[];
  readonly #used = new Set<K>();

  constructor(known: readonly K[]) {
    this.#known = known.map((one) => ({ known: one, pod: pattern(one.pod), path: pattern(one.path) }));
  }

  /** The reason why a difference may be; null when nobody has said. All that match it count as needed. */
  reasonFor(pod: string, path: string): string | null {
    let reason: string | null = null;
    for (const { known, pod: podPattern, path: pathPattern } of this.#known) {
      if (!podPattern.test(pod) || !pathPattern.test(path)) continue;
      this.#used.add(known);
      reason ??= known.reason;
    }
    return reason;
  }

  /** Those that have matched. */
  get used(): K[] {
    return this.#known.map(({ known }) => known).filter((known) => this.#used.has(known));
  }

  /** Known ones that are no more. */
  get stale(): K[] {
    return this.#known.map(({ known }) => known).filter((known) => !this.#used.has(known) && known.sometimes !== true);
  }
}

/** Differences with the reasons that are known for them, and known ones that are no more. */
export function judge(found: ReadonlyMap<string, readonly Difference[]>, known: readonly Known[]): { judged: Judged[]; stale: Known[] } {
  const expectations = new Expectations(known);
  const judged = [...found].flatMap(([pod, list]) =>
    list.map((difference): Judged => ({ pod, difference, reason: expectations.reasonFor(pod, difference.path) })),
  );
  return { judged, stale: expectations.stale };
}
