/** The UTF-8 bytes of a text. A half of a surrogate pair becomes U+FFFD, as everywhere outside JavaScript. */
export function utf8Bytes(text: string): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(text.length * 3);
  let at = 0;
  for (let index = 0; index < text.length; index++) {
    let code = text.charCodeAt(index);
    if (code < 0x80) {
      bytes[at++] = code;
      continue;
    }
    if (code >= 0xd800 && code < 0xe000) {
      code = text.codePointAt(index)!;
      if (code > 0xffff) index += 1;
      else code = 0xfffd;
    }
    if (code >= 0x800) {
      if (code >= 0x10000) {
        bytes[at++] = 0xf0 | (code >> 18);
        bytes[at++] = 0x80 | ((code >> 12) & 0x3f);
      } else bytes[at++] = 0xe0 | (code >> 12);
      bytes[at++] = 0x80 | ((code >> 6) & 0x3f);
    } else bytes[at++] = 0xc0 | (code >> 6);
    bytes[at++] = 0x80 | (code & 0x3f);
  }
  return bytes.slice(0, at);
}

/** Characters that are made into text at once; as many arguments as a call may safely have. */
const runMax = 4096;

/** Text of UTF-8 bytes; what is no UTF-8 becomes U+FFFD. */
export function utf8Text(bytes: Uint8Array): string {
  let text = '';
  for (let index = 0; index < bytes.length;) {
    let end = index;
    while (end < bytes.length && end - index < runMax && bytes[end]! < 0x80) end++;
    if (end > index) {
      text += ascii(bytes.subarray(index, end));
      index = end;
      continue;
    }
    const lead = bytes[index]!;
    const length = lead >= 0xf0 && lead < 0xf5 ? 4 : lead >= 0xe0 && lead < 0xf0 ? 3 : lead >= 0xc2 && lead < 0xe0 ? 2 : 0;
    const tail = bytes.subarray(index + 1, index + length);
    const whole = length > 0 && tail.length === length - 1 && tail.every((byte) => (byte & 0xc0) === 0x80);
    if (!whole) {
      text += '\ufffd';
      index += 1;
      continue;
    }
    let code = lead & (0xff >> (length + 1));
    for (const byte of tail) code = (code << 6) | (byte & 0x3f);
    text += String.fromCodePoint(code);
    index += length;
  }
  return text;
}

/** Spreading a typed array goes element by element through its iterator, ten times as slow as handing it over whole. */
function ascii(run: Uint8Array): string {
  return Reflect.apply(String.fromCharCode, null, run as unknown as number[]);
}
