/** The base64 of each block of a PEM text, whatever its label: headers and what stands between blocks are dropped. */
export function pemBodies(text: string): string[] {
  const bodies: string[] = [];
  for (const [, , inside = ''] of text.matchAll(/^-----BEGIN ([^\n]*?)-----[ \t\r]*\n([^]*?)^-----END \1-----/gm)) {
    // Headers end with an empty line (RFC 1421).
    const body = /^[^\n:]+:/.test(inside) ? inside.replace(/^[^]*?\n[ \t\r]*\n/, '') : inside;
    const base64 = body.replaceAll(/\s/g, '');
    if (base64 !== '' && base64.length % 4 === 0 && /^[A-Za-z0-9+/]+={0,2}$/.test(base64)) bodies.push(base64);
  }
  return bodies;
}

/** One PEM block, in lines of 64 characters. */
export function pemBlock(label: string, base64: string): string {
  return `-----BEGIN ${label}-----\n${base64.replaceAll(/.{64}(?=.)/g, '$&\n')}\n-----END ${label}-----\n`;
}
