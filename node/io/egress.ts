import { createSocket } from 'node:dgram';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { lookup } from 'node:dns';
import { connect, isIP, type Socket } from 'node:net';
import type { Log } from '../../base/log.ts';
import { mayAsk, mayReach } from '../core/egress.ts';

const IDLE_MS = 5 * 60_000;
const DNS_TIMEOUT_MS = 4_000;
const MAX_PENDING_QUERIES = 1_000;

export interface ProxyOptions {
  readonly log: Log;
  /** The subnet of the nodes: nobody else is served. */
  readonly from: string;
  /** Which addresses are outside; for tests. */
  readonly mayReach?: (address: string) => boolean;
}

/**
 * The way out for image pulls: an HTTP CONNECT proxy in the host's network namespace. The host's tables stay
 * untouched, so there is no masquerading that could do it. It leads out only: the host's loopback and link stay closed.
 */
export function connectProxy(options: ProxyOptions): ReturnType<typeof createServer> {
  const isOutside = options.mayReach ?? mayReach;
  const server = createServer((_request, response) => {
    response.writeHead(405, { 'content-type': 'text/plain' });
    response.end('only CONNECT is served here\n');
  });
  server.on('connect', (request, client: Socket, head: Buffer) => {
    const refuse = (status: string, why: string): void => {
      options.log.info('connection refused', { to: request.url, from: client.remoteAddress, error: why });
      client.end(`HTTP/1.1 ${status}\r\n\r\n`);
    };
    client.on('error', () => client.destroy());
    if (!mayAsk(client.remoteAddress ?? '', options.from)) return refuse('403 Forbidden', 'not a node of this set');
    const at = (request.url ?? '').lastIndexOf(':');
    const host = (request.url ?? '').slice(0, at).replaceAll(/^\[|\]$/g, '');
    const port = Number((request.url ?? '').slice(at + 1));
    if (host === '' || !(port > 0 && port < 65_536)) return refuse('400 Bad Request', 'not host:port');
    // A name is resolved once and its addresses are what is connected to, so that it cannot mean another one later.
    lookup(host, { all: true }, (error, found) => {
      if (error !== null) return refuse('502 Bad Gateway', error.message);
      const outside = found.filter(({ address }) => isOutside(address));
      if (outside.length === 0) return refuse('403 Forbidden', 'the address is not outside');
      const upstream = connect({ host, port, lookup: (_host, _options, tell) => tell(null, outside) });
      join(upstream, client, head, (why) => refuse('502 Bad Gateway', why));
    });
    return undefined;
  });
  return server;
}

function join(upstream: Socket, client: Socket, head: Buffer, refuse: (why: string) => void): void {
  let isOpen = false;
  upstream.setTimeout(IDLE_MS, () => upstream.destroy());
  upstream.once('connect', () => {
    isOpen = true;
    client.write('HTTP/1.1 200 Connection established\r\n\r\n');
    upstream.write(head);
    upstream.pipe(client);
    client.pipe(upstream);
  });
  upstream.on('error', (error) => {
    if (!isOpen) refuse(error.message);
  });
  client.on('close', () => upstream.destroy());
  upstream.on('close', () => {
    if (isOpen) client.destroy();
    else client.end();
  });
}

/** Name servers of a resolv.conf text, IPv4 and IPv6. */
export function nameservers(text: string): string[] {
  return text
    .split('\n')
    .map((line) => /^\s*nameserver\s+(\S+)/.exec(line)?.[1] ?? '')
    .filter((address) => isIP(address) !== 0);
}

/** Forwards DNS datagrams from the set to the name servers of the host; the file is read again for each query. */
export function dnsForwarder(address: string, resolvConf: string, log: Log): AsyncDisposable {
  const front = createSocket('udp4');
  const pending = new Set<{ close(): void }>();
  front.on('message', (query, from) => {
    if (pending.size >= MAX_PENDING_QUERIES) return;
    void readFile(resolvConf, 'utf8').then(
      (text) => {
        const server = nameservers(text)[0];
        if (server === undefined) return;
        const back = createSocket(isIP(server) === 6 ? 'udp6' : 'udp4');
        const close = (): void => {
          if (!pending.delete(entry)) return;
          clearTimeout(timer);
          back.close();
        };
        const entry = { close };
        const timer = setTimeout(close, DNS_TIMEOUT_MS);
        pending.add(entry);
        back.on('error', close);
        back.on('message', (answer) => {
          front.send(answer, from.port, from.address);
          close();
        });
        back.send(query, 53, server, (error) => {
          if (error !== null) close();
        });
      },
      (error: unknown) => log.warn('cannot read the host name servers', { error }),
    );
  });
  front.on('error', (error) => log.error('DNS forwarder', { error }));
  front.bind(53, address);
  return {
    async [Symbol.asyncDispose]() {
      for (const entry of pending) entry.close();
      await new Promise<void>((resolve) => front.close(resolve));
    },
  };
}
