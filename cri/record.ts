import { spawn } from 'node:child_process';
import { constants } from 'node:os';
import { untilAborted } from '../base/abort.ts';
import type { Clock } from '../base/clock.ts';
import { messageOf, OpError } from '../base/errors.ts';
import type { Host } from '../base/host.ts';
import { durationText } from './core/duration-text.ts';
import { SeenCalls } from './core/seen-calls.ts';
import { sizeText } from './core/table.ts';
import { askTap, connectFeed } from './io/feed.ts';
import { reachTap, type ReachedTap, type ReachOptions } from './io/reach-tap.ts';
import { readRecording } from './io/recording-read.ts';
import { RecordingWriter } from './io/recording-write.ts';
import type { TapStatus } from './io/tap.ts';

export interface RecordFlags extends ReachOptions {
  readonly output: string;
  readonly append: boolean;
  readonly maxSize: number;
  readonly withSecrets: boolean;
  /** Milliseconds; without it until the command or Ctrl-C ends it. */
  readonly for?: number;
  readonly json: boolean;
}

/** How long the last calls of a command are waited for: the decoder comes behind them. */
const SETTLE_MS = 1_000;
const FLUSH_MS = 500;
/** How often a tap of this command's own is asked whether its file takes more. */
const LOOK_MS = 250;
const TICK_MS = 1_000;

/** What a recording is being made by; `stop` ends it whole. */
interface Recorder {
  readonly numbers: () => Promise<{ calls: number; bytes: number }>;
  /** Entries that are missing because they came too fast. */
  readonly lost: () => number;
  /** Resolves when it can go no further, with the reason; empty when the tap has said it. */
  readonly ended: Promise<string>;
  readonly stop: () => Promise<void>;
}

/** The tap of this command's own writes the file itself: nothing is lost. */
function byItself(tap: ReachedTap, clock: Clock): Recorder {
  const over = new AbortController();
  const status = async (): Promise<TapStatus> => (await askTap(tap.control, { do: 'status' }, over.signal)) as TapStatus;
  const full = (async () => {
    do await clock.sleep(LOOK_MS, over.signal);
    while ((await status()).recording?.goesOn === true);
    return '';
  })();
  full.catch(() => {});
  return {
    numbers: async () => {
      const { calls, recording } = await status();
      return { calls, bytes: recording?.bytes ?? 0 };
    },
    lost: () => 0,
    ended: Promise.race([tap.ended.then(() => 'the tap has ended'), full]),
    stop: async () => {
      over.abort();
      await tap[Symbol.asyncDispose]();
    },
  };
}

/** What another one's tap tells is written here. */
function fromFeed(tap: ReachedTap, flags: RecordFlags, clock: Clock): Recorder {
  const writer = new RecordingWriter(flags.output, { maxBytes: flags.maxSize, append: flags.append });
  const over = new AbortController();
  const ended = Promise.withResolvers<string>();
  let calls = 0;
  let lost = 0;
  let blind = 0;
  let isOver = false;
  let last = { wall: new Date(clock.nowMs()).toISOString(), monoMs: 0 };
  const following = (async () => {
    for await (const entry of connectFeed(tap.control, over.signal)) {
      if (entry.type === 'lost') {
        lost += entry.entries;
        continue;
      }
      // It comes again, whole, when it has ended.
      if (entry.type === 'running') continue;
      if (entry.type === 'recording' && flags.withSecrets && entry.redacted)
        throw new OpError('unsupported', 'recording with secrets', 'the tap that runs withholds them', { advice: 'start that one with --with-secrets' });
      if (entry.type === 'call') calls += 1;
      if (entry.type === 'connection' && entry.event === 'blind') blind += 1;
      if (entry.type === 'stop') isOver = true;
      else if (entry.type === 'recording') last = entry.startedAt;
      else if (entry.type === 'call') last = entry.end ?? entry.start;
      writer.add(entry);
      if (writer.full) return ended.resolve('the file is full');
    }
    if (!over.signal.aborted) ended.resolve('the tap has ended');
  })();
  following.catch(ended.reject);
  const flushing = (async () => {
    while (!over.signal.aborted) {
      await clock.sleep(FLUSH_MS, over.signal).catch(() => {});
      if (!writer.full) writer.flush();
    }
  })();
  flushing.catch(ended.reject);
  return {
    numbers: () => Promise.resolve({ calls, bytes: writer.sizeBytes }),
    lost: () => lost,
    ended: ended.promise,
    stop: async () => {
      over.abort();
      await following.catch(() => {});
      await flushing.catch(() => {});
      if (!isOver) writer.add({ type: 'stop', at: last, reason: writer.full ? 'full' : 'ended', calls, blindConnections: blind });
      writer[Symbol.dispose]();
    },
  };
}

/** Runs a command with this terminal as its own; its exit code, 128 + the signal's number when one ended it. */
function run(command: readonly string[], signal: AbortSignal): Promise<number> {
  const [program = '', ...args] = command;
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { stdio: 'inherit' });
    const stop = (): void => void child.kill('SIGTERM');
    signal.addEventListener('abort', stop, { once: true });
    child.once('error', (cause) => reject(new OpError('not-found', `run ${program}`, messageOf(cause), { cause })));
    child.once('close', (code, name) => {
      signal.removeEventListener('abort', stop);
      resolve(code ?? 128 + (name === null ? 0 : constants.signals[name]));
    });
  });
}

/** Reads what was written: how many pods and errors. */
async function summary(file: string): Promise<{ calls: number; pods: number; errors: number }> {
  const pods = new Set<string>();
  let calls = 0;
  let errors = 0;
  const reader = new SeenCalls();
  for await (const entry of readRecording(file)) {
    const seen = reader.take(entry);
    // What was in the file before is not this recording's.
    if (entry.type === 'recording') {
      [calls, errors] = [0, 0];
      pods.clear();
    }
    if (seen?.kind !== 'call') continue;
    calls += 1;
    if (seen.group !== '') pods.add(seen.group);
    if (seen.hasFailed) errors += 1;
  }
  return { calls, pods: pods.size, errors };
}

/** `nodelet cri record`: of what passes while a command runs, for a while, or until Ctrl-C. The command's exit code is its own. */
export async function record(host: Host, command: readonly string[], flags: RecordFlags, clock: Clock, recorder: string): Promise<number> {
  const say = (text: string): void => host.stderr(`nodelet cri record: ${text}\n`);
  const file = { path: flags.output, maxBytes: flags.maxSize, append: flags.append };
  await using tap = await reachTap(flags, {
    recorder,
    pid: host.pid,
    env: host.env,
    signal: host.signal,
    clock,
    say,
    record: file,
    withSecrets: flags.withSecrets,
  });
  const recording = tap.isFound ? fromFeed(tap, flags, clock) : byItself(tap, clock);
  const from = clock.monoMs();
  let code = 0;
  let why: string | null = null;
  const over = new AbortController();
  const end = AbortSignal.any([host.signal, over.signal]);
  const isShown = process.stderr.isTTY && command.length === 0;
  if (!isShown) say(`${flags.output}, at ${tap.words}${command.length === 0 ? '; Ctrl-C ends it' : ''}`);
  const ticking = (async () => {
    if (!isShown) return;
    while (!end.aborted) {
      const { calls, bytes } = await recording.numbers();
      host.stderr(`\r${durationText(clock.monoMs() - from)}  ${calls} calls  ${sizeText(bytes)} in ${flags.output}   `);
      await clock.sleep(TICK_MS, end).catch(() => {});
    }
    host.stderr('\n');
  })();
  ticking.catch(() => {});
  try {
    if (command.length > 0) {
      const early = recording.ended.then((text) => (why = text));
      early.catch(() => {});
      code = await run(command, host.signal);
      await clock.sleep(SETTLE_MS);
    } else {
      const waits: Promise<unknown>[] = [untilAborted(host.signal), recording.ended.then((text) => (why = text))];
      if (flags.for !== undefined) waits.push(clock.sleep(flags.for, end).catch(() => {}));
      await Promise.race(waits);
    }
  } finally {
    over.abort();
    await ticking.catch(() => {});
    await recording.stop();
  }
  const lasted = durationText(clock.monoMs() - from);
  const { calls, pods, errors } = await summary(flags.output);
  const lost = recording.lost();
  if (flags.json)
    host.stdout(
      `${JSON.stringify({ file: flags.output, calls, pods, errors, entriesLost: lost, ended: why === '' ? 'the file takes no more' : why, exitCode: code })}\n`,
    );
  if (why !== null && why !== '') say(why);
  if (lost > 0) say(`${lost} entries came faster than they were written: they are missing`);
  if (!flags.json) say(`${calls} calls, ${pods} pods, ${errors} errors in ${lasted}`);
  return code;
}
