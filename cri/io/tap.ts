import { existsSync } from 'node:fs';
import { realpath } from 'node:fs/promises';
import { MessageChannel } from 'node:worker_threads';
import { hasCode, messageOf, OpError } from '../../base/errors.ts';
import type { Clock } from '../../base/clock.ts';
import { realRng } from '../../base/rng.ts';
import type { FaultRule } from '../core/fault-rules.ts';
import { RECORDING_VERSION, type RecordingHeader } from '../core/recording.ts';
import { recordedTime } from './call-log.ts';
import { startDecoder, type DecodeTotals } from './decoder.ts';
import { createFeedMemory, feedNumbers, type FeedNumbers } from './feed-gate.ts';
import { startFeed } from './feed-thread.ts';
import { socketPath } from './socket-path.ts';
import { answers, openSplice, type Splice } from './splice.ts';
import { openSysSplice } from './splice-sys.ts';
import { FaultSwitch, rulesOf, type FaultState, type TapFaults } from './tap-faults.ts';
import { registerTap, type RegisteredTap } from './tap-registry.ts';

export interface TapOptions {
  /** Paths or `unix://` URLs. */
  readonly listen: string;
  readonly upstream: string;
  readonly record?: { readonly path: string; readonly maxBytes: number; readonly append: boolean } | undefined;
  readonly withSecrets?: boolean;
  readonly output?: 'none' | 'lines' | 'json';
  /** What waits for the decoder at most. */
  readonly bufferBytes?: number;
  /**
   * Serves `<listen>.tap`, or `path`: entries to whoever looks, and requests. With `registry` the tap writes itself down in that
   * folder, so that it is found. Calls are followed then even when nothing is recorded or printed.
   */
  readonly control?: { readonly path?: string; readonly registry?: string; readonly pid: number };
  /** Other ways to the same two sockets, for a caller that puts the listening one into its place itself: where it is bound, and where the runtime is reached. */
  readonly through?: { readonly bind: string; readonly connect: string };
  /** The program `sys`: a process of it passes bytes on, where it is there. Else this one does, and callers wait while it does other things. */
  readonly sys?: string | undefined;
  /** Called with the code of each connection that the upstream socket did not take. */
  readonly unreachable?: (code: string) => void;
  /** Armed from the start. */
  readonly rules?: readonly FaultRule[];
  /** Chance for rules that leave something to it: a number in [0, 1). */
  readonly draw?: () => number;
  readonly recorder: string;
  readonly clock: Clock;
  /** Gets what the tap has to say of itself. */
  readonly say?: (text: string) => void;
}

/** What `status` answers. */
export interface TapStatus extends Omit<FeedNumbers, 'recording' | 'fileBytes'> {
  readonly listen: string;
  readonly upstream: string;
  readonly recorder: string;
  /** RFC 3339. */
  readonly startedAt: string;
  readonly redacted: boolean;
  readonly connections: number;
  readonly openConnections: number;
  readonly bytes: number;
  readonly recording: { readonly path: string; readonly bytes: number; readonly goesOn: boolean } | null;
  readonly faults: FaultState;
}

export interface Tap {
  readonly counts: Splice['counts'];
  readonly faults: TapFaults;
  /** The control socket; null without. */
  readonly control: string | null;
  /** Resolves when it is to end, and its owner calls `stop` then: with null when somebody asked so over the control socket, else with the reason. */
  readonly stopAsked: Promise<string | null>;
  /** Closes everything; null when nothing was decoded. */
  stop(): Promise<DecodeTotals | null>;
}

const BUFFER_BYTES = 16 * 1024 * 1024;

async function isSame(listen: string, upstream: string): Promise<boolean> {
  try {
    const [a, b] = await Promise.all([realpath(listen), realpath(upstream)]);
    return a === b;
  } catch {
    return listen === upstream;
  }
}

/**
 * Puts itself between callers and a runtime: what they say passes as it is, and what it says is decoded beside that from
 * copies, in a thread of its own, when anybody wants it. Throws OpError when it cannot listen or record.
 */
export async function openTap(options: TapOptions): Promise<Tap> {
  const { clock, record, output = 'none', say = () => {}, control: wanted } = options;
  const listen = socketPath(options.listen);
  const upstream = socketPath(options.upstream);
  if (await isSame(listen, upstream))
    throw new OpError('invalid', 'starting the tap', 'it would listen where it connects to', { advice: 'name two different sockets' });
  const reached = onReach(options, upstream, say);
  const startedAt = recordedTime({ wallMs: clock.nowMs(), monoMs: clock.monoMs() });
  const header: RecordingHeader = {
    type: 'recording',
    version: RECORDING_VERSION,
    recorder: options.recorder,
    startedAt,
    listen,
    upstream,
    redacted: options.withSecrets !== true,
  };
  const memory = createFeedMemory();
  const ends = wanted === undefined ? null : new MessageChannel();
  const decodes = record !== undefined || output !== 'none' || ends !== null;
  const decoder = decodes
    ? await startDecoder(
        {
          record: record ?? null,
          header,
          withSecrets: options.withSecrets === true,
          output,
          feed: ends === null ? null : { memory, port: ends.port1 },
        },
        { bufferBytes: options.bufferBytes ?? BUFFER_BYTES, clock, say },
      )
    : null;
  const opened: AsyncDisposable[] = [];
  let totals: DecodeTotals | null = null;
  const stop = async (): Promise<DecodeTotals | null> => {
    for (const open of opened.splice(0)) await open[Symbol.asyncDispose]();
    return totals;
  };
  try {
    const [bind, connect] = [options.through?.bind ?? listen, options.through?.connect ?? upstream];
    const faults = new FaultSwitch({ listen: bind, upstream: connect, clock, draw: options.draw ?? (() => realRng.float()), say });
    const { sys, bufferBytes = BUFFER_BYTES } = options;
    const between = { listen: bind, upstream: connect, onlooker: decoder, reached };
    const splice =
      sys !== undefined && existsSync(sys)
        ? await openSysSplice({ ...between, sys, bufferBytes, clock }).catch((error: unknown) => {
            if (!hasCode(error, 'unsupported')) throw error;
            say(`${messageOf(error)}; bytes are passed on by this process`);
            return openSplice(between);
          })
        : await openSplice(between);
    faults.use(splice);
    opened.push(splice, faults);
    if (options.rules !== undefined) await faults.set(options.rules);
    if (options.through === undefined && !(await answers(upstream))) reached('nobody listens there');
    if (decoder !== null) opened.push({ [Symbol.asyncDispose]: async () => void (totals = await decoder.finish()) });
    const asked = Promise.withResolvers<string | null>();
    void splice.broken.then(asked.resolve);
    const tap = { counts: splice.counts, faults, stopAsked: asked.promise, stop };
    if (wanted === undefined || decoder === null || ends === null) return { ...tap, control: null };
    const control = wanted.path ?? `${listen}.tap`;
    const answer = answering({ options, faults, header, counts: splice.counts, memory, stop: () => asked.resolve(null) });
    const feed = await startFeed({ control, end: { memory, port: ends.port2 }, ringControl: decoder.ringControl }, { answer, say });
    // Ends last: viewers read to the decoder's last entry.
    opened.push(feed);
    if (wanted.registry !== undefined)
      opened.unshift(await registered({ pid: wanted.pid, control, listen, upstream, startedAt: startedAt.wall }, wanted.registry, say));
    return { ...tap, control };
  } catch (error) {
    if (opened.length === 0) await decoder?.finish();
    await stop();
    throw error;
  }
}

/** Says when the runtime cannot be reached, and when it can again: once each, not for every connection. */
function onReach(options: TapOptions, upstream: string, say: (text: string) => void): (refusal: string | null) => void {
  let before: string | null = null;
  return (refusal) => {
    if (refusal !== null) options.unreachable?.(refusal);
    // Who has put the sockets in their places knows more, and says it.
    if (options.through === undefined && (refusal === null) !== (before === null))
      say(refusal === null ? `${upstream} can be reached again` : `${upstream} cannot be reached (${refusal}): connections are closed until it can`);
    before = refusal;
  };
}

/** A tap that cannot write itself down is found by nobody, and works all the same. */
async function registered(tap: RegisteredTap, registry: string, say: (text: string) => void): Promise<AsyncDisposable> {
  try {
    return await registerTap(tap, registry);
  } catch (error) {
    say(`it is not written down in ${registry}, so viewers need --tap ${tap.control}: ${messageOf(error)}`);
    return { [Symbol.asyncDispose]: () => Promise.resolve() };
  }
}

/** Answers what is asked over the control socket. */
function answering(tap: {
  options: TapOptions;
  faults: TapFaults;
  header: RecordingHeader;
  counts: Splice['counts'];
  memory: SharedArrayBuffer;
  stop: () => void;
}): (request: Readonly<Record<string, unknown>>) => object | Promise<object> {
  const { faults } = tap;
  const { record } = tap.options;
  const status = (): TapStatus => {
    const { listen, upstream, recorder, startedAt, redacted } = tap.header;
    const { recording, fileBytes, ...numbers } = feedNumbers(tap.memory);
    const { opened, open, bytes } = tap.counts;
    return {
      ...{ listen, upstream, recorder, startedAt: startedAt.wall, redacted },
      ...{ connections: opened, openConnections: open, bytes, ...numbers },
      recording: record === undefined ? null : { path: record.path, bytes: fileBytes, goesOn: recording },
      faults: faults.list(),
    };
  };
  return (request) => {
    const what = request['do'];
    if (what === 'status') return status();
    if (what === 'stop') {
      tap.stop();
      return { stopping: true };
    }
    if (what !== 'fault' && what !== 'faults')
      throw new OpError('invalid', 'ask the tap', `it knows no ${JSON.stringify(what)}`, { advice: 'it knows feed, status, faults, fault and stop' });
    if (what === 'faults') return faults.list();
    return faults.set(rulesOf(request), { add: request['add'] === true, keep: request['keep'] === true });
  };
}
