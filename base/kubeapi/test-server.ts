import { once } from 'node:events';
import { createSecureServer, type Http2SecureServer, type Http2Session, type ServerHttp2Stream } from 'node:http2';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { issueCertificate, selfSigned, type SignedPair } from '../x509.ts';
import type { KubeConfig } from './config.ts';

const validity = { notBeforeMs: Date.UTC(2020, 0, 1), notAfterMs: Date.UTC(2120, 0, 1) };

/** An authority and the pairs it signed; made once, for all tests of a file. */
export const authority: SignedPair = selfSigned({ subject: { commonName: 'test-ca' }, ...validity, isCA: true });
export const serving: SignedPair = issueCertificate(
  { subject: { commonName: 'kube-apiserver' }, ...validity, usages: ['serverAuth'], ipAddresses: ['127.0.0.1'], dnsNames: ['localhost'] },
  authority,
);

export function clientPair(commonName: string): SignedPair {
  return issueCertificate({ subject: { commonName, organizations: ['system:nodes'] }, ...validity, usages: ['clientAuth'] }, authority);
}

export interface TestRequest {
  method: string;
  path: string;
  query: URLSearchParams;
  headers: Record<string, string>;
  body: string;
  /** Number of the session, from 1 in order of arrival. */
  session: number;
  /** CN of the client's certificate. */
  user: string | undefined;
}

export interface Reply {
  status?: number;
  headers?: Record<string, string>;
  body?: unknown;
  /** For watches: writes go on until `end`; `stream` is there to be cut. */
  live?: (write: (event: unknown) => void, stream: ServerHttp2Stream) => void;
}

/** A TLS HTTP/2 server whose answers a test writes by hand. */
export class TestServer implements AsyncDisposable {
  readonly requests: TestRequest[] = [];
  readonly sessions = new Set<Http2Session>();
  sessionCount = 0;
  handler: (request: TestRequest) => Reply = () => ({
    status: 404,
    body: { kind: 'Status', status: 'Failure', code: 404, reason: 'NotFound', message: 'not found' },
  });
  readonly #server: Http2SecureServer;

  constructor() {
    this.#server = createSecureServer({
      key: serving.privateKeyPem,
      cert: serving.certificatePem,
      ca: authority.certificatePem,
      requestCert: true,
      rejectUnauthorized: false,
      settings: { maxConcurrentStreams: 100 },
    });
    const numbers = new WeakMap<Http2Session, number>();
    this.#server.on('session', (session) => {
      numbers.set(session, ++this.sessionCount);
      this.sessions.add(session);
      session.on('close', () => this.sessions.delete(session));
      session.on('error', () => {});
    });
    this.#server.on('stream', (stream, headers) => {
      stream.on('error', () => {});
      let body = '';
      stream.setEncoding('utf8');
      stream.on('data', (chunk: string) => (body += chunk));
      stream.on('end', () => {
        // Given up before it was whole.
        if (stream.destroyed || stream.aborted) return;
        const url = new URL(String(headers[':path']), 'https://x');
        const session = stream.session as Http2Session;
        const socket = session.socket as unknown as { getPeerCertificate?: () => { subject?: { CN?: string } } };
        const request: TestRequest = {
          method: String(headers[':method']),
          path: url.pathname,
          query: url.searchParams,
          headers: Object.fromEntries(Object.entries(headers).map(([key, value]) => [key, String(value)])),
          body,
          session: numbers.get(session) ?? 0,
          user: socket.getPeerCertificate?.().subject?.CN,
        };
        this.requests.push(request);
        this.#reply(stream, this.handler(request));
      });
    });
  }

  #reply(stream: ServerHttp2Stream, reply: Reply): void {
    if (stream.destroyed) return;
    stream.respond({ ':status': reply.status ?? 200, 'content-type': 'application/json', ...reply.headers });
    if (reply.live === undefined) {
      stream.end(reply.body === undefined ? '' : JSON.stringify(reply.body));
      return;
    }
    reply.live((event) => stream.write(`${JSON.stringify(event)}\n`), stream);
  }

  async listen(): Promise<number> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    return (this.#server.address() as AddressInfo).port;
  }

  /** Ends every connection without a word, as a crash does. */
  cut(): void {
    for (const session of this.sessions) session.socket.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const session of this.sessions) session.destroy();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }
}

/** A wire that can be cut without either end hearing of it. */
export class Wire implements AsyncDisposable {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #silent = false;

  constructor(port: number) {
    this.#server = createServer((inner) => {
      const outer = connect(port, '127.0.0.1');
      for (const [from, to] of [
        [inner, outer],
        [outer, inner],
      ] as const) {
        this.#sockets.add(from);
        from.on('data', (chunk) => {
          if (!this.#silent) to.write(chunk);
        });
        from.on('error', () => {});
        from.on('close', () => {
          this.#sockets.delete(from);
          if (!this.#silent) to.destroy();
        });
      }
    });
  }

  async listen(): Promise<number> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    return (this.#server.address() as AddressInfo).port;
  }

  /** From now on nothing passes on the connections there are; new ones work once `heal` was called. */
  silence(): void {
    this.#silent = true;
  }

  /** Forgets the silent connections and lets new ones pass. */
  heal(): void {
    for (const socket of this.#sockets) socket.removeAllListeners('data');
    this.#silent = false;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }
}

export function configFor(port: number, extra: Partial<KubeConfig> = {}): KubeConfig {
  return { server: `https://127.0.0.1:${port}`, namespace: 'default', insecure: false, ca: { data: Buffer.from(authority.certificatePem) }, ...extra };
}
