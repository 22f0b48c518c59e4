import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';

/** The seam between sessions and what speaks HTTP: undici (`undici.ts`), or Node's own modules (`plain-client.ts`). */

export interface HttpRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | Uint8Array | null;
  /** How long the headers of the answer may take, in milliseconds. */
  readonly headersTimeout: number;
  readonly signal: AbortSignal;
}

export interface HttpResponse {
  readonly statusCode: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  /** Ends with an error where the connection was cut before the end of the answer. */
  readonly body: Readable;
}

/** A connection that is made at the first request and made anew after it was lost. */
export interface HttpClient {
  /** Resolves with the headers. Rejects with what the socket, TLS or the protocol says, or with the signal's reason. */
  request(request: HttpRequest): Promise<HttpResponse>;
  /** Closes once what runs has ended. */
  close(): Promise<void>;
  /** Ends what runs, too. */
  destroy(): Promise<void>;
}

/** Opens one socket; hears of it once it is connected and, with TLS, secured. */
export type Connector = (
  to: { readonly hostname: string; readonly protocol: string; readonly port: string },
  callback: (...args: [null, Socket] | [Error, null]) => void,
) => void;

export interface HttpClientOptions {
  readonly connect: Connector;
  /** Streams at once on one HTTP/2 connection. */
  readonly perSession: number;
  /** An HTTP/2 connection whose last ping is unanswered after this long is dead, in milliseconds. */
  readonly pingMs: number;
}

export type OpenHttpClient = (origin: string, options: HttpClientOptions) => HttpClient;

/** All bytes of a body. */
export async function bytesOf(body: Readable): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of body as AsyncIterable<Buffer>) chunks.push(chunk);
  return chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks);
}
