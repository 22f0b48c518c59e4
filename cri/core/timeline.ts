/** One call as a timeline shows it. What may change while it is open is not readonly. */
export interface TimelineCall {
  /** Counts up within what is shown; call numbers begin again in a file with several recordings. */
  readonly id: number;
  /** With its service before it where that is not the runtime's: `Containers/Get`. */
  readonly method: string;
  /** As in `Subject` (identity.ts). */
  readonly sandbox: string;
  readonly container: string;
  readonly other: string;
  readonly connection: number;
  /** Milliseconds since 1970, with the fractions of the clock that does not jump. */
  readonly startMs: number;
  /** Null while it is open. */
  endMs: number | null;
  /** As in `CallSummary` (call-line.ts). */
  outcome: string;
  message: string;
  /** Of all its messages, both ways. */
  sizeBytes: number;
  answers: number;
}

/** What a call does to the node. */
export type CallKind = 'make' | 'end' | 'image' | 'run' | 'watch' | 'read';
/** How it is drawn: failures and cut calls before what they were for. */
export type Tone = CallKind | 'failed' | 'cut' | 'open';

const KINDS: readonly (readonly [RegExp, CallKind])[] = [
  [/^(RunPodSandbox|CreateContainer|StartContainer|Update|Checkpoint|Reopen)/, 'make'],
  [/^(Stop|Remove(?!Image))/, 'end'],
  [/^(PullImage|RemoveImage)/, 'image'],
  [/^(ExecSync|Exec|Attach|PortForward)$/, 'run'],
  [/^(GetContainerEvents|Stream)/, 'watch'],
];

export function kindOf(method: string): CallKind {
  return KINDS.find(([pattern]) => pattern.test(method))?.[1] ?? 'read';
}

/** Whether it did not do what it was asked for; a call that its caller gave up is not one of them. */
export function hasFailed(outcome: string): boolean {
  return outcome !== 'OK' && outcome !== 'open' && outcome !== 'message' && !wasCut(outcome);
}

function wasCut(outcome: string): boolean {
  return outcome === 'cut' || outcome === 'Cancelled' || outcome === 'Canceled';
}

export function toneOf(call: TimelineCall): Tone {
  if (call.endMs === null) return 'open';
  if (hasFailed(call.outcome)) return 'failed';
  return wasCut(call.outcome) ? 'cut' : kindOf(call.method);
}

/** Calls of such a length are looked at one by one; of shorter ones only those that begin near a time. */
const LONG_MS = 10_000;
/** Calls at the same time stand below each other in so many lanes. */
export const MAX_LANES = 3;
/** How far back a free lane is looked for. */
const LANE_LOOK_BACK = 16;
/** And among so many long calls. */
const MAX_LONG_SEEN = 64;

export interface Bar {
  readonly call: TimelineCall;
  readonly lane: number;
}

/** `others`: what is no CRI at all; runtimes have services of their own on the same socket. */
type GroupKind = 'node' | 'images' | 'others' | 'pod';

/** A row: the node as a whole, the images, other services, or a pod; below it one for each method, image or container. */
export interface Row {
  readonly key: string;
  readonly name: string;
  /** What stands before the name: a pod's namespace. */
  readonly prefix: string;
  readonly kind: GroupKind | 'part';
  readonly parent: Row | null;
  readonly parts: Row[];
  /** Short calls by their start. */
  readonly bars: Bar[];
  /** Long and open ones, in the order in which they came. */
  readonly long: Bar[];
  lanes: number;
  failed: number;
}

interface Place {
  readonly group: string;
  readonly kind: GroupKind;
  readonly part: string;
}

/** `default/web#2` → `default/web`. */
export function withoutAttempt(name: string): string {
  const at = name.lastIndexOf('#');
  return at < 0 ? name : name.slice(0, at);
}

function placeOf(call: TimelineCall): Place {
  if (call.sandbox !== '') {
    const part = call.container === '' ? 'sandbox' : withoutAttempt(call.container);
    return { group: withoutAttempt(call.sandbox), kind: 'pod', part };
  }
  if (/Image/.test(call.method) && call.other !== '') return { group: 'images', kind: 'images', part: call.other };
  if (call.method.includes('/')) return { group: 'others', kind: 'others', part: call.method };
  return { group: 'node', kind: 'node', part: call.container === '' ? call.method : withoutAttempt(call.container) };
}

/** Index of the first bar that begins at `ms` or later. */
export function firstFrom(bars: readonly Bar[], ms: number): number {
  let low = 0;
  let high = bars.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((bars[middle] as Bar).call.startMs < ms) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Where a call belongs among bars by their start. */
function firstBehind(bars: readonly Bar[], call: TimelineCall): number {
  const last = bars.at(-1);
  if (last === undefined || compareCalls(last.call, call) < 0) return bars.length;
  let at = firstFrom(bars, call.startMs);
  while (at < bars.length && compareCalls((bars[at] as Bar).call, call) < 0) at += 1;
  return at;
}

function overlap(a: TimelineCall, b: TimelineCall): boolean {
  return a.startMs < (b.endMs ?? Infinity) && b.startMs < (a.endMs ?? Infinity);
}

/** Calls laid out as rows: what a page, a picture or a report draws. */
export class Timeline {
  readonly #rows = new Map<string, Row>();
  readonly #pods: Row[] = [];
  #first: Row[] = [];
  count = 0;
  startMs = Infinity;
  /** The last thing that is known to have happened. */
  endMs = -Infinity;

  /** The node, the images, other services, then pods in the order in which they were first spoken of. */
  get rows(): readonly Row[] {
    return [...this.#first, ...this.#pods];
  }

  row(key: string): Row | undefined {
    return this.#rows.get(key);
  }

  /** The part of a row that a call stands in. */
  partOf(call: TimelineCall): Row | undefined {
    const { group, part } = placeOf(call);
    return this.#rows.get(`${group}\n${part}`);
  }

  add(call: TimelineCall): void {
    const { group, kind, part } = placeOf(call);
    const row = this.#rowAt(group, kind);
    this.#put(row, call);
    this.#put(this.#partAt(row, part), call);
    this.count += 1;
    this.#reach(call);
  }

  /** A call that was open has ended, or has had an answer. */
  changed(call: TimelineCall): void {
    this.#reach(call);
    if (!hasFailed(call.outcome)) return;
    const part = this.partOf(call);
    if (part === undefined) return;
    part.failed += 1;
    if (part.parent !== null) part.parent.failed += 1;
  }

  #reach(call: TimelineCall): void {
    this.startMs = Math.min(this.startMs, call.startMs);
    this.endMs = Math.max(this.endMs, call.endMs ?? call.startMs);
  }

  #rowAt(group: string, kind: GroupKind): Row {
    const found = this.#rows.get(group);
    if (found !== undefined) return found;
    const slash = kind === 'pod' ? group.indexOf('/') : -1;
    const row = newRow(group, group.slice(slash + 1), group.slice(0, slash + 1), kind, null);
    this.#rows.set(group, row);
    if (kind === 'pod') this.#pods.push(row);
    else this.#first = ['node', 'images', 'others'].flatMap((key) => this.#rows.get(key) ?? []);
    return row;
  }

  #partAt(row: Row, part: string): Row {
    const key = `${row.key}\n${part}`;
    const found = this.#rows.get(key);
    if (found !== undefined) return found;
    const made = newRow(key, part, '', 'part', row);
    this.#rows.set(key, made);
    row.parts.push(made);
    return made;
  }

  #put(row: Row, call: TimelineCall): void {
    if (hasFailed(call.outcome)) row.failed += 1;
    const isLong = call.endMs === null || call.endMs - call.startMs >= LONG_MS;
    const at = isLong ? row.long.length : firstBehind(row.bars, call);
    let taken = 0;
    for (const bar of row.long.slice(-MAX_LONG_SEEN)) if (overlap(bar.call, call)) taken |= 1 << bar.lane;
    const near = isLong ? [] : row.bars.slice(Math.max(0, at - LANE_LOOK_BACK), at + LANE_LOOK_BACK);
    for (const bar of near) if (overlap(bar.call, call)) taken |= 1 << bar.lane;
    let lane = 0;
    while (lane < MAX_LANES - 1 && (taken & (1 << lane)) !== 0) lane += 1;
    row.lanes = Math.max(row.lanes, lane + 1);
    const bar = { call, lane };
    if (isLong) row.long.push(bar);
    else if (at === row.bars.length) row.bars.push(bar);
    else row.bars.splice(at, 0, bar);
  }
}

function newRow(key: string, name: string, prefix: string, kind: Row['kind'], parent: Row | null): Row {
  return { key, name, prefix, kind, parent, parts: [], bars: [], long: [], lanes: 1, failed: 0 };
}

/** Hands over each bar of a row that may be seen between two times; short ones by their start, after the long ones. */
export function eachBarBetween(row: Row, fromMs: number, toMs: number, take: (bar: Bar) => void): void {
  for (const bar of row.long) if (bar.call.startMs <= toMs && (bar.call.endMs ?? Infinity) >= fromMs) take(bar);
  for (let at = firstFrom(row.bars, fromMs - LONG_MS); at < row.bars.length; at += 1) {
    const bar = row.bars[at] as Bar;
    if (bar.call.startMs > toMs) return;
    if ((bar.call.endMs as number) >= fromMs) take(bar);
  }
}

/** A row's call before (-1) or after (1) another by its start; the first or last for null. */
export function callBeside(row: Row, call: TimelineCall | null, step: 1 | -1, wanted: (call: TimelineCall) => boolean = () => true): TimelineCall | null {
  let best: TimelineCall | null = null;
  const consider = (other: TimelineCall): boolean => {
    if (!wanted(other)) return false;
    if (call !== null && compareCalls(other, call) * step <= 0) return false;
    if (best === null || compareCalls(other, best) * step < 0) best = other;
    return true;
  };
  for (const bar of row.long) consider(bar.call);
  const from = call === null ? (step > 0 ? 0 : row.bars.length) : firstFrom(row.bars, call.startMs);
  if (step > 0) {
    for (let at = from; at < row.bars.length; at += 1) if (consider((row.bars[at] as Bar).call)) break;
  } else {
    let at = from;
    while (row.bars[at]?.call.startMs === call?.startMs && at < row.bars.length) at += 1;
    for (at -= 1; at >= 0; at -= 1) if (consider((row.bars[at] as Bar).call)) break;
  }
  return best;
}

function compareCalls(a: TimelineCall, b: TimelineCall): number {
  return a.startMs - b.startMs || a.id - b.id;
}
