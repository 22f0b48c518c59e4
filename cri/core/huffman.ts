/** Bits of each byte's code (RFC 7541, appendix B). The code is canonical, so the lengths say all of it. */
// prettier-ignore
const LENGTHS: readonly number[] = [
  13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
  6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
  13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
  15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
  20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
  22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
  26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
  20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];
const LONGEST = 30;

/** By length: the first code of that length, how many there are, and the bytes they stand for. */
const first: number[] = [];
const symbols: number[][] = Array.from({ length: LONGEST + 1 }, () => []);
for (const [symbol, length] of LENGTHS.entries()) symbols[length]?.push(symbol);
for (let length = 0, code = 0; length <= LONGEST; length++) {
  first[length] = code;
  code = (code + (symbols[length]?.length ?? 0)) * 2;
}

/** The text of a Huffman-coded string, one character a byte; null when it is not one. */
export function huffmanText(bytes: Uint8Array): string | null {
  let out = '';
  let code = 0;
  let length = 0;
  for (const byte of bytes) {
    for (let bit = 7; bit >= 0; bit--) {
      code = code * 2 + ((byte >> bit) & 1);
      length += 1;
      if (length > LONGEST) return null;
      const found = symbols[length]?.[code - (first[length] ?? 0)];
      if (found === undefined) continue;
      out += String.fromCharCode(found);
      code = 0;
      length = 0;
    }
  }
  // What is left is padding: fewer than eight bits, all ones.
  return length < 8 && code === 2 ** length - 1 ? out : null;
}
