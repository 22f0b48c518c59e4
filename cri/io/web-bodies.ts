import { open, type FileHandle } from 'node:fs/promises';
import { promisify } from 'node:util';
import { zstdCompress, zstdDecompress } from 'node:zlib';
import type { RecordedEntry, RecordedMessage } from '../core/recording.ts';
import type { WebCallBodies } from '../core/web-wire.ts';
import { entriesOf, readFrameAt } from './recording-read.ts';

const compress = promisify(zstdCompress);
const decompress = promisify(zstdDecompress);
/** What is compressed together. */
const FRAME_CHARS = 256 * 1024;
/** Of a stream that goes on and on. */
const MAX_MESSAGES = 200;
const MAX_FRAMES_LOOKED_AT = 512;
/** Calls whose places are known; the oldest are forgotten. */
const MAX_PLACES = 300_000;

/** Lines that can be read again: where they are in the file, compressed in memory, or not yet compressed. */
interface Frame {
  /** Which of the file's recordings its first line belongs to. */
  readonly section: number;
  at?: number;
  bytes?: Buffer;
  text?: string;
}

interface Place {
  /** The call's number in its recording. */
  readonly call: number;
  readonly section: number;
  readonly first: number;
  last: number;
}

/** Finds a call's messages again: in the file that they came from, or in memory of a bounded size. */
export class WebBodies implements AsyncDisposable {
  readonly #places = new Map<number, Place>();
  readonly #open = new Map<number, Place>();
  readonly #frames: Frame[] = [];
  readonly #maxBytes: number;
  #file: FileHandle | null = null;
  #dropped = 0;
  #heldBytes = 0;
  #section = 0;
  #lines: string[] = [];
  #lineChars = 0;

  /** @param maxBytes what compressed lines may take; the oldest are forgotten */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** What is added next comes from that frame of the file. */
  async frame(path: string, at: number): Promise<void> {
    this.#file ??= await open(path, 'r');
    this.#frames.push({ section: this.#section, at });
  }

  /** An entry that was not in a file, to be held in memory. Call before `add`. */
  hold(entry: RecordedEntry): void {
    if (this.#lines.length === 0) this.#frames.push({ section: this.#section });
    const line = JSON.stringify(entry);
    this.#lines.push(line);
    this.#lineChars += line.length;
    const frame = this.#frames.at(-1) as Frame;
    if (this.#lineChars < FRAME_CHARS) return;
    frame.text = this.#lines.join('\n');
    this.#lines = [];
    this.#lineChars = 0;
    void this.#press(frame, frame.text);
  }

  /** @param made the id of the call that the entry made; null when it made none */
  add(entry: RecordedEntry, made: number | null): void {
    const last = this.#dropped + this.#frames.length - 1;
    if (entry.type === 'recording') {
      this.#section += 1;
      this.#open.clear();
    } else if (entry.type === 'message' || entry.type === 'call') {
      const place = this.#open.get(entry.call);
      if (place !== undefined) place.last = last;
      if (entry.type === 'call') this.#open.delete(entry.call);
    }
    if (made === null || (entry.type !== 'call' && entry.type !== 'opening')) return;
    const place: Place = { call: entry.call, section: this.#section, first: last, last };
    this.#places.set(made, place);
    for (const [oldest, { last: end }] of this.#places) {
      if (this.#places.size <= MAX_PLACES && end >= this.#dropped) break;
      this.#places.delete(oldest);
    }
    if (entry.type === 'opening') this.#open.set(entry.call, place);
  }

  /** Null for what is not held any more, and for what never was. */
  async find(id: number): Promise<WebCallBodies | null> {
    const place = this.#places.get(id);
    if (place === undefined) return null;
    const found = new Found(place.call);
    const end = Math.min(place.last, place.first + MAX_FRAMES_LOOKED_AT);
    for (let index = place.first; index <= end; index += 1) {
      const frame = this.#frames[index - this.#dropped];
      if (frame === undefined) continue;
      let section = frame.section;
      for (const line of (await this.#textOf(frame)).split('\n')) {
        if (line.startsWith('{"type":"recording"')) section += 1;
        if (section !== place.section || !line.includes(`"call":${place.call},`)) continue;
        for (const entry of entriesOf(line)) found.take(entry);
      }
    }
    return found.bodies();
  }

  async #textOf(frame: Frame): Promise<string> {
    if (frame.text !== undefined) return frame.text;
    if (frame.bytes !== undefined) return (await decompress(frame.bytes)).toString();
    if (frame.at !== undefined && this.#file !== null) return readFrameAt(this.#file, frame.at);
    return this.#lines.join('\n');
  }

  async #press(frame: Frame, text: string): Promise<void> {
    frame.bytes = await compress(text);
    delete frame.text;
    this.#heldBytes += frame.bytes.length;
    while (this.#heldBytes > this.#maxBytes && this.#frames.length > 1 && this.#frames[0]?.bytes !== undefined) {
      this.#heldBytes -= this.#frames[0].bytes.length;
      this.#frames.shift();
      this.#dropped += 1;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#file?.close();
    this.#file = null;
  }
}

/** Puts a call together from its lines. */
class Found {
  readonly #call: number;
  readonly #responses: RecordedMessage[] = [];
  #more = 0;
  #bodies: WebCallBodies | null = null;

  constructor(call: number) {
    this.#call = call;
  }

  take(entry: RecordedEntry): void {
    if (!('call' in entry) || entry.call !== this.#call) return;
    if (entry.type === 'message') this.#message(entry.message);
    if (entry.type !== 'call' && entry.type !== 'opening') return;
    const { service, method, call, connection, stream } = entry;
    const requests = this.#bodies?.requests ?? entry.requests;
    const first = { service, method, call, connection, stream, requests, responses: this.#responses, moreResponses: 0 };
    if (entry.type === 'opening') this.#bodies = { ...first, status: null, cut: '', requestMetadata: {}, trailers: {} };
    else {
      for (const message of entry.responses) this.#message(message);
      const { status, cut = '', requestMetadata = {}, trailers = {} } = entry;
      this.#bodies = { ...first, status, cut, requestMetadata, trailers };
    }
  }

  bodies(): WebCallBodies | null {
    return this.#bodies === null ? null : { ...this.#bodies, moreResponses: this.#more };
  }

  #message(message: RecordedMessage): void {
    if (this.#responses.length < MAX_MESSAGES) this.#responses.push(message);
    else this.#more += 1;
  }
}
