import protobuf from 'protobufjs';

const licence = 'The Kubernetes Authors; interface definition of k8s.io/cri-api, Apache-2.0';

interface FieldJson {
  rule?: string;
  type: string;
  id: number;
  keyType?: string;
}

export interface TypeJson {
  fields?: Record<string, FieldJson>;
  oneofs?: Record<string, { oneof: string[] }>;
  values?: Record<string, number>;
  nested?: Record<string, TypeJson>;
  methods?: Record<string, { requestType: string; responseType: string; responseStream?: boolean }>;
}

/** The text of an interface definition as protobufjs reads it: one line per message, comments left out. */
export function readCriSource(text: string): string {
  const { root } = protobuf.parse(text, { keepCase: false });
  const json = root.toJSON({ keepComments: false }) as {
    nested: { runtime: { nested: { v1: { nested: Record<string, unknown> } & Record<string, unknown> } } };
  };
  const { nested, ...rest } = json.nested.runtime.nested.v1;
  const lines = Object.entries(nested).map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`);
  const head = JSON.stringify(rest).slice(1, -1);
  return `{"comment":${JSON.stringify(licence)},"nested":{"runtime":{"nested":{"v1":{${head === '' ? '' : `${head},`}"nested":{\n${lines.join(',\n')}\n}}}}}}\n`;
}

const scalar: Readonly<Record<string, readonly [out: string, into: string]>> = {
  string: ['string', 'string'],
  bool: ['boolean', 'boolean'],
  bytes: ['Buffer', 'Uint8Array'],
  double: ['number', 'number'],
  float: ['number', 'number'],
  int32: ['number', 'number'],
  uint32: ['number', 'number'],
  int64: ['string', 'string | number'],
  uint64: ['string', 'string | number'],
};

class Printer {
  readonly #types: Readonly<Record<string, TypeJson>>;
  readonly #sent = new Set<string>();
  readonly #answered = new Set<string>();

  constructor(top: Readonly<Record<string, TypeJson>>) {
    const types: Record<string, TypeJson> = { ...top };
    for (const [outer, { nested }] of Object.entries(top)) {
      for (const [name, type] of Object.entries(nested ?? {})) {
        if (types[name] !== undefined) throw new Error(`${outer}.${name} would hide ${name}`);
        types[name] = type;
      }
    }
    this.#types = types;
    for (const type of Object.values(types)) {
      for (const method of Object.values(type.methods ?? {})) {
        this.#mark(this.#sent, method.requestType);
        this.#mark(this.#answered, method.responseType);
      }
    }
  }

  #mark(set: Set<string>, name: string): void {
    if (set.has(name) || this.#types[name]?.fields === undefined) return;
    set.add(name);
    for (const field of Object.values(this.#types[name].fields)) this.#mark(set, field.type);
  }

  #name(message: string, sent: boolean): string {
    return sent && this.#answered.has(message) ? `${message}Input` : message;
  }

  #field(field: FieldJson, sent: boolean): string {
    const known = scalar[field.type];
    const target = this.#types[field.type];
    if (known === undefined && target === undefined) throw new Error(`unknown type ${field.type}`);
    const isMessage = target?.fields !== undefined;
    const one = known === undefined ? (isMessage ? this.#name(field.type, sent) : field.type) : known[sent ? 1 : 0];
    if (field.keyType !== undefined) return `Record<string, ${one}>`;
    if (field.rule === 'repeated') return one.includes('|') ? `Array<${one}>` : `${one}[]`;
    return isMessage ? `${one} | null` : one;
  }

  #message(message: string, sent: boolean): string {
    const type = this.#types[message] as TypeJson;
    const lines = Object.entries(type.fields ?? {}).map(([name, field]) => `  ${name}${sent ? '?' : ''}: ${this.#field(field, sent)};\n`);
    if (!sent) {
      for (const [name, { oneof }] of Object.entries(type.oneofs ?? {})) lines.push(`  ${name}?: ${oneof.map((field) => `'${field}'`).join(' | ')};\n`);
    }
    const name = this.#name(message, sent);
    return lines.length === 0 ? `export type ${name} = Record<string, never>;\n` : `export interface ${name} {\n${lines.join('')}}\n`;
  }

  print(): string {
    const parts: string[] = [];
    for (const [name, type] of Object.entries(this.#types)) {
      if (type.values !== undefined)
        parts.push(
          `export type ${name} =${Object.keys(type.values)
            .map((value) => `\n  | '${value}'`)
            .join('')};\n`,
        );
      if (type.fields === undefined) continue;
      if (this.#answered.has(name)) parts.push(this.#message(name, false));
      if (this.#sent.has(name)) parts.push(this.#message(name, true));
      if (!this.#answered.has(name) && !this.#sent.has(name)) parts.push(this.#message(name, false));
    }
    for (const [name, type] of Object.entries(this.#types)) {
      if (type.methods === undefined) continue;
      const rows = Object.entries(type.methods).map(
        ([method, { requestType, responseType, responseStream }]) =>
          `  ${method}: { request: ${this.#name(requestType, true)}; response: ${responseType}; stream: ${responseStream === true} };\n`,
      );
      parts.push(`/** The methods of ${name}: what is sent, what is answered. */\nexport interface ${name}Methods {\n${rows.join('')}}\n`);
    }
    return parts.join('\n');
  }
}

/** TypeScript for messages and methods by name, as protobufjs writes them down. */
export function printMessages(types: Readonly<Record<string, TypeJson>>): string {
  return new Printer(types).print();
}

/** TypeScript for every message of api.json; the text depends on nothing else. */
export function printCriTypes(json: string): string {
  const parsed = JSON.parse(json) as { nested: { runtime: { nested: { v1: { nested: Record<string, TypeJson> } } } } };
  const head =
    `// Generated by \`npm run gen\` from api.json (${licence}); do not edit.\n` +
    '// What is answered has every field (64-bit numbers as decimal text, absent messages null); what is sent has every\n' +
    '// field optional. A message that goes both ways has two forms, and the one that is sent is called XInput.\n\n';
  return head + new Printer(parsed.nested.runtime.nested.v1.nested).print();
}
