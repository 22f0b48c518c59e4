import { type Family } from './ip.ts';
import { utf8 } from './sha256.ts';
import { MessageWriter } from './netlink.ts';
import { cidrBytes, hostWord, protocolNumber, putValue, putVerdict, setTarget } from './netlink-values.ts';
import type { NetworkTarget, PacketField, Rule, Statement, Verdict } from './ops.ts';

/** Rules as the kernel's expressions: small instructions on 4-byte registers. */

/** A set that lives and dies with its rule. */
export type AnonymousSet = { kind: 'ranges'; cidrs: readonly string[] } | { kind: 'verdicts'; verdicts: readonly Verdict[] };

type Put = (writer: MessageWriter) => void;
/** Announces a set that has to be made before the rule and returns its id within the batch. */
type MakeSet = (set: AnonymousSet) => number;

const EQUAL = 0;
const NOT_EQUAL = 1;
const INVERTED = 1;
const BASE = { network: 1, transport: 2 } as const;
const META = { mark: 3, inputName: 6, protocol: 16 } as const;
const CONNECTION = { state: 0, status: 2 } as const;
const STATE_NEW = 0x8;
const STATUS_DNAT = 0x20;
const FIB_ADDRESS_TYPE = 3;
const FIB = { saddr: 1, daddr: 2 } as const;
const LOCAL_ROUTE = 2;
const RANDOM = 1;
const DNAT = 1;
const PORT_GIVEN = 0x2;
const FULLY_RANDOM = 0x10;
const DYNSET_UPDATE = 1;
const ICMP_UNREACHABLE = 0;
const PORT_UNREACHABLE: Record<Family, number> = { ip: 3, ip6: 4 };
const NFPROTO: Record<Family, number> = { ip: 2, ip6: 10 };
const INTERFACE_NAME_LENGTH = 16;
export const COUNTER_OBJECT = 1;

/** Register names: 1 to 4 are the 16-byte ones, 8 and up the 4-byte ones over the same storage. */
function register(byteOffset: number): number {
  return byteOffset % 16 === 0 ? 1 + byteOffset / 16 : 8 + byteOffset / 4;
}

function expression(name: string, body: Put): Put {
  return (writer) => {
    const item = writer.nest(1);
    writer.text(1, name);
    const data = writer.nest(2);
    body(writer);
    writer.unnest(data);
    writer.unnest(item);
  };
}

function payload(base: number, offset: number, length: number, dreg: number): Put {
  return expression('payload', (writer) => {
    writer.u32(1, dreg);
    writer.u32(2, base);
    writer.u32(3, offset);
    writer.u32(4, length);
  });
}

function meta(key: number, dreg: number): Put {
  return expression('meta', (writer) => {
    writer.u32(2, key);
    writer.u32(1, dreg);
  });
}

function compare(op: number, value: Uint8Array): Put {
  return expression('cmp', (writer) => {
    writer.u32(1, 1);
    writer.u32(2, op);
    putValue(writer, 3, value);
  });
}

function bitwise(mask: Uint8Array, xor: Uint8Array): Put {
  return expression('bitwise', (writer) => {
    writer.u32(1, 1);
    writer.u32(2, 1);
    writer.u32(3, mask.length);
    putValue(writer, 4, mask);
    putValue(writer, 5, xor);
  });
}

function immediate(dreg: number, value: Uint8Array): Put {
  return expression('immediate', (writer) => {
    writer.u32(1, dreg);
    putValue(writer, 2, value);
  });
}

function verdict(value: Verdict): Put {
  return expression('immediate', (writer) => {
    writer.u32(1, 0);
    putVerdict(writer, 2, value);
  });
}

function lookup(set: { name: string; id?: number; dreg?: number; inverted?: boolean }): Put {
  return expression('lookup', (writer) => {
    writer.u32(2, 1);
    if (set.dreg !== undefined) writer.u32(3, set.dreg);
    writer.text(1, set.name);
    if (set.id !== undefined) writer.u32(4, set.id);
    if (set.inverted === true) writer.u32(5, INVERTED);
  });
}

function random(modulus: number, first = 0): Put {
  return expression('numgen', (writer) => {
    writer.u32(1, 1);
    writer.u32(2, modulus);
    writer.u32(3, RANDOM);
    writer.u32(4, first);
  });
}

function nat(family: Family, addressRegister: number, portRegister: number, flags: number): Put {
  return expression('nat', (writer) => {
    writer.u32(1, DNAT);
    writer.u32(2, NFPROTO[family]);
    writer.u32(3, addressRegister);
    writer.u32(5, portRegister);
    if (flags !== 0) writer.u32(7, flags);
  });
}

/**
 * Expressions of the rules that every Service has, as they were written first. To copy them and to put other numbers in
 * takes a fraction of the time.
 */
export class Stencils {
  readonly #family: Family;
  readonly #protocols = new Map<string, Put>();
  #dnat: Uint8Array | undefined;
  readonly #drawing = new Map<string, Uint8Array>();

  constructor(family: Family) {
    this.#family = family;
  }

  protocol(protocol: string): Put {
    let put = this.#protocols.get(protocol);
    if (put === undefined) {
      const bytes = written([meta(META.protocol, 1), compare(EQUAL, Uint8Array.of(protocolNumber(protocol)))]);
      this.#protocols.set(protocol, (put = (writer) => void writer.raw(bytes)));
    }
    return put;
  }

  dnat(target: NetworkTarget): Put {
    const family = this.#family;
    const length = addressLength(family);
    const portRegister = register(length);
    this.#dnat ??= written([immediate(1, new Uint8Array(length)), immediate(portRegister, new Uint8Array(2)), nat(family, 1, portRegister, PORT_GIVEN)]);
    const bytes = this.#dnat;
    return (writer) => {
      const at = writer.raw(bytes);
      setTarget(writer.buffer, at + IMMEDIATE_VALUE, target, family, at + 2 * IMMEDIATE_VALUE + length);
    };
  }

  drawing(map: string, first: number, count: number): Put {
    let bytes = this.#drawing.get(map);
    if (bytes === undefined) {
      bytes = written([random(count, first), lookup({ name: map, dreg: 1 }), nat(this.#family, 1, register(addressLength(this.#family)), 0)]);
      this.#drawing.set(map, bytes);
    }
    const copied = bytes;
    return (writer) => {
      const at = writer.raw(copied);
      writer.patchU32(at + RANDOM_MODULUS, count);
      writer.patchU32(at + RANDOM_FIRST, first);
    };
  }
}

/** Where the numbers stand in these expressions, from their beginning. */
const IMMEDIATE_VALUE = 40;
const RANDOM_MODULUS = 32;
const RANDOM_FIRST = 48;

function written(puts: readonly Put[]): Uint8Array {
  const writer = new MessageWriter(512);
  for (const put of puts) put(writer);
  return writer.finish();
}

function addressOffset(field: 'saddr' | 'daddr', family: Family): number {
  if (family === 'ip') return field === 'saddr' ? 12 : 16;
  return field === 'saddr' ? 8 : 24;
}

function addressLength(family: Family): number {
  return family === 'ip' ? 4 : 16;
}

/** Loads fields one after the other, each in whole registers. */
function load(fields: readonly PacketField[], family: Family): Put[] {
  const puts: Put[] = [];
  let offset = 0;
  for (const field of fields) {
    const dreg = register(offset);
    if (field === 'saddr' || field === 'daddr') {
      puts.push(payload(BASE.network, addressOffset(field, family), addressLength(family), dreg));
      offset += addressLength(family);
    } else {
      puts.push(field === 'l4proto' ? meta(META.protocol, dreg) : payload(BASE.transport, 2, 2, dreg));
      offset += 4;
    }
  }
  return puts;
}

function matchCidr(statement: { field: 'saddr' | 'daddr'; not?: boolean; cidr: string }, family: Family): Put[] {
  const { address, mask, prefix } = cidrBytes(statement.cidr);
  const op = statement.not === true ? NOT_EQUAL : EQUAL;
  const offset = addressOffset(statement.field, family);
  if (prefix % 8 === 0 && prefix > 0) return [payload(BASE.network, offset, prefix / 8, 1), compare(op, address.subarray(0, prefix / 8))];
  return [payload(BASE.network, offset, address.length, 1), bitwise(mask, new Uint8Array(mask.length)), compare(op, address)];
}

function matchInterface(statement: { not?: boolean; name: string; prefix: boolean }): Put[] {
  const name = utf8(statement.name);
  const value = statement.prefix ? name : new Uint8Array(INTERFACE_NAME_LENGTH);
  if (!statement.prefix) value.set(name.subarray(0, INTERFACE_NAME_LENGTH - 1));
  return [meta(META.inputName, 1), compare(statement.not === true ? NOT_EQUAL : EQUAL, value)];
}

function connection(key: number, bit: number): Put[] {
  const load = expression('ct', (writer) => {
    writer.u32(2, key);
    writer.u32(1, 1);
  });
  return [load, bitwise(hostWord(bit), hostWord(0)), compare(NOT_EQUAL, hostWord(0))];
}

function setMark(mask: number, xor: number): Put[] {
  const store = expression('meta', (writer) => {
    writer.u32(2, META.mark);
    writer.u32(3, 1);
  });
  return [meta(META.mark, 1), bitwise(hostWord(mask >>> 0), hostWord(xor)), store];
}

function encodeStatement(statement: Statement, family: Family, stencils: Stencils, makeSet: MakeSet): Put[] {
  switch (statement.kind) {
    case 'address':
      return matchCidr(statement, family);
    case 'address-in': {
      const [only] = statement.cidrs;
      if (statement.cidrs.length === 1 && only !== undefined) return matchCidr({ ...statement, cidr: only }, family);
      const id = makeSet({ kind: 'ranges', cidrs: statement.cidrs });
      return [...load([statement.field], family), lookup({ name: '__set%d', id, inverted: statement.not === true })];
    }
    case 'in-set':
      return [...load(statement.fields, family), lookup({ name: statement.set })];
    case 'protocol':
      return [stencils.protocol(statement.protocol)];
    case 'input-interface':
      return matchInterface(statement);
    case 'connection-new':
      return connection(CONNECTION.state, STATE_NEW);
    case 'connection-dnated':
      return connection(CONNECTION.status, STATUS_DNAT);
    case 'address-local': {
      const fib = expression('fib', (writer) => {
        writer.u32(1, 1);
        writer.u32(2, FIB_ADDRESS_TYPE);
        writer.u32(3, FIB[statement.field]);
      });
      return [fib, compare(EQUAL, hostWord(LOCAL_ROUTE))];
    }
    case 'marked':
      return [meta(META.mark, 1), bitwise(hostWord(statement.bits), hostWord(0)), compare(NOT_EQUAL, hostWord(0))];
    case 'set-mark':
      return setMark(~statement.bits, statement.bits);
    case 'toggle-mark':
      return setMark(0xffffffff, statement.bits);
    case 'verdict-map':
      return [...load(statement.fields, family), lookup({ name: statement.map, dreg: 0 })];
    case 'verdict':
      return [verdict(statement.verdict)];
    case 'count': {
      const reference = expression('objref', (writer) => {
        writer.u32(1, COUNTER_OBJECT);
        writer.text(2, statement.counter);
      });
      return [reference];
    }
    case 'reject': {
      const reject = expression('reject', (writer) => {
        writer.u32(1, ICMP_UNREACHABLE);
        writer.u8(2, PORT_UNREACHABLE[family]);
      });
      return [reject];
    }
    case 'masquerade':
      return [expression('masq', (writer) => writer.u32(1, FULLY_RANDOM))];
    case 'dnat':
      return [stencils.dnat(statement.target)];
    case 'dnat-random':
      return [stencils.drawing(statement.map, statement.first, statement.count)];
    case 'goto-random': {
      const id = makeSet({ kind: 'verdicts', verdicts: statement.chains.map((chain) => ({ kind: 'goto', chain })) });
      return [random(statement.chains.length), lookup({ name: '__map%d', id, dreg: 0 })];
    }
    case 'remember': {
      const update = expression('dynset', (writer) => {
        writer.u32(4, 1);
        writer.u32(3, DYNSET_UPDATE);
        writer.text(1, statement.set);
      });
      return [...load([statement.field], family), update];
    }
  }
}

/** The rule's expressions, each as a function that writes it; sets it needs are made on the way. */
export function encodeRule(rule: Rule, family: Family, stencils: Stencils, makeSet: MakeSet): Put[] {
  return rule.statements.flatMap((statement) => encodeStatement(statement, family, stencils, makeSet));
}
