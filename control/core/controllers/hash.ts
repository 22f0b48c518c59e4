import type { PodTemplateSpec } from '../../../proto/kube/types.ts';
import { canonicalJson } from './equal.ts';

/** FNV-1a over the UTF-8 bytes of `text`, 32 bits, unsigned. */
export function fnv32a(text: string): number {
  let hash = 0x811c9dc5;
  for (const byte of utf8(text)) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  return hash;
}

function* utf8(text: string): Generator<number> {
  for (const character of text) {
    const point = character.codePointAt(0) ?? 0;
    if (point < 0x80) yield point;
    else if (point < 0x800) yield* [0xc0 | (point >> 6), 0x80 | (point & 63)];
    else if (point < 0x10000) yield* [0xe0 | (point >> 12), 0x80 | ((point >> 6) & 63), 0x80 | (point & 63)];
    else yield* [0xf0 | (point >> 18), 0x80 | ((point >> 12) & 63), 0x80 | ((point >> 6) & 63), 0x80 | (point & 63)];
  }
}

/** The letters of generated names: no vowels, so that no words come out by chance. */
export const SAFE_LETTERS = 'bcdfghjklmnpqrstvwxz2456789';

/** Spells decimal digits in the letters of generated names. */
export function safeEncode(digits: string): string {
  return Array.from(digits, (digit) => SAFE_LETTERS[digit.charCodeAt(0) % SAFE_LETTERS.length]).join('');
}

/**
 * The pod-template-hash of a template. The same template always gives the same hash; the value differs from
 * upstream's, which hashes a dump of Go structs.
 */
export function templateHash(template: PodTemplateSpec, collisionCount: number | undefined): string {
  const salt = collisionCount === undefined || collisionCount === 0 ? '' : `#${collisionCount}`;
  return safeEncode(String(fnv32a(canonicalJson(template) + salt)));
}
