import { FLAG, FRAME, FrameError, FrameReader, headerFragment } from './frames.ts';
import { MessageReader, type ByteBudget, type WireMessage } from './grpc-messages.ts';
import { HpackDecoder, HpackError, type Header } from './hpack.ts';

export type Side = 'client' | 'server';

/** When bytes were seen: milliseconds since 1970, and on a clock that never jumps. */
export interface Stamp {
  readonly wallMs: number;
  readonly monoMs: number;
}

/** How a call ended without the runtime's status. */
export type Cut = { by: Side; code: number } | { by: 'close' };

export type ConnectionEvent =
  | { readonly kind: 'begin'; readonly stream: number; readonly headers: readonly Header[] }
  | { readonly kind: 'answer'; readonly stream: number; readonly headers: readonly Header[] }
  | { readonly kind: 'message'; readonly stream: number; readonly from: Side; readonly message: WireMessage }
  | { readonly kind: 'end'; readonly stream: number; readonly trailers: readonly Header[]; readonly cut: Cut | null }
  /** Nothing more comes of this connection, nor of the calls that are open on it. */
  | { readonly kind: 'blind'; readonly reason: string };

/** Calls of one connection that are followed at a time; more are left out, and counted. */
const MAX_STREAMS = 10_000;
const MAX_BLOCK_BYTES = 1 << 20;

interface Stream {
  readonly readers: Readonly<Record<Side, MessageReader>>;
  answered: boolean;
}

/** An unfinished header block: only CONTINUATION may follow it. */
interface Block {
  readonly stream: number;
  readonly isPush: boolean;
  readonly endStream: boolean;
  readonly parts: Uint8Array[];
  bytes: number;
}

/**
 * Reads along with one connection, from copies of what either side sent. It has no influence, so it judges nothing: what
 * it cannot follow makes it `blind`, and it says why. What a message holds of `budget` is its receiver's to give back.
 */
export class ConnectionDecoder {
  readonly #budget: ByteBudget;
  readonly #emit: (event: ConnectionEvent) => void;
  readonly #streams = new Map<number, Stream>();
  readonly #frames: Readonly<Record<Side, FrameReader>>;
  readonly #hpack: Readonly<Record<Side, HpackDecoder>> = { client: new HpackDecoder(), server: new HpackDecoder() };
  readonly #blocks: Record<Side, Block | null> = { client: null, server: null };
  #lastStream = 0;
  #blind = false;
  /** Calls that were too many to follow. */
  leftOut = 0;

  constructor(budget: ByteBudget, emit: (event: ConnectionEvent) => void) {
    this.#budget = budget;
    this.#emit = emit;
    const reader = (side: Side): FrameReader =>
      new FrameReader(side, {
        frame: (type, flags, stream, payload) => this.#frame(side, type, flags, stream, payload),
        data: (stream, piece) => this.#data(side, stream, piece),
        dataEnd: (stream, flags) => {
          if (side === 'server' && (flags & FLAG.endStream) !== 0) this.#end(stream, [], null);
        },
      });
    this.#frames = { client: reader('client'), server: reader('server') };
  }

  get blind(): boolean {
    return this.#blind;
  }

  get openCalls(): number {
    return this.#streams.size;
  }

  feed(side: Side, bytes: Uint8Array): void {
    if (this.#blind) return;
    try {
      this.#frames[side].feed(bytes);
    } catch (error) {
      if (!(error instanceof FrameError) && !(error instanceof HpackError)) throw error;
      this.lose(error.message);
    }
  }

  /** From here on bytes are missing, or make no sense. */
  lose(reason: string): void {
    if (this.#blind) return;
    this.#blind = true;
    for (const stream of this.#streams.values()) this.#forget(stream);
    this.#streams.clear();
    this.#emit({ kind: 'blind', reason });
  }

  /** Both sides are gone. */
  close(): void {
    for (const stream of this.#streams.keys()) this.#end(stream, [], { by: 'close' });
  }

  #forget(stream: Stream): void {
    stream.readers.client.drop();
    stream.readers.server.drop();
  }

  #data(side: Side, id: number, piece: Uint8Array): void {
    if (this.#blocks[side] !== null) throw new FrameError('a frame stands within a header block');
    const reader = this.#streams.get(id)?.readers[side];
    if (reader === undefined) return;
    for (const message of reader.feed(piece)) this.#emit({ kind: 'message', stream: id, from: side, message });
  }

  #frame(side: Side, type: number, flags: number, stream: number, payload: Uint8Array): void {
    const open = this.#blocks[side];
    if (open !== null && (type !== FRAME.continuation || stream !== open.stream)) throw new FrameError('a frame stands within a header block');
    switch (type) {
      case FRAME.headers:
      case FRAME.pushPromise:
        this.#blocks[side] = { stream, isPush: type === FRAME.pushPromise, endStream: (flags & FLAG.endStream) !== 0, parts: [], bytes: 0 };
        this.#addToBlock(side, flags, headerFragment(type, flags, payload));
        break;
      case FRAME.continuation:
        if (open === null) throw new FrameError('a CONTINUATION continues nothing');
        this.#addToBlock(side, flags, payload);
        break;
      case FRAME.rstStream: {
        const [a = 0, b = 0, c = 0, d = 0] = payload;
        this.#end(stream, [], { by: side, code: a * 2 ** 24 + ((b << 16) | (c << 8) | d) });
        break;
      }
      default:
      // SETTINGS, PING, WINDOW_UPDATE, GOAWAY and what is yet to be invented change nothing of what calls say.
    }
  }

  #addToBlock(side: Side, flags: number, part: Uint8Array): void {
    const block = this.#blocks[side];
    if (block === null) return;
    block.parts.push(part);
    block.bytes += part.length;
    if (block.bytes > MAX_BLOCK_BYTES) throw new FrameError(`a header block of more than ${MAX_BLOCK_BYTES} bytes`);
    if ((flags & FLAG.endHeaders) === 0) return;
    this.#blocks[side] = null;
    const headers = this.#hpack[side].read(joined(block));
    if (block.isPush) return;
    if (side === 'client') this.#begin(block, headers);
    else this.#answer(block, headers);
  }

  #begin({ stream }: Block, headers: readonly Header[]): void {
    // A second block of the same stream is trailers, which gRPC clients do not send.
    if (stream <= this.#lastStream) return;
    this.#lastStream = stream;
    if (this.#streams.size >= MAX_STREAMS) {
      this.leftOut += 1;
      return;
    }
    this.#streams.set(stream, { readers: { client: new MessageReader(this.#budget), server: new MessageReader(this.#budget) }, answered: false });
    this.#emit({ kind: 'begin', stream, headers });
  }

  #answer({ stream: id, endStream }: Block, headers: readonly Header[]): void {
    const stream = this.#streams.get(id);
    if (stream === undefined) return;
    if (endStream) this.#end(id, headers, null);
    // 1xx answers come before the one that counts.
    else if (!stream.answered && !headers.some(([name, value]) => name === ':status' && value.startsWith('1'))) {
      stream.answered = true;
      this.#emit({ kind: 'answer', stream: id, headers });
    }
  }

  #end(id: number, trailers: readonly Header[], cut: Cut | null): void {
    const stream = this.#streams.get(id);
    if (stream === undefined) return;
    this.#streams.delete(id);
    this.#forget(stream);
    this.#emit({ kind: 'end', stream: id, trailers, cut });
  }
}

function joined({ parts, bytes }: Block): Uint8Array {
  if (parts.length === 1) return parts[0] ?? new Uint8Array(0);
  const out = new Uint8Array(bytes);
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}
