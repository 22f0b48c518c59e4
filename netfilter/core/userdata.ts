import { utf8 } from './sha256.ts';

/** What nft keeps beside objects for itself: comments, and byte orders for printing. Type, length, value, each a byte. */

const SET_KEY_BYTE_ORDER = 0;
const SET_DATA_BYTE_ORDER = 1;
const SET_COMMENT = 7;
const BYTE_ORDER = { none: 0, host: 1, network: 2 } as const;

function tlv(type: number, value: Uint8Array): number[] {
  return [type, value.length, ...value];
}

function word(value: number): Uint8Array {
  return Uint8Array.of(value, 0, 0, 0);
}

function textBytes(text: string): Uint8Array {
  return Uint8Array.of(...utf8(text), 0);
}

/** The comment of a table, chain, rule or element. */
export function commentData(comment: string): Uint8Array {
  return Uint8Array.from(tlv(0, textBytes(comment)));
}

export function setData(set: { concatenated: boolean; map: boolean; random?: boolean; comment?: string }): Uint8Array {
  const order = set.random === true ? BYTE_ORDER.host : set.concatenated ? BYTE_ORDER.none : BYTE_ORDER.network;
  const data = tlv(SET_KEY_BYTE_ORDER, word(order));
  if (set.map) data.push(...tlv(SET_DATA_BYTE_ORDER, word(BYTE_ORDER.none)));
  if (set.comment !== undefined) data.push(...tlv(SET_COMMENT, textBytes(set.comment)));
  return Uint8Array.from(data);
}

/** The comment of a table, chain, rule or element, or undefined. */
export function readComment(data: Uint8Array | undefined): string | undefined {
  if (data === undefined) return undefined;
  for (let at = 0; at + 2 <= data.length; at += 2 + data[at + 1]!) {
    if (data[at] !== 0) continue;
    let text = '';
    for (const byte of data.subarray(at + 2, at + 1 + data[at + 1]!)) text += String.fromCharCode(byte);
    return text;
  }
  return undefined;
}
