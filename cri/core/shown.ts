const UNSEEN = /[\p{Cc}\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu;
const PICTURES = 0x2400;

function picture(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  if (code < 0x20) return String.fromCodePoint(PICTURES + code);
  return code === 0x7f ? '␡' : `\\u${code.toString(16).padStart(4, '0')}`;
}

/**
 * Words of a caller, a runtime or somebody's recording as they may be printed: in one line, and with nothing in them that
 * a terminal would obey or that would turn the direction of what follows.
 */
export function shown(text: string): string {
  return text.replaceAll(/\s*[\r\n]\s*/g, ' ').replaceAll(UNSEEN, picture);
}
