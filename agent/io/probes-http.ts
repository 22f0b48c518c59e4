import { request as requestHttp, type IncomingMessage } from 'node:http';
import { request as requestHttps } from 'node:https';
import { isIP } from 'node:net';
import { messageOf } from '../../base/errors.ts';
import type { HTTPGetAction } from '../../proto/kube/types.ts';
import { dialText, type ProbeAnswer } from './probes-net.ts';

const bodyMax = 10 * 1024;
const redirectsMax = 10;
const userAgent = 'kube-probe/1.37';

interface Target {
  url: URL;
  headers: Record<string, string | string[]>;
}

interface Answer {
  status: number;
  location: string | undefined;
  body: string;
}

/** An HTTP probe: 200–399 is a success; a redirect to another host is one with a warning; certificates are not judged. */
export async function probeHttp(action: HTTPGetAction, host: string, port: number, timeoutMs: number, signal: AbortSignal): Promise<ProbeAnswer> {
  const scheme = (action.scheme ?? 'HTTP').toLowerCase();
  const path = action.path ?? '';
  const authority = host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
  const text = `${scheme}://${authority}${path === '' || path.startsWith('/') ? path : `/${path}`}`;
  if (!URL.canParse(text)) return { result: 'failure', output: `parse ${JSON.stringify(text)}: invalid URL` };
  const target: Target = { url: new URL(text), headers: headersOf(action) };
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
function getOnce({ url, headers }: Target, signal: AbortSignal): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const answered = (response: IncomingMessage): void => {
      const pieces: Buffer[] = [];
      let size = 0;
      const done = (): void => {
        resolve({ status: response.statusCode ?? 0, location: response.headers.location, body: Buffer.concat(pieces).subarray(0, bodyMax).toString() });
        response.destroy();
      };
      response.on('data', (piece: Buffer) => {
        pieces.push(piece);
        size += piece.length;
        if (size >= bodyMax) done();
      });
      response.on('end', done);
      response.on('error', reject);
    };
    const options = { headers, signal, agent: false, method: 'GET' } as const;
    const name = url.hostname.replace(/^\[(.*)\]$/, '$1');
    const sent =
      url.protocol === 'https:'
        ? requestHttps(url, { ...options, rejectUnauthorized: false, ...(isIP(name) === 0 ? {} : { servername: '' }) }, answered)
        : requestHttp(url, options, answered);
    sent.on('error', reject);
    sent.end();
  });
}

/** The failure as Go's client says it, for those who read events by their words. */
function failureText(error: unknown, { url }: Target, limit: AbortSignal): string {
  if (limit.aborted) return `context deadline exceeded (Client.Timeout exceeded while awaiting headers)`;
  const { code } = error as NodeJS.ErrnoException;
  // OpenSSL's reason is in the text alone; nothing but the words of the event depends on it.
  if (code === 'EPROTO' && messageOf(error).includes('wrong version number')) return 'http: server gave HTTP response to HTTPS client';
  if (code === 'ECONNRESET' && messageOf(error) === 'socket hang up') return 'EOF';
  return dialText(error, url.hostname, Number(url.port || (url.protocol === 'https:' ? 443 : 80)));
}
