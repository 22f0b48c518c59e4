const DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';

function base64(bytes: Uint8Array): string {
  let text = '';
  for (let at = 0; at < bytes.length; at += 3) {
    const [a = 0, b = 0, c = 0] = bytes.subarray(at, at + 3);
    const word = (a << 16) | (b << 8) | c;
    for (let digit = 0; digit < 4; digit++) text += at + digit > bytes.length ? '=' : (DIGITS[(word >> (18 - 6 * digit)) & 63] ?? '');
  }
  return text;
}

/** A message as JSON has it: bytes as base64; everything else is JSON already. A copy where it differs. */
export function plainJson(value: unknown): unknown {
  if (value instanceof Uint8Array) return base64(value);
  if (Array.isArray(value)) return value.map(plainJson);
  if (value !== null && typeof value === 'object') return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, plainJson(member)]));
  return value;
}
