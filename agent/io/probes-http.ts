import { request as requestHttp, type IncomingMessage } from 'node:http';
import { request as requestHttps } from 'node:https';
import { connect as connectHttp2 } from 'node:http2';
import { isIP } from 'node:net';
import type { Readable } from 'node:stream';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { messageOf } from '../../base/errors.ts';
import type { HTTPGetAction } from '../../proto/kube/types.ts';
import { dialText, type ProbeAnswer } from './probes-net.ts';

export interface HttpTarget {
  readonly action: HTTPGetAction;
  readonly host: string;
  readonly port: number;
  /** HTTP/2 in clear text without asking first (KEP-5999). */
  readonly h2c: boolean;
}

const bodyMax = 10 * 1024;
const redirectsMax = 10;
const userAgent = 'kube-probe/1.37';

interface Target {
  url: URL;
  headers: Record<string, string | string[]>;
  h2c: boolean;
}

interface Answer {
  status: number;
  location: string | undefined;
  body: string;
}

/**
 * An HTTP probe: 200–399 is a success; a redirect to another host is one with a warning; certificates are not judged.
 * Over TLS the server chooses between HTTP/2 and HTTP/1.1, as it does for upstream's client.
 */
export async function probeHttp({ action, host, port, h2c }: HttpTarget, timeoutMs: number, signal: AbortSignal): Promise<ProbeAnswer> {
  const scheme = (action.scheme ?? 'HTTP').toLowerCase();
  const path = action.path ?? '';
  const authority = host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
  const text = `${scheme}://${authority}${path === '' || path.startsWith('/') ? path : `/${path}`}`;
  if (!URL.canParse(text)) return { result: 'failure', output: `parse ${JSON.stringify(text)}: invalid URL` };
  const target: Target = { url: new URL(text), headers: headersOf(action), h2c };
  const limit = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
  for (let hops = 0; hops <= redirectsMax; hops++) {
    let answer: Answer;
    try {
      answer = await getOnce(target, limit);
    } catch (error) {
      if (signal.aborted) throw error;
      return { result: 'failure', output: `Get ${JSON.stringify(hops === 0 ? text : target.url.href)}: ${failureText(error, target, limit)}` };
    }
    const { status, location, body } = answer;
    if (status < 200 || status >= 400) return { result: 'failure', output: `HTTP probe failed with statuscode: ${status}` };
    if (status < 300) return { result: 'success', output: body };
    const next = location === undefined || !URL.canParse(location, target.url.href) ? undefined : new URL(location, target.url);
    if (next === undefined || next.hostname !== target.url.hostname || ![301, 302, 303, 307, 308].includes(status))
      return { result: 'warning', output: `Probe terminated redirects, Response body: ${body}` };
    target.url = next;
  }
  return { result: 'failure', output: `Get ${JSON.stringify(target.url.href)}: stopped after ${redirectsMax} redirects` };
}

function headersOf(action: HTTPGetAction): Record<string, string | string[]> {
  // Without what every object has: `constructor` is the name of a header as any other.
  const headers = Object.create(null) as Record<string, string | string[]>;
  for (const { name, value } of action.httpHeaders ?? []) {
    const key = name.toLowerCase();
    const before = headers[key];
    // Node allows one Host and one User-Agent; of several the first counts, as in Go.
    if (before === undefined) headers[key] = value;
    else if (key !== 'host' && key !== 'user-agent') headers[key] = [before, value].flat();
  }
  headers['user-agent'] ??= userAgent;
  headers['accept'] ??= '*/*';
  // An empty value means that the header is not sent at all.
  for (const key of ['user-agent', 'accept', 'host']) if (headers[key] === '') delete headers[key];
  return headers;
}

/** One request on a connection of its own; at most 10 KiB of the body are read. */
async function getOnce(target: Target, signal: AbortSignal): Promise<Answer> {
  const { url, h2c } = target;
  if (url.protocol !== 'https:') return h2c ? await getHttp2(target, null, signal) : await getHttp1(target, null, signal);
  const socket = await dialTls(url, h2c ? ['h2'] : ['h2', 'http/1.1'], signal);
  try {
    return socket.alpnProtocol === 'h2' ? await getHttp2(target, socket, signal) : await getHttp1(target, socket, signal);
  } finally {
    socket.destroy();
  }
}

const hostOf = (url: URL): string => url.hostname.replace(/^\[(.*)\]$/, '$1');

function dialTls(url: URL, ALPNProtocols: string[], signal: AbortSignal): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const host = hostOf(url);
    const socket = connectTls({ host, port: Number(url.port || 443), ALPNProtocols, rejectUnauthorized: false, servername: isIP(host) === 0 ? host : '' });
    const stopped = (): void => void socket.destroy(signal.reason as Error);
    signal.addEventListener('abort', stopped, { once: true });
    socket.once('secureConnect', () => {
      signal.removeEventListener('abort', stopped);
      socket.off('error', failed);
      // What comes after the answer is nobody's any more.
      socket.on('error', () => undefined);
      resolve(socket);
    });
    const failed = (error: Error): void => {
      signal.removeEventListener('abort', stopped);
      reject(error);
    };
    socket.on('error', failed);
    if (signal.aborted) stopped();
  });
}

function getHttp1({ url, headers }: Target, socket: TLSSocket | null, signal: AbortSignal): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const answered = (response: IncomingMessage): void => {
      readBody(
        response,
        (body) => {
          resolve({ status: response.statusCode ?? 0, location: response.headers.location, body });
          response.destroy();
        },
        reject,
      );
    };
    const options = { headers, signal, method: 'GET' };
    // An agent would make a connection of its own.
    const sent =
      socket === null ? requestHttp(url, { ...options, agent: false }, answered) : requestHttps(url, { ...options, createConnection: () => socket }, answered);
    sent.on('error', reject);
    sent.end();
  });
}

/** Headers that belong to a connection of HTTP/1, which HTTP/2 refuses. */
const ofConnection = new Set(['connection', 'proxy-connection', 'keep-alive', 'transfer-encoding', 'upgrade', 'host']);

function getHttp2({ url, headers }: Target, socket: TLSSocket | null, signal: AbortSignal): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const session = connectHttp2(url.origin, { settings: { enablePush: false }, ...(socket === null ? {} : { createConnection: () => socket }) });
    const stopped = (): void => failed(signal.reason as Error);
    const done = (): void => {
      signal.removeEventListener('abort', stopped);
      session.destroy();
    };
    const failed = (error: Error): void => {
      done();
      reject(error);
    };
    signal.addEventListener('abort', stopped, { once: true });
    session.on('error', failed);
    if (signal.aborted) return stopped();
    const { host } = headers;
    const stream = session.request({
      ...Object.fromEntries(Object.entries(headers).filter(([name]) => !ofConnection.has(name))),
      ':method': 'GET',
      ':path': url.pathname + url.search,
      ':scheme': url.protocol.slice(0, -1),
      ':authority': typeof host === 'string' ? host : url.host,
    });
    stream.on('error', failed);
    stream.on('response', (answer) => {
      readBody(
        stream,
        (body) => {
          done();
          resolve({ status: answer[':status'] ?? 0, location: answer.location, body });
        },
        failed,
      );
    });
    stream.end();
    return undefined;
  });
}

function readBody(stream: Readable, done: (body: string) => void, failed: (error: Error) => void): void {
  const pieces: Buffer[] = [];
  let size = 0;
  const end = (): void => done(Buffer.concat(pieces).subarray(0, bodyMax).toString());
  stream.on('data', (piece: Buffer) => {
    pieces.push(piece);
    size += piece.length;
    if (size >= bodyMax) end();
  });
  stream.on('end', end);
  stream.on('error', failed);
}

/** The failure as Go's client says it, for those who read events by their words. */
function failureText(error: unknown, { url, h2c }: Target, limit: AbortSignal): string {
  if (limit.aborted) return `context deadline exceeded (Client.Timeout exceeded while awaiting headers)`;
  const { code } = error as NodeJS.ErrnoException;
  if (answersInClear(error)) return 'http: server gave HTTP response to HTTPS client';
  if (h2c && code === 'ERR_HTTP2_ERROR')
    return 'http2: failed reading the frame payload: http2: frame too large, note that the frame header looked like an HTTP/1.1 header';
  if (code === 'ECONNRESET' && messageOf(error) === 'socket hang up') return 'EOF';
  return dialText(error, url.hostname, Number(url.port || (url.protocol === 'https:' ? 443 : 80)));
}

/** Whether a server that was asked by TLS has answered in clear text. OpenSSL's reason is in the text alone: Node gives it no field. */
export function answersInClear(error: unknown): boolean {
  const { code } = error as { code?: string };
  return (code === 'EPROTO' || code === 'ERR_SSL_WRONG_VERSION_NUMBER') && messageOf(error).includes('wrong version number');
}
