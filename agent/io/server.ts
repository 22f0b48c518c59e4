import { createServer as createHttp, STATUS_CODES, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createHttps } from 'node:https';
import type { AddressInfo, Server as NetServer } from 'node:net';
import type { Duplex } from 'node:stream';
import { BugError } from '../../base/assert.ts';
import { messageOf, OpError } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import { methodsOf, nodeAttributes, placeOf, type NodeAttributes, type ServerRoute } from '../core/server-paths.ts';
import { readTraceparent } from '../core/tracing.ts';
import type { ServerAuth, UserInfo } from './server-auth.ts';
import type { HttpMetrics } from './http-metrics.ts';
import { noTracer, type SpanOptions, type Tracer } from './tracer.ts';
import { clientCertificateDefaults, maxConnections, serverDefaults } from './server-defaults.ts';
import { endThenDestroy } from './stream-splice.ts';

export interface TlsMaterial {
  /** With an empty one every handshake fails: better no certificate than one that nobody vouches for. */
  cert: string;
  key: string;
  /** The client CA bundle; absent: client certificates are not asked for. */
  ca?: string;
}

export interface ServerOptions {
  log: Log;
  address: string;
  port: number;
  tls: TlsMaterial & { minVersion: 'TLSv1' | 'TLSv1.1' | 'TLSv1.2' | 'TLSv1.3'; ciphers: string | undefined; curves?: string | undefined };
  auth: ServerAuth;
  tracer?: Tracer;
  metrics?: HttpMetrics;
  /** `KubeletAllocatedPodsEndpoint`. */
  allocatedPods?: boolean;
  /** Ordinary requests, already authorized. */
  handle: (route: ServerRoute, request: ServerRequest, response: ServerResponse, signal: AbortSignal) => Promise<void>;
  /** exec, attach and port-forward, already authorized and asked to be upgraded. Owns `client` from then on. */
  upgrade: (route: ServerRoute, request: ServerRequest, client: Duplex, head: Uint8Array, signal: AbortSignal) => Promise<void>;
}

/** A request with its URL taken apart. */
export interface ServerRequest {
  readonly raw: IncomingMessage;
  readonly path: string;
  readonly query: URLSearchParams;
}

export interface AgentServer extends AsyncDisposable {
  readonly port: number;
  /** New certificate, key or client CA for connections from now on. */
  renew(material: TlsMaterial): void;
}

/** An answer that is not 200, with a text for the caller. */
export class HttpFailure extends Error {
  override readonly name = 'HttpFailure';
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;

  constructor(status: number, message: string, headers: Readonly<Record<string, string>> = {}) {
    super(message);
    this.status = status;
    this.headers = headers;
  }
}

/** Starts the agent's HTTPS API. Throws OpError `exists` when the port is taken. */
export async function startServer(options: ServerOptions): Promise<AgentServer> {
  const { log, tls } = options;
  const stop = new AbortController();
  const upgraded = new Set<Duplex>();
  const base = {
    minVersion: tls.minVersion,
    ...(tls.curves === undefined ? {} : { ecdhCurve: tls.curves }),
    ...(tls.ciphers === undefined ? {} : { ciphers: tls.ciphers, honorCipherOrder: true }),
  };
  const secure = (material: TlsMaterial) => ({
    ...base,
    ...(material.cert === '' ? {} : { cert: material.cert, key: material.key }),
    ...(material.ca === undefined ? {} : { ca: material.ca, ...clientCertificateDefaults }),
  });
  const server = createHttps({ ...serverDefaults, ...secure(tls), shouldUpgradeCallback: mayUpgrade });
  server.maxConnections = maxConnections;

  server.on('request', (raw, response) => {
    const over = options.metrics?.began(raw.method ?? '', raw.url ?? '', 'readwrite');
    const gone = new AbortController();
    response.on('close', () => {
      over?.();
      gone.abort();
    });
    const signal = AbortSignal.any([gone.signal, stop.signal]);
    void serve(options, raw, response, signal).catch((error: unknown) => endWithFailure(log, raw, response, error));
  });
  server.on('upgrade', (raw, client, head) => {
    upgraded.add(client);
    const over = options.metrics?.began(raw.method ?? '', raw.url ?? '', 'readwrite');
    client.on('close', () => {
      over?.();
      upgraded.delete(client);
    });
    client.on('error', () => client.destroy());
    void serveUpgrade(options, raw, client, head, stop.signal).catch((error: unknown) => refuseUpgrade(log, raw, client, error));
  });
  server.on('tlsClientError', (error) => log.debug(2, 'TLS handshake failed', { err: messageOf(error) }));
  server.on('clientError', (_error, socket) => socket.destroy());
  await listen(server, options.port, options.address);
  log.info('Starting to listen', { address: options.address, port: options.port });

  return {
    port: (server.address() as AddressInfo).port,
    renew: (material) => server.setSecureContext(secure(material)),
    async [Symbol.asyncDispose]() {
      stop.abort();
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      for (const client of upgraded) client.destroy();
      server.closeAllConnections();
      await closed;
    },
  };
}

/** The unauthenticated health endpoint on the loopback address. */
export async function startHealthz(address: string, port: number, check: () => string | null): Promise<AsyncDisposable & { port: number }> {
  const server = createHttp(serverDefaults, (request, response) => {
    const path = (request.url ?? '').split('?')[0];
    const trouble = path === '/healthz' ? check() : path === '/healthz/ping' ? null : undefined;
    if (trouble === undefined) response.writeHead(404).end('404 page not found\n');
    else answerHealth(response, trouble);
  });
  await listen(server, port, address);
  return {
    port: (server.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeAllConnections();
      await closed;
    },
  };
}

const readOnlyRoutes: readonly ServerRoute['kind'][] = ['healthz', 'pods', 'metrics', 'stats'];

/** `readOnlyPort`: plain HTTP without authentication, for what changes nothing and streams nothing. Off by default. */
export async function startReadOnly(
  options: Pick<ServerOptions, 'log' | 'address' | 'port' | 'handle' | 'metrics'>,
): Promise<AsyncDisposable & { port: number }> {
  const stop = new AbortController();
  const server = createHttp(serverDefaults, (raw, response) => {
    const over = options.metrics?.began(raw.method ?? '', raw.url ?? '', 'readonly');
    const gone = new AbortController();
    response.on('close', () => {
      over?.();
      gone.abort();
    });
    const answer = async (): Promise<void> => {
      const { path, query, route } = targetOf(raw);
      if (route === null || !readOnlyRoutes.includes(route.kind)) throw new HttpFailure(404, '404 page not found\n');
      const methods = methodsOf(route.kind);
      if (methods !== null && !methods.includes(raw.method ?? '')) throw new HttpFailure(405, '405: Method Not Allowed', { allow: methods.join(', ') });
      await options.handle(route, { raw, path, query }, response, AbortSignal.any([gone.signal, stop.signal]));
    };
    void answer().catch((error: unknown) => endWithFailure(options.log, raw, response, error));
  });
  server.maxConnections = maxConnections;
  await listen(server, options.port, options.address);
  return {
    port: (server.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      stop.abort();
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeAllConnections();
      await closed;
    },
  };
}

export function answerHealth(response: ServerResponse, trouble: string | null): void {
  response.writeHead(trouble === null ? 200 : 500, { 'content-type': 'text/plain; charset=utf-8', 'x-content-type-options': 'nosniff' });
  response.end(trouble === null ? 'ok' : `internal server error: ${trouble}\n`);
}

async function listen(server: NetServer, port: number, host: string): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const failed = (cause: NodeJS.ErrnoException): void => {
      const code = cause.code === 'EADDRINUSE' ? 'exists' : cause.code === 'EACCES' ? 'denied' : 'failed';
      reject(
        new OpError(code, `listen on ${host}:${port}`, cause.message, {
          cause,
          advice: 'Another kubelet may be running on this machine; stop it or choose another port.',
        }),
      );
    };
    server.once('error', failed);
    server.listen(port, host, () => {
      server.removeListener('error', failed);
      resolve();
    });
  });
}

/** Where the request leads, and its query; throws HttpFailure for what leads nowhere, or elsewhere. */
function targetOf(raw: IncomingMessage, allocatedPods = false): { path: string; query: URLSearchParams; route: ServerRoute | null } {
  const target = raw.url ?? '/';
  if (!target.startsWith('/')) throw new HttpFailure(400, '400 Bad Request');
  const [escaped = '', ...query] = target.split('?');
  const place = placeOf(escaped, allocatedPods);
  if (place.kind === 'nowhere') throw new HttpFailure(404, '404 page not found\n');
  if (place.kind === 'elsewhere') throw new HttpFailure(307, '', { location: [place.path, ...query].join('?') });
  return { ...place, query: new URLSearchParams(query.join('?')) };
}

/** Null for nobody we know, and where it cannot be told: why not is for the log, not for a stranger. */
async function userOf({ auth, log }: ServerOptions, raw: IncomingMessage): Promise<UserInfo | null> {
  try {
    return await auth.authenticate(raw);
  } catch (error) {
    if (error instanceof BugError) throw error;
    log.error('Unable to authenticate the request due to an error', { err: messageOf(error) });
    return null;
  }
}

/** What else asks for another protocol is answered in this one, as upstream does. */
function mayUpgrade(raw: IncomingMessage): boolean {
  const place = placeOf((raw.url ?? '').split('?')[0] ?? '');
  const kind = place.kind === 'here' ? place.route?.kind : undefined;
  return kind === 'exec' || kind === 'attach' || kind === 'portForward';
}

/** Authenticates and authorizes; throws HttpFailure 307, 400, 401, 403, 404 or 500. One reading of the path serves judgement and route. */
async function admit(options: ServerOptions, raw: IncomingMessage): Promise<{ request: ServerRequest; route: ServerRoute }> {
  const { path, query, route } = targetOf(raw, options.allocatedPods);
  const user = await userOf(options, raw);
  if (user === null) throw new HttpFailure(401, 'Unauthorized');
  const attributes = nodeAttributes(raw.method ?? '', path);
  const subresources = `[${attributes.map(({ subresource }) => subresource).join(' ')}]`;
  if (!(await mayAny(options, user, attributes)))
    throw new HttpFailure(403, `Forbidden (user=${user.name}, verb=${attributes[0]?.verb}, resource=nodes, subresource(s)=${subresources})\n`);
  if (route === null) throw new HttpFailure(404, '404: Page Not Found');
  return { request: { raw, path, query }, route };
}

/** Whether one of them is allowed; throws HttpFailure 500 when it cannot be told. */
async function mayAny({ auth, log }: ServerOptions, user: UserInfo, attributes: readonly NodeAttributes[]): Promise<boolean> {
  for (const each of attributes) {
    try {
      if (await auth.authorize(user, [each])) return true;
    } catch (error) {
      if (error instanceof BugError) throw error;
      log.error('Authorization error', { user: user.name, verb: each.verb, subresource: each.subresource, err: messageOf(error) });
      throw new HttpFailure(500, `Authorization error (user=${user.name}, verb=${each.verb}, resource=nodes, subresource=${each.subresource})`);
    }
  }
  return false;
}

async function serve(options: ServerOptions, raw: IncomingMessage, response: ServerResponse, signal: AbortSignal): Promise<void> {
  const { request, route } = await admit(options, raw);
  const methods = methodsOf(route.kind);
  if (methods !== null && !methods.includes(raw.method ?? '')) throw new HttpFailure(405, '405: Method Not Allowed', { allow: methods.join(', ') });
  await (options.tracer ?? noTracer).span(`${raw.method} /${route.kind}`, spanOf(raw, request.path), async (set) => {
    try {
      await options.handle(route, request, response, signal);
    } finally {
      set({ 'http.response.status_code': response.statusCode });
    }
  });
}

/** A request goes on with its caller's trace. */
function spanOf(raw: IncomingMessage, path: string): SpanOptions {
  const traceparent = raw.headers['traceparent'];
  const attributes = { 'http.request.method': raw.method ?? '', 'url.path': path, 'url.scheme': 'https', 'server.address': 'kubelet' };
  return { kind: 'server', attributes, parent: readTraceparent(typeof traceparent === 'string' ? traceparent : undefined) };
}

async function serveUpgrade(options: ServerOptions, raw: IncomingMessage, client: Duplex, head: Uint8Array, signal: AbortSignal): Promise<void> {
  const { request, route } = await admit(options, raw);
  if (route.kind !== 'exec' && route.kind !== 'attach' && route.kind !== 'portForward') throw new HttpFailure(400, 'this path cannot be upgraded');
  await (options.tracer ?? noTracer).span(`${raw.method} /${route.kind}`, spanOf(raw, request.path), () =>
    options.upgrade(route, request, client, head, signal),
  );
}

function failureOf(log: Log, raw: IncomingMessage, error: unknown): { status: number; text: string } {
  if (error instanceof BugError) throw error;
  if (error instanceof HttpFailure) return { status: error.status, text: error.message };
  log.error('Request failed', { method: raw.method, path: (raw.url ?? '').split('?')[0], err: messageOf(error) });
  return { status: error instanceof OpError && error.code === 'not-found' ? 404 : 500, text: messageOf(error) };
}

function endWithFailure(log: Log, raw: IncomingMessage, response: ServerResponse, error: unknown): void {
  if (response.destroyed) return;
  const { status, text } = failureOf(log, raw, error);
  // Half an answer cannot become another one; the cut tells the client that it is not whole.
  if (response.headersSent) {
    response.destroy();
    return;
  }
  const headers = error instanceof HttpFailure ? error.headers : {};
  const { location } = headers;
  const isRead = raw.method === 'GET' || raw.method === 'HEAD';
  // As Go's redirects are: a page for who reads, nothing for others.
  if (location !== undefined) {
    response.writeHead(status, { ...headers, ...(isRead ? { 'content-type': 'text/html; charset=utf-8' } : {}) });
    return void response.end(
      isRead
        ? `<a href="${location.replaceAll('&', '&amp;').replaceAll('"', '&#34;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')}">Temporary Redirect</a>.\n\n`
        : '',
    );
  }
  response.writeHead(status, { 'content-type': 'text/plain; charset=utf-8', ...headers });
  response.end(text);
}

function refuseUpgrade(log: Log, raw: IncomingMessage, client: Duplex, error: unknown): void {
  if (client.destroyed) return;
  const { status, text } = failureOf(log, raw, error);
  const body = Buffer.from(text);
  client.write(
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: ${body.length}\r\nConnection: close\r\n\r\n${text}`,
  );
  // A client that never closes its half would hold the connection without ever having been let in.
  endThenDestroy(client);
}
