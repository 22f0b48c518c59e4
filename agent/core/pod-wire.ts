import type { Pod } from '../../proto/kube/types.ts';
import { utf8Bytes } from '../../base/utf8.ts';

/** By message; see scripts/gen/pod-wire.ts for the words. */
export type PodWire = Readonly<Record<string, string>>;

interface Field {
  readonly number: number;
  /** Empty: the fields of the message stand in the outer object. */
  readonly name: string;
  readonly code: string;
}

/** Writes Pods in the protobuf form of core/v1 (k8s.io/api/core/v1/generated.proto). Fields that are not there are left out. */
export class PodEncoder {
  readonly #wire: PodWire;
  readonly #fields = new Map<string, readonly Field[]>();

  constructor(wire: PodWire) {
    this.#wire = wire;
  }

  encode(pod: Pod): Uint8Array {
    return Uint8Array.from(this.#message('Pod', pod as unknown as Readonly<Record<string, unknown>>));
  }

  #fieldsOf(message: string): readonly Field[] {
    const known = this.#fields.get(message);
    if (known !== undefined) return known;
    const text = this.#wire[message] ?? '';
    const fields =
      text === ''
        ? []
        : text.split(',').map((item): Field => {
            const [, number = '0', name = '', code = ''] = /^(\d+)([^:]*):(.*)$/.exec(item) ?? [];
            return { number: Number(number), name: name === '^' ? '' : name, code };
          });
    this.#fields.set(message, fields);
    return fields;
  }

  #message(message: string, value: Readonly<Record<string, unknown>>): number[] {
    const out: number[] = [];
    for (const { number, name, code } of this.#fieldsOf(message)) {
      if (name === '') {
        const inner = this.#message(code, value);
        if (inner.length > 0) pushBytes(out, number, inner);
        continue;
      }
      const field = value[name];
      if (field !== undefined && field !== null) this.#field(out, number, code, field);
    }
    return out;
  }

  #field(out: number[], number: number, code: string, value: unknown): void {
    if (code.startsWith('[')) {
      for (const item of value as readonly unknown[]) this.#field(out, number, code.slice(1), item);
      return;
    }
    if (code.startsWith('{')) {
      for (const [key, item] of Object.entries(value as Readonly<Record<string, unknown>>)) {
        const entry: number[] = [];
        pushBytes(entry, 1, utf8Bytes(key));
        this.#field(entry, 2, code.slice(1), item);
        pushBytes(out, number, entry);
      }
      return;
    }
    switch (code) {
      case 'i':
      case 'b':
        pushVarint(out, BigInt(number) << 3n);
        pushVarint(out, BigInt.asUintN(64, BigInt(value as number | boolean)));
        return;
      case 's':
        return pushBytes(out, number, utf8Bytes(String(value)));
      case 'y':
        return pushBytes(out, number, fromBase64(String(value)));
      case 't':
      case 'm':
        return pushBytes(out, number, timeBytes(String(value)));
      case 'q': {
        const text: number[] = [];
        pushBytes(text, 1, utf8Bytes(String(value)));
        return pushBytes(out, number, text);
      }
      case 'o':
        return pushBytes(out, number, numberOrText(value as number | string));
      case 'r': {
        const raw: number[] = [];
        pushBytes(raw, 1, utf8Bytes(JSON.stringify(value)));
        return pushBytes(out, number, raw);
      }
      default:
        return pushBytes(out, number, this.#message(code, value as Readonly<Record<string, unknown>>));
    }
  }
}

function pushVarint(out: number[], value: bigint): void {
  let rest = value;
  while (rest > 0x7fn) {
    out.push(Number(rest & 0x7fn) | 0x80);
    rest >>= 7n;
  }
  out.push(Number(rest));
}

function pushBytes(out: number[], number: number, bytes: ArrayLike<number>): void {
  pushVarint(out, (BigInt(number) << 3n) | 2n);
  pushVarint(out, BigInt(bytes.length));
  for (let index = 0; index < bytes.length; index++) out.push(bytes[index] ?? 0);
}

/** Seconds since 1970 and billionths. */
function timeBytes(text: string): number[] {
  const out: number[] = [];
  const ms = Date.parse(text);
  const seconds = Math.floor(ms / 1000);
  const fraction = /\.(\d+)/.exec(text)?.[1] ?? '';
  pushVarint(out, 1n << 3n);
  pushVarint(out, BigInt.asUintN(64, BigInt(seconds)));
  const nanos = BigInt(fraction.padEnd(9, '0').slice(0, 9));
  if (nanos > 0n) {
    pushVarint(out, 2n << 3n);
    pushVarint(out, nanos);
  }
  return out;
}

function numberOrText(value: number | string): number[] {
  const out: number[] = [];
  const isText = typeof value === 'string';
  pushVarint(out, 1n << 3n);
  pushVarint(out, isText ? 1n : 0n);
  if (isText) pushBytes(out, 3, utf8Bytes(value));
  else {
    pushVarint(out, 2n << 3n);
    pushVarint(out, BigInt.asUintN(64, BigInt(value)));
  }
  return out;
}

const digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';

function fromBase64(text: string): number[] {
  const out: number[] = [];
  let bits = 0;
  let held = 0;
  for (const char of text) {
    const value = digits.indexOf(char);
    if (value < 0) continue;
    held = (held << 6) | value;
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out.push((held >> bits) & 0xff);
      held &= (1 << bits) - 1;
    }
  }
  return out;
}
