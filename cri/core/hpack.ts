import { huffmanText } from './huffman.ts';

export type Header = readonly [name: string, value: string];

/** RFC 7541, appendix A; index 1 is the first. */
const STATIC: readonly Header[] = [
  [':authority', ''],
  [':method', 'GET'],
  [':method', 'POST'],
  [':path', '/'],
  [':path', '/index.html'],
  [':scheme', 'http'],
  [':scheme', 'https'],
  [':status', '200'],
  [':status', '204'],
  [':status', '206'],
  [':status', '304'],
  [':status', '400'],
  [':status', '404'],
  [':status', '500'],
  ['accept-charset', ''],
  ['accept-encoding', 'gzip, deflate'],
  ...[
    'accept-language accept-ranges accept access-control-allow-origin age allow authorization cache-control',
    'content-disposition content-encoding content-language content-length content-location content-range content-type',
    'cookie date etag expect expires from host if-match if-modified-since if-none-match if-range if-unmodified-since',
    'last-modified link location max-forwards proxy-authenticate proxy-authorization range referer refresh retry-after',
    'server set-cookie strict-transport-security transfer-encoding user-agent vary via www-authenticate',
  ]
    .join(' ')
    .split(' ')
    .map((name): Header => [name, '']),
];

/** What an entry counts beside its text. */
const ENTRY_BYTES = 32;
const DEFAULT_TABLE_BYTES = 4096;
/** A larger table than this is not followed: memory is bounded whatever the two sides agree on. */
const MAX_TABLE_BYTES = 1 << 20;
/** A header list whose text is longer is not followed either: a small block can name one large entry many times. */
const MAX_LIST_BYTES = 4 << 20;

/** Why a header block cannot be read. From then on the table is unknown, and with it every later block. */
export class HpackError extends Error {
  override readonly name = 'HpackError';
}

/** One direction's header compression: blocks have to be read in order, and all of them. */
export class HpackDecoder {
  /** Newest last: index 62 is the end. */
  readonly #table: Header[] = [];
  #tableBytes = 0;
  #maxBytes = DEFAULT_TABLE_BYTES;
  #block: Uint8Array = new Uint8Array(0);
  #at = 0;

  /** The headers of a whole block (HEADERS or PUSH_PROMISE with its CONTINUATIONs). Throws HpackError. */
  read(block: Uint8Array): Header[] {
    this.#block = block;
    this.#at = 0;
    const headers: Header[] = [];
    let listBytes = 0;
    while (this.#at < block.length) {
      const byte = block[this.#at] ?? 0;
      if ((byte & 0xe0) === 0x20) {
        this.#resize(this.#integer(5));
        continue;
      }
      let header: Header;
      if ((byte & 0x80) !== 0) header = this.#entry(this.#integer(7));
      else {
        const indexed = (byte & 0x40) !== 0;
        const index = this.#integer(indexed ? 6 : 4);
        const name = index === 0 ? this.#text() : this.#entry(index)[0];
        header = [name, this.#text()];
        if (indexed) this.#add(header);
      }
      listBytes += header[0].length + header[1].length;
      if (listBytes > MAX_LIST_BYTES) throw new HpackError(`a header list of more than ${MAX_LIST_BYTES} bytes`);
      headers.push(header);
    }
    return headers;
  }

  #integer(prefixBits: number): number {
    const mask = (1 << prefixBits) - 1;
    let value = (this.#block[this.#at++] ?? 0) & mask;
    if (value < mask) return value;
    for (let scale = 1; ; scale *= 128) {
      const byte = this.#block[this.#at++];
      if (byte === undefined) throw new HpackError('a header block ends within a number');
      value += (byte & 0x7f) * scale;
      if (value > 0x7fffffff) throw new HpackError('a number in a header block is too large');
      if (byte < 0x80) return value;
    }
  }

  #text(): string {
    const coded = ((this.#block[this.#at] ?? 0) & 0x80) !== 0;
    const length = this.#integer(7);
    const end = this.#at + length;
    if (end > this.#block.length) throw new HpackError('a header block ends within a text');
    const bytes = this.#block.subarray(this.#at, end);
    this.#at = end;
    if (!coded) return latin1(bytes);
    const text = huffmanText(bytes);
    if (text === null) throw new HpackError('a text in a header block is no Huffman code');
    return text;
  }

  #entry(index: number): Header {
    const found = index <= STATIC.length ? STATIC[index - 1] : this.#table[this.#table.length - (index - STATIC.length)];
    if (found === undefined) throw new HpackError(`header index ${index} stands for nothing`);
    return found;
  }

  #resize(bytes: number): void {
    if (bytes > MAX_TABLE_BYTES) throw new HpackError(`a header table of ${bytes} bytes`);
    this.#maxBytes = bytes;
    this.#evict();
  }

  #add(header: Header): void {
    this.#table.push(header);
    this.#tableBytes += sizeOf(header);
    this.#evict();
  }

  #evict(): void {
    while (this.#tableBytes > this.#maxBytes) {
      const gone = this.#table.shift();
      if (gone === undefined) return;
      this.#tableBytes -= sizeOf(gone);
    }
  }
}

function sizeOf([name, value]: Header): number {
  return name.length + value.length + ENTRY_BYTES;
}

/** One character a byte. */
export function latin1(bytes: Uint8Array): string {
  let out = '';
  for (let at = 0; at < bytes.length; at += 4096) out += String.fromCharCode(...bytes.subarray(at, at + 4096));
  return out;
}
