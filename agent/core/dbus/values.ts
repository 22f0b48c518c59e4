import { assert } from '../../../base/assert.ts';
import { utf8Bytes, utf8Text } from '../../../base/utf8.ts';

/**
 * A value of the D-Bus type system. Integers up to 32 bits and doubles are numbers, those of 64 bits bigints; structures and
 * dictionary entries are arrays of their fields; an array of bytes is a Uint8Array.
 */
export type DbusValue = number | bigint | boolean | string | Uint8Array | Variant | readonly DbusValue[];

/** A value that carries its type: what properties are. */
export interface Variant {
  readonly signature: string;
  readonly value: DbusValue;
}

/** What came in is not D-Bus: the connection cannot be used any more. */
export class BadDbusData extends Error {
  override readonly name = 'BadDbusData';
}

const alignments: Readonly<Record<string, number>> = {
  y: 1,
  b: 4,
  n: 2,
  q: 2,
  i: 4,
  u: 4,
  x: 8,
  t: 8,
  d: 8,
  s: 4,
  o: 4,
  g: 1,
  h: 4,
  a: 4,
  '(': 8,
  '{': 8,
  v: 1,
};
const maxArrayBytes = 1 << 26;
/** Arrays and structures each may be 32 deep, and a variant begins anew. */
const maxDepth = 64;

/** The single complete types of a signature: `sa(sv)` is `s` and `a(sv)`. */
export function splitSignature(signature: string): string[] {
  const types: string[] = [];
  for (let at = 0; at < signature.length;) {
    const end = typeEnd(signature, at, 0);
    types.push(signature.slice(at, end));
    at = end;
  }
  return types;
}

function typeEnd(signature: string, at: number, depth: number): number {
  const code = signature[at];
  if (code === undefined || alignments[code] === undefined || depth > maxDepth) throw new BadDbusData(`"${signature}" is no signature`);
  if (code === 'a') return typeEnd(signature, at + 1, depth + 1);
  if (code !== '(' && code !== '{') return at + 1;
  const close = code === '(' ? ')' : '}';
  let next = at + 1;
  while (signature[next] !== close) next = typeEnd(signature, next, depth + 1);
  if (next === at + 1) throw new BadDbusData(`"${signature}" has an empty structure`);
  return next + 1;
}

/** Appends values in little endian, each at its alignment. A value that does not fit its type is a defect of the caller. */
export class DbusWriter {
  #data = new Uint8Array(256);
  #view = new DataView(this.#data.buffer);
  #length = 0;

  get bytes(): Uint8Array {
    return this.#data.subarray(0, this.#length);
  }

  values(signature: string, values: readonly DbusValue[]): this {
    const types = splitSignature(signature);
    assert(types.length === values.length, `${values.length} values for the signature ${signature}`);
    for (const [index, type] of types.entries()) this.#value(type, values[index]!);
    return this;
  }

  pad(alignment: number): this {
    this.#reserve((alignment - (this.#length % alignment)) % alignment);
    return this;
  }

  raw(bytes: Uint8Array): this {
    const at = this.#reserve(bytes.length);
    this.#data.set(bytes, at);
    return this;
  }

  u8(value: number): this {
    const at = this.#reserve(1);
    this.#view.setUint8(at, value);
    return this;
  }

  u32(value: number): this {
    this.pad(4);
    const at = this.#reserve(4);
    this.#view.setUint32(at, value, true);
    return this;
  }

  /** Makes room for `more` bytes, zeros, and returns where they begin. */
  #reserve(more: number): number {
    const at = this.#length;
    this.#length += more;
    if (this.#length > this.#data.length) {
      const larger = new Uint8Array(Math.max(this.#length, this.#data.length * 2));
      larger.set(this.#data.subarray(0, at));
      this.#data = larger;
      this.#view = new DataView(larger.buffer);
    }
    return at;
  }

  #value(type: string, value: DbusValue): void {
    const code = type[0]!;
    this.pad(alignments[code]!);
    switch (code) {
      case 'b':
        this.u32(value === true ? 1 : 0);
        return;
      case 's':
      case 'o':
        this.#text(value as string, 4);
        return;
      case 'g':
        this.#text(value as string, 1);
        return;
      case 'v': {
        const { signature, value: inner } = value as Variant;
        this.#text(signature, 1);
        this.#value(signature, inner);
        return;
      }
      case 'a':
        this.#array(type.slice(1), value as readonly DbusValue[] | Uint8Array);
        return;
      case '(':
      case '{':
        this.values(type.slice(1, -1), value as readonly DbusValue[]);
        return;
      default:
        this.#number(code, value as number | bigint);
    }
  }

  #number(code: string, value: number | bigint): void {
    const at = this.#reserve(alignments[code]!);
    const view = this.#view;
    switch (code) {
      case 'y':
        return view.setUint8(at, Number(value));
      case 'n':
        return view.setInt16(at, Number(value), true);
      case 'q':
        return view.setUint16(at, Number(value), true);
      case 'i':
        return view.setInt32(at, Number(value), true);
      case 'u':
      case 'h':
        return view.setUint32(at, Number(value), true);
      case 'x':
        return view.setBigInt64(at, BigInt(value), true);
      case 't':
        return view.setBigUint64(at, BigInt(value), true);
      default:
        return view.setFloat64(at, Number(value), true);
    }
  }

  #text(text: string, lengthBytes: 1 | 4): void {
    const bytes = utf8Bytes(text);
    assert(!bytes.includes(0), 'D-Bus text holds no NUL');
    if (lengthBytes === 4) this.u32(bytes.length);
    else this.u8(bytes.length);
    this.raw(bytes).u8(0);
  }

  /** The length counts from the first element, not from the padding before it. */
  #array(element: string, values: readonly DbusValue[] | Uint8Array): void {
    this.u32(0);
    const lengthAt = this.#length - 4;
    this.pad(alignments[element[0]!]!);
    const begin = this.#length;
    if (values instanceof Uint8Array) this.raw(values);
    else for (const value of values) this.#value(element, value);
    this.#view.setUint32(lengthAt, this.#length - begin, true);
  }
}

/** Reads values of either byte order; throws BadDbusData for what is not whole or not allowed. */
export class DbusReader {
  readonly #data: Uint8Array;
  readonly #view: DataView;
  readonly #little: boolean;
  #at: number;

  constructor(data: Uint8Array, little: boolean, at = 0) {
    this.#data = data;
    this.#view = new DataView(data.buffer, data.byteOffset, data.byteLength);
    this.#little = little;
    this.#at = at;
  }

  get at(): number {
    return this.#at;
  }

  values(signature: string): DbusValue[] {
    return splitSignature(signature).map((type) => this.#value(type, 0));
  }

  pad(alignment: number): this {
    this.#take((alignment - (this.#at % alignment)) % alignment);
    return this;
  }

  #take(length: number): number {
    const at = this.#at;
    if (at + length > this.#data.length) throw new BadDbusData('a message ends inside a value');
    this.#at += length;
    return at;
  }

  #value(type: string, depth: number): DbusValue {
    if (depth > maxDepth) throw new BadDbusData('a message is nested too deep');
    const code = type[0]!;
    this.pad(alignments[code]!);
    const little = this.#little;
    switch (code) {
      case 'y':
        return this.#view.getUint8(this.#take(1));
      case 'n':
        return this.#view.getInt16(this.#take(2), little);
      case 'q':
        return this.#view.getUint16(this.#take(2), little);
      case 'i':
        return this.#view.getInt32(this.#take(4), little);
      case 'u':
      case 'h':
        return this.#view.getUint32(this.#take(4), little);
      case 'b':
        return this.#view.getUint32(this.#take(4), little) !== 0;
      case 'x':
        return this.#view.getBigInt64(this.#take(8), little);
      case 't':
        return this.#view.getBigUint64(this.#take(8), little);
      case 'd':
        return this.#view.getFloat64(this.#take(8), little);
      case 's':
      case 'o':
        return this.#text(this.#view.getUint32(this.#take(4), little));
      case 'g':
        return this.#text(this.#view.getUint8(this.#take(1)));
      case 'v': {
        const signature = this.#text(this.#view.getUint8(this.#take(1)));
        if (splitSignature(signature).length !== 1) throw new BadDbusData(`a variant of the type "${signature}"`);
        return { signature, value: this.#value(signature, depth + 1) };
      }
      case 'a':
        return this.#array(type.slice(1), depth + 1);
      default:
        return splitSignature(type.slice(1, -1)).map((field) => this.#value(field, depth + 1));
    }
  }

  #array(element: string, depth: number): DbusValue {
    const length = this.#view.getUint32(this.#take(4), this.#little);
    if (length > maxArrayBytes) throw new BadDbusData('an array is longer than allowed');
    this.pad(alignments[element[0]!]!);
    const end = this.#at + length;
    if (element === 'y') return this.#data.slice(this.#take(length), end);
    if (end > this.#data.length) throw new BadDbusData('a message ends inside an array');
    const values: DbusValue[] = [];
    while (this.#at < end) values.push(this.#value(element, depth));
    if (this.#at !== end) throw new BadDbusData('an array ends inside an element');
    return values;
  }

  #text(length: number): string {
    const at = this.#take(length + 1);
    return utf8Text(this.#data.subarray(at, at + length));
  }
}
