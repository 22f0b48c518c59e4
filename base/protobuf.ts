import { joined } from './bytes.ts';
import { utf8Bytes } from './utf8.ts';

/** The few forms of Protocol Buffers' wire format that are written by hand. */

/** A number in as many bytes as it needs. */
export function varint(value: bigint): number[] {
  const out: number[] = [];
  let rest = value;
  while (rest > 127n) {
    out.push(Number(rest & 127n) | 128);
    rest >>= 7n;
  }
  out.push(Number(rest));
  return out;
}

export type Piece = readonly number[] | Uint8Array;

/** A field with a length before it: a message, bytes or a text. */
export function sized(field: number, body: Piece): Uint8Array {
  return joined([varint(BigInt((field << 3) | 2)), varint(BigInt(body.length)), body]);
}

export function text(field: number, value: string): Uint8Array {
  return sized(field, utf8Bytes(value));
}

/** A field that is a varint. */
export function number(field: number, value: bigint): Uint8Array {
  return joined([varint(BigInt(field << 3)), varint(value)]);
}

export function fixed64(field: number, value: bigint): Uint8Array {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, value, true);
  return joined([varint(BigInt((field << 3) | 1)), bytes]);
}
