import { closeSync, constants, openSync, writeSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';
import { realClock } from '../../base/clock.ts';
import { messageOf, OpError, type OpCode } from '../../base/errors.ts';
import { summarize, summaryLine } from '../core/call-line.ts';
import { ConnectionDecoder, type Stamp } from '../core/connection.ts';
import { ByteBudget } from '../core/grpc-messages.ts';
import { IdentityBook } from '../core/identity.ts';
import type { RecordedConnection, RecordedEntry, RecordedStop, RecordingHeader } from '../core/recording.ts';
import { CallLog, recordedTime } from './call-log.ts';
import { FeedOutlet, type FeedEnd } from './feed-gate.ts';
import { RecordingWriter } from './recording-write.ts';
import { RingReader, type Note, type RingMemory } from './ring.ts';

/** How the decoding thread is started. */
export interface DecodeOrder {
  readonly role: 'decoder';
  readonly memory: RingMemory;
  readonly record: { readonly path: string; readonly maxBytes: number; readonly append: boolean } | null;
  readonly header: RecordingHeader;
  readonly withSecrets: boolean;
  /** What goes to standard output for each call. */
  readonly output: 'none' | 'lines' | 'json';
  /** Where entries go for those who look; null without. */
  readonly feed: FeedEnd | null;
}

/** What it says back. */
export type DecodeReport =
  | { readonly kind: 'ready' }
  | { readonly kind: 'failed'; readonly code: OpCode; readonly doing: string; readonly detail: string; readonly advice: string }
  | { readonly kind: 'note'; readonly text: string }
  | { readonly kind: 'done'; readonly calls: number; readonly blindConnections: number; readonly linesLost: number; readonly fileBytes: number };

/** Messages that are unfinished or wait for the end of their call, all together. */
const BUDGET_BYTES = 64 * 1024 * 1024;
/** Calls that last longer are told while they do. */
const RUNNING_MS = 1_000;
/** What a kill can lose of a recording. */
const FLUSH_MS = 500;

/** Lines to standard output, past a reader that does not read: what finds no room is lost, and counted. */
class LineOutput implements Disposable {
  readonly #fd: number;
  readonly #own: boolean;
  lost = 0;
  #rest: Buffer = Buffer.alloc(0);

  constructor() {
    let fd = 1;
    try {
      // Opened once more, so that not waiting is this thread's affair alone.
      fd = openSync('/proc/self/fd/1', constants.O_WRONLY | constants.O_NONBLOCK | constants.O_APPEND);
    } catch {
      // A socket cannot be opened again: then its reader is waited for, and the ring bounds what that costs.
    }
    this.#fd = fd;
    this.#own = fd !== 1;
  }

  line(text: string): void {
    // A line that was begun comes to its end before another.
    if (this.#rest.length > 0 && !this.#write(this.#rest)) {
      this.lost += 1;
      return;
    }
    this.#write(Buffer.from(`${text}\n`));
  }

  #write(bytes: Buffer): boolean {
    this.#rest = bytes;
    try {
      while (this.#rest.length > 0) this.#rest = this.#rest.subarray(writeSync(this.#fd, this.#rest));
      return true;
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      // The reader is gone for good (EPIPE), or does not read just now (EAGAIN).
      if (code !== 'EAGAIN') this.#rest = Buffer.alloc(0);
      else if (this.#rest.length === bytes.length) {
        this.lost += 1;
        this.#rest = Buffer.alloc(0);
      }
      return false;
    }
  }

  [Symbol.dispose](): void {
    if (this.#own) closeSync(this.#fd);
  }
}

interface Followed {
  readonly decoder: ConnectionDecoder;
  /** What a viewer who comes late is told of it: that it was opened, and perhaps that it is not followed. */
  readonly told: RecordedConnection[];
}

class DecodeLoop {
  readonly #order: DecodeOrder;
  readonly #say: (report: DecodeReport) => void;
  readonly #budget = new ByteBudget(BUDGET_BYTES);
  readonly #decoders = new Map<number, Followed>();
  readonly #book = new IdentityBook();
  readonly #log: CallLog;
  readonly #output: LineOutput | null;
  readonly #feed: FeedOutlet | null;
  #writer: RecordingWriter | null;
  #blind = 0;
  #fileBytes = 0;
  #now: Stamp;

  constructor(order: DecodeOrder, say: (report: DecodeReport) => void) {
    this.#order = order;
    this.#say = say;
    this.#now = { wallMs: Date.parse(order.header.startedAt.wall), monoMs: order.header.startedAt.monoMs };
    this.#writer = order.record === null ? null : new RecordingWriter(order.record.path, order.record);
    this.#output = order.output === 'none' ? null : new LineOutput();
    this.#feed = order.feed === null ? null : new FeedOutlet(order.feed);
    this.#log = new CallLog({
      budget: this.#budget,
      withSecrets: order.withSecrets,
      write: (entry) => this.#record(entry),
      wanted: () => this.#writer !== null || this.#output !== null || this.#feed?.wanted === true,
    });
    this.#record(order.header);
    this.#writer?.flush();
  }

  run(): void {
    const reader = new RingReader(this.#order.memory);
    let flushedMs = 0;
    for (;;) {
      const note = reader.next(FLUSH_MS);
      this.#welcome();
      if (note === 'ended') break;
      if (note !== 'idle') this.#take(note);
      if (note === 'idle' || this.#now.monoMs - flushedMs > FLUSH_MS) {
        this.#tellRunning();
        this.#flush();
        flushedMs = this.#now.monoMs;
      }
    }
    this.#log.end();
    this.#feed?.send(JSON.stringify(this.#ending('ended')));
    this.#stop('ended');
    this.#count();
    this.#feed?.close();
    const linesLost = this.#output?.lost ?? 0;
    this.#output?.[Symbol.dispose]();
    this.#say({ kind: 'done', calls: this.#log.calls, blindConnections: this.#blind, linesLost, fileBytes: this.#fileBytes });
  }

  /** Tells those who came since the last note how things stand. */
  #welcome(): void {
    const feed = this.#feed;
    const mark = feed?.newcomers() ?? 0;
    if (feed === null || mark === 0) return;
    const entries: RecordedEntry[] = [this.#order.header, ...this.#decoders.values().flatMap(({ told }) => told), ...this.#log.openings()];
    feed.send(entries.map((entry) => JSON.stringify(entry)).join('\n'), mark);
  }

  #tellRunning(): void {
    if (this.#feed?.wanted !== true) return;
    for (const call of this.#log.running(realClock.nowMs() - RUNNING_MS)) this.#feed.send(JSON.stringify(call));
  }

  #count(): void {
    this.#feed?.count({
      calls: this.#log.calls,
      blindConnections: this.#blind,
      recording: this.#writer !== null,
      fileBytes: this.#writer?.sizeBytes ?? this.#fileBytes,
    });
  }

  #take({ kind, connection, side, at, bytes }: Note): void {
    this.#now = at;
    if (kind === 'open') {
      const decoder = new ConnectionDecoder(this.#budget, (event) => {
        if (event.kind === 'blind') {
          this.#blind += 1;
          this.#say({ kind: 'note', text: `connection ${connection}: its calls are no longer followed: ${event.reason}` });
        }
        this.#log.take(connection, event, this.#now);
        if (event.kind === 'blind') told.push({ type: 'connection', connection, at: recordedTime(this.#now), event: 'blind', reason: event.reason });
      });
      const told: RecordedConnection[] = [{ type: 'connection', connection, at: recordedTime(at), event: 'open' }];
      this.#decoders.set(connection, { decoder, told });
      for (const entry of told) this.#record(entry);
      return;
    }
    const decoder = this.#decoders.get(connection)?.decoder;
    if (decoder === undefined) return;
    if (kind === 'data') {
      try {
        decoder.feed(side, bytes);
      } catch (error) {
        decoder.lose(`a defect of the decoder: ${messageOf(error)}`);
      }
    } else if (kind === 'skip') decoder.lose('it carried more at once than the decoder could take');
    else if (kind === 'close') {
      decoder.close();
      if (decoder.leftOut > 0) this.#say({ kind: 'note', text: `connection ${connection}: ${decoder.leftOut} calls were too many to follow` });
      this.#decoders.delete(connection);
      this.#record({ type: 'connection', connection, at: recordedTime(at), event: 'close' });
    }
  }

  #record(entry: RecordedEntry): void {
    if (entry.type === 'call') {
      const { output } = this.#order;
      const summary = this.#output === null ? null : summarize(entry, this.#book);
      if (summary !== null) this.#output?.line(output === 'json' ? JSON.stringify(summary) : summaryLine(summary));
    }
    const feed = this.#feed?.wanted === true ? this.#feed : null;
    if (this.#writer === null && feed === null) return;
    const line = JSON.stringify(entry);
    feed?.send(line);
    try {
      this.#writer?.addLine(line);
      if (this.#writer?.full === true) this.#stop('full');
    } catch (error) {
      this.#giveUp(error);
    }
  }

  #flush(): void {
    this.#count();
    try {
      this.#writer?.flush();
      if (this.#writer?.full === true) this.#stop('full');
    } catch (error) {
      this.#giveUp(error);
    }
  }

  #ending(reason: 'full' | 'ended'): RecordedStop {
    return { type: 'stop', at: recordedTime(this.#now), reason, calls: this.#log.calls, blindConnections: this.#blind };
  }

  #stop(reason: 'full' | 'ended'): void {
    const writer = this.#writer;
    if (writer === null) return;
    this.#writer = null;
    try {
      writer.add(this.#ending(reason));
      writer[Symbol.dispose]();
      this.#fileBytes = writer.sizeBytes;
      if (reason === 'full') this.#say({ kind: 'note', text: `the recording is full (${this.#fileBytes} bytes): it has ended, traffic goes on` });
    } catch (error) {
      this.#giveUp(error);
    }
  }

  #giveUp(error: unknown): void {
    const writer = this.#writer;
    this.#writer = null;
    this.#fileBytes = writer?.sizeBytes ?? this.#fileBytes;
    try {
      writer?.[Symbol.dispose]();
    } catch {
      // It was told why.
    }
    this.#say({ kind: 'note', text: `the recording has ended, traffic goes on: ${messageOf(error)}` });
  }
}

/** Decodes what stands in the ring until its writer stops. Blocks: this is what its thread is for. */
export function decodeThread(): void {
  const port = parentPort;
  if (port === null) return;
  const say = (report: DecodeReport): void => port.postMessage(report);
  let loop: DecodeLoop;
  try {
    loop = new DecodeLoop(workerData as DecodeOrder, say);
  } catch (error) {
    if (!(error instanceof OpError)) throw error;
    say({ kind: 'failed', code: error.code, doing: error.doing, detail: error.message.slice(error.doing.length + 2), advice: error.advice });
    return;
  }
  say({ kind: 'ready' });
  loop.run();
}
