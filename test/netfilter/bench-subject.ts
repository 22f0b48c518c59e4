import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { atMost } from '../../base/abort.ts';
import { realClock } from '../../base/clock.ts';
import { OpError } from '../../base/errors.ts';
import { silentLog } from '../../base/log.ts';
import { createSysClient } from '../../base/sys/client.ts';
import type { Sys } from '../../base/sys/types.ts';
import type { NftKernel } from '../../netfilter/io/kernel.ts';
import { createNetlinkKernel } from '../../netfilter/io/nft-netlink.ts';
import { LockProbe } from './bench-lock.ts';
import { Peer, sysPath } from './lab.ts';

/** One proxy with an API server of its own, in a network namespace of its own. */

export type Who = 'ours' | 'upstream';
export type Mode = 'nftables' | 'iptables';

export interface Programs {
  /** Argument list that runs ours, without the command's arguments. */
  ours: readonly string[];
  upstream: string;
}

export interface Told {
  resource: string;
  object: object;
  gone?: boolean;
}

/** What it makes on the machine. */
export const REMAINS = { netns: 'nfb-', folder: 'bench-netfilter-' } as const;

/** Longest time any proxy may take for its first write. */
const COLD_MS = 600_000;
/** After this long without a write, a change is done. */
const QUIET_MS = 700;
/** Who has not ended this long after it was told to is killed: the namespace must go. */
const END_MS = 5_000;

export interface ProxyFigures {
  /** From the start of the process to the end of its first complete sync. */
  readyMs: number;
  /** The part of it that the proxy counts as its sync. */
  syncMs: number;
  /** The longest that another writer waited for the kernel's lock meanwhile. */
  lockMs: number;
}

export class Subject implements AsyncDisposable {
  readonly who: Who;
  readonly mode: Mode;
  readonly netns: string;
  readonly #sys: Sys;
  readonly #folder: string;
  readonly #programs: Programs;
  /** Runs inside the namespace, so that looking closes no socket: that makes whoever writes rules wait. */
  #inside: Sys | null = null;
  #kernel: NftKernel | null = null;
  readonly #signal: AbortSignal;
  #api: ChildProcess | null = null;
  #proxy: ChildProcess | null = null;
  #peer: Peer | null = null;
  #mark = 0;
  readonly #marks = new Map<number, { resolve: () => void; reject: (error: Error) => void }>();

  constructor(who: Who, mode: Mode, options: { sys: Sys; folder: string; programs: Programs; name: string; signal: AbortSignal }) {
    this.who = who;
    this.mode = mode;
    this.netns = `${REMAINS.netns}${process.pid}-${options.name}`;
    this.#sys = options.sys;
    this.#folder = join(options.folder, options.name);
    this.#programs = options.programs;
    this.#signal = options.signal;
  }

  async #run(argv: readonly string[], inside = true, stdin = ''): Promise<string> {
    const where = inside ? { netns: `/run/netns/${this.netns}` } : {};
    const result = await this.#sys.run({ argv, stdin, timeoutMs: 120_000, maxOutputBytes: 256 << 20, ...where });
    if (result.code !== 0) throw new OpError('failed', `run ${argv.join(' ')}`, Buffer.from(result.stderr).toString().slice(0, 500));
    return Buffer.from(result.stdout).toString();
  }

  #spawn(argv: readonly string[], stdio: 'pipe' | 'ignore', env: NodeJS.ProcessEnv = process.env): ChildProcess {
    this.#signal.throwIfAborted();
    const words = process.env['NETFILTER_BENCH_LOG'] === undefined ? 'ignore' : 'inherit';
    return spawn('nsenter', [`--net=/run/netns/${this.netns}`, ...argv], { stdio: [stdio, stdio, words], env });
  }

  /** The namespace with its API server, told `objects`. */
  async open(objects: Iterable<Told>): Promise<void> {
    await mkdir(this.#folder, { recursive: true });
    await this.#run(['ip', 'netns', 'add', this.netns], false);
    const lines = ['link set lo up', 'link add up0 type veth peer name up1', 'addr add 192.0.2.10/24 dev up0', 'link set up0 up', 'link set up1 up'];
    await this.#run(
      ['ip', '-batch', '-'],
      true,
      `${[...lines, 'addr add 10.1.0.1/32 dev lo', 'route add default via 192.0.2.254 dev up0 onlink'].join('\n')}\n`,
    );
    const program = join(this.#folder, 'sys');
    await writeFile(program, `#!/bin/sh\nexec nsenter --net=/run/netns/${this.netns} ${sysPath} "$@"\n`, { mode: 0o755 });
    this.#inside = createSysClient({ path: program, log: silentLog });
    this.#kernel = createNetlinkKernel(this.#inside);
    this.#api = this.#spawn([process.execPath, '--max-old-space-size=2048', join(import.meta.dirname, 'apiserver.ts')], 'pipe');
    createInterface({ input: this.#api.stdout! }).on('line', (line) => {
      const number = line === 'ready' ? 0 : Number(line.split(' ')[1]);
      this.#marks.get(number)?.resolve();
    });
    this.#api.once('exit', (code, signal) => {
      for (const { reject } of this.#marks.values()) reject(new OpError('failed', 'run the API server', `it ended with ${code ?? signal}`));
    });
    // Its end is told by its exit.
    this.#api.stdin!.on('error', () => {});
    await this.#reached(0);
    let part: string[] = [];
    const flush = async (): Promise<void> => {
      this.#signal.throwIfAborted();
      this.#api!.stdin!.write(part.join(''));
      part = [];
      await this.taken();
    };
    for (const told of objects) {
      part.push(`${JSON.stringify(told)}\n`);
      if (part.length === 500) await flush();
    }
    await flush();
    await this.taken();
    this.#peer = new Peer('here', this.netns);
    await this.#peer.ask({ do: 'listen-tcp', port: 8080, host: '0.0.0.0' });
    await this.#writeConfig();
  }

  async #writeConfig(): Promise<void> {
    const kubeconfig = {
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [{ name: 'c', cluster: { server: 'http://127.0.0.1:8001' } }],
      users: [{ name: 'u', user: {} }],
      contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
      'current-context': 'x',
    };
    const config = {
      apiVersion: 'kubeproxy.config.k8s.io/v1alpha1',
      kind: 'KubeProxyConfiguration',
      mode: this.mode,
      hostnameOverride: 'node-a',
      clusterCIDR: '10.128.0.0/9',
      clientConnection: {
        kubeconfig: join(this.#folder, 'kubeconfig'),
        contentType: 'application/json',
        acceptContentTypes: 'application/json',
        qps: 1000,
        burst: 1000,
      },
      healthzBindAddress: '127.0.0.1:10256',
      metricsBindAddress: '127.0.0.1:10249',
      conntrack: { maxPerCore: 0, min: 0, tcpEstablishedTimeout: '0s', tcpCloseWaitTimeout: '0s' },
    };
    await writeFile(join(this.#folder, 'kubeconfig'), JSON.stringify(kubeconfig));
    await writeFile(join(this.#folder, 'config.json'), JSON.stringify(config));
  }

  tell(told: Told): void {
    this.#api!.stdin!.write(`${JSON.stringify(told)}\n`);
  }

  /** Resolves when the API server has everything it was told. */
  async taken(): Promise<void> {
    const mark = ++this.#mark;
    this.#api!.stdin!.write(`${JSON.stringify({ mark })}\n`);
    await this.#reached(mark);
  }

  async #reached(mark: number): Promise<void> {
    try {
      await new Promise<void>((resolve, reject) => {
        if (isOver(this.#api!)) reject(new OpError('failed', 'tell the API server', 'it has ended'));
        else this.#marks.set(mark, { resolve, reject });
      });
    } finally {
      this.#marks.delete(mark);
    }
  }

  async generation(): Promise<number> {
    return (await this.#kernel!.generation()) ?? 0;
  }

  /** A value of the proxy's metrics page, of IPv4; null where it has none (yet). */
  async metric(name: string): Promise<number | null> {
    const { body } = await this.#peer!.ask({ do: 'http', host: '127.0.0.1', port: 10249, path: '/metrics', timeoutMs: 20_000 });
    const line = body?.split('\n').find((candidate) => candidate.startsWith(`${name}{ip_family="IPv4"`) || candidate.startsWith(`${name} `));
    return line === undefined ? null : Number(line.slice(line.lastIndexOf(' ') + 1));
  }

  /** Starts the proxy and waits for its first complete sync. */
  async start(): Promise<ProxyFigures> {
    const startMs = realClock.nowMs();
    const config = [
      '--config',
      join(this.#folder, 'config.json'),
      ...(process.env['NETFILTER_BENCH_V'] === undefined ? [] : ['--v', process.env['NETFILTER_BENCH_V']]),
    ];
    if (this.who === 'upstream') this.#proxy = this.#spawn([this.#programs.upstream, ...config], 'ignore');
    else {
      const env = {
        PATH: process.env['PATH'],
        HOME: '/root',
        NODELET_SYS: sysPath,
        UV_THREADPOOL_SIZE: '8',
        MALLOC_ARENA_MAX: '2',
        NODE_COMPILE_CACHE: join(this.#folder, '..', 'cache'),
      };
      this.#proxy = this.#spawn([...this.#programs.ours, ...config], 'ignore', env);
    }
    await using probe = new LockProbe(this.#inside!);
    const endMs = realClock.monoMs() + COLD_MS;
    for (;;) {
      if (isOver(this.#proxy)) throw new OpError('failed', `start ${this.who}`, `it ended with ${this.#proxy.exitCode ?? this.#proxy.signalCode}`);
      this.#signal.throwIfAborted();
      const last = await this.metric('kubeproxy_sync_proxy_rules_last_timestamp_seconds').catch(() => null);
      if (last !== null && last > 0) {
        const seconds = (await this.metric('kubeproxy_sync_full_proxy_rules_duration_seconds_sum')) ?? 0;
        return { readyMs: last * 1000 - startMs, syncMs: seconds * 1000, lockMs: probe.longestMs };
      }
      if (realClock.monoMs() > endMs) throw new OpError('deadline', `start ${this.who}`, 'no sync in time');
      await realClock.sleep(100, this.#signal);
    }
  }

  /** Waits until nothing is written any more. */
  async quiet(): Promise<void> {
    let generation = await this.generation();
    let sinceMs = realClock.monoMs();
    while (realClock.monoMs() - sinceMs < 2500) {
      await realClock.sleep(100, this.#signal);
      const now = await this.generation();
      if (now !== generation) sinceMs = realClock.monoMs();
      generation = now;
    }
  }

  /** From telling the API server to the last write that followed; and what the proxy counts for it. */
  async change(told: readonly Told[], spreadMs = 0): Promise<{ kernelMs: number; proxyMs: number; syncs: number; writes: number }> {
    const before = { sum: await this.metric(SUM), count: await this.metric(COUNT), generation: await this.generation() };
    const startMs = realClock.monoMs();
    for (const [index, one] of told.entries()) {
      const waitMs = startMs + (spreadMs * index) / told.length - realClock.monoMs();
      if (waitMs > 0) await realClock.sleep(waitMs, this.#signal);
      this.tell(one);
    }
    let generation = before.generation;
    let lastMs = startMs;
    // A proxy holds back what comes within a second of its last write.
    const patienceMs = told.length > 1 ? 2500 : QUIET_MS;
    for (;;) {
      const now = await this.generation();
      const nowMs = realClock.monoMs();
      if (now !== generation) {
        generation = now;
        lastMs = nowMs;
      }
      if (generation !== before.generation && nowMs - lastMs > patienceMs) break;
      if (nowMs - startMs > COLD_MS) throw new OpError('deadline', 'wait for a change', `${this.who} writes nothing`);
      await realClock.sleep(nowMs - lastMs < 500 ? 1 : 20, this.#signal);
    }
    const syncs = ((await this.metric(COUNT)) ?? 0) - (before.count ?? 0);
    const proxyMs = (1000 * (((await this.metric(SUM)) ?? 0) - (before.sum ?? 0))) / Math.max(1, syncs);
    return { kernelMs: lastMs - startMs, proxyMs, syncs, writes: generation - before.generation };
  }

  async handshakes(host: string, port: number, times: number): Promise<number[]> {
    const reply = await this.#peer!.ask({ do: 'handshakes', host, port, times });
    if (reply.times === undefined) throw new OpError('failed', 'connect through a Service', `${this.who} on ${host}:${port}`);
    return reply.times;
  }

  /** Peak and present memory of the proxy and of what belongs to it as long as it runs, and its processor time so far. */
  async cost(): Promise<{ peakMiB: number; nowMiB: number; anonMiB: number; fileMiB: number; cpuSeconds: number }> {
    const pids = [this.#proxy!.pid!, ...(await childrenOf(this.#proxy!.pid!))];
    const memory = { peakMiB: 0, nowMiB: 0, anonMiB: 0, fileMiB: 0 };
    let ticks = 0;
    for (const pid of pids) {
      const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '');
      const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
      const mib = (key: string): number => Number(new RegExp(`^${key}:\\s+(\\d+)`, 'm').exec(status)?.[1] ?? 0) / 1024;
      memory.peakMiB += mib('VmHWM');
      memory.nowMiB += mib('VmRSS');
      memory.anonMiB += mib('RssAnon');
      memory.fileMiB += mib('RssFile');
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      ticks += fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0);
    }
    return { ...memory, cpuSeconds: ticks / 100 };
  }

  async stop(): Promise<void> {
    await ended(this.#proxy);
    this.#proxy = null;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    await this.#peer?.stop();
    await this.#inside?.[Symbol.asyncDispose]();
    await ended(this.#api);
    await this.#removeSpace();
  }

  /** A signal to all of the group ends what was asked too, halfway or with its answer lost: it is looked at until it stays away. */
  async #removeSpace(): Promise<void> {
    for (let [tries, away] = [0, 0]; tries < 50 && away < 2; tries += 1) {
      if (existsSync(`/run/netns/${this.netns}`)) {
        away = 0;
        await this.#run(['ip', 'netns', 'delete', this.netns], false).catch(() => {});
      } else away += 1;
      await delay(50);
    }
  }
}

const SUM = 'kubeproxy_sync_proxy_rules_duration_seconds_sum';
const COUNT = 'kubeproxy_sync_proxy_rules_duration_seconds_count';

function isOver(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null;
}

async function ended(child: ChildProcess | null): Promise<void> {
  if (child === null || isOver(child)) return;
  const exit = once(child, 'exit');
  child.kill();
  if (!(await atMost(realClock, exit, END_MS))) child.kill('SIGKILL');
  await exit;
}

/** Children that stay: tools that are started for one write come and go, for both proxies. */
async function childrenOf(pid: number): Promise<number[]> {
  const text = await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8').catch(() => '');
  return text.split(' ').filter(Boolean).map(Number);
}
