import { randomBytes, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { isIP, type AddressInfo } from 'node:net';
import { messageOf, OpError } from '../../base/errors.ts';
import type { WebFault, WebHello } from '../core/web-wire.ts';
import type { WebPage } from './web-page.ts';
import type { WebStore } from './web-store.ts';

/** The way to the rules that a tap has armed. */
export interface FaultDoor {
  list(): Promise<readonly WebFault[]>;
  /** Arms a rule as it is written for `nodelet cri fault`. Throws OpError `invalid`. */
  arm(text: string): Promise<readonly WebFault[]>;
  /** @param number as in the list */
  disarm(number: number): Promise<readonly WebFault[]>;
}

export interface WebOptions {
  /** `127.0.0.1:0`, `[::1]:8080`, `0.0.0.0:8080`; port 0 is any that is free. */
  readonly listen: string;
  readonly page: WebPage;
  readonly hello: WebHello;
  readonly store: WebStore;
  /** Null where there is no tap. */
  readonly faults: FaultDoor | null;
}

export interface WebServer extends AsyncDisposable {
  /** With the token: whoever has it sees everything. */
  readonly url: string;
}

const MAX_VIEWERS = 16;
const MAX_BODY_BYTES = 64 * 1024;
/** So often a stream that has nothing to say says that it is there. */
const ALIVE_MS = 15_000;
const HEADERS = {
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
};

const EVENTS = { ...HEADERS, 'content-type': 'text/event-stream' };

/** Throws OpError `invalid`. */
function readAddress(text: string): { host: string; port: number } {
  const found = /^(?:\[([\da-f:.]+)\]|([^:\s/]+)):(\d+)$/i.exec(text);
  const port = Number(found?.[3] ?? -1);
  if (found === null || port > 65_535)
    throw new OpError('invalid', 'reading --listen', `"${text}" is no address`, { advice: 'write 127.0.0.1:8080, or 127.0.0.1:0 for any free port' });
  return { host: found[1] ?? found[2] ?? '', port };
}

/** A name in Host that is not ours came through a name server that somebody else answers for. */
function isOurHost(header: string | undefined, host: string): boolean {
  const name = /^(?:\[([^\]]+)\]|([^:]+))(?::\d+)?$/.exec(header ?? '');
  const found = (name?.[1] ?? name?.[2] ?? '').toLowerCase();
  return found === 'localhost' || found === host.toLowerCase() || isIP(found) !== 0;
}

class Serving {
  readonly #options: WebOptions;
  readonly #host: string;
  readonly #token = randomBytes(24).toString('base64url');
  readonly #stop = new AbortController();
  #viewers = 0;
  readonly server: Server;

  constructor(options: WebOptions, host: string) {
    this.#options = options;
    this.#host = host;
    this.server = createServer((request, response) => {
      response.on('error', () => {});
      this.#answer(request, response).catch((error: unknown) => refuse(response, error));
    });
  }

  get url(): string {
    const { address, family, port } = this.server.address() as AddressInfo;
    const name = address === '0.0.0.0' || address === '::' ? '127.0.0.1' : family === 'IPv6' ? `[${address}]` : address;
    return `http://${name}:${port}/${this.#token}/`;
  }

  async close(): Promise<void> {
    this.#stop.abort();
    const closed = once(this.server, 'close');
    this.server.close();
    this.server.closeAllConnections();
    await closed;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (!isOurHost(request.headers.host, this.#host)) return plain(response, 421, 'this is not the host that you asked for');
    const [, token = '', ...rest] = (request.url ?? '').split('?')[0]?.split('/') ?? [];
    const given = Buffer.from(token);
    const right = Buffer.from(this.#token);
    if (given.length !== right.length || !timingSafeEqual(given, right)) return plain(response, 404, 'the address has to be whole, as it was printed');
    const path = rest.join('/');
    const { page, store, faults } = this.#options;
    if (request.method === 'POST') {
      if (request.headers.origin !== `http://${request.headers.host ?? ''}` || request.headers['content-type'] !== 'application/json')
        return plain(response, 403, 'not from the page');
      if (path !== 'faults' || faults === null) return plain(response, 404, 'there is no tap here');
      const { arm, disarm } = (JSON.parse(await readBody(request)) ?? {}) as { arm?: unknown; disarm?: unknown };
      if (typeof arm === 'string') return json(response, await faults.arm(arm));
      if (typeof disarm === 'number') return json(response, await faults.disarm(disarm));
      return plain(response, 400, 'arm or disarm?');
    }
    if (request.method !== 'GET' && request.method !== 'HEAD') return plain(response, 405, 'GET and POST only');
    if (path === '') {
      response.writeHead(200, { ...HEADERS, 'content-type': 'text/html; charset=utf-8', 'content-security-policy': page.policy });
      response.end(page.html);
      return;
    }
    if (path === 'events') {
      if (request.method === 'GET') return this.#events(request, response);
      response.writeHead(200, EVENTS).end();
      return;
    }
    if (path === 'faults') return json(response, faults === null ? [] : await faults.list());
    const id = /^call\/(\d{1,9})$/.exec(path)?.[1];
    if (id === undefined) return plain(response, 404, 'there is nothing');
    const bodies = await store.bodies(Number(id));
    if (bodies === null) return plain(response, 410, 'its messages are not held any more');
    return json(response, bodies);
  }

  /** Goes on from where the browser was when its connection broke. One event waits for a slow one, no more. */
  async #events(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (this.#viewers >= MAX_VIEWERS) return plain(response, 503, `${MAX_VIEWERS} pages look at it already`);
    this.#viewers += 1;
    const gone = new AbortController();
    response.once('close', () => gone.abort());
    const alive = setInterval(() => {
      if (response.writableLength === 0) response.write(': alive\n\n');
    }, ALIVE_MS);
    try {
      response.writeHead(200, EVENTS);
      const last = request.headers['last-event-id'];
      response.write(`retry: 1000\ndata: ${JSON.stringify({ hello: this.#options.hello })}\n\n`);
      const signal = AbortSignal.any([gone.signal, this.#stop.signal]);
      for await (const { event, cursor } of this.#options.store.events(typeof last === 'string' ? Number(last) || 0 : 0, signal)) {
        if (response.write(`id: ${cursor}\ndata: ${JSON.stringify(event)}\n\n`)) continue;
        await once(response, 'drain', { signal }).catch(() => {});
      }
    } finally {
      clearInterval(alive);
      this.#viewers -= 1;
      response.end();
    }
  }
}

async function readBody(request: IncomingMessage): Promise<string> {
  let text = '';
  request.setEncoding('utf8');
  for await (const chunk of request as AsyncIterable<string>) {
    text += chunk;
    if (text.length > MAX_BODY_BYTES) throw new OpError('invalid', 'reading a request', 'it is too long');
  }
  return text;
}

function plain(response: ServerResponse, code: number, text: string): void {
  response.writeHead(code, { ...HEADERS, 'content-type': 'text/plain; charset=utf-8' });
  response.end(`${text}\n`);
}

function json(response: ServerResponse, value: unknown): void {
  response.writeHead(200, { ...HEADERS, 'content-type': 'application/json' });
  response.end(JSON.stringify(value));
}

function refuse(response: ServerResponse, error: unknown): void {
  if (response.headersSent) return void response.destroy();
  const invalid = error instanceof SyntaxError || (error instanceof OpError && error.code === 'invalid');
  const advice = error instanceof OpError && error.advice !== '' ? `; ${error.advice}` : '';
  plain(response, invalid ? 400 : 502, `${messageOf(error)}${advice}`);
}

/** Serves the page until it is disposed. Throws OpError when it cannot listen. */
export async function serveWeb(options: WebOptions): Promise<WebServer> {
  const { host, port } = readAddress(options.listen);
  const serving = new Serving(options, host);
  try {
    serving.server.listen(port, host);
    await once(serving.server, 'listening');
  } catch (cause) {
    throw new OpError('failed', `listen on ${options.listen}`, messageOf(cause), { cause, advice: 'name another with --listen 127.0.0.1:PORT' });
  }
  return { url: serving.url, [Symbol.asyncDispose]: () => serving.close() };
}
