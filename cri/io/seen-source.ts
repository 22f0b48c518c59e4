import type { RecordedEntry, RunningCall } from '../core/recording.ts';
import { shown } from '../core/shown.ts';
import { SeenCalls, type SeenCall } from '../core/seen-calls.ts';
import { connectFeed, type FeedEntry } from './feed.ts';
import { readRecording } from './recording-read.ts';

/** What is to be said besides calls: of the recording, of connections, of what is missing. */
export interface SourceNote {
  readonly kind: 'note';
  readonly atMs: number;
  readonly text: string;
  /** Set where something is missing or went wrong. */
  readonly isLoss: boolean;
}

/** A call that goes on for more than a second, once; it comes again when it has ended. */
export interface Running {
  readonly kind: 'running';
  readonly running: SeenCall;
}

export type Seen = SeenCall | SourceNote;

class Reader {
  readonly #calls = new SeenCalls();
  #shiftMs = 0;

  *take(entry: FeedEntry): Generator<Seen> {
    const note = this.#note(entry);
    if (note !== null) yield note;
    if (entry.type === 'lost' || entry.type === 'running') return;
    const call = this.#calls.take(entry);
    if (call !== null) yield call;
  }

  running(entry: RunningCall): Running[] {
    const running = this.#calls.take({ ...entry, type: 'call', end: null, responses: [], status: null });
    return running === null ? [] : [{ kind: 'running', running }];
  }

  #note(entry: RecordedEntry | FeedEntry): SourceNote | null {
    const note = (monoMs: number, text: string, isLoss: boolean): SourceNote => ({
      kind: 'note',
      atMs: this.#shiftMs + monoMs,
      text: shown(text),
      isLoss,
    });
    switch (entry.type) {
      case 'recording':
        this.#shiftMs = Date.parse(entry.startedAt.wall) - entry.startedAt.monoMs;
        return note(
          entry.startedAt.monoMs,
          `recorded by ${entry.recorder} from ${entry.startedAt.wall}, ${entry.upstream}${entry.redacted ? '' : ', with secrets'}`,
          false,
        );
      case 'connection':
        return entry.event === 'blind'
          ? note(entry.at.monoMs, `connection ${entry.connection} is not followed from here on: ${entry.reason ?? ''}`, true)
          : null;
      case 'lost':
        return { kind: 'note', atMs: 0, text: `${entry.entries} entries came faster than they were read: they are not shown`, isLoss: true };
      case 'stop': {
        const why = entry.reason === 'full' ? 'the file was full' : 'recording ended';
        const blind = entry.blindConnections === 0 ? '' : `; ${entry.blindConnections} connections were not followed to their end`;
        return note(entry.at.monoMs, `${why} after ${entry.calls} calls${blind}`, entry.reason === 'full' || blind !== '');
      }
      default:
        return null;
    }
  }
}

/** The calls of a recording in the order in which they ended; one frame in memory at a time. Throws as `readRecording`. */
export async function* seenInFile(file: string, signal: AbortSignal): AsyncGenerator<Seen> {
  const reader = new Reader();
  let cutBytes = 0;
  for await (const entry of readRecording(file, (bytes) => (cutBytes = bytes))) {
    if (signal.aborted) return;
    yield* reader.take(entry);
  }
  if (cutBytes > 0) yield { kind: 'note', atMs: 0, text: `the last ${cutBytes} bytes of ${file} are cut off: its recorder was killed`, isLoss: true };
}

/** Calls as a running tap sees them, until the signal or the tap ends. Throws as `connectFeed`. */
export async function* seenAtTap(control: string, signal: AbortSignal): AsyncGenerator<Seen | Running> {
  const reader = new Reader();
  let isWhole = false;
  for await (const entry of connectFeed(control, signal)) {
    if (entry.type === 'stop') isWhole = true;
    yield* entry.type === 'running' ? reader.running(entry) : reader.take(entry);
  }
  if (!isWhole && !signal.aborted)
    yield { kind: 'note', atMs: 0, text: 'the feed ended before the tap’s last word: the tap was killed, or waited no longer for this to read', isLoss: true };
}
