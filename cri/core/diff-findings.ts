import type { ComparedCall, ComparedPod } from './compare-pods.ts';
import type { Difference } from './differences.ts';
import { pattern, type Expectations, type Known } from './expected.ts';

/** One difference, as an expectation file names it. */
export interface Finding extends Difference {
  readonly pod: string;
  /** The call's part of `path`; empty when it is about no call. */
  readonly call: string;
  /** Why it may be; null when nobody has said, and when nobody was asked. */
  readonly reason: string | null;
  /** Told only when all are asked for. */
  readonly byNature: boolean;
}

/** A call, or a pod, that only one has. */
export const MADE = 'made';

function ofCall({ name, a, b, differences, byNature }: ComparedCall): (Difference & { call: string; byNature: boolean })[] {
  if (a === null || b === null) return [{ call: name, path: name, a: a === null ? undefined : MADE, b: b === null ? undefined : MADE, byNature: false }];
  return [
    ...differences.map((found) => ({ ...found, call: name, path: `${name}.${found.path}`, byNature: false })),
    ...byNature.map((found) => ({ ...found, call: name, path: `${name}.${found.path}`, byNature: true })),
  ];
}

/** Decides which differences are left out, and which are known. */
export class Findings {
  readonly #ignored: readonly RegExp[];
  readonly #expectations: Expectations<Known> | null;

  /** @param ignore paths, of the call's request or whole; `*` stands for any text */
  constructor(ignore: readonly string[], expectations: Expectations<Known> | null) {
    this.#ignored = ignore.map((path) => pattern(path));
    this.#expectations = expectations;
  }

  /** All in which the two differ about one pod. */
  of(pod: ComparedPod): Finding[] {
    const alone = pod.a === null || pod.b === null;
    const found = alone
      ? [{ call: '', path: 'pod', a: pod.a === null ? undefined : MADE, b: pod.b === null ? undefined : MADE, byNature: false }]
      : [...pod.attempts.map((each) => ({ ...each, call: '', byNature: false })), ...[...pod.calls, ...pod.looks].flatMap(ofCall)];
    return found.flatMap((each) => {
      const field = each.call === '' ? each.path : each.path.slice(each.call.length + 1);
      if (this.#ignored.some((ignored) => ignored.test(each.path) || (field !== '' && ignored.test(field)))) return [];
      const reason = each.byNature ? null : (this.#expectations?.reasonFor(pod.name, each.path) ?? null);
      return [{ ...each, pod: pod.name, reason }];
    });
  }
}
