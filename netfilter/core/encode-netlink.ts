import { cidrRange, numberToBytes, parseCidr, type Family } from './ip.ts';
import { MessageWriter, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST } from './netlink.ts';
import { COUNTER_OBJECT, encodeRule, Stencils, type AnonymousSet } from './encode-rule.ts';
import { hostWord, keyLength, keyTypeNumber, putKey, putTarget, putValue, putVerdict, setKey, setNumber, setTarget, TYPE_NUMBER } from './netlink-values.ts';
import { TABLE, type BaseChain, type Element, type NetworkTarget, type Op, type Rule, type SetSpec } from './ops.ts';
import { commentData, drawnMapData, setData } from './userdata.ts';

/** Operations as nfnetlink messages (linux/netfilter/nf_tables.h). */

const NFNL_SUBSYS_NFTABLES = 10;
const NFNL_MSG_BATCH_BEGIN = 0x10;
const NFNL_MSG_BATCH_END = 0x11;

export const NFT = {
  newTable: 0,
  delTable: 2,
  newChain: 3,
  getChain: 4,
  delChain: 5,
  newRule: 6,
  getRule: 7,
  delRule: 8,
  newSet: 9,
  getSet: 10,
  delSet: 11,
  newElement: 12,
  getElement: 13,
  delElement: 14,
  newGeneration: 15,
  getGeneration: 16,
  newObject: 18,
  getObject: 19,
  delObject: 20,
} as const;

export const NFPROTO: Record<Family, number> = { ip: 2, ip6: 10 };

const HOOKS = { prerouting: 0, input: 1, forward: 2, output: 3, postrouting: 4 } as const;
const SET = { anonymous: 0x1, constant: 0x2, interval: 0x4, map: 0x8, timeout: 0x10, dynamic: 0x20 } as const;
const INTERVAL_END = 1;
const VERDICT_TYPE = 0xffffff00;
/** An attribute holds at most 64 KiB: after so many bytes of elements another one begins. */
const GATHERED_BYTES = 60_000;

export function messageType(message: number): number {
  return (NFNL_SUBSYS_NFTABLES << 8) | message;
}

/**
 * One batch, written piece by piece so that a large one need not be done at a stretch. `seq` 0 is the batch itself;
 * operation n (from 0) answers with seq n + 1. Only the last one is acknowledged.
 *
 * Elements that are added one after the other go in one message for each set, which answers for its first one alone.
 * Whoever has to know which of them the kernel refuses asks for a message each.
 */
export class BatchEncoder {
  readonly #batch: Batch;
  readonly #apart: boolean;
  readonly #gathered = new Map<string, Gathered>();
  #count = 0;

  constructor(family: Family, { apart = false } = {}) {
    this.#apart = apart;
    const writer = new MessageWriter();
    writer.end(writer.begin(NFNL_MSG_BATCH_BEGIN, NLM_F_REQUEST, 0, 0, NFNL_SUBSYS_NFTABLES));
    this.#batch = { writer, family, setId: 0, last: 0, stencils: new Stencils(family) };
  }

  add(op: Op): void {
    this.#count += 1;
    if (op.op === 'add-targets') {
      this.#gatherTargets(op.set, op.first, op.targets);
      if (this.#apart) this.#putGathered();
    } else if (op.op === 'add-element' && !this.#apart) {
      this.#putElement(this.#gatheredOf(op.set), op.set, op.element);
    } else {
      this.#putGathered();
      encodeOp(this.#batch, op, this.#count);
    }
  }

  /** Where one more element of a set goes. */
  #gatheredOf(set: SetSpec): Gathered {
    let gathered = this.#gathered.get(set.name);
    if (gathered === undefined) this.#gathered.set(set.name, (gathered = { seq: 0, writer: new MessageWriter() }));
    if (gathered.writer.length > GATHERED_BYTES) putGathered(this.#batch, set.name, gathered);
    if (gathered.writer.length === 0) gathered.seq = this.#count;
    return gathered;
  }

  #gatherTargets(set: SetSpec, first: number, targets: readonly NetworkTarget[]): void {
    const { family } = this.#batch;
    const bytes = (this.#batch.target ??= targetElement(set, family));
    for (let index = 0; index < targets.length; index++) {
      const { writer } = this.#gatheredOf(set);
      const at = writer.raw(bytes) + ELEMENT_KEY;
      setNumber(writer.buffer, at, first + index);
      setTarget(writer.buffer, at + 4 + ELEMENT_VALUE, targets[index]!, family);
    }
  }

  /** All elements of a set that say no more than a key and an endpoint are alike but for these. */
  #putElement(gathered: Gathered, set: SetSpec, element: Element): void {
    const { family } = this.#batch;
    const { writer } = gathered;
    if (element.verdict !== undefined || element.comment !== undefined) putElement(this.#batch, writer, set, element, false);
    else if (gathered.first === undefined) {
      const at = writer.length;
      putElement(this.#batch, writer, set, element, false);
      gathered.first = writer.finish().slice(at);
    } else {
      const at = writer.raw(gathered.first) + ELEMENT_KEY;
      const end = setKey(writer.buffer, at, element.key, set.key, family);
      if (element.target !== undefined) setTarget(writer.buffer, end + ELEMENT_VALUE, element.target, family);
    }
  }

  #putGathered(): void {
    if (this.#gathered.size === 0) return;
    this.#gathered.forEach((gathered, name) => putGathered(this.#batch, name, gathered));
    this.#gathered.clear();
  }

  finish(): Uint8Array {
    this.#putGathered();
    const { writer, last } = this.#batch;
    writer.addFlags(last, NLM_F_ACK);
    writer.end(writer.begin(NFNL_MSG_BATCH_END, NLM_F_REQUEST, this.#count + 1, 0, NFNL_SUBSYS_NFTABLES));
    return writer.finish();
  }
}

/** Elements of one set that are still to be written. */
interface Gathered {
  /** Of the operation of the first one. */
  seq: number;
  writer: MessageWriter;
  /** The first one without a verdict: what others are made of. */
  first?: Uint8Array;
}

/** Where the key of an element begins, and how far behind its end the value. */
const ELEMENT_KEY = 12;
const ELEMENT_VALUE = 8;

/** An element of a map of endpoints, with zeros for number and endpoint. */
function targetElement(set: SetSpec, family: Family): Uint8Array {
  const writer = new MessageWriter(64);
  const item = writer.nest(1);
  putKey(writer, 1, ['0'], set.key, family);
  putTarget(writer, 2, { address: family === 'ip' ? '0.0.0.0' : '::', port: 0 }, family);
  writer.unnest(item);
  return writer.finish();
}

function putGathered(batch: Batch, set: string, { seq, writer: elements }: Gathered): void {
  const writer = begin(batch, NFT.newElement, NLM_F_CREATE, seq);
  writer.text(2, set);
  const list = writer.nest(3);
  writer.raw(elements.finish());
  writer.unnest(list);
  end(batch);
  elements.clear();
}

interface Batch {
  writer: MessageWriter;
  family: Family;
  /** The number of the last anonymous set. */
  setId: number;
  /** Where the last message begins. */
  last: number;
  stencils: Stencils;
  /** An element of a map of endpoints. */
  target?: Uint8Array;
}

/** Begins a message of our table; `end` ends it. */
function begin(batch: Batch, type: number, flags: number, seq: number): MessageWriter {
  const { writer, family } = batch;
  batch.last = writer.begin(messageType(type), NLM_F_REQUEST | flags, seq, NFPROTO[family]);
  writer.raw(TABLE_NAME);
  return writer;
}

function end({ writer, last }: Batch): void {
  writer.end(last);
}

const TABLE_NAME = ((): Uint8Array => {
  const writer = new MessageWriter(32);
  writer.text(1, TABLE);
  return writer.finish();
})();

/** Operations that are one message of a kind. */
type SingleOp = Exclude<Op, { op: 'add-rule' | 'add-targets' }>;

function encodeOp(batch: Batch, op: Exclude<Op, { op: 'add-targets' }>, seq: number): void {
  if (op.op === 'add-rule') putRule(batch, op.chain, op.rule, seq);
  else {
    const [type, flags] = MESSAGE[op.op];
    putBody(batch, begin(batch, type, flags, seq), op);
    end(batch);
  }
}

/** Which message an operation is, with its flags. */
const MESSAGE: Readonly<Record<SingleOp['op'], readonly [type: number, flags: number]>> = {
  'add-table': [NFT.newTable, NLM_F_CREATE],
  'delete-table': [NFT.delTable, 0],
  'add-chain': [NFT.newChain, NLM_F_CREATE],
  'flush-chain': [NFT.delRule, 0],
  'delete-chain': [NFT.delChain, 0],
  'add-set': [NFT.newSet, NLM_F_CREATE],
  'flush-set': [NFT.delElement, 0],
  'delete-set': [NFT.delSet, 0],
  'add-element': [NFT.newElement, NLM_F_CREATE],
  'delete-element': [NFT.delElement, 0],
  'add-counter': [NFT.newObject, NLM_F_CREATE],
  'delete-counter': [NFT.delObject, 0],
};

function putBody(batch: Batch, writer: MessageWriter, op: SingleOp): void {
  switch (op.op) {
    case 'add-table':
      writer.u32(2, 0);
      writer.bytes(6, commentData(op.comment));
      return;
    case 'delete-table':
      return;
    case 'add-chain':
      writer.text(3, op.chain);
      if (op.base !== undefined) putHook(writer, op.base);
      if (op.comment !== undefined) writer.bytes(12, commentData(op.comment));
      return;
    case 'flush-chain':
      return writer.text(2, op.chain);
    case 'delete-chain':
      return writer.text(3, op.chain);
    case 'add-set':
      return putNamedSet(batch, writer, op.set);
    case 'flush-set':
    case 'delete-set':
      return writer.text(2, op.set.name);
    case 'add-element':
    case 'delete-element': {
      writer.text(2, op.set.name);
      const list = writer.nest(3);
      putElement(batch, writer, op.set, op.element, op.op === 'delete-element');
      return writer.unnest(list);
    }
    case 'add-counter': {
      writer.text(2, op.counter);
      writer.u32(3, COUNTER_OBJECT);
      const data = writer.nest(4);
      for (const field of [1, 2]) writer.u64(field, 0n);
      return writer.unnest(data);
    }
    case 'delete-counter':
      writer.text(2, op.counter);
      writer.u32(3, COUNTER_OBJECT);
  }
}

function putHook(writer: MessageWriter, base: BaseChain): void {
  writer.text(7, base.type);
  const hook = writer.nest(4);
  writer.u32(1, HOOKS[base.hook]);
  writer.u32(2, base.priority >>> 0);
  writer.unnest(hook);
}

function putRule(batch: Batch, chain: string, rule: Rule, seq: number): void {
  const expressions = encodeRule(rule, batch.family, batch.stencils, (set) => anonymousSet(batch, set, seq));
  const writer = begin(batch, NFT.newRule, NLM_F_CREATE | NLM_F_APPEND, seq);
  writer.text(2, chain);
  const list = writer.nest(4);
  expressions.forEach((put) => put(writer));
  writer.unnest(list);
  if (rule.comment !== undefined) writer.bytes(7, commentData(rule.comment));
  end(batch);
}

function putNamedSet(batch: Batch, writer: MessageWriter, set: SetSpec): void {
  const { family } = batch;
  writer.text(2, set.name);
  const timeout = set.timeoutSeconds === undefined ? 0 : SET.timeout | SET.dynamic;
  writer.u32(3, timeout | (set.verdicts === true || set.targets !== undefined ? SET.map : 0));
  writer.u32(4, keyTypeNumber(set.key, family));
  writer.u32(5, keyLength(set.key, family));
  if (set.verdicts === true) {
    writer.u32(6, VERDICT_TYPE);
    writer.u32(7, 0);
  } else if (set.targets !== undefined) {
    writer.u32(6, keyTypeNumber(['address', 'port'], family));
    writer.u32(7, keyLength(['address', 'port'], family));
  }
  writer.u32(10, ++batch.setId);
  if (set.timeoutSeconds !== undefined) writer.u64(11, BigInt(set.timeoutSeconds) * 1000n);
  const comment = set.comment === undefined ? {} : { comment: set.comment };
  const data =
    set.targets === undefined ? setData({ concatenated: set.key.length > 1, map: set.verdicts === true, ...comment }) : drawnMapData(family, set.targets);
  writer.bytes(13, data);
}

function putElement(batch: Batch, writer: MessageWriter, set: SetSpec, element: Element, deleting: boolean): void {
  const item = writer.nest(1);
  putKey(writer, 1, element.key, set.key, batch.family);
  if (!deleting) {
    if (element.verdict !== undefined) putVerdict(writer, 2, element.verdict);
    if (element.target !== undefined) putTarget(writer, 2, element.target, batch.family);
    if (element.comment !== undefined) writer.bytes(6, commentData(element.comment));
  }
  writer.unnest(item);
}

/** A set that belongs to one rule: made in the same batch, before it. Returns its id there. */
function anonymousSet(batch: Batch, set: AnonymousSet, seq: number): number {
  const id = ++batch.setId;
  const { family } = batch;
  const items = set.kind === 'ranges' ? rangeElements(set.cidrs, family) : [];
  const size = set.kind === 'ranges' ? items.length : set.verdicts.length;
  const name = set.kind === 'ranges' ? '__set%d' : '__map%d';
  const writer = begin(batch, NFT.newSet, NLM_F_CREATE, seq);
  writer.text(2, name);
  writer.u32(3, SET.anonymous | SET.constant | (set.kind === 'ranges' ? SET.interval : SET.map));
  if (set.kind === 'ranges') {
    writer.u32(4, keyTypeNumber(['address'], family));
    writer.u32(5, keyLength(['address'], family));
  } else {
    writer.u32(4, TYPE_NUMBER.verdictIndex);
    writer.u32(5, 4);
    writer.u32(6, VERDICT_TYPE);
    writer.u32(7, 0);
  }
  writer.u32(10, id);
  const description = writer.nest(9);
  writer.u32(1, size);
  writer.unnest(description);
  writer.bytes(13, setData({ concatenated: false, map: set.kind !== 'ranges', random: set.kind !== 'ranges' }));
  end(batch);
  for (let index = 0; index < size;) {
    begin(batch, NFT.newElement, NLM_F_CREATE, seq);
    writer.text(2, name);
    writer.u32(4, id);
    const list = writer.nest(3);
    for (; index < size && writer.length - list < GATHERED_BYTES; index++) putAnonymousElement(writer, set, items, index);
    writer.unnest(list);
    end(batch);
  }
  return id;
}

function putAnonymousElement(writer: MessageWriter, set: AnonymousSet, ranges: readonly RangeElement[], index: number): void {
  const item = writer.nest(1);
  if (set.kind === 'ranges') {
    const { key, end } = ranges[index]!;
    if (end) writer.u32(3, INTERVAL_END);
    putValue(writer, 1, key);
  } else {
    putValue(writer, 1, hostWord(index));
    putVerdict(writer, 2, set.verdicts[index]!);
  }
  writer.unnest(item);
}

interface RangeElement {
  key: Uint8Array;
  end: boolean;
}

/** Starts and ends of intervals, merged where they touch; a leading end marks what lies before the first. */
function rangeElements(cidrs: readonly string[], family: Family): RangeElement[] {
  const length = family === 'ip' ? 4 : 16;
  const limit = 1n << BigInt(length * 8);
  const ranges = cidrs.map((cidr) => cidrRange(parseCidr(cidr)!)).sort((a, b) => (a.first < b.first ? -1 : 1));
  const merged: { first: bigint; last: bigint }[] = [];
  for (const range of ranges) {
    const previous = merged.at(-1);
    if (previous !== undefined && range.first <= previous.last + 1n) previous.last = range.last > previous.last ? range.last : previous.last;
    else merged.push({ ...range });
  }
  const elements: RangeElement[] = [];
  if (merged[0] !== undefined && merged[0].first !== 0n) elements.push({ key: new Uint8Array(length), end: true });
  for (const { first, last } of merged) {
    elements.push({ key: numberToBytes(first, length), end: false });
    if (last + 1n < limit) elements.push({ key: numberToBytes(last + 1n, length), end: true });
  }
  return elements;
}

/** Asks for all chains, rules, sets or counters of our table, or all elements of one set. */
export function encodeDump(family: Family, what: 'chains' | 'rules' | 'sets' | 'counters' | { elementsOf: string }): Uint8Array {
  const writer = new MessageWriter(256);
  const types = { chains: NFT.getChain, rules: NFT.getRule, sets: NFT.getSet, counters: NFT.getObject };
  const type = typeof what === 'object' ? NFT.getElement : types[what];
  const token = writer.begin(messageType(type), NLM_F_REQUEST | NLM_F_DUMP, 1, NFPROTO[family]);
  writer.text(1, TABLE);
  if (typeof what === 'object') writer.text(2, what.elementsOf);
  if (what === 'counters') writer.u32(3, COUNTER_OBJECT);
  writer.end(token);
  return writer.finish();
}

export function encodeGetGeneration(): Uint8Array {
  const writer = new MessageWriter(64);
  writer.end(writer.begin(messageType(NFT.getGeneration), NLM_F_REQUEST | NLM_F_ACK, 1, 0));
  return writer.finish();
}
