/**
 * Stands between a kubelet and the API server, in the node's network: passes everything on, but for tokens of one pod.
 * They live 60 s, and for a while they are refused. A program: its one argument is a JSON object as below.
 */
import { appendFileSync, readFileSync } from 'node:fs';
import { createSecureServer, type Http2ServerRequest, type Http2ServerResponse, type IncomingHttpHeaders } from 'node:http2';
import type { IncomingHttpHeaders as HttpHeaders } from 'node:http';
import { request } from 'node:https';

export interface TokenProxyOptions {
  /** Of the API server. */
  readonly server: string;
  readonly port: number;
  /** Files: the API server's CA, the node's certificate and key, and what this proxy serves with. */
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
  readonly servingCert: string;
  readonly servingKey: string;
  /** Requests that name it are the ones that count. */
  readonly pod: string;
  readonly lifeSeconds: number;
  /** From when to when after the first token they are refused, in seconds. */
  readonly refuse: readonly [number, number];
  /** A line for each token request: JSON of `TokenAnswer`. */
  readonly log: string;
}

export interface TokenAnswer {
  /** Seconds since the first. */
  readonly at: number;
  readonly code: number;
}

const options = JSON.parse(process.argv[2] ?? '') as TokenProxyOptions;
const files = { ca: readFileSync(options.ca), cert: readFileSync(options.cert), key: readFileSync(options.key) };
const own = { cert: readFileSync(options.servingCert), key: readFileSync(options.servingKey) };
const hopByHop = new Set(['connection', 'transfer-encoding', 'keep-alive', 'host', 'upgrade', 'content-length', 'accept-encoding', 'http2-settings']);
let firstMs: number | null = null;

const plain = (headers: IncomingHttpHeaders | HttpHeaders): Record<string, string | string[]> =>
  Object.fromEntries(
    Object.entries(headers).flatMap(([name, value]) =>
      name.startsWith(':') || hopByHop.has(name) || value === undefined || value === null ? [] : [[name, value]],
    ),
  );

function passOn(from: Http2ServerRequest, to: Http2ServerResponse, body: Buffer | null, change: ((answer: Buffer, code: number) => Buffer) | null): void {
  const headers = {
    ...plain(from.headers),
    ...(body === null ? {} : { 'content-length': String(body.length) }),
    ...(change === null ? {} : { accept: 'application/json' }),
  };
  const forward = request(`${options.server}${from.url}`, { ...files, method: from.method, headers, agent: false }, (answer) => {
    const code = answer.statusCode ?? 502;
    if (change === null) {
      to.writeHead(code, plain(answer.headers));
      answer.pipe(to);
      return;
    }
    const chunks: Buffer[] = [];
    answer.on('data', (chunk: Buffer) => chunks.push(chunk));
    answer.on('end', () => {
      to.writeHead(code, plain(answer.headers));
      to.end(change(Buffer.concat(chunks), code));
    });
  });
  forward.on('error', () => to.stream?.close());
  to.on('close', () => forward.destroy());
  if (body === null) from.pipe(forward);
  else forward.end(body);
}

async function tokenOf(from: Http2ServerRequest, to: Http2ServerResponse): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of from) chunks.push(chunk as Buffer);
  const body = Buffer.concat(chunks);
  if (!body.includes(options.pod)) return passOn(from, to, body, null);
  firstMs ??= Date.now();
  const at = (Date.now() - firstMs) / 1000;
  const tell = (code: number): void => appendFileSync(options.log, `${JSON.stringify({ at, code } satisfies TokenAnswer)}\n`);
  if (at >= options.refuse[0] && at < options.refuse[1]) {
    tell(403);
    to.writeHead(403, { 'content-type': 'application/json' });
    to.end(JSON.stringify({ kind: 'Status', apiVersion: 'v1', status: 'Failure', reason: 'Forbidden', message: 'no token for now', code: 403 }));
    return;
  }
  passOn(from, to, body, (answer, code) => {
    tell(code);
    if (code >= 300) return answer;
    const token = JSON.parse(answer.toString()) as { spec: object; status: object };
    const expirationTimestamp = `${new Date(Date.now() + options.lifeSeconds * 1000).toISOString().slice(0, 19)}Z`;
    return Buffer.from(
      JSON.stringify({ ...token, spec: { ...token.spec, expirationSeconds: options.lifeSeconds }, status: { ...token.status, expirationTimestamp } }),
    );
  });
}

createSecureServer({ ...own, allowHTTP1: true }, (from, to) => {
  if (from.method === 'POST' && /\/serviceaccounts\/[^/]+\/token(\?|$)/.test(from.url)) void tokenOf(from, to);
  else passOn(from, to, from.method === 'GET' || from.method === 'DELETE' ? Buffer.alloc(0) : null, null);
}).listen(options.port, '127.0.0.1');
