import { setTimeout as delay } from 'node:timers/promises';
import type { RecordedEntry } from '../core/recording.ts';
import { TimelineCalls } from '../core/timeline-calls.ts';
import type { TimelineCall } from '../core/timeline.ts';
import { toWire, type WebCallBodies, type WebEvent, type WireCall } from '../core/web-wire.ts';
import type { FeedEntry } from './feed.ts';
import { entriesOf, readFrames } from './recording-read.ts';
import { WebBodies } from './web-bodies.ts';

/** A day of a kubelet with nothing to do, or an hour of a busy one; some 60 MB. */
const MAX_LOG = 250_000;
/** What compressed messages of a live feed may take. */
const BODY_BYTES = 96 * 1024 * 1024;
/** How long a call waits for others. */
const GATHER_MS = 30;
/** What one event carries. */
const BATCH = 1_000;

/** What viewers are shown: calls in the order in which they were made or changed, and where their messages are. */
export class WebStore implements AsyncDisposable {
  readonly #calls = new TimelineCalls();
  readonly #bodies = new WebBodies(BODY_BYTES);
  /** Beginning at `#forgotten`. */
  #log: (TimelineCall | string)[] = [];
  #forgotten = 0;
  #whole = false;
  #waiting = new Set<() => void>();
  readonly #maxLog: number;

  /** @param maxLog calls and notes that are kept for viewers; the oldest are forgotten */
  constructor(maxLog = MAX_LOG) {
    this.#maxLog = maxLog;
  }

  /** Reads a recording to its end. Throws as `readRecording`. */
  async readFile(path: string, signal: AbortSignal): Promise<void> {
    const cut = (bytes: number): void => this.note(`the last ${bytes} bytes are cut off: its recorder was killed`);
    for await (const { at, text } of readFrames(path, cut)) {
      if (signal.aborted) return;
      await this.#bodies.frame(path, at);
      for (const entry of entriesOf(text, `read the recording ${path}`)) this.#take(entry);
      this.#wake();
    }
    this.#whole = true;
    this.#wake();
  }

  /** Takes a feed until it ends. */
  async follow(feed: AsyncIterable<FeedEntry>): Promise<void> {
    for await (const entry of feed) {
      if (entry.type === 'lost') this.note(`${entry.entries} records were lost: this program could not read as fast as they came`);
      else if (entry.type !== 'running') {
        this.#bodies.hold(entry);
        this.#take(entry);
      }
      this.#wake();
    }
  }

  note(text: string): void {
    this.#push(text);
    this.#wake();
  }

  bodies(id: number): Promise<WebCallBodies | null> {
    return this.#bodies.find(id);
  }

  /** What a viewer that has seen everything before `cursor` is to be told next; waits for something. */
  async *events(cursor: number, signal: AbortSignal): AsyncGenerator<{ event: WebEvent; cursor: number }> {
    let toldWhole = false;
    let at = cursor;
    while (!signal.aborted) {
      const left = this.#forgotten - at;
      if (left > 0) at = this.#forgotten;
      const slice = this.#log.slice(at - this.#forgotten, at - this.#forgotten + BATCH);
      at += slice.length;
      const atEnd = at === this.#forgotten + this.#log.length;
      const whole: boolean = atEnd && this.#whole && !toldWhole;
      if (slice.length > 0 || left > 0 || whole) {
        toldWhole ||= whole;
        yield { event: eventOf(slice, left, whole), cursor: at };
      } else {
        await this.#change(signal);
        // What comes together goes out together.
        await delay(GATHER_MS);
      }
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#wake();
    await this.#bodies[Symbol.asyncDispose]();
  }

  #take(entry: RecordedEntry): void {
    const before = this.#calls.count;
    const call = this.#calls.take(entry);
    this.#bodies.add(entry, call !== null && this.#calls.count > before ? call.id : null);
    if (call !== null) this.#push(call);
    else if (entry.type === 'connection' && entry.event === 'blind')
      this.#push(`${entry.at.wall.slice(11, 23)} connection ${entry.connection} is not followed from here on: ${entry.reason ?? ''}`);
    else if (entry.type === 'stop')
      this.#push(`${entry.at.wall.slice(11, 23)} ${entry.reason === 'full' ? 'the recording was full' : 'recording ended'} after ${entry.calls} calls`);
  }

  #push(what: TimelineCall | string): void {
    this.#log.push(what);
    // By the thousand, because each time moves all that is left.
    if (this.#log.length < this.#maxLog + BATCH) return;
    this.#log = this.#log.slice(BATCH);
    this.#forgotten += BATCH;
  }

  #wake(): void {
    const waiting = this.#waiting;
    this.#waiting = new Set();
    for (const wake of waiting) wake();
  }

  #change(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        signal.removeEventListener('abort', done);
        this.#waiting.delete(done);
        resolve();
      };
      signal.addEventListener('abort', done, { once: true });
      this.#waiting.add(done);
    });
  }
}

function eventOf(slice: readonly (TimelineCall | string)[], left: number, whole: boolean): WebEvent {
  const calls: WireCall[] = [];
  const notes: string[] = [];
  for (const item of slice)
    if (typeof item === 'string') notes.push(item);
    else calls.push(toWire(item));
  return {
    ...(left > 0 ? { left } : {}),
    ...(calls.length > 0 ? { calls } : {}),
    ...(notes.length > 0 ? { notes } : {}),
    ...(whole ? { whole: true as const } : {}),
  };
}
