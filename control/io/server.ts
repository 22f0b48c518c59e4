import { Http2ServerRequest, createSecureServer } from 'node:http2';
import type { Http2SecureServer } from 'node:http2';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import type { Clock } from '../../base/clock.ts';
import { BugError } from '../../base/assert.ts';
import { OpError, messageOf } from '../../base/errors.ts';
import { Failure, badRequest, internal, tooManyRequests } from '../core/failure.ts';
import { parseRequest } from '../core/request.ts';
import type { Api } from './api.ts';
import { authenticate } from './authenticate.ts';
import type { Credentials } from './authenticate.ts';
import { impersonate } from './impersonate.ts';
import type { Answer, Body, Call, Kernel, Sink } from './kernel.ts';
import { forward, isForwarded, refusalOf, splice, targetOf } from './kubelet.ts';
import type { Pki } from './pki.ts';
import { acceptedBy, render } from './render.ts';
import type { Tokens } from './tokens.ts';

type Request = IncomingMessage | Http2ServerRequest;
/** Over HTTP/2 it is the compatible class, which has the same methods. */
type Response = ServerResponse;

const BODY_MAX_BYTES = 3 * 1024 * 1024;
/** A watcher that lets this much pile up is cut off and comes back with its last version. */
const WATCH_BACKLOG_MAX_BYTES = 8 * 1024 * 1024;
const IN_FLIGHT_MAX = 600;
/** A body that takes longer than this to come is not waited for. */
const BODY_MAX_MS = 60_000;
/** Node closes idle connections after 5 s; Go clients reuse theirs for 90 s and would run into the close. */
const KEEP_ALIVE_MS = 150_000;

export interface ServerOptions {
  kernel: Kernel;
  api: Api;
  tokens: Tokens;
  pki: Pki;
  bindAddress: string;
  port: number;
  fatal(error: unknown): void;
}

export interface Server extends AsyncDisposable {
  readonly port: number;
  readonly inFlight: number;
}

/** Serves the API over HTTPS, HTTP/2 and HTTP/1.1 on one port. */
export async function startServer(options: ServerOptions): Promise<Server> {
  const { kernel, pki } = options;
  const state = { inFlight: 0 };
  const server = createSecureServer({
    key: pki.serving.privateKeyPem,
    cert: pki.serving.certificatePem,
    ca: pki.caPem,
    requestCert: true,
    // Tokens and anonymous callers have no certificate: who asks is judged for each request.
    rejectUnauthorized: false,
    minVersion: 'TLSv1.2',
    allowHTTP1: true,
    settings: { maxConcurrentStreams: 1000, initialWindowSize: 1024 * 1024 },
    // A kubelet cancels many watches at a time; the default bound would cut its whole session.
    streamResetBurst: 100_000,
    streamResetRate: 10_000,
    maxSessionMemory: 256,
  } as Parameters<typeof createSecureServer>[0]);
  Object.assign(server, { keepAliveTimeout: KEEP_ALIVE_MS, headersTimeout: KEEP_ALIVE_MS + 5000, requestTimeout: 0 });
  const sockets = new Set<Duplex>();
  server.on('secureConnection', (socket: TLSSocket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => socket.destroy());
  });
  server.on('request', (request: Request, response: Response) => void serve(options, state, request, response));
  server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => upgrade(options, request, socket, head));
  server.on('sessionError', (error) => kernel.log.debug(2, 'HTTP/2 session failed', { err: error }));
  server.on('tlsClientError', () => {});
  await listen(server, options.port, options.bindAddress);
  return {
    port: (server.address() as { port: number }).port,
    get inFlight() {
      return state.inFlight;
    },
    async [Symbol.asyncDispose]() {
      const { promise, resolve } = Promise.withResolvers<void>();
      server.close(() => resolve());
      for (const socket of sockets) socket.destroy();
      await promise;
    },
  };
}

async function listen(server: Http2SecureServer, port: number, host: string): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  server.once('error', (error: NodeJS.ErrnoException) => {
    const advice = error.code === 'EADDRINUSE' ? 'stop what listens there, or choose another --secure-port' : 'check --bind-address';
    reject(new OpError('unavailable', `listen on ${host}:${port}`, messageOf(error), { cause: error, advice }));
  });
  server.listen(port, host, () => resolve());
  await promise;
}

/** One certificate is read per connection, not per request. */
const known = new WeakMap<object, Pick<Credentials, 'certificate' | 'isVouchedFor'>>();

function credentialsOf(request: Request): Credentials {
  const session = (request as Http2ServerRequest).stream?.session;
  const holder: object = session ?? request.socket;
  let found = known.get(holder);
  if (found === undefined) {
    const socket = request.socket as TLSSocket;
    const certificate = socket.getPeerCertificate();
    found = { certificate: certificate === null || Object.keys(certificate).length === 0 ? undefined : certificate, isVouchedFor: socket.authorized };
    known.set(holder, found);
  }
  return { ...found, authorization: request.headers.authorization };
}

async function readBody(clock: Clock, request: Request): Promise<Body> {
  if (request.method === 'GET' || request.method === 'HEAD') return { kind: 'none' };
  using _deadline = clock.after(BODY_MAX_MS, () => cut(request));
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > BODY_MAX_BYTES) throw new Failure(413, 'RequestEntityTooLarge', `Request entity too large: limit is ${BODY_MAX_BYTES}`);
    chunks.push(chunk);
  }
  if (size === 0) return { kind: 'none' };
  const bytes = Buffer.concat(chunks);
  return (request.headers['content-type'] ?? '').includes('protobuf') ? { kind: 'bytes', bytes } : { kind: 'text', text: bytes.toString('utf8') };
}

/** Over HTTP/2 one request among others of its connection. */
function cut(request: Request): void {
  if (request instanceof Http2ServerRequest) request.stream.close();
  else request.socket.destroy();
}

/** The path as it was sent: two slashes at its front name no other host. */
function urlOf(target: string): URL {
  const url = URL.parse(target.startsWith('/') ? `https://localhost${target}` : target, 'https://localhost');
  if (url === null) throw badRequest(`invalid request target ${JSON.stringify(target.slice(0, 100))}`);
  return url;
}

function makeCall(options: ServerOptions, request: Request, body: Body, signal: AbortSignal): Call {
  const url = urlOf(request.url ?? '/');
  const method = request.method ?? 'GET';
  const { headers } = request;
  const call: Call = {
    info: parseRequest(method, url.pathname, url.searchParams),
    method,
    query: url.searchParams,
    user: authenticate(options.tokens, credentialsOf(request)),
    body,
    contentType: headers['content-type'] ?? 'application/json',
    accept: headers.accept ?? '',
    userAgent: headers['user-agent'] ?? '',
    signal,
  };
  call.user = impersonate(options.api, call, headers);
  return call;
}

async function serve(options: ServerOptions, state: { inFlight: number }, request: Request, response: Response): Promise<void> {
  const gone = new AbortController();
  response.on('close', () => gone.abort());
  response.on('error', () => gone.abort());
  const isLong = /[?&]watch=(true|1)|\/(log|proxy|exec|attach|portforward)(\/|\?|$)/.test(request.url ?? '');
  let isCounted = false;
  try {
    // The body is read before anything is refused, or HTTP/1.1 clients see a cut connection for an answer.
    const body = await readBody(options.kernel.clock, request);
    // Counted only now: whoever lets us wait for a body takes nobody else's place.
    isCounted = !isLong;
    if (isCounted && ++state.inFlight > IN_FLIGHT_MAX) throw tooManyRequests('Too many requests, please try again later.', 1);
    const call = makeCall(options, request, body, gone.signal);
    if (isForwarded(call)) await serveForwarded(options, call, request, response);
    else await send(options, call, response, await options.api.handle(call));
  } catch (error) {
    if (gone.signal.aborted) return;
    sendError(options, error, response, /^(curl|Wget|Mozilla)/.test(request.headers['user-agent'] ?? ''));
  } finally {
    if (isCounted) state.inFlight--;
  }
}

const isPretty = (call: Call): boolean => {
  const asked = call.query.get('pretty');
  if (asked !== null) return asked !== 'false' && asked !== '0';
  return /^(curl|Wget|Mozilla\/5\.0)/.test(call.userAgent);
};

function writeHead(response: Response, status: number, headers: Record<string, string | string[]>): void {
  response.statusCode = status;
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
}

async function send(options: ServerOptions, call: Call, response: Response, answer: Answer): Promise<void> {
  const headers: Record<string, string | string[]> = { 'cache-control': 'no-cache, private', 'audit-id': options.kernel.rng.uuid(), ...answer.headers };
  if (answer.warnings !== undefined && answer.warnings.length > 0) headers['warning'] = answer.warnings.map((text) => `299 - ${JSON.stringify(text)}`);
  if (answer.kind === 'watch') {
    writeHead(response, answer.status, { ...headers, 'content-type': 'application/json' });
    stream(answer, response);
    return;
  }
  if (answer.kind === 'text') {
    writeHead(response, answer.status, { ...headers, 'content-type': answer.type });
    response.end(answer.text);
    return;
  }
  const accepted = acceptedBy(call.accept, false);
  const info = call.info.isResource ? options.kernel.registry.find(call.info.group, call.info.version, call.info.resource) : undefined;
  const text = await render(options.kernel, info, answer, accepted, call.query, isPretty(call));
  writeHead(response, answer.status, { ...headers, 'content-type': accepted.syntax === 'yaml' ? 'application/yaml' : 'application/json' });
  response.end(text);
}

function stream(answer: Extract<Answer, { kind: 'watch' }>, response: Response): void {
  const raw = (response as unknown as { stream?: { writableLength: number } }).stream ?? response;
  response.flushHeaders();
  let isOver = false;
  const sink: Sink = {
    write(line) {
      if (isOver || response.destroyed) return false;
      response.write(line);
      return raw.writableLength <= WATCH_BACKLOG_MAX_BYTES;
    },
    end() {
      if (isOver) return;
      isOver = true;
      response.end();
    },
  };
  const feed = answer.start(sink);
  response.on('close', () => {
    isOver = true;
    feed[Symbol.dispose]();
  });
}

/** Log, proxy and the like: the answer is somebody else's. */
async function serveForwarded(options: ServerOptions, call: Call, request: Request, response: Response): Promise<void> {
  options.api.check(call);
  const isUpgradeOnly = ['exec', 'attach', 'portforward'].includes(call.info.subresource);
  const target = targetOf(options.kernel, call);
  if (isUpgradeOnly) throw new Failure(400, 'BadRequest', 'Upgrade request required');
  const headers: Record<string, string> = {};
  for (const name of ['accept', 'content-type', 'range', 'user-agent']) if (typeof request.headers[name] === 'string') headers[name] = request.headers[name];
  const answer = await forward(options.pki, target, call, headers);
  const refusal = call.info.subresource === 'log' ? await refusalOf(answer) : undefined;
  if (refusal !== undefined) throw refusal;
  response.statusCode = answer.statusCode ?? 502;
  for (const [name, value] of Object.entries(answer.headers)) {
    if (value !== undefined && !['connection', 'transfer-encoding', 'keep-alive', 'upgrade'].includes(name)) response.setHeader(name, value);
  }
  response.flushHeaders();
  answer.pipe(response);
}

function sendError(options: ServerOptions, error: unknown, response: Response, pretty: boolean): void {
  if (error instanceof BugError) {
    options.fatal(error);
    return;
  }
  const failure = error instanceof Failure ? error : internal(messageOf(error));
  if (!(error instanceof Failure)) options.kernel.log.error('request failed', { err: error, stack: error instanceof Error ? error.stack : undefined });
  if (response.headersSent || response.destroyed) {
    response.end();
    return;
  }
  const headers: Record<string, string> = { 'content-type': 'application/json', 'cache-control': 'no-cache, private', 'audit-id': options.kernel.rng.uuid() };
  if (failure.details?.['retryAfterSeconds'] !== undefined) headers['retry-after'] = String(failure.details['retryAfterSeconds']);
  if (failure.code === 401) headers['www-authenticate'] = 'Basic realm="kubernetes-master"';
  writeHead(response, failure.code, headers);
  response.end(`${JSON.stringify(failure.toStatus(), undefined, pretty ? 2 : undefined)}\n`);
}

/** exec, attach, port-forward: checked here, then handed to the kubelet. */
function upgrade(options: ServerOptions, request: IncomingMessage, socket: Duplex, head: Buffer): void {
  const refuse = (error: unknown): void => {
    const failure = error instanceof Failure ? error : internal(messageOf(error));
    const text = JSON.stringify(failure.toStatus());
    socket.end(
      `HTTP/1.1 ${failure.code} ${failure.reason}\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(text)}\r\nConnection: close\r\n\r\n${text}`,
    );
  };
  socket.on('error', () => socket.destroy());
  try {
    const call = makeCall(options, request, { kind: 'none' }, new AbortController().signal);
    if (!isForwarded(call)) throw new Failure(400, 'BadRequest', 'this path has no upgrade');
    const isStream = ['exec', 'attach', 'portforward'].includes(call.info.subresource);
    // A WebSocket comes as a GET; what it does is the same as with POST, so it needs the same permission.
    options.api.check(call, isStream ? 'create' : call.info.verb);
    const target = targetOf(options.kernel, call);
    if (isNewWebSocket(request) && !target.takesWebSockets) {
      // Stock clients take this refusal as "not here" and come again with SPDY, which every kubelet speaks.
      throw new Failure(400, 'BadRequest', `the node does not take the stream protocol ${String(request.headers['sec-websocket-protocol'])}`);
    }
    splice(options.pki, target, socket, head, request.method ?? 'GET', headersFor(request, target.host), refuse);
  } catch (error) {
    if (error instanceof BugError) options.fatal(error);
    refuse(error);
  }
}

/** v5 channels and tunnelled port-forward: not known to runtimes, so a kubelet has to translate them. */
function isNewWebSocket(request: IncomingMessage): boolean {
  if ((request.headers.upgrade ?? '').toLowerCase() !== 'websocket') return false;
  const protocols = request.headers['sec-websocket-protocol'] ?? '';
  return protocols.includes('v5.channel.k8s.io') || protocols.startsWith('SPDY/3.1+portforward');
}

/** The client's headers without its credentials: the kubelet sees our certificate alone. */
function headersFor(request: IncomingMessage, host: string): string[] {
  const out = [`Host: ${host}`];
  for (let at = 0; at < request.rawHeaders.length; at += 2) {
    const name = request.rawHeaders[at]!;
    if (/^(host|authorization|impersonate-.*|cookie)$/i.test(name)) continue;
    out.push(`${name}: ${request.rawHeaders[at + 1]}`);
  }
  return out;
}
