import { connect, createServer, type Server, type Socket } from 'node:net';
import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import type { Rng } from '../../base/rng.ts';
import { hostPort, type Family } from '../core/ip.ts';
import type { Target } from '../core/ruleset.ts';
import type { LoopbackPort } from '../core/world.ts';
import { LISTENER_FAILURES, LISTENERS, type Metrics } from './metrics.ts';

/**
 * TCP node ports on the loopback addresses in nftables mode: the kernel cannot lead packets from there elsewhere, so the
 * proxy listens, and carries what comes to an endpoint (upstream's gate KubeProxyNFTablesLocalhostNodePorts).
 */

const CONNECT_MS = 5000;
/** Who is gone without a word is asked for after this, as Go does. */
const KEEP_ALIVE = { keepAlive: true, keepAliveInitialDelay: 15_000 };
/** Any process of the node may come: its connections must leave the proxy file descriptors for its own work. */
const MAX_CONNECTIONS = 4096;
const HOSTS: Record<Family, string> = { ip: '127.0.0.1', ip6: '::1' };

export interface LoopbackOptions {
  readonly clock: Pick<Clock, 'monoMs'>;
  readonly rng: Pick<Rng, 'pick'>;
  readonly metrics: Metrics;
  readonly log: Log;
  /** Of all ports together; default 4096. */
  readonly maxConnections?: number;
}

/** How many connections there are, of all ports. */
interface Count {
  connections: number;
}

/** One node port that is listened on. */
class Listener implements AsyncDisposable {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #options: LoopbackOptions;
  readonly #count: Count;
  #port: LoopbackPort;
  /** All clients here have one address, so one endpoint is everybody's while it is asked for. */
  #pinned: { target: Target; untilMs: number } | null = null;

  constructor(port: LoopbackPort, options: LoopbackOptions, count: Count) {
    this.#port = port;
    this.#options = options;
    this.#count = count;
    this.#server = createServer({ allowHalfOpen: true, ...KEEP_ALIVE }, (client) => this.#carry(client));
  }

  async open(host: string): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen({ host, port: this.#port.nodePort, ...(host.includes(':') ? { ipv6Only: true } : {}) }, resolve);
    });
    this.#server.on('error', () => {});
  }

  set port(port: LoopbackPort) {
    if (port.affinitySeconds !== this.#port.affinitySeconds) this.#pinned = null;
    this.#port = port;
  }

  #choose(): Target {
    const { endpoints, affinitySeconds } = this.#port;
    if (affinitySeconds === null) return this.#options.rng.pick(endpoints);
    const nowMs = this.#options.clock.monoMs();
    const known = this.#pinned === null || nowMs > this.#pinned.untilMs ? null : this.#pinned.target;
    const target = endpoints.find((one) => one.address === known?.address && one.port === known.port) ?? this.#options.rng.pick(endpoints);
    this.#pinned = { target, untilMs: nowMs + affinitySeconds * 1000 };
    return target;
  }

  #carry(client: Socket): void {
    const { log, maxConnections = MAX_CONNECTIONS } = this.#options;
    if (this.#count.connections >= maxConnections) {
      log.debug(2, 'Too many connections to node ports on localhost, one is refused', { port: this.#port.nodePort, maxConnections });
      client.destroy();
      return;
    }
    this.#count.connections += 1;
    client.once('close', () => (this.#count.connections -= 1));
    const target = this.#choose();
    const pod = connect({ host: target.address, port: target.port, allowHalfOpen: true, ...KEEP_ALIVE });
    const late = setTimeout(() => pod.destroy(new Error('no connection in time')), CONNECT_MS);
    pod.once('connect', () => clearTimeout(late));
    for (const [one, other] of [
      [client, pod],
      [pod, client],
    ] as const) {
      this.#sockets.add(one);
      one.on('error', (error) => {
        log.debug(4, 'A connection to a node port on localhost broke off', { port: this.#port.nodePort, error: messageOf(error) });
        other.destroy();
      });
      one.on('close', () => {
        clearTimeout(late);
        this.#sockets.delete(one);
        if (!one.readableEnded || one.errored !== null) other.destroy();
      });
      one.pipe(other);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }
}

/** The listeners of all families; connections end with their port. */
export class LoopbackPorts implements AsyncDisposable {
  readonly #options: LoopbackOptions;
  readonly #open = new Map<string, Listener>();
  readonly #count: Count = { connections: 0 };

  constructor(options: LoopbackOptions) {
    this.#options = options;
  }

  /** Listens on exactly these ports of a family; one that cannot be opened is tried again with the next call. */
  async update(family: Family, ports: readonly LoopbackPort[]): Promise<void> {
    const host = HOSTS[family];
    const labels = { ip_family: family === 'ip' ? 'IPv4' : 'IPv6' };
    const wanted = new Map(ports.map((port) => [hostPort(host, port.nodePort), port]));
    for (const [address, listener] of this.#open) {
      if (!address.startsWith(hostPort(host, 0).slice(0, -1)) || wanted.has(address)) continue;
      this.#open.delete(address);
      await listener[Symbol.asyncDispose]();
    }
    for (const [address, port] of wanted) {
      const known = this.#open.get(address);
      if (known !== undefined) {
        known.port = port;
        continue;
      }
      const listener = new Listener(port, this.#options, this.#count);
      try {
        await listener.open(host);
        this.#open.set(address, listener);
      } catch (error) {
        this.#options.metrics.add(LISTENER_FAILURES, 1, labels);
        this.#options.log.error('A node port cannot be served on localhost', { address, error: messageOf(error) });
      }
    }
    this.#options.metrics.set(LISTENERS, [...this.#open.keys()].filter((address) => wanted.has(address)).length, labels);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const listener of this.#open.values()) await listener[Symbol.asyncDispose]();
    this.#open.clear();
  }
}
