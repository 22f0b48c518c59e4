import { existsSync } from 'node:fs';
import type { Clock } from '../base/clock.ts';
import type { Host } from '../base/host.ts';
import { choosing, type Choice } from './core/choose-calls.ts';
import { COLOURS, groupLines, PLAIN, rowLine, runningText } from './core/group-text.ts';
import { LineFolder, type PodRow } from './core/line-folder.ts';
import { PodGroups } from './core/pod-groups.ts';
import { plainCall, type SeenCall } from './core/seen-calls.ts';
import { viewLines } from './core/watch-view.ts';
import { NetworkTimes } from './io/network-times.ts';
import { reachTap, type ReachOptions } from './io/reach-tap.ts';
import { Screen } from './io/screen.ts';
import { seenAtTap, seenInFile, type Running, type Seen } from './io/seen-source.ts';

export interface WatchFlags extends ReachOptions, Choice {
  readonly json: boolean;
  /** One line a call even on a terminal. */
  readonly lines: boolean;
  /** The runtime's metrics, where time in the network plugin is read from. */
  readonly metrics?: string;
}

/** Groups that are kept of a file, and of a tap: what is gone longest is dropped. */
const FILE_GROUPS = 5_000;
const LIVE_GROUPS = 200;
/** How often a window is drawn, and lines that wait are looked at. */
const DRAW_MS = 250;

/** `nodelet cri watch FILE`: the calls of each pod together, in the order in which pods were first spoken of. */
async function watchFile(host: Host, file: string, flags: WatchFlags): Promise<number> {
  const wanted = choosing(flags);
  const groups = new PodGroups(FILE_GROUPS);
  const folder = new LineFolder();
  const print = (rows: readonly PodRow[]): void => host.stdout(rows.map(({ pod, row }) => `${rowLine(row, pod, PLAIN)}\n`).join(''));
  for await (const seen of seenInFile(file, host.signal)) {
    if (seen.kind === 'note') {
      if (seen.isLoss) host.stderr(`nodelet cri watch: ${seen.text}\n`);
      continue;
    }
    if (!wanted(seen)) continue;
    if (flags.json) host.stdout(`${JSON.stringify(plainCall(seen))}\n`);
    else if (flags.lines) print(folder.take(seen));
    else groups.take(seen);
  }
  print(folder.rest());
  if (flags.json || flags.lines) return 0;
  if (groups.dropped > 0) host.stderr(`nodelet cri watch: ${groups.dropped} groups were too many: choose with --pod or a time, or use show\n`);
  const width = host.isTerminal ? (process.stdout.columns ?? 0) : 0;
  // What is about no pod stands last: it only says that the node lives.
  for (const group of groups.groups.sort((a, b) => Number(a.pod === '') - Number(b.pod === '')))
    host.stdout(`${groupLines(group, width, host.isTerminal ? COLOURS : PLAIN).join('\n')}\n\n`);
  return 0;
}

/** Shows what comes, some way; `idle` is called every `DRAW_MS`. */
interface Show {
  readonly take: (call: SeenCall, networkMs: number | null) => void;
  /** A call that goes on for more than a second, once. */
  readonly running: (call: SeenCall) => void;
  readonly note: (text: string) => void;
  readonly idle: () => void;
  readonly end: () => void;
}

function asJson(host: Host): Show {
  return {
    take: (call, networkMs) =>
      host.stdout(`${JSON.stringify({ ...plainCall(call), ...(networkMs === null ? {} : { networkMs: Number(networkMs.toFixed(3)) }) })}\n`),
    running: (call) => host.stdout(`${JSON.stringify({ ...plainCall(call), kind: 'running' })}\n`),
    note: (text) => host.stderr(`nodelet cri watch: ${text}\n`),
    idle: () => {},
    end: () => {},
  };
}

function asLines(host: Host, clock: Clock): Show {
  const folder = new LineFolder();
  const paint = host.isTerminal ? COLOURS : PLAIN;
  const print = (rows: readonly PodRow[]): void => {
    for (const { pod, row } of rows) host.stdout(`${rowLine(row, pod, paint)}\n`);
  };
  return {
    take: (call, networkMs) => print(folder.take(call, networkMs)),
    running: (call) => host.stdout(`${new Date(call.startMs).toISOString().slice(11, 23)} ${runningText(call, clock.nowMs())}\n`),
    note: (text) => host.stderr(`nodelet cri watch: ${text}\n`),
    idle: () => print(folder.due(clock.nowMs())),
    end: () => print(folder.rest()),
  };
}

function asWindow(host: Host, words: string, clock: Clock): Show {
  const groups = new PodGroups(LIVE_GROUPS);
  const screen = new Screen(host.stdout);
  const running = new Map<number, SeenCall>();
  let calls = 0;
  let failed = 0;
  let note = 'Ctrl-C ends it';
  return {
    take: (call, networkMs) => {
      calls += 1;
      running.delete(call.call);
      if (call.hasFailed) failed += 1;
      groups.take(call).networkMs = networkMs;
    },
    running: (call) => void running.set(call.call, call),
    note: (text) => {
      note = text;
      // Of some the end may be what was lost.
      running.clear();
    },
    idle: () =>
      screen.draw(
        viewLines({ words, calls, failed, note, running: [...running.values()], nowMs: clock.nowMs() }, groups.groups, screen.rows, screen.columns, COLOURS),
      ),
    end: () => {
      const width = screen.columns;
      screen[Symbol.dispose]();
      // What was seen last stays on the terminal.
      const last = groups.groups.filter(({ pod }) => pod !== '').sort((a, b) => a.lastMs - b.lastMs);
      for (const group of last.slice(-3)) host.stdout(`${groupLines(group, width, COLOURS).join('\n')}\n`);
      host.stdout(`${calls} calls${failed > 0 ? `, ${failed} failed` : ''}\n`);
    },
  };
}

/** Runs `take` on what comes and `idle` between, until the source or the signal ends. */
async function follow(
  source: AsyncIterable<Seen | Running>,
  clock: Clock,
  signal: AbortSignal,
  show: Show,
  take: (seen: Seen | Running) => Promise<void> | void,
): Promise<void> {
  const over = new AbortController();
  const ticking = (async () => {
    while (!over.signal.aborted) {
      show.idle();
      await clock.sleep(DRAW_MS, AbortSignal.any([over.signal, signal])).catch(() => over.abort());
    }
  })();
  try {
    for await (const seen of source) await take(seen);
  } finally {
    over.abort();
    await ticking;
    show.end();
  }
}

/** `nodelet cri watch`: of a recording; or of a tap, until that ends or Ctrl-C. `what` is a file, or a pod as kubectl names it. */
export async function watchWhat(host: Host, what: string | undefined, flags: WatchFlags, clock: Clock, recorder: string): Promise<number> {
  if (what === undefined) return watchTap(host, flags, clock, recorder);
  if (/^pods?\//.test(what) && !existsSync(what)) return watchTap(host, { ...flags, pod: what }, clock, recorder);
  return watchFile(host, what, flags);
}

async function watchTap(host: Host, flags: WatchFlags, clock: Clock, recorder: string): Promise<number> {
  const wanted = choosing(flags);
  const say = (text: string): void => host.stderr(`nodelet cri watch: ${text}\n`);
  const over = new AbortController();
  const end = AbortSignal.any([host.signal, over.signal]);
  await using tap = await reachTap(flags, { recorder, pid: host.pid, env: host.env, signal: host.signal, clock, say });
  void tap.ended.then(() => over.abort());
  const network = flags.metrics === undefined ? null : new NetworkTimes(flags.metrics, say);
  await network?.begin(end);
  const isWindow = host.isTerminal && !flags.json && !flags.lines;
  if (!isWindow) say(`at ${tap.words}; Ctrl-C ends it`);
  const show = flags.json ? asJson(host) : isWindow ? asWindow(host, tap.words, clock) : asLines(host, clock);
  await follow(seenAtTap(tap.control, end), clock, end, show, async (seen) => {
    if (seen.kind === 'note') {
      if (seen.isLoss) show.note(seen.text);
      return;
    }
    if (seen.kind === 'running') {
      if (wanted(seen.running)) show.running(seen.running);
      return;
    }
    // Asked of each that succeeded, wanted or not: the difference is the last one's.
    const networkMs = network !== null && seen.method === 'RunPodSandbox' && seen.outcome === 'OK' ? await network.since(end) : null;
    if (wanted(seen)) show.take(seen, networkMs);
  });
  return 0;
}
