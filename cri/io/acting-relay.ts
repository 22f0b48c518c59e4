import { constants, sensitiveHeaders, type ClientHttp2Session, type ClientHttp2Stream, type OutgoingHttpHeaders, type ServerHttp2Stream } from 'node:http2';

export const CODE = { internal: constants.NGHTTP2_INTERNAL_ERROR, refused: constants.NGHTTP2_REFUSED_STREAM, cancel: constants.NGHTTP2_CANCEL } as const;
const END_STREAM = constants.NGHTTP2_FLAG_END_STREAM;

/** Headers as they came: names and values in turn. */
export type RawHeaders = readonly string[];

/** What must be known of a call before it can be passed on. */
export interface Incoming {
  readonly down: ServerHttp2Stream;
  readonly raw: RawHeaders;
  readonly sensitive: readonly string[];
  /** It has no message. */
  readonly ended: boolean;
}

type Sendable = OutgoingHttpHeaders & { [sensitiveHeaders]?: string[] };

/** For sending: the same names with the same values, several where there were several. */
function sendable(raw: RawHeaders, sensitive: readonly string[] = []): Sendable {
  const out: Sendable = {};
  for (let at = 0; at + 1 < raw.length; at += 2) {
    const [name = '', value = ''] = raw.slice(at, at + 2);
    const before = out[name];
    out[name] = before === undefined ? value : [...(Array.isArray(before) ? before : [String(before)]), value];
  }
  if (sensitive.length > 0) out[sensitiveHeaders] = [...sensitive];
  return out;
}

export function headerOf(raw: RawHeaders, name: string): string | undefined {
  const at = raw.findIndex((key, index) => index % 2 === 0 && key === name);
  return at < 0 ? undefined : raw[at + 1];
}

export function isLast(flags: number): boolean {
  return (flags & END_STREAM) !== 0;
}

/** Does something to a call that is still there; what Node will not send resets the call, and harms no other. */
function carefully(stream: ServerHttp2Stream | ClientHttp2Stream, act: () => void): void {
  // A reset ends what is written first, and must not look like the end that trailers make.
  if (stream.destroyed || stream.closed) return;
  try {
    act();
  } catch {
    stream.close(CODE.internal);
  }
}

/** Answers as the runtime did: without the date that Node would add. */
export function respond(down: ServerHttp2Stream, raw: RawHeaders, isEnd: boolean): void {
  const options = { sendDate: false, ...(isEnd ? { endStream: true } : { waitForTrailers: true }) };
  if (!down.headersSent) carefully(down, () => down.respond(sendable(raw), options));
}

/** Sends trailers once they are asked for. */
export function whenWanted(stream: ServerHttp2Stream | ClientHttp2Stream, trailers: () => RawHeaders): void {
  stream.on('wantTrailers', () => carefully(stream, () => stream.sendTrailers(sendable(trailers()))));
}

function passInformation(down: ServerHttp2Stream, up: ClientHttp2Stream): void {
  up.on('headers', (_headers, _flags, raw: RawHeaders) => carefully(down, () => down.additionalHeaders(sendable(raw))));
}

/** Resets a call after what was written to it. */
export function reset(stream: ServerHttp2Stream | ClientHttp2Stream, code: number): void {
  if (stream.destroyed || stream.closed) return;
  // A turn later: in the midst of writing Node would let the end of what is written go out in the reset's place.
  const close = (): void => void setImmediate(() => stream.close(code));
  if (stream.writableLength === 0 || stream.writableEnded) close();
  else stream.write(Buffer.alloc(0), close);
}

function pump(from: ServerHttp2Stream | ClientHttp2Stream, to: ServerHttp2Stream | ClientHttp2Stream): void {
  from.on('data', (bytes: Buffer) => {
    if (!to.destroyed && !to.writableEnded && !to.write(bytes)) from.pause();
  });
  to.on('drain', () => from.resume());
}

/**
 * Opens a call to the runtime as the caller opened it, and passes on what the caller sends: `first`, which was read of
 * it already, then the rest, its end, its trailers and its reset. Null when the runtime's connection takes no more.
 */
export function openUpstream(session: ClientHttp2Session, { down, raw, sensitive, ended }: Incoming, first: readonly Buffer[]): ClientHttp2Stream | null {
  if (session.closed || session.destroyed) {
    // Not begun: a caller may try it again elsewhere.
    down.close(CODE.refused);
    return null;
  }
  const up = session.request(sendable(raw, sensitive), { endStream: ended, ...(ended ? {} : { waitForTrailers: true }) });
  up.on('error', () => {});
  let trailers: RawHeaders = [];
  if (!ended) {
    down.on('trailers', (_headers, _flags, found: RawHeaders) => (trailers = found));
    whenWanted(up, () => trailers);
    for (const bytes of first) up.write(bytes);
    pump(down, up);
    if (down.readableEnded) up.end();
    else down.on('end', () => void (down.rstCode === 0 && !up.destroyed && up.end()));
  }
  down.resume();
  const giveUp = (): void => {
    // Both sides have said all: what is still on its way to the runtime gets there.
    if (down.rstCode === 0 && down.readableEnded && up.writableEnded) return;
    if (!up.destroyed && !up.closed) up.close(down.rstCode === 0 ? CODE.cancel : down.rstCode);
  };
  down.on('aborted', giveUp);
  down.on('close', giveUp);
  return up;
}

/** Passes on what the runtime answers: headers, messages, trailers and reset, no faster than the caller takes them. */
export function passAnswer(down: ServerHttp2Stream, up: ClientHttp2Stream): void {
  let trailers: RawHeaders | null = null;
  passInformation(down, up);
  up.on('response', (_headers, flags: number, raw: RawHeaders) => respond(down, raw, isLast(flags)));
  up.on('trailers', (_headers, _flags, raw: RawHeaders) => (trailers = raw));
  whenWanted(down, () => trailers ?? []);
  pump(up, down);
  up.on('end', () => {
    // A reset ends what can be read too.
    if (!down.destroyed && !down.writableEnded && (trailers !== null || up.rstCode === 0)) down.end();
  });
  up.on('close', () => {
    if (!down.writableEnded) reset(down, up.rstCode === 0 ? CODE.internal : up.rstCode);
  });
}

/** What the whole of an answer is made of. */
export interface Answer {
  readonly head: RawHeaders;
  /** Trailers only: `head` has the status. */
  readonly bare: boolean;
  /** Messages as they come. */
  readonly body: AsyncIterable<Buffer>;
  /** Once `body` has ended: what came after it; null when it was reset, by `up.rstCode`. */
  trailers(): RawHeaders | null;
}

/** The beginning of an answer; null when the call was reset before it, or `signal` is aborted. */
export function answerOf(down: ServerHttp2Stream, up: ClientHttp2Stream): Promise<Answer | null> {
  let trailers: RawHeaders | null = null;
  up.on('trailers', (_headers, _flags, raw: RawHeaders) => (trailers = raw));
  passInformation(down, up);
  return new Promise((resolve) => {
    up.once('close', () => resolve(null));
    up.once('response', (_headers, flags: number, head: RawHeaders) =>
      resolve({
        head,
        bare: isLast(flags),
        body: up,
        trailers: () => trailers ?? (up.rstCode === 0 ? [] : null),
      }),
    );
  });
}
