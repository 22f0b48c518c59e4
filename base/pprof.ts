import { joined } from './bytes.ts';
import { number, sized, text, varint } from './protobuf.ts';

/** One place in a program. `name` '' is code without a name. */
export interface Frame {
  readonly name: string;
  readonly file: string;
  /** Counted from 1. */
  readonly line: number;
}

/** What was measured at one place: `stack` from the innermost frame outwards, one value for each type. */
export interface ProfileSample {
  readonly stack: readonly Frame[];
  readonly values: readonly number[];
}

export interface ProfileType {
  readonly type: string;
  readonly unit: string;
}

export interface ProfileInput {
  readonly types: readonly ProfileType[];
  readonly samples: readonly ProfileSample[];
  /** What one sample stands for, and how much lies between two. */
  readonly period: ProfileType & { readonly value: number };
  readonly atMs: number;
  readonly durationMs: number;
}

/** A profile as `go tool pprof` reads it (profile.proto), before it is compressed. */
export function encodeProfile(input: ProfileInput): Uint8Array {
  const strings = new Map<string, number>([['', 0]]);
  const stringId = (value: string): bigint => {
    const known = strings.get(value);
    if (known === undefined) strings.set(value, strings.size);
    return BigInt(known ?? strings.size - 1);
  };
  const functions: Uint8Array[] = [];
  const locations: Uint8Array[] = [];
  const functionIds = new Map<string, bigint>();
  const locationIds = new Map<string, bigint>();
  const functionId = (frame: Frame): bigint => {
    const key = `${frame.name}\n${frame.file}`;
    let id = functionIds.get(key);
    if (id !== undefined) return id;
    id = BigInt(functionIds.size + 1);
    functionIds.set(key, id);
    const name = stringId(frame.name === '' ? '(anonymous)' : frame.name);
    functions.push(sized(5, joined([number(1, id), number(2, name), number(3, name), number(4, stringId(frame.file))])));
    return id;
  };
  const locationId = (frame: Frame): bigint => {
    const key = `${frame.name}\n${frame.file}\n${frame.line}`;
    let id = locationIds.get(key);
    if (id !== undefined) return id;
    id = BigInt(locationIds.size + 1);
    locationIds.set(key, id);
    locations.push(sized(4, joined([number(1, id), sized(4, joined([number(1, functionId(frame)), number(2, BigInt(frame.line))]))])));
    return id;
  };
  const packed = (field: number, values: readonly bigint[]): Uint8Array => sized(field, values.flatMap(varint));
  const valueType = (field: number, { type, unit }: ProfileType): Uint8Array => sized(field, joined([number(1, stringId(type)), number(2, stringId(unit))]));
  const types = input.types.map((each) => valueType(1, each));
  const samples = input.samples.map(({ stack, values }) =>
    sized(
      2,
      joined([
        packed(1, stack.map(locationId)),
        packed(
          2,
          values.map((value) => BigInt(Math.round(value))),
        ),
      ]),
    ),
  );
  const period = valueType(11, input.period);
  const table = [...strings.keys()].map((value) => text(6, value));
  return joined([
    ...types,
    ...samples,
    ...locations,
    ...functions,
    ...table,
    number(9, BigInt(Math.round(input.atMs)) * 1_000_000n),
    number(10, BigInt(Math.round(input.durationMs)) * 1_000_000n),
    period,
    number(12, BigInt(Math.round(input.period.value))),
  ]);
}

/** V8's CPU profile: a tree of nodes, and which of them was on top at each sample (Chrome DevTools' Profiler domain). */
export interface CpuProfile {
  readonly nodes: readonly { readonly id: number; readonly callFrame: CallFrame; readonly children?: readonly number[] | undefined }[];
  readonly samples?: readonly number[] | undefined;
  /** Microseconds between samples. */
  readonly timeDeltas?: readonly number[] | undefined;
  readonly startTime: number;
  readonly endTime: number;
}

/** Lines are counted from 0. */
export interface CallFrame {
  readonly functionName: string;
  readonly url: string;
  readonly lineNumber: number;
}

/** V8's sampling heap profile. */
export interface HeapNode {
  readonly callFrame: CallFrame;
  readonly selfSize: number;
  readonly children: readonly HeapNode[];
}

const frameOf = ({ functionName, url, lineNumber }: CallFrame): Frame => ({ name: functionName, file: url, line: lineNumber + 1 });

/** What V8 does between two turns of the loop is no use of the processor. */
const restNames: ReadonlySet<string> = new Set(['(idle)', '(root)']);

/** As Go's CPU profile: samples and nanoseconds. */
export function cpuProfile(profile: CpuProfile, atMs: number): ProfileInput {
  const parents = new Map(profile.nodes.flatMap(({ id, children = [] }) => children.map((child): [number, number] => [child, id])));
  const nodes = new Map(profile.nodes.map((node) => [node.id, node]));
  const counts = new Map<number, [number, number]>();
  for (const [index, id] of (profile.samples ?? []).entries()) {
    const before = counts.get(id) ?? [0, 0];
    counts.set(id, [before[0] + 1, before[1] + Math.max(0, profile.timeDeltas?.[index] ?? 0) * 1000]);
  }
  const samples: ProfileSample[] = [];
  for (const [id, values] of counts) {
    const stack: Frame[] = [];
    for (let at: number | undefined = id; at !== undefined; at = parents.get(at)) {
      const node = nodes.get(at);
      if (node !== undefined && node.callFrame.functionName !== '(root)') stack.push(frameOf(node.callFrame));
    }
    if (stack.length > 0 && !restNames.has(stack[0]?.name ?? '')) samples.push({ stack, values });
  }
  const count = profile.samples?.length ?? 0;
  const durationMs = (profile.endTime - profile.startTime) / 1000;
  return {
    types: [
      { type: 'samples', unit: 'count' },
      { type: 'cpu', unit: 'nanoseconds' },
    ],
    samples,
    period: { type: 'cpu', unit: 'nanoseconds', value: count === 0 ? 0 : (durationMs * 1_000_000) / count },
    atMs,
    durationMs,
  };
}

/** As Go's heap profile, of what was made while it was sampled and is still there. */
export function heapProfile(head: HeapNode, intervalBytes: number, atMs: number, durationMs: number): ProfileInput {
  const samples: ProfileSample[] = [];
  const visit = (node: HeapNode, above: readonly Frame[]): void => {
    const stack = node.callFrame.functionName === '(root)' ? above : [frameOf(node.callFrame), ...above];
    if (node.selfSize > 0 && stack.length > 0) samples.push({ stack, values: [Math.max(1, Math.round(node.selfSize / intervalBytes)), node.selfSize] });
    for (const child of node.children) visit(child, stack);
  };
  visit(head, []);
  return {
    types: [
      { type: 'inuse_objects', unit: 'count' },
      { type: 'inuse_space', unit: 'bytes' },
    ],
    samples,
    period: { type: 'space', unit: 'bytes', value: intervalBytes },
    atMs,
    durationMs,
  };
}

/** Counts of things that have no stack: each is a frame of its own. */
export function countProfile(name: string, counts: Readonly<Record<string, number>>, atMs: number): ProfileInput {
  const types = [{ type: name, unit: 'count' }];
  const samples = Object.entries(counts).map(([type, count]) => ({ stack: [{ name: type, file: '', line: 0 }], values: [count] }));
  return { types, samples, period: { type: name, unit: 'count', value: 1 }, atMs, durationMs: 0 };
}

/** As `?debug=1` of Go's: readable text. */
export function countText(name: string, counts: Readonly<Record<string, number>>): string {
  const total = Object.values(counts).reduce((sum, each) => sum + each, 0);
  const lines = Object.entries(counts)
    .toSorted(([, a], [, b]) => b - a)
    .map(([type, count]) => `${count} @\n#\t${type}\n`);
  return `${name} profile: total ${total}\n${lines.join('\n')}`;
}
