import { createSocket } from 'node:dgram';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { connect, isIP, type Socket } from 'node:net';
import type { Log } from '../../base/log.ts';

const IDLE_MS = 5 * 60_000;
const DNS_TIMEOUT_MS = 4_000;
const MAX_PENDING_QUERIES = 1_000;

/**
 * The way out for image pulls: an HTTP CONNECT proxy in the host's network namespace. The host's tables stay
 * untouched, so there is no masquerading that could do it.
 */
export function connectProxy(log: Log): ReturnType<typeof createServer> {
  const server = createServer((_request, response) => {
    response.writeHead(405, { 'content-type': 'text/plain' });
    response.end('only CONNECT is served here\n');
  });
  server.on('connect', (request, client: Socket, head: Buffer) => {
    const at = (request.url ?? '').lastIndexOf(':');
    const host = (request.url ?? '').slice(0, at).replaceAll(/^\[|\]$/g, '');
    const port = Number((request.url ?? '').slice(at + 1));
    const refuse = (error: Error): void => {
      log.info('connection refused', { to: request.url, error: error.message });
      client.end('HTTP/1.1 502 Bad Gateway\r\n\r\n');
    };
    if (host === '' || !(port > 0 && port < 65_536)) return refuse(new Error('not host:port'));
    const upstream = connect({ host, port });
    upstream.setTimeout(IDLE_MS, () => upstream.destroy());
    upstream.once('connect', () => {
      client.write('HTTP/1.1 200 Connection established\r\n\r\n');
      upstream.write(head);
      upstream.pipe(client);
      client.pipe(upstream);
    });
    upstream.on('error', (error) => (upstream.connecting ? refuse(error) : client.destroy()));
    client.on('error', () => upstream.destroy());
    client.on('close', () => upstream.destroy());
    upstream.on('close', () => client.destroy());
  });
  return server;
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
