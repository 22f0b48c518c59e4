/**
 * Numbers in the one map of endpoints that all Services share. A chain with n endpoints owns n numbers in a row, and
 * its rule draws one of them. An own anonymous map for each Service would have to be found by its name among all sets
 * of the table whenever a rule is written, which makes a large table slow to change.
 */
export class Slots {
  readonly #ranges = new Map<string, { first: number; count: number }>();
  /** First numbers of ranges that were given back, by their length. */
  readonly #free = new Map<number, number[]>();
  #next: number;

  constructor(first = 0) {
    this.#next = first;
  }

  /** The first number of a chain's range; it stays while the count stays. */
  take(chain: string, count: number): number {
    const known = this.#ranges.get(chain);
    if (known?.count === count) return known.first;
    this.release(chain);
    let first = this.#free.get(count)?.pop();
    if (first === undefined) {
      first = this.#next;
      this.#next += count;
    }
    this.#ranges.set(chain, { first, count });
    return first;
  }

  release(chain: string): void {
    const known = this.#ranges.get(chain);
    if (known === undefined) return;
    this.#ranges.delete(chain);
    const free = this.#free.get(known.count);
    if (free === undefined) this.#free.set(known.count, [known.first]);
    else free.push(known.first);
  }
}

/** Where a new owner may begin, so that no rule that somebody else left draws a number of the new ones. */
export function firstFree(taken: Iterable<string>, needed: number): number {
  let lowest = Infinity;
  let highest = -1;
  for (const text of taken) {
    const number = Number(text);
    if (number < lowest) lowest = number;
    if (number > highest) highest = number;
  }
  return lowest >= needed ? 0 : highest + 1;
}
