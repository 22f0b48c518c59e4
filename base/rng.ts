import { assert } from './assert.ts';

/** Chance as the program sees it. Real in `main.ts`, seeded in tests. */
export interface Rng {
  /** A number in [0, 1). */
  float(): number;
  /** An integer in [0, below). */
  int(below: number): number;
  /** One of `items`; asserts that there is one. */
  pick<T>(items: readonly T[]): T;
  bytes(count: number): Uint8Array;
  /** RFC 4122 version 4, lower case. */
  uuid(): string;
  /** `length` characters of the alphabet that generateName uses (no vowels, no look-alikes). */
  suffix(length: number): string;
}

const SUFFIX_ALPHABET = 'bcdfghjklmnpqrstvwxz2456789';

function fromWords(nextWord: () => number): Rng {
  const float = (): number => nextWord() / 2 ** 32;
  const int = (below: number): number => {
    assert(Number.isSafeInteger(below) && below > 0 && below <= 2 ** 32, `rng: cannot draw below ${below}`);
    return Math.floor(float() * below);
  };
  const pick = <T>(items: readonly T[]): T => {
    assert(items.length > 0, 'rng: nothing to pick from');
    return items[int(items.length)] as T;
  };
  const bytes = (count: number): Uint8Array => Uint8Array.from({ length: count }, () => nextWord() >>> 24);
  return {
    float,
    int,
    pick,
    bytes,
    uuid() {
      const raw = bytes(16);
      raw[6] = ((raw[6] ?? 0) & 0x0f) | 0x40;
      raw[8] = ((raw[8] ?? 0) & 0x3f) | 0x80;
      const hex = Buffer.from(raw).toString('hex');
      return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
    },
    suffix: (length) => Array.from({ length }, () => SUFFIX_ALPHABET.charAt(int(SUFFIX_ALPHABET.length))).join(''),
  };
}

/** The same seed gives the same numbers for ever; not for secrets. */
export function seededRng(seed: number): Rng {
  // splitmix32: one 32-bit word of state, passes the usual statistical batteries.
  let state = seed | 0;
  return fromWords(() => {
    state = (state + 0x9e3779b9) | 0;
    let word = state ^ (state >>> 16);
    word = Math.imul(word, 0x21f0aaad);
    word ^= word >>> 15;
    word = Math.imul(word, 0x735a2d97);
    return (word ^ (word >>> 15)) >>> 0;
  });
}

/** From the kernel's generator; good for UIDs and secrets. What it comes from is loaded at the first draw: OpenSSL takes a small daemon 3 MiB. */
export const realRng: Rng = (() => {
  let pool = Buffer.alloc(0);
  let used = 0;
  return fromWords(() => {
    if (used + 4 > pool.length) {
      pool = process.getBuiltinModule('node:crypto').randomBytes(256);
      used = 0;
    }
    const word = pool.readUInt32LE(used);
    used += 4;
    return word;
  });
})();
