import { utf8Bytes } from '../../../base/utf8.ts';
import { BadDbusData, DbusReader, DbusWriter } from './values.ts';
import type { DbusValue, Variant } from './values.ts';

/* Messages of the D-Bus wire protocol, version 1 (dbus.freedesktop.org/doc/dbus-specification.html). */

export type MessageType = 'call' | 'return' | 'error' | 'signal';

export interface DbusMessage {
  readonly type: MessageType;
  readonly serial: number;
  readonly path?: string;
  readonly interface?: string;
  readonly member?: string;
  readonly errorName?: string;
  readonly replySerial?: number;
  readonly destination?: string;
  readonly sender?: string;
  readonly signature?: string;
  readonly body: readonly DbusValue[];
}

const types: readonly MessageType[] = ['call', 'return', 'error', 'signal'];
const version = 1;
const fixedBytes = 16;
/** What the specification allows is 128 MiB; nothing asked here answers with more than a few kilobytes. */
const maxMessageBytes = 16 << 20;

type FieldName = 'path' | 'interface' | 'member' | 'errorName' | 'replySerial' | 'destination' | 'sender' | 'signature';
const fields: readonly (readonly [number, FieldName, string])[] = [
  [1, 'path', 'o'],
  [2, 'interface', 's'],
  [3, 'member', 's'],
  [4, 'errorName', 's'],
  [5, 'replySerial', 'u'],
  [6, 'destination', 's'],
  [7, 'sender', 's'],
  [8, 'signature', 'g'],
];

/** A message as bytes, little endian. */
export function encodeMessage(message: DbusMessage): Uint8Array {
  const body = new DbusWriter().values(message.signature ?? '', message.body).bytes;
  const headers = fields.flatMap(([code, name, signature]): DbusValue[] => {
    const value = message[name];
    return value === undefined || value === '' ? [] : [[code, { signature, value }]];
  });
  const writer = new DbusWriter().u8('l'.charCodeAt(0)).u8(types.indexOf(message.type) + 1);
  writer.u8(0).u8(version).u32(body.length).u32(message.serial);
  return writer.values('a(yv)', [headers]).pad(8).raw(body).bytes.slice();
}

/** The first message of `data` and the bytes it takes; null while it is not all there. Throws BadDbusData. */
export function decodeMessage(data: Uint8Array): { readonly message: DbusMessage; readonly size: number } | null {
  if (data.length < fixedBytes) return null;
  const order = String.fromCharCode(data[0]!);
  if (order !== 'l' && order !== 'B') throw new BadDbusData('a message of no known byte order');
  if (data[3] !== version) throw new BadDbusData(`a message of version ${data[3]}`);
  const little = order === 'l';
  const [bodyLength, serial, fieldsLength] = new DbusReader(data, little, 4).values('uuu') as [number, number, number];
  const bodyAt = Math.ceil((fixedBytes + fieldsLength) / 8) * 8;
  const size = bodyAt + bodyLength;
  if (fieldsLength > maxMessageBytes || bodyLength > maxMessageBytes) throw new BadDbusData('a message is longer than allowed');
  if (data.length < size) return null;
  const found: Partial<Record<FieldName, DbusValue>> = {};
  const [headers] = new DbusReader(data.subarray(0, bodyAt), little, 12).values('a(yv)') as [[number, Variant][]];
  for (const [code, variant] of headers) {
    const field = fields.find(([known]) => known === code);
    if (field === undefined) continue;
    if (variant.signature !== field[2]) throw new BadDbusData(`the header field ${code} has the type ${variant.signature}`);
    found[field[1]] = variant.value;
  }
  const type = types[data[1]! - 1];
  // What a later version of the protocol may add is to be ignored: it is taken for a signal of no name.
  const signature = (found.signature as string | undefined) ?? '';
  const body = new DbusReader(data.subarray(0, size), little, bodyAt).values(signature);
  return { message: { ...(found as Omit<DbusMessage, 'type' | 'serial' | 'body'>), type: type ?? 'signal', serial, body }, size };
}

/**
 * How a connection begins: who we are by our user id, that descriptors may be sent, and that messages follow. All of it is
 * sent at once; the other side answers line by line.
 */
export function authLines(uid: number): string {
  const hex = [...utf8Bytes(String(uid))].map((byte) => byte.toString(16)).join('');
  return `\0AUTH EXTERNAL ${hex}\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\n`;
}

/** What the other side answers to `authLines`: where messages begin, null while it is not all there, or why it refuses. */
export function authAnswer(text: string): { readonly at: number } | { readonly refused: string } | null {
  const lines = text.split('\r\n');
  const [auth, descriptors] = lines;
  if (lines.length > 1 && auth !== undefined && !auth.startsWith('OK ')) return { refused: auth };
  if (lines.length < 3 || auth === undefined || descriptors === undefined) return null;
  // Without descriptors everything but the inhibitor works.
  return { at: auth.length + descriptors.length + 4 };
}
