/** What protobuf's own descriptor of a file says, read from its bytes as Go programs carry them. */

interface Field {
  readonly number: number;
  readonly value: bigint | Uint8Array;
}

/** Of FieldDescriptorProto.Type, as api.proto writes them. */
const SCALARS: Readonly<Record<number, string>> = {
  1: 'double',
  2: 'float',
  3: 'int64',
  4: 'uint64',
  5: 'int32',
  8: 'bool',
  9: 'string',
  12: 'bytes',
  13: 'uint32',
};
const SYNTAX = 12;

class Reader {
  at: number;
  readonly #bytes: Uint8Array;

  constructor(bytes: Uint8Array, at = 0) {
    this.#bytes = bytes;
    this.at = at;
  }

  get ended(): boolean {
    return this.at >= this.#bytes.length;
  }

  varint(): bigint {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = this.#bytes[this.at++] ?? 0;
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return value;
    }
  }

  next(): Field {
    const key = Number(this.varint());
    if ((key & 7) === 0) return { number: key >> 3, value: this.varint() };
    if ((key & 7) !== 2) throw new Error(`descriptor: wire type ${key & 7}`);
    const length = Number(this.varint());
    this.at += length;
    return { number: key >> 3, value: this.#bytes.subarray(this.at - length, this.at) };
  }
}

/** A message's fields by number. */
class Parts {
  readonly #fields: Field[] = [];

  constructor(bytes: Uint8Array) {
    const reader = new Reader(bytes);
    while (!reader.ended) this.#fields.push(reader.next());
  }

  all(number: number): Parts[] {
    return this.#fields.filter((field) => field.number === number).map(({ value }) => new Parts(value as Uint8Array));
  }

  text(number: number): string {
    const value = this.#fields.find((field) => field.number === number)?.value;
    return value instanceof Uint8Array ? new TextDecoder().decode(value) : '';
  }

  whole(number: number): number {
    const value = this.#fields.find((field) => field.number === number)?.value;
    return typeof value === 'bigint' ? Number(value) : 0;
  }
}

const plain = (name: string): string => name.slice(name.lastIndexOf('.') + 1);

function typeOf(field: Parts): string {
  const kind = field.whole(5);
  return SCALARS[kind] ?? (kind === 11 || kind === 14 ? plain(field.text(6)) : `type ${kind}`);
}

function messageLines(message: Parts, lines: string[]): void {
  const name = message.text(1);
  lines.push(`message ${name}`);
  const entries = new Map<string, Parts>();
  for (const nested of message.all(3)) {
    if (nested.all(7)[0]?.whole(7) === 1) entries.set(nested.text(1), nested);
    else messageLines(nested, lines);
  }
  for (const field of message.all(2)) {
    const entry = field.whole(5) === 11 ? entries.get(plain(field.text(6))) : undefined;
    const [key, value] = (entry?.all(2) ?? []).map(typeOf);
    const type = entry === undefined ? `${field.whole(4) === 3 ? 'repeated ' : ''}${typeOf(field)}` : `map<${key}, ${value}>`;
    lines.push(`${name}.${field.text(10)} = ${field.whole(3)} ${type}`);
  }
  for (const nested of message.all(4)) enumLines(nested, lines);
}

function enumLines(said: Parts, lines: string[]): void {
  for (const value of said.all(2)) lines.push(`enum ${said.text(1)}.${value.text(1)} = ${value.whole(2)}`);
}

/** The descriptor in a program whose file name ends so and whose package is that; null when there is none. */
export function findDescriptor(program: Buffer, file: string, packageName: string): Uint8Array | null {
  const packaged = Buffer.concat([Buffer.from(file), Buffer.from([0x12, packageName.length]), Buffer.from(packageName)]);
  const found = program.indexOf(packaged);
  if (found < 0) return null;
  // The name's own length stands before it, and says where it begins.
  for (let start = found; start > found - 256; start--) {
    if (program[start - 2] !== 0x0a || program[start - 1] !== found + file.length - start) continue;
    const reader = new Reader(program, start - 2);
    while (reader.next().number !== SYNTAX);
    return program.subarray(start - 2, reader.at);
  }
  return null;
}

/** Everything that matters on the wire and in JSON, one fact a line: messages, fields, enums, methods. */
export function descriptorLines(descriptor: Uint8Array): string[] {
  const file = new Parts(descriptor);
  const lines: string[] = [];
  for (const message of file.all(4)) messageLines(message, lines);
  for (const said of file.all(5)) enumLines(said, lines);
  for (const service of file.all(6)) {
    for (const method of service.all(2)) {
      const side = (type: number, streams: number): string => `${method.whole(streams) === 1 ? 'stream ' : ''}${plain(method.text(type))}`;
      lines.push(`${service.text(1)}.${method.text(1)}(${side(2, 5)}) ${side(3, 6)}`);
    }
  }
  return lines.toSorted();
}
