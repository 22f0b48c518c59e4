import type { Protocol } from './names.ts';
import { endpointMap } from './nft-table.ts';
import type { SetSpec } from './ops.ts';

/**
 * Places in maps that many Services share. A chain with n endpoints owns n numbers in a row of one map, and its rule
 * draws one of them. An own anonymous map for each chain would have to be found by its name in a line of all sets
 * whenever a rule is written; and one map for all is walked by the kernel, elements and users, whenever a rule that
 * uses it is written. Maps of a few hundred elements keep both short.
 */

/** How many numbers one map has; a longer range has a map of its own. */
export const MAP_SIZE = 512;

export interface Range {
  map: SetSpec;
  first: number;
  count: number;
}

export class Slots {
  readonly #ranges = new Map<string, Range>();
  /** Ranges that were given back, by protocol and length. */
  readonly #free = new Map<string, Range[]>();
  /** Where the next range of a protocol begins. */
  readonly #open = new Map<Protocol, { map: SetSpec; next: number }>();
  #nextMap: number;

  /** @param firstMap the number of the first map; lower ones may be in use by rules that somebody else left */
  constructor(firstMap = 0) {
    this.#nextMap = firstMap;
  }

  /** The range of a chain; it stays while the count stays. */
  take(chain: string, protocol: Protocol, count: number): Range {
    const known = this.#ranges.get(chain);
    if (known?.count === count) return known;
    this.release(chain);
    const range = this.#free.get(freeKey(protocol, count))?.pop() ?? this.#newRange(protocol, count);
    this.#ranges.set(chain, range);
    return range;
  }

  #newRange(protocol: Protocol, count: number): Range {
    let open = this.#open.get(protocol);
    if (open === undefined || open.next + count > MAP_SIZE) {
      open = { map: endpointMap(protocol, this.#nextMap++), next: 0 };
      if (count <= MAP_SIZE) this.#open.set(protocol, open);
    }
    const range = { map: open.map, first: open.next, count };
    open.next += count;
    return range;
  }

  release(chain: string): void {
    const known = this.#ranges.get(chain);
    if (known === undefined) return;
    this.#ranges.delete(chain);
    const key = freeKey(known.map.targets!, known.count);
    const free = this.#free.get(key);
    if (free === undefined) this.#free.set(key, [known]);
    else free.push(known);
  }
}

function freeKey(protocol: Protocol, count: number): string {
  return `${protocol} ${count}`;
}

/** Which map a new owner may begin with, so that no rule that is there draws from one of the new ones. */
export function firstFreeMap(taken: readonly number[]): number {
  return taken.length === 0 ? 0 : taken.reduce((highest, number) => Math.max(highest, number), 0) + 1;
}
