import type { Difference } from './differences.ts';

interface Ordered {
  readonly name: string;
  readonly call: { readonly startMs: number; readonly endMs: number | null };
}

/** Calls out of order that are looked at closely; further ones of the same pod are not told. */
const MAX_LOOKED_AT = 100;

/** Indices of a longest rising part of `values`. */
function longestRising(values: readonly number[]): Set<number> {
  const ends: number[] = [];
  const before: number[] = [];
  for (const [at, value] of values.entries()) {
    let low = 0;
    let high = ends.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((values[ends[middle] as number] as number) < value) low = middle + 1;
      else high = middle;
    }
    before[at] = low === 0 ? -1 : (ends[low - 1] as number);
    ends[low] = at;
  }
  const out = new Set<number>();
  for (let at = ends.at(-1) ?? -1; at >= 0; at = before[at] as number) out.add(at);
  return out;
}

/** Whether one call was over before the other began. */
function isBefore(x: Ordered['call'], y: Ordered['call']): boolean {
  return x.endMs !== null && x.endMs <= y.startMs;
}

/**
 * Calls that both made, in another order: the fewest that stand elsewhere. Calls that overlap have no order, so a call
 * counts only when another was over before it began on one side and began after its end on the other.
 */
export function movedCalls(a: readonly Ordered[], b: readonly Ordered[]): Map<string, Difference> {
  const placeInB = new Map(b.map(({ name }, at) => [name, at]));
  const common = a.filter(({ name }) => placeInB.has(name));
  const rising = longestRising(common.map(({ name }) => placeInB.get(name) as number));
  const moved = new Map<string, Difference>();
  if (rising.size === common.length) return moved;
  const steady = common.filter((_, at) => rising.has(at));
  const inA = new Set(common.map(({ name }) => name));
  const commonB = b.filter(({ name }) => inA.has(name));
  let looked = 0;
  for (const [at, { name, call }] of common.entries()) {
    if (rising.has(at) || (looked += 1) > MAX_LOOKED_AT) continue;
    const inB = (b[placeInB.get(name) as number] as Ordered).call;
    const conflicts = steady.some((other) => {
      const otherInB = (b[placeInB.get(other.name) as number] as Ordered).call;
      return (isBefore(call, other.call) && isBefore(otherInB, inB)) || (isBefore(other.call, call) && isBefore(inB, otherInB));
    });
    if (!conflicts) continue;
    const before = (calls: readonly Ordered[], place: number): string => (place <= 0 ? 'first' : `after ${calls[place - 1]?.name}`);
    moved.set(name, {
      path: 'order',
      a: before(common, at),
      b: before(
        commonB,
        commonB.findIndex((other) => other.name === name),
      ),
    });
  }
  return moved;
}
