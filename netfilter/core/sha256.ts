/** SHA-256 (FIPS 180-4) and base32 (RFC 4648), since this room knows no platform. */

const ROUND = Int32Array.of(
  0x428a2f98,
  0x71374491,
  0xb5c0fbcf,
  0xe9b5dba5,
  0x3956c25b,
  0x59f111f1,
  0x923f82a4,
  0xab1c5ed5,
  0xd807aa98,
  0x12835b01,
  0x243185be,
  0x550c7dc3,
  0x72be5d74,
  0x80deb1fe,
  0x9bdc06a7,
  0xc19bf174,
  0xe49b69c1,
  0xefbe4786,
  0x0fc19dc6,
  0x240ca1cc,
  0x2de92c6f,
  0x4a7484aa,
  0x5cb0a9dc,
  0x76f988da,
  0x983e5152,
  0xa831c66d,
  0xb00327c8,
  0xbf597fc7,
  0xc6e00bf3,
  0xd5a79147,
  0x06ca6351,
  0x14292967,
  0x27b70a85,
  0x2e1b2138,
  0x4d2c6dfc,
  0x53380d13,
  0x650a7354,
  0x766a0abb,
  0x81c2c92e,
  0x92722c85,
  0xa2bfe8a1,
  0xa81a664b,
  0xc24b8b70,
  0xc76c51a3,
  0xd192e819,
  0xd6990624,
  0xf40e3585,
  0x106aa070,
  0x19a4c116,
  0x1e376c08,
  0x2748774c,
  0x34b0bcb5,
  0x391c0cb3,
  0x4ed8aa4a,
  0x5b9cca4f,
  0x682e6ff3,
  0x748f82ee,
  0x78a5636f,
  0x84c87814,
  0x8cc70208,
  0x90befffa,
  0xa4506ceb,
  0xbef9a3f7,
  0xc67178f2,
);

/** The text's bytes, where each character is one; null where one is not. */
function ascii(text: string): Uint8Array | null {
  const bytes = new Uint8Array(text.length);
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index);
    if (code >= 0x80) return null;
    bytes[index] = code;
  }
  return bytes;
}

export function utf8(text: string): Uint8Array {
  const plain = ascii(text);
  if (plain !== null) return plain;
  const bytes: number[] = [];
  for (const character of text) {
    const point = character.codePointAt(0)!;
    if (point < 0x80) bytes.push(point);
    else if (point < 0x800) bytes.push(0xc0 | (point >> 6), 0x80 | (point & 63));
    else if (point < 0x10000) bytes.push(0xe0 | (point >> 12), 0x80 | ((point >> 6) & 63), 0x80 | (point & 63));
    else bytes.push(0xf0 | (point >> 18), 0x80 | ((point >> 12) & 63), 0x80 | ((point >> 6) & 63), 0x80 | (point & 63));
  }
  return Uint8Array.from(bytes);
}

/** One block of the message, with the end mark and the length in bits where they belong. */
function load(schedule: Int32Array, message: Uint8Array, offset: number, isLast: boolean): void {
  schedule.fill(0, 0, 16);
  const end = Math.min(message.length, offset + 64);
  for (let index = offset; index < end; index++) schedule[(index >> 2) & 15]! |= message[index]! << (24 - 8 * (index & 3));
  if (message.length >= offset && message.length < offset + 64) schedule[(message.length >> 2) & 15]! |= 0x80 << (24 - 8 * (message.length & 3));
  if (isLast) schedule[15] = message.length * 8;
}

/**
 * One block's 64 rounds. Plain variables and no calls: names are hashed by the ten thousand when a proxy starts. It is
 * the one function that V8 may optimize there, told by its name in `node/frugal.ts`.
 */
function compress(state: Int32Array, schedule: Int32Array): void {
  let a = state[0]!;
  let b = state[1]!;
  let c = state[2]!;
  let d = state[3]!;
  let e = state[4]!;
  let f = state[5]!;
  let g = state[6]!;
  let h = state[7]!;
  for (let t = 0; t < 64; t++) {
    if (t > 15) {
      const w15 = schedule[t - 15]!;
      const w2 = schedule[t - 2]!;
      const s0 = ((w15 >>> 7) | (w15 << 25)) ^ ((w15 >>> 18) | (w15 << 14)) ^ (w15 >>> 3);
      const s1 = ((w2 >>> 17) | (w2 << 15)) ^ ((w2 >>> 19) | (w2 << 13)) ^ (w2 >>> 10);
      schedule[t] = (schedule[t - 16]! + s0 + schedule[t - 7]! + s1) | 0;
    }
    const big1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
    const t1 = (h + big1 + (g ^ (e & (f ^ g))) + ROUND[t]! + schedule[t]!) | 0;
    const big0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
    h = g;
    g = f;
    f = e;
    e = (d + t1) | 0;
    d = c;
    c = b;
    b = a;
    a = (t1 + big0 + ((b & c) | (d & (b | c)))) | 0;
  }
  state[0] = (state[0]! + a) | 0;
  state[1] = (state[1]! + b) | 0;
  state[2] = (state[2]! + c) | 0;
  state[3] = (state[3]! + d) | 0;
  state[4] = (state[4]! + e) | 0;
  state[5] = (state[5]! + f) | 0;
  state[6] = (state[6]! + g) | 0;
  state[7] = (state[7]! + h) | 0;
}

/** Room for one block, used anew by each: nothing of it outlives a call. */
const SCHEDULE = new Int32Array(64);

export function sha256(message: Uint8Array): Uint8Array {
  const state = Int32Array.of(0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19);
  const length = (message.length + 9 + 63) & ~63;
  for (let offset = 0; offset < length; offset += 64) {
    load(SCHEDULE, message, offset, offset + 64 === length);
    compress(state, SCHEDULE);
  }
  const digest = new Uint8Array(32);
  for (let index = 0; index < 32; index++) digest[index] = state[index >> 2]! >>> (24 - 8 * (index & 3));
  return digest;
}

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';

/** The first `length` characters of the unpadded base32 text. */
export function base32(bytes: Uint8Array, length: number): string {
  let text = '';
  let buffer = 0;
  let bits = 0;
  for (let index = 0; text.length < length && index < bytes.length; index++) {
    buffer = (buffer << 8) | bytes[index]!;
    bits += 8;
    while (bits >= 5 && text.length < length) {
      bits -= 5;
      text += ALPHABET[(buffer >> bits) & 31];
    }
    buffer &= (1 << bits) - 1;
  }
  return text;
}
