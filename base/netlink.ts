/** Netlink messages: headers in the machine's byte order (little-endian on every machine this runs on), attributes padded to 4. */

export const NLM_F_REQUEST = 0x1;
export const NLM_F_ACK = 0x4;
export const NLM_F_DUMP = 0x300;
export const NLM_F_CREATE = 0x400;
export const NLM_F_APPEND = 0x800;

export const NLMSG_ERROR = 2;
export const NLMSG_DONE = 3;

export const NLM_F_EXCL = 0x200;
export const NLM_F_REPLACE = 0x100;

const HEADER = 16;
const NESTED = 0x8000;
const encoder = new TextEncoder();
const TYPE_MASK = 0x3fff;

/** Grows as needed; messages and nested attributes are closed by writing their length afterwards. */
export class MessageWriter {
  #bytes: Uint8Array;
  #view: DataView;
  #length = 0;

  constructor(capacity = 4096) {
    this.#bytes = new Uint8Array(capacity);
    this.#view = new DataView(this.#bytes.buffer);
  }

  #reserve(count: number): number {
    const at = this.#length;
    if (at + count > this.#bytes.length) {
      const grown = new Uint8Array(Math.max(this.#bytes.length * 2, at + count));
      grown.set(this.#bytes);
      this.#bytes = grown;
      this.#view = new DataView(grown.buffer);
    }
    this.#length = at + count;
    return at;
  }

  /** A netlink header and an nfnetlink header; ends with `end(token)`. */
  begin(type: number, flags: number, seq: number, family: number, resource = 0): number {
    const at = this.#reserve(HEADER + 4);
    this.#view.setUint16(at + 4, type, true);
    this.#view.setUint16(at + 6, flags, true);
    this.#view.setUint32(at + 8, seq, true);
    this.#view.setUint8(at + 16, family);
    this.#view.setUint16(at + 18, resource);
    return at;
  }

  /** A netlink header and a header of another family than netfilter's, as bytes; ends with `end(token)`. */
  open(type: number, flags: number, seq: number, header: Uint8Array): number {
    const at = this.#reserve(HEADER + ((header.length + 3) & ~3));
    this.#view.setUint16(at + 4, type, true);
    this.#view.setUint16(at + 6, flags, true);
    this.#view.setUint32(at + 8, seq, true);
    this.#bytes.set(header, at + HEADER);
    return at;
  }

  /** Bytes as they are, padded to 4: a family's header inside an attribute, or attributes that were written before. Returns where they begin. */
  raw(value: Uint8Array): number {
    const at = this.#reserve((value.length + 3) & ~3);
    this.#bytes.set(value, at);
    return at;
  }

  /** What is written so far, to be written over; another one once more was written. */
  get buffer(): Uint8Array {
    return this.#bytes;
  }

  /** Writes over what was written before, a number as netfilter wants it. */
  patchU32(at: number, value: number): void {
    this.#view.setUint32(at, value);
  }

  /** Forgets all, and keeps the room. */
  clear(): void {
    this.#bytes.fill(0, 0, this.#length);
    this.#length = 0;
  }

  end(token: number): void {
    this.#view.setUint32(token, this.#length - token, true);
  }

  /** Adds flags to the message that `token` begins. */
  addFlags(token: number, flags: number): void {
    this.#view.setUint16(token + 6, this.#view.getUint16(token + 6, true) | flags, true);
  }

  nest(type: number): number {
    const at = this.#reserve(4);
    this.#view.setUint16(at + 2, type | NESTED, true);
    return at;
  }

  unnest(token: number): void {
    this.#view.setUint16(token, this.#length - token, true);
  }

  #attribute(type: number, length: number): number {
    const at = this.#reserve(4 + ((length + 3) & ~3));
    this.#view.setUint16(at, 4 + length, true);
    this.#view.setUint16(at + 2, type, true);
    return at + 4;
  }

  bytes(type: number, value: Uint8Array): void {
    const at = this.#attribute(type, value.length);
    this.#bytes.set(value, at);
  }

  /** An attribute of zeros, to be written over; returns where they begin. */
  room(type: number, length: number): number {
    return this.#attribute(type, length);
  }

  u8(type: number, value: number): void {
    // The buffer may be replaced while room is made, so that comes first.
    const at = this.#attribute(type, 1);
    this.#view.setUint8(at, value);
  }

  /** Big-endian, as netfilter wants its numbers. */
  u16(type: number, value: number): void {
    const at = this.#attribute(type, 2);
    this.#view.setUint16(at, value);
  }

  u32(type: number, value: number): void {
    const at = this.#attribute(type, 4);
    this.#view.setUint32(at, value);
  }

  /** In the machine's byte order, as everything but netfilter wants its numbers. */
  word(type: number, value: number): void {
    const at = this.#attribute(type, 4);
    this.#view.setUint32(at, value >>> 0, true);
  }

  u64(type: number, value: bigint): void {
    const at = this.#attribute(type, 8);
    this.#view.setBigUint64(at, value);
  }

  /** With its final zero byte. */
  text(type: number, value: string): void {
    // Nearly every text is ASCII, and goes where it belongs at once.
    const before = this.#length;
    const at = this.#attribute(type, value.length + 1);
    if (encoder.encodeInto(value, this.#bytes.subarray(at, at + value.length)).read === value.length) return;
    this.#length = before;
    const text = encoder.encode(value);
    this.#bytes.set(text, this.#attribute(type, text.length + 1));
  }

  /** How many bytes have been written. */
  get length(): number {
    return this.#length;
  }

  finish(): Uint8Array {
    return this.#bytes.subarray(0, this.#length);
  }
}

export interface Message {
  type: number;
  flags: number;
  seq: number;
  /** After the netlink header. */
  payload: Uint8Array;
}

/** Splits datagrams into messages; a cut-off rest is dropped. */
export function* messagesOf(datagrams: Iterable<Uint8Array>): Generator<Message> {
  for (const datagram of datagrams) {
    const view = new DataView(datagram.buffer, datagram.byteOffset, datagram.byteLength);
    for (let at = 0; at + HEADER <= datagram.length;) {
      const length = view.getUint32(at, true);
      if (length < HEADER || at + length > datagram.length) break;
      yield {
        type: view.getUint16(at + 4, true),
        flags: view.getUint16(at + 6, true),
        seq: view.getUint32(at + 8, true),
        payload: datagram.subarray(at + HEADER, at + length),
      };
      at += (length + 3) & ~3;
    }
  }
}

/** Attributes by type, from `offset` on. Of several with one type the last counts; use `attributeList` for lists. */
export function attributes(payload: Uint8Array, offset = 0): Map<number, Uint8Array> {
  return new Map(attributeList(payload, offset));
}

export function attributeList(payload: Uint8Array, offset = 0): [number, Uint8Array][] {
  const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
  const list: [number, Uint8Array][] = [];
  for (let at = offset; at + 4 <= payload.length;) {
    const length = view.getUint16(at, true);
    if (length < 4 || at + length > payload.length) break;
    list.push([view.getUint16(at + 2, true) & TYPE_MASK, payload.subarray(at + 4, at + length)]);
    at += (length + 3) & ~3;
  }
  return list;
}

export function readU16(bytes: Uint8Array | undefined): number {
  return bytes === undefined || bytes.length < 2 ? 0 : (bytes[0]! << 8) | bytes[1]!;
}

export function readU32(bytes: Uint8Array | undefined): number {
  return bytes === undefined || bytes.length < 4 ? 0 : ((bytes[0]! << 24) | (bytes[1]! << 16) | (bytes[2]! << 8) | bytes[3]!) >>> 0;
}

/** Text up to the first zero byte. Names in the kernel are ASCII; anything else becomes one character per byte. */
export function readText(bytes: Uint8Array | undefined): string {
  let text = '';
  for (const byte of bytes ?? []) {
    if (byte === 0) break;
    text += String.fromCharCode(byte);
  }
  return text;
}

export interface Answer {
  seq: number;
  /** 0 for an acknowledgement, else errno. */
  errno: number;
  /** What the kernel adds in words; often empty. */
  detail: string;
}

const NLM_F_CAPPED = 0x100;
const NLM_F_ACK_TLVS = 0x200;
const NLMSGERR_ATTR_MSG = 1;

/** Acknowledgements, refusals and ends of dumps. */
export function answersOf(datagrams: Iterable<Uint8Array>): Answer[] {
  const answers: Answer[] = [];
  for (const { type, flags, seq, payload } of messagesOf(datagrams)) {
    if (type !== NLMSG_ERROR && type !== NLMSG_DONE) continue;
    const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
    const code = payload.length >= 4 ? view.getInt32(0, true) : 0;
    // After the code of an error comes the refused message: whole, or its header alone when capped.
    const original = type === NLMSG_ERROR && payload.length >= 8 ? ((flags & NLM_F_CAPPED) !== 0 ? HEADER : view.getUint32(4, true)) : 0;
    const extra = (flags & NLM_F_ACK_TLVS) === 0 ? new Map<number, Uint8Array>() : attributes(payload, 4 + ((original + 3) & ~3));
    answers.push({ seq, errno: -code, detail: readText(extra.get(NLMSGERR_ATTR_MSG)) });
  }
  return answers;
}
