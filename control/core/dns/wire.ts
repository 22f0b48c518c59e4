/** DNS messages (RFC 1035) as far as a name server of a cluster needs them, with EDNS0 (RFC 6891). */

export const TYPE = { A: 1, NS: 2, CNAME: 5, SOA: 6, PTR: 12, TXT: 16, AAAA: 28, SRV: 33, OPT: 41, ANY: 255 } as const;
export const RCODE = { noError: 0, formatError: 1, serverFailure: 2, nameError: 3, notImplemented: 4, refused: 5 } as const;
export const CLASS_IN = 1;

export interface Question {
  /** Without the dot at the end, as it was asked. */
  name: string;
  type: number;
  class: number;
}

export type RecordData =
  | { type: 'A' | 'AAAA'; address: string }
  | { type: 'CNAME' | 'PTR' | 'NS'; target: string }
  | { type: 'SRV'; priority: number; weight: number; port: number; target: string }
  | { type: 'TXT'; text: string }
  | { type: 'SOA'; primary: string; mailbox: string; serial: number; refresh: number; retry: number; expire: number; minimum: number };

export interface ResourceRecord {
  name: string;
  ttl: number;
  data: RecordData;
}

export interface Query {
  id: number;
  opcode: number;
  isResponse: boolean;
  recursionDesired: boolean;
  questions: Question[];
  /** What the asker can take in one datagram; undefined without EDNS0. */
  udpSize: number | undefined;
}

export interface Response {
  rcode: number;
  authoritative: boolean;
  answers: ResourceRecord[];
  authority: ResourceRecord[];
  additional: ResourceRecord[];
}

const HEADER_BYTES = 12;
const MAX_NAME_BYTES = 255;
const OPT_BYTES = 11;
/** What we can take in one datagram, and send: below every usual path MTU. */
export const UDP_SIZE = 1232;

/** undefined for what is no DNS message; then nothing can be answered. */
export function decodeQuery(bytes: Uint8Array): Query | undefined {
  if (bytes.length < HEADER_BYTES) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const flags = view.getUint16(2);
  const query: Query = {
    id: view.getUint16(0),
    opcode: (flags >> 11) & 15,
    isResponse: flags >= 0x8000,
    recursionDesired: (flags & 0x0100) !== 0,
    questions: [],
    udpSize: undefined,
  };
  let offset = HEADER_BYTES;
  for (let count = view.getUint16(4); count > 0; count--) {
    const name = readName(bytes, offset);
    if (name === undefined || name.next + 4 > bytes.length) return { ...query, questions: [] };
    query.questions.push({ name: name.text, type: view.getUint16(name.next), class: view.getUint16(name.next + 2) });
    offset = name.next + 4;
  }
  const records = view.getUint16(6) + view.getUint16(8) + view.getUint16(10);
  for (let count = 0; count < records; count++) {
    const name = readName(bytes, offset);
    if (name === undefined || name.next + 10 > bytes.length) break;
    if (view.getUint16(name.next) === TYPE.OPT) query.udpSize = view.getUint16(name.next + 2);
    offset = name.next + 10 + view.getUint16(name.next + 8);
  }
  return query;
}

function readName(bytes: Uint8Array, start: number): { text: string; next: number } | undefined {
  const labels: string[] = [];
  let offset = start;
  let next: number | undefined;
  let length = 0;
  for (let jumps = 0; ;) {
    const size = bytes[offset];
    if (size === undefined) return undefined;
    if ((size & 0xc0) === 0xc0) {
      const low = bytes[offset + 1];
      // A pointer may only point back, and a chain of them must end.
      if (low === undefined || ++jumps > 32) return undefined;
      next ??= offset + 2;
      offset = ((size & 0x3f) << 8) | low;
      continue;
    }
    if ((size & 0xc0) !== 0) return undefined;
    if (size === 0) return { text: labels.join('.'), next: next ?? offset + 1 };
    length += size + 1;
    if (length > MAX_NAME_BYTES || offset + 1 + size > bytes.length) return undefined;
    labels.push(String.fromCharCode(...bytes.subarray(offset + 1, offset + 1 + size)));
    offset += 1 + size;
  }
}

/** One question, with the wish for recursion. */
export function encodeQuery(id: number, question: Question): Uint8Array {
  const writer = new Writer(UDP_SIZE);
  for (const value of [id, 0x0100, 1, 0, 0, 0]) writer.u16(value);
  writer.name(question.name);
  writer.u16(question.type);
  writer.u16(question.class);
  return writer.finish(true, 1);
}

/** The result code and the addresses and aliases among the answers of somebody else's response. */
export function decodeAnswers(bytes: Uint8Array): { rcode: number; answers: ResourceRecord[] } | undefined {
  if (bytes.length < HEADER_BYTES) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const answers: ResourceRecord[] = [];
  let offset = HEADER_BYTES;
  for (let count = view.getUint16(4); count > 0; count--) {
    const name = readName(bytes, offset);
    if (name === undefined) return undefined;
    offset = name.next + 4;
  }
  for (let count = view.getUint16(6); count > 0; count--) {
    const name = readName(bytes, offset);
    if (name === undefined || name.next + 10 > bytes.length) return undefined;
    const type = view.getUint16(name.next);
    const size = view.getUint16(name.next + 8);
    const start = name.next + 10;
    if (start + size > bytes.length) return undefined;
    const data = decodeData(bytes, type, start, size);
    if (data !== undefined) answers.push({ name: name.text, ttl: view.getUint32(name.next + 4), data });
    offset = start + size;
  }
  return { rcode: view.getUint16(2) & 15, answers };
}

function decodeData(bytes: Uint8Array, type: number, start: number, size: number): RecordData | undefined {
  const raw = bytes.subarray(start, start + size);
  if (type === TYPE.A && size === 4) return { type: 'A', address: raw.join('.') };
  if (type === TYPE.AAAA && size === 16) {
    return {
      type: 'AAAA',
      address: Array.from({ length: 8 }, (_, index) => (((raw[index * 2] ?? 0) << 8) | (raw[index * 2 + 1] ?? 0)).toString(16)).join(':'),
    };
  }
  const target = type === TYPE.CNAME ? readName(bytes, start) : undefined;
  return target === undefined ? undefined : { type: 'CNAME', target: target.text };
}

/** Records that do not fit into `limit` bytes are left out: additional ones silently, others with the truncation flag. */
export function encodeResponse(query: Query, response: Response, limit: number): Uint8Array {
  const writer = new Writer(limit - (query.udpSize === undefined ? 0 : OPT_BYTES));
  let flags = 0x8000 | (query.opcode << 11) | (query.recursionDesired ? 0x0100 : 0) | 0x0080 | response.rcode;
  if (response.authoritative) flags |= 0x0400;
  for (const value of [query.id, flags, query.questions.length, 0, 0, 0]) writer.u16(value);
  for (const question of query.questions) {
    writer.name(question.name);
    writer.u16(question.type);
    writer.u16(question.class);
  }
  const counts = [response.answers, response.authority, response.additional].map((section) => {
    let count = 0;
    for (const record of section) {
      if (!writer.record(record)) break;
      count++;
    }
    return count;
  });
  const isTruncated = counts[0] !== response.answers.length || counts[1] !== response.authority.length;
  const bytes = writer.finish(query.udpSize !== undefined);
  const view = new DataView(bytes.buffer);
  view.setUint16(2, isTruncated ? flags | 0x0200 : flags);
  view.setUint16(6, counts[0] ?? 0);
  view.setUint16(8, counts[1] ?? 0);
  view.setUint16(10, (counts[2] ?? 0) + (query.udpSize === undefined ? 0 : 1));
  return bytes;
}

class Writer {
  #bytes = new Uint8Array(512);
  #length = 0;
  readonly #limit: number;
  readonly #names = new Map<string, number>();

  constructor(limit: number) {
    this.#limit = limit;
  }

  u8(value: number): void {
    if (this.#length === this.#bytes.length) {
      const larger = new Uint8Array(this.#bytes.length * 2);
      larger.set(this.#bytes);
      this.#bytes = larger;
    }
    this.#bytes[this.#length++] = value;
  }

  u16(value: number): void {
    this.u8((value >> 8) & 255);
    this.u8(value & 255);
  }

  u32(value: number): void {
    this.u16((value >>> 16) & 0xffff);
    this.u16(value & 0xffff);
  }

  /** Ends that were written before are pointed at. */
  name(text: string): void {
    let rest = text;
    while (rest !== '') {
      const known = this.#names.get(rest.toLowerCase());
      if (known !== undefined) {
        this.u16(0xc000 | known);
        return;
      }
      if (this.#length < 0x4000) this.#names.set(rest.toLowerCase(), this.#length);
      const dot = rest.indexOf('.');
      const label = dot < 0 ? rest : rest.slice(0, dot);
      this.u8(label.length);
      for (const character of label) this.u8(character.charCodeAt(0) & 255);
      rest = dot < 0 ? '' : rest.slice(dot + 1);
    }
    this.u8(0);
  }

  /** False, and nothing written, when the record does not fit. */
  record({ name, ttl, data }: ResourceRecord): boolean {
    const start = this.#length;
    this.name(name);
    this.u16(TYPE[data.type]);
    this.u16(CLASS_IN);
    this.u32(ttl);
    const sizeAt = this.#length;
    this.u16(0);
    this.#data(data);
    if (this.#length > this.#limit) {
      this.#length = start;
      for (const [known, offset] of this.#names) if (offset >= start) this.#names.delete(known);
      return false;
    }
    const size = this.#length - sizeAt - 2;
    this.#bytes[sizeAt] = size >> 8;
    this.#bytes[sizeAt + 1] = size & 255;
    return true;
  }

  #data(data: RecordData): void {
    switch (data.type) {
      case 'A':
        for (const part of data.address.split('.')) this.u8(Number(part));
        return;
      case 'AAAA':
        for (const group of ipv6Groups(data.address)) this.u16(group);
        return;
      case 'CNAME':
      case 'PTR':
      case 'NS':
        this.name(data.target);
        return;
      case 'SRV':
        for (const value of [data.priority, data.weight, data.port]) this.u16(value);
        this.name(data.target);
        return;
      case 'TXT':
        this.u8(data.text.length);
        for (const character of data.text) this.u8(character.charCodeAt(0) & 255);
        return;
      case 'SOA':
        this.name(data.primary);
        this.name(data.mailbox);
        for (const value of [data.serial, data.refresh, data.retry, data.expire, data.minimum]) this.u32(value);
    }
  }

  finish(withOpt: boolean, additionalCount?: number): Uint8Array {
    if (additionalCount !== undefined) this.#bytes[HEADER_BYTES - 1] = additionalCount;
    if (withOpt) {
      this.u8(0);
      this.u16(TYPE.OPT);
      this.u16(UDP_SIZE);
      this.u32(0);
      this.u16(0);
    }
    return this.#bytes.slice(0, this.#length);
  }
}

/** The eight groups of an IPv6 address in any of its short forms. */
export function ipv6Groups(address: string): number[] {
  const [head = '', tail] = address.split('::');
  const parse = (part: string): number[] =>
    part === ''
      ? []
      : part.split(':').flatMap((group) => {
          if (!group.includes('.')) return [Number.parseInt(group, 16)];
          const [a = 0, b = 0, c = 0, d = 0] = group.split('.').map(Number);
          return [a * 256 + b, c * 256 + d];
        });
  const first = parse(head);
  const last = tail === undefined ? [] : parse(tail);
  return tail === undefined ? first : [...first, ...Array.from({ length: Math.max(0, 8 - first.length - last.length) }, () => 0), ...last];
}
