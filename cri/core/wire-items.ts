/** The first byte of field 1 with a length, as protobuf writes it. */
const ITEM_TAG = 0x0a;

/** A number of seven bits a byte, and where it ends; null when it does not end. */
function varint(bytes: Uint8Array, start: number): [value: number, end: number] | null {
  let value = 0;
  for (let at = start, factor = 1; at < bytes.length && at < start + 10; at++, factor *= 128) {
    const byte = bytes[at] ?? 0;
    value += (byte & 0x7f) * factor;
    if (byte < 0x80) return [value, at + 1];
  }
  return null;
}

/** Where the top field that begins at `start` ends; null when it is not whole. */
function fieldEnd(bytes: Uint8Array, start: number): number | null {
  const tag = varint(bytes, start);
  if (tag === null) return null;
  const [key, after] = tag;
  let end: number;
  switch (key % 8) {
    case 0:
      end = varint(bytes, after)?.[1] ?? Infinity;
      break;
    case 1:
      end = after + 8;
      break;
    case 2: {
      const length = varint(bytes, after);
      end = length === null ? Infinity : length[1] + length[0];
      break;
    }
    case 5:
      end = after + 4;
      break;
    default:
      return null;
  }
  return end <= bytes.length ? end : null;
}

/**
 * A list's answer without the items at those places: everything else byte for byte, fields that nobody here knows of
 * too. Null when it is no protobuf message.
 */
export function withoutItems(message: Uint8Array, left: ReadonlySet<number>): Uint8Array | null {
  const out = new Uint8Array(message.length);
  let length = 0;
  let item = 0;
  for (let start = 0; start < message.length;) {
    const end = fieldEnd(message, start);
    if (end === null) return null;
    if (message[start] !== ITEM_TAG || !left.has(item++)) {
      out.set(message.subarray(start, end), length);
      length += end - start;
    }
    start = end;
  }
  return out.subarray(0, length);
}
