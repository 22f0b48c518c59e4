import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { realClock } from '../../base/clock.ts';
import { silentLog } from '../../base/log.ts';
import { createSysClient } from '../../base/sys/client.ts';
import type { Sys } from '../../base/sys/types.ts';
import { removeTables } from '../../netfilter/cleanup.ts';
import { proxyConfig, type ProxyConfig } from '../../netfilter/core/config.ts';
import { INVALID_COUNTER, LOCALHOST_COUNTER } from '../../netfilter/core/iptables-service.ts';
import { wantsLocalhostNodePorts } from '../../netfilter/core/node.ts';
import { FakeApi } from '../../netfilter/fake.ts';
import { ProxyHealth } from '../../netfilter/health.ts';
import { createConntrack } from '../../netfilter/io/conntrack.ts';
import { createIptables, type Iptables, type Variant } from '../../netfilter/io/iptables.ts';
import { IptablesTable } from '../../netfilter/iptables-table.ts';
import type { NftKernel } from '../../netfilter/io/kernel.ts';
import { proxyMetrics, type Metrics } from '../../netfilter/io/metrics.ts';
import { createPacketCounters } from '../../netfilter/io/nfacct.ts';
import { createNetlinkKernel } from '../../netfilter/io/nft-netlink.ts';
import { createTextKernel } from '../../netfilter/io/nft-text.ts';
import { HealthPorts } from '../../netfilter/io/servers.ts';
import { removeAllChains } from '../../netfilter/modes.ts';
import { Proxy, type ProxyOptions } from '../../netfilter/proxy.ts';
import { Table } from '../../netfilter/table.ts';

/**
 * A node, two client kinds and four servers in network namespaces of their own, joined by veth pairs:
 * pods cli, srv, srv2 on the node; far on another node; ext outside. The proxy under test runs in this process
 * and reaches into the node's namespace.
 */

export const sysPath = process.env['NODELET_SYS'] ?? join(import.meta.dirname, '../../dist/sys');

/** Why the lab cannot be built here, or null. */
export function missing(tools: readonly string[] = []): string | null {
  if (process.getuid?.() !== 0) return 'needs root';
  if (!existsSync(sysPath)) return 'needs dist/sys (sys/build.sh)';
  const folders = (process.env['PATH'] ?? '').split(':').concat('/usr/sbin', '/sbin');
  for (const tool of ['ip', 'nft', ...tools]) if (!folders.some((folder) => existsSync(join(folder, tool)))) return `needs ${tool}`;
  return null;
}

export interface Reply {
  error?: string;
  server?: string;
  client?: string;
  ms: number;
  count?: number;
  status?: number;
  body?: string;
  weight?: string;
  /** Of `handshakes`, in milliseconds. */
  times?: number[];
}

export class Peer {
  readonly #process: ChildProcess;
  readonly #waiting = new Map<number, { resolve: (reply: Reply) => void; reject: (error: Error) => void }>();
  readonly #name: string;
  #id = 0;

  constructor(name: string, netns: string) {
    this.#name = name;
    const command = ['ip', 'netns', 'exec', netns, process.execPath, fileURLToPath(new URL('peer.ts', import.meta.url)), name];
    this.#process = spawn(command[0]!, command.slice(1), { stdio: ['pipe', 'pipe', 'inherit'] });
    createInterface({ input: this.#process.stdout! }).on('line', (line) => {
      const reply = JSON.parse(line) as Reply & { id: number };
      this.#waiting.get(reply.id)?.resolve(reply);
      this.#waiting.delete(reply.id);
    });
    this.#process.once('exit', () => {
      for (const { reject } of this.#waiting.values()) reject(this.#gone());
    });
  }

  get #isGone(): boolean {
    return this.#process.exitCode !== null || this.#process.signalCode !== null;
  }

  #gone(): Error {
    return new Error(`the peer ${this.#name} ended with ${this.#process.exitCode ?? this.#process.signalCode}`);
  }

  ask(request: Record<string, unknown>): Promise<Reply> {
    const id = ++this.#id;
    return new Promise((resolve, reject) => {
      if (this.#isGone) return reject(this.#gone());
      this.#waiting.set(id, { resolve, reject });
      this.#process.stdin!.write(`${JSON.stringify({ id, ...request })}\n`);
    });
  }

  connect(host: string, port: number, more: { timeoutMs?: number; from?: string } = {}): Promise<Reply> {
    return this.ask({ do: 'connect', host, port, ...more });
  }

  /** How many of `times` connections each server answered; failures count under their error. */
  async tally(host: string, port: number, times: number): Promise<Record<string, number>> {
    const counts: Record<string, number> = {};
    for (let done = 0; done < times; done += 20) {
      const replies = await Promise.all(Array.from({ length: Math.min(20, times - done) }, () => this.connect(host, port)));
      for (const reply of replies) counts[reply.server ?? reply.error!] = (counts[reply.server ?? reply.error!] ?? 0) + 1;
    }
    return counts;
  }

  async received(port: number): Promise<number> {
    return (await this.ask({ do: 'received', port })).count ?? 0;
  }

  async stop(): Promise<void> {
    if (this.#isGone) return;
    const ended = new Promise((resolve) => this.#process.once('exit', resolve));
    this.#process.stdin!.end();
    await ended;
  }
}

const NAMESPACES = ['node', 'cli', 'srv', 'srv2', 'far', 'ext'] as const;
export type Place = (typeof NAMESPACES)[number];

function pod(name: string, last: number): { node: string[]; own: string[] } {
  return {
    node: [
      `addr add 10.244.0.1/32 dev v${name}`,
      `route add 10.244.0.${last}/32 dev v${name}`,
      `addr add fd00:10:244::1/128 dev v${name} nodad`,
      `route add fd00:10:244::${last}/128 dev v${name}`,
    ],
    own: [
      `addr add 10.244.0.${last}/32 dev eth0`,
      'route add default via 10.244.0.1 dev eth0 onlink',
      `addr add fd00:10:244::${last}/128 dev eth0 nodad`,
      'route add fd00:10:244::1/128 dev eth0',
      'route add default via fd00:10:244::1 dev eth0',
    ],
  };
}

export class Lab implements AsyncDisposable {
  readonly sys: Sys;
  readonly peers = {} as Record<Place, Peer>;
  readonly #prefix: string;

  /** @param env for the programs that are run, beside PATH */
  constructor(prefix: string, env: Readonly<Record<string, string>> = {}) {
    this.sys = createSysClient({ path: sysPath, log: silentLog });
    if (Object.keys(env).length > 0) {
      const run = this.sys.run.bind(this.sys);
      this.sys.run = (request, signal) => run({ env: { PATH: process.env['PATH'] ?? '', ...env }, ...request }, signal);
    }
    this.#prefix = `${prefix}-${process.pid}`;
  }

  netns(place: Place): string {
    return `${this.#prefix}-${place}`;
  }

  netnsPath(place: Place): string {
    return `/run/netns/${this.netns(place)}`;
  }

  /** Runs a program in a namespace of the lab, or outside of all. */
  async run(place: Place | null, argv: readonly string[], stdin = '', timeoutMs = 20_000): Promise<string> {
    const result = await this.sys.run({
      argv,
      stdin,
      timeoutMs,
      maxOutputBytes: 32 << 20,
      ...(place === null ? {} : { netns: this.netnsPath(place) }),
    });
    if (result.code !== 0) throw new Error(`${argv.join(' ')} ended with ${result.code}: ${Buffer.from(result.stderr).toString()}`);
    return Buffer.from(result.stdout).toString();
  }

  async ip(place: Place, lines: readonly string[]): Promise<void> {
    await this.run(place, ['ip', '-batch', '-'], `${lines.join('\n')}\n`);
  }

  async build(): Promise<void> {
    for (const place of NAMESPACES) await this.run(null, ['ip', 'netns', 'add', this.netns(place)]);
    const link = (place: Place, peer = 'eth0'): string => `link add v${place} type veth peer name ${peer} netns ${this.netns(place)}`;
    const up = (place: Place): string => `link set v${place} up`;
    const pods = { cli: pod('cli', 2), srv: pod('srv', 3), srv2: pod('srv2', 4) };
    const places: Place[] = ['cli', 'srv', 'srv2', 'far', 'ext'];
    for (const place of NAMESPACES) {
      const ipv6 =
        'echo 1 > /proc/sys/net/ipv6/conf/default/accept_dad; echo 0 > /proc/sys/net/ipv6/conf/all/disable_ipv6; echo 0 > /proc/sys/net/ipv6/conf/default/disable_ipv6';
      await this.run(place, [
        'sh',
        '-c',
        `${ipv6}; ${place === 'node' ? 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding' : ':'}; ip link set lo up`,
      ]);
    }
    await this.ip(
      'node',
      places.map((place) => link(place)),
    );
    // A second link between far and ext, so that an answer of far need not pass the node.
    await this.ip('far', [
      `link add side type veth peer name side netns ${this.netns('ext')}`,
      'link set side up',
      'addr add 192.0.2.201/32 dev side',
      'link set eth0 up',
    ]);
    for (const place of ['cli', 'srv', 'srv2'] as const) await this.ip(place, ['link set eth0 up', ...pods[place].own]);
    await this.ip('ext', [
      'link set eth0 up',
      'link set side up',
      'addr add 192.0.2.200/24 dev eth0',
      'addr add 192.0.2.130/24 dev eth0',
      'route add 203.0.113.10/32 via 192.0.2.10',
      'route add 198.51.100.0/24 via 192.0.2.10',
      'route add 10.96.0.0/16 via 192.0.2.10',
      'addr add 2001:db8::200/64 dev eth0 nodad',
      'route add fd00:96::/112 via 2001:db8::10',
    ]);
    await this.ip('node', [
      ...places.map(up),
      ...Object.values(pods).flatMap(({ node }) => node),
      'addr add 192.0.2.10/24 dev vext',
      'addr add 198.51.100.10/32 dev lo',
      'addr add 2001:db8::10/64 dev vext nodad',
      'addr add 10.244.1.1/24 dev vfar',
      'route add default via 192.0.2.254 dev vext onlink',
      'route add default via 2001:db8::fe dev vext onlink',
    ]);
    await this.ip('far', ['addr add 10.244.1.5/24 dev eth0', 'route add default via 10.244.1.1', 'route add 192.0.2.200/32 dev side']);
    await this.ip('ext', ['route add 192.0.2.201/32 dev side']);
    for (const place of NAMESPACES) this.peers[place] = new Peer(place, this.netns(place));
    await Promise.all(
      (['srv', 'srv2', 'far'] as const).flatMap((place) => [
        this.peers[place].ask({ do: 'listen-tcp', port: 8080 }),
        this.peers[place].ask({ do: 'listen-udp', port: 8125 }),
        this.peers[place].ask({ do: 'listen-tcp', port: 9090 }),
      ]),
    );
  }

  nftTable(family: 'ip' | 'ip6' = 'ip'): Promise<string> {
    return this.run('node', ['nft', 'list', 'table', family, 'kube-proxy']);
  }

  /** What `iptables-save` prints, counters and times left out. */
  async iptablesSave(family: 'ip' | 'ip6' = 'ip', variant: Variant = ''): Promise<string> {
    const text = await this.run('node', [`${family === 'ip' ? 'iptables' : 'ip6tables'}${variant}-save`]);
    return text.replaceAll(/^#.*\n/gm, '').replaceAll(/ \[\d+:\d+\]$/gm, '');
  }

  /** Both modes' rules of one family. */
  async allRules(family: 'ip' | 'ip6' = 'ip'): Promise<string> {
    return (await this.nftTable(family).catch(() => '')) + (await this.iptablesSave(family));
  }

  /** The keys of a set or map as nft prints them, sorted. */
  async elements(set: string, family: 'ip' | 'ip6' = 'ip'): Promise<string[]> {
    const text = await this.run('node', ['nft', '-j', 'list', family === 'ip' ? 'map' : 'map', family, 'kube-proxy', set]).catch(() =>
      this.run('node', ['nft', '-j', 'list', 'set', family, 'kube-proxy', set]),
    );
    type Item = { concat: unknown[] } | { elem: { val: Item } } | string | number | [Item, unknown];
    const key = (item: Item): string => {
      if (Array.isArray(item)) return key(item[0]);
      if (typeof item !== 'object') return String(item);
      return 'elem' in item ? key(item.elem.val) : item.concat.join(' . ');
    };
    const objects = (JSON.parse(text) as { nftables: { map?: { elem?: Item[] }; set?: { elem?: Item[] } }[] }).nftables;
    return objects
      .flatMap((object) => (object.map ?? object.set)?.elem ?? [])
      .map(key)
      .sort();
  }

  /** Connection-tracking entries of the node as lines, UDP only. */
  async udpFlows(): Promise<string[]> {
    return (await this.run('node', ['conntrack', '-L', '-p', 'udp', '-o', 'id'])).split('\n').filter((line) => line.includes('udp'));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(Object.values(this.peers).map((peer) => peer.stop()));
    for (const place of NAMESPACES) await this.run(null, ['ip', 'netns', 'delete', this.netns(place)]).catch(() => {});
    await this.sys[Symbol.asyncDispose]();
  }
}

export interface RunningProxy extends AsyncDisposable {
  api: FakeApi;
  metrics: Metrics;
  health: ProxyHealth;
  /** Resolves once everything asked for so far is written in both families. */
  synced(): Promise<void>;
}

/** The node object of the lab. */
export function labNode(labels: Record<string, string> = {}): { metadata: { name: string; labels: Record<string, string> } } {
  const status = {
    addresses: [
      { type: 'InternalIP', address: '192.0.2.10' },
      { type: 'InternalIP', address: '2001:db8::10' },
    ],
  };
  return { metadata: { name: 'node-a', labels }, spec: {}, status } as never;
}

interface StartOptions {
  way?: 'netlink' | 'text';
  wrap?: (kernel: NftKernel) => NftKernel;
  wrapIptables?: (iptables: Iptables) => Iptables;
  variant?: Variant;
}

type LabMode = Pick<ProxyOptions, 'createTable' | 'afterFirstSync'>;

function nftablesMode(lab: Lab, options: StartOptions): Required<LabMode> {
  const netns = lab.netnsPath('node');
  const own = options.way === 'text' ? createTextKernel(lab.sys, { netns }) : createNetlinkKernel(lab.sys, { netns });
  const kernel = options.wrap === undefined ? own : options.wrap(own);
  return {
    createTable: () => new Table({ kernel, fallback: null, log: silentLog }),
    afterFirstSync: async () => void (await removeAllChains(lab.sys, silentLog, netns)),
  };
}

async function iptablesMode(lab: Lab, config: ProxyConfig, metrics: Metrics, options: StartOptions): Promise<Required<LabMode>> {
  const netns = lab.netnsPath('node');
  const own = createIptables(lab.sys, { netns, variant: options.variant ?? '' });
  const iptables = options.wrapIptables === undefined ? own : options.wrapIptables(own);
  const localhostNodePorts = wantsLocalhostNodePorts(config);
  if (localhostNodePorts) await lab.run('node', ['sh', '-c', 'echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet']);
  const counters = await createPacketCounters(lab.sys, { netns }).ensure([INVALID_COUNTER, LOCALHOST_COUNTER]);
  return {
    createTable: () => new IptablesTable({ iptables, metrics, log: silentLog, localhostNodePorts, dropInvalid: true, counters }),
    afterFirstSync: async () => void (await removeTables(createNetlinkKernel(lab.sys, { netns }), ['ip', 'ip6'], silentLog)),
  };
}

/** Starts a proxy for the lab's node. Periods are short so that "one sync" takes no second. */
export async function startProxy(
  lab: Lab,
  options: StartOptions & { config?: Record<string, unknown>; api?: FakeApi; minSyncPeriodMs?: number; firstRetryMs?: number } = {},
): Promise<RunningProxy> {
  const config: ProxyConfig = {
    ...proxyConfig({ mode: 'nftables', clusterCIDR: '10.244.0.0/16,fd00:10:244::/48', ...options.config }),
    minSyncPeriodMs: options.minSyncPeriodMs ?? 5,
  };
  const netns = lab.netnsPath('node');
  const metrics = proxyMetrics();
  const { createTable, afterFirstSync } = config.mode === 'iptables' ? await iptablesMode(lab, config, metrics, options) : nftablesMode(lab, options);
  const health = new ProxyHealth({ clock: realClock, timeoutMs: 2 * config.syncPeriodMs });
  const api = options.api ?? new FakeApi();
  if (options.api === undefined) api.put('nodes', labNode());
  const stop = new AbortController();
  const healthPorts = new HealthPorts({ log: silentLog, isHealthy: () => health.healthy });
  const proxy = new Proxy({
    config,
    nodeName: 'node-a',
    families: ['ip', 'ip6'],
    createTable,
    afterFirstSync,
    conntrack: createConntrack(lab.sys, { netns }),
    healthPorts,
    health,
    metrics,
    clock: realClock,
    log: silentLog,
    staleMs: 50,
    ...(options.firstRetryMs === undefined ? {} : { firstRetryMs: options.firstRetryMs }),
    machineAddresses: () => ['127.0.0.1', '192.0.2.10', '198.51.100.10', '10.244.0.1', '::1', '2001:db8::10', 'fd00:10:244::1'],
  });
  const running = proxy.run(api.api, stop.signal);
  return {
    api,
    metrics,
    health,
    async synced() {
      for (let tries = 0; !proxy.isIdle; tries++) {
        if (tries > 1000) throw new Error('the proxy does not come to rest');
        await realClock.sleep(2);
      }
    },
    async [Symbol.asyncDispose]() {
      stop.abort();
      await running;
      await healthPorts[Symbol.asyncDispose]();
    },
  };
}

interface PortSpec {
  name?: string;
  port: number;
  targetPort?: number | string;
  protocol?: string;
  nodePort?: number;
}

/** A Service of the lab; `spec` overrides. */
export function service(
  name: string,
  clusterIPs: string[],
  ports: PortSpec[],
  more: { spec?: Record<string, unknown>; ingress?: { ip: string; ipMode?: string }[]; namespace?: string } = {},
): never {
  return {
    metadata: { namespace: more.namespace ?? 'lab', name },
    spec: { clusterIP: clusterIPs[0], clusterIPs, ports, ...more.spec },
    status: more.ingress === undefined ? {} : { loadBalancer: { ingress: more.ingress } },
  } as never;
}

export interface EndpointSpec {
  ip: string;
  node?: string;
  ready?: boolean;
  serving?: boolean;
  terminating?: boolean;
  zones?: string[];
  nodes?: string[];
}

/** One EndpointSlice of a Service. */
export function slice(
  of: string,
  port: { name?: string; port: number | null; protocol?: string },
  endpoints: EndpointSpec[],
  more: { name?: string; addressType?: string; namespace?: string } = {},
): never {
  const addressType = more.addressType ?? (endpoints[0]?.ip.includes(':') === true ? 'IPv6' : 'IPv4');
  return {
    metadata: { namespace: more.namespace ?? 'lab', name: more.name ?? `${of}-1`, labels: { 'kubernetes.io/service-name': of } },
    addressType,
    ports: [port],
    endpoints: endpoints.map(({ ip, node = 'node-a', ready = true, serving = ready, terminating = false, zones, nodes }) => ({
      addresses: [ip],
      nodeName: node,
      conditions: { ready, serving, terminating },
      ...(zones === undefined && nodes === undefined
        ? {}
        : { hints: { forZones: zones?.map((zone) => ({ name: zone })), forNodes: nodes?.map((name) => ({ name })) } }),
    })),
  } as never;
}

/** Only what is wrong takes that long, however busy the machine. */
const UNTIL_MS = 60_000;

/** Asks again until the answer is the expected one; returns the last answer. */
export async function until<T>(ask: () => Promise<T>, isRight: (answer: T) => boolean, withinMs = UNTIL_MS): Promise<T> {
  const endMs = realClock.monoMs() + withinMs;
  for (;;) {
    const answer = await ask();
    if (isRight(answer) || realClock.monoMs() > endMs) return answer;
    await realClock.sleep(20);
  }
}
