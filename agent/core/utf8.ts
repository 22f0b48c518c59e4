/** The UTF-8 bytes of a text. */
export function utf8Bytes(text: string): number[] {
  const bytes: number[] = [];
  for (const char of text) {
    const code = char.codePointAt(0)!;
    if (code < 0x80) bytes.push(code);
    else if (code < 0x800) bytes.push(0xc0 | (code >> 6), 0x80 | (code & 0x3f));
    else if (code < 0x10000) bytes.push(0xe0 | (code >> 12), 0x80 | ((code >> 6) & 0x3f), 0x80 | (code & 0x3f));
    else bytes.push(0xf0 | (code >> 18), 0x80 | ((code >> 12) & 0x3f), 0x80 | ((code >> 6) & 0x3f), 0x80 | (code & 0x3f));
  }
  return bytes;
}

/** Text of UTF-8 bytes; what is no UTF-8 becomes U+FFFD. */
export function utf8Text(bytes: readonly number[]): string {
  let text = '';
  for (let index = 0; index < bytes.length;) {
    const lead = bytes[index]!;
    const length = lead < 0x80 ? 1 : lead >= 0xf0 && lead < 0xf5 ? 4 : lead >= 0xe0 && lead < 0xf0 ? 3 : lead >= 0xc2 && lead < 0xe0 ? 2 : 0;
    const tail = bytes.slice(index + 1, index + length);
    const whole = length > 0 && tail.length === length - 1 && tail.every((byte) => (byte & 0xc0) === 0x80);
    if (!whole) {
      text += '\ufffd';
      index += 1;
      continue;
    }
    let code = length === 1 ? lead : lead & (0xff >> (length + 1));
    for (const byte of tail) code = (code << 6) | (byte & 0x3f);
    text += String.fromCodePoint(code);
    index += length;
  }
  return text;
}
