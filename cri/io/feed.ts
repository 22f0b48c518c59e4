import { connect, type Socket } from 'node:net';
import { OpError } from '../../base/errors.ts';
import type { RecordedEntry, RunningCall } from '../core/recording.ts';
import type { FailureText } from './feed-serve.ts';
import { socketPath } from './socket-path.ts';

/** In place of entries that the viewer was too slow for. */
export interface LostEntries {
  readonly type: 'lost';
  readonly entries: number;
}

export type FeedEntry = RecordedEntry | LostEntries | RunningCall;

/** No entry of ours comes near: messages share 64 MiB. */
const MAX_LINE_BYTES = 256 * 1024 * 1024;
/** How long a tap may think before its first word. */
const FIRST_WORD_MS = 5_000;
const NEWLINE = 10;
const BRACE = 0x7b;

function reached(control: string, signal: AbortSignal): Promise<Socket> {
  const path = socketPath(control);
  return new Promise((resolve, reject) => {
    const socket = connect({ path });
    const stop = (): void => void socket.destroy(new OpError('aborted', `reach the tap at ${path}`, 'stopped by the caller'));
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop, { once: true });
    socket.once('close', () => signal.removeEventListener('abort', stop));
    socket.once('connect', () => resolve(socket));
    socket.on('error', (cause: NodeJS.ErrnoException) => {
      if (cause instanceof OpError) return reject(cause);
      const denied = cause.code === 'EACCES';
      reject(
        new OpError(denied ? 'denied' : 'unavailable', `reach the tap at ${path}`, cause.message, {
          cause,
          advice: denied ? 'the tap is another user’s: use sudo' : 'is it running? nodelet cri tap and nodelet cri attach start one',
        }),
      );
    });
  });
}

function noTap(control: string, cause?: unknown): OpError {
  return new OpError('invalid', `reach the tap at ${control}`, 'what answers there is no tap', {
    cause,
    advice: 'name its control socket: the one that it listens at, with .tap behind it',
  });
}

/** What a tap says begins as an object does; a runtime’s own words come without the end of a line. */
async function* linesOf(socket: Socket, control: string): AsyncGenerator<string> {
  socket.setTimeout(FIRST_WORD_MS, () =>
    socket.destroy(
      new OpError('deadline', `reach the tap at ${control}`, `what answers there has said nothing for ${FIRST_WORD_MS / 1000} s`, {
        advice: 'is it a tap’s control socket, and does that tap run? nodelet cri tap and nodelet cri attach start one',
      }),
    ),
  );
  let parts: Buffer[] = [];
  let held = 0;
  for await (const chunk of socket as AsyncIterable<Buffer>) {
    socket.setTimeout(0);
    let from = 0;
    if (parts.length === 0 && chunk[0] !== BRACE) throw noTap(control);
    for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, from)) {
      parts.push(chunk.subarray(from, end));
      yield Buffer.concat(parts).toString();
      parts = [];
      held = 0;
      from = end + 1;
    }
    if (from < chunk.length) {
      parts.push(chunk.subarray(from));
      held += chunk.length - from;
      if (held > MAX_LINE_BYTES) throw new OpError('invalid', 'read from the tap', 'a line without an end');
    }
  }
}

function parse(line: string, control: string): object {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch (cause) {
    throw noTap(control, cause);
  }
  if (value === null || typeof value !== 'object') throw noTap(control);
  if (!('error' in value)) return value;
  const { code, doing, detail, advice } = value.error as FailureText;
  throw new OpError(code, doing, detail, { advice });
}

/**
 * What a running tap sees from now on: the recording's header, the connections and streams that are open, then entries
 * as they come. A viewer that does not read loses entries and is told how many. Ends with the signal or with the tap; when
 * that was killed, without a `stop`. Throws OpError `unavailable` and `denied`.
 */
export async function* connectFeed(control: string, signal: AbortSignal): AsyncGenerator<FeedEntry> {
  if (signal.aborted) return;
  const socket = await reached(control, signal);
  let hasBegun = false;
  try {
    socket.write('{"do":"feed"}\n');
    for await (const line of linesOf(socket, control)) {
      yield parse(line, control) as FeedEntry;
      hasBegun = true;
    }
  } catch (error) {
    // A tap that was killed ends its feed, too.
    if (!signal.aborted && (error as NodeJS.ErrnoException).code !== 'ECONNRESET') throw error;
  } finally {
    socket.destroy();
  }
  if (!hasBegun && !signal.aborted) throw noTap(control);
}

/** One request, one answer. Throws what the tap refused as OpError, and as `connectFeed`. */
export async function askTap(control: string, request: { readonly do: string; readonly [key: string]: unknown }, signal: AbortSignal): Promise<object> {
  const socket = await reached(control, signal);
  try {
    socket.write(`${JSON.stringify(request)}\n`);
    for await (const line of linesOf(socket, control)) return parse(line, control);
    throw new OpError('unavailable', `ask the tap at ${control}`, 'it ended before it answered');
  } finally {
    socket.destroy();
  }
}
