import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { chmodSync, existsSync, linkSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { setTimeout as delay } from 'node:timers/promises';
import { DatabaseSync } from 'node:sqlite';

/** A node and its pods as network namespaces, the plugin's executable as a runtime starts it, and the daemon. */

const ROOT = join(import.meta.dirname, '../..');
const sysPath = process.env['NODELET_SYS'] ?? join(ROOT, 'dist/sys');
/** NODELET_BUNDLE: one built file in place of the sources; it starts faster. */
const program = process.env['NODELET_BUNDLE'] ?? join(ROOT, 'node/main.ts');
const READY_MS = 30_000;
const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/** Why the lab cannot be built here, or null. */
export function missing(): string | null {
  if (process.getuid?.() !== 0) return 'needs root';
  if (!existsSync(sysPath)) return 'needs dist/sys (sys/build.sh)';
  for (const tool of ['ip', 'nft', 'cc', 'nsenter', 'conntrack']) if (!PATH.split(':').some((folder) => existsSync(join(folder, tool)))) return `needs ${tool}`;
  return null;
}

export interface Ended {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

export interface Running {
  readonly child: ChildProcess;
  readonly ended: Promise<Ended>;
}

export function ip(...args: string[]): string {
  return execFileSync('ip', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
}

/** Reads one link by name; null when it is not there. */
export function linkOf(netns: string, name: string): { mtu: number; ifname: string } | null {
  const links = JSON.parse(ip('-n', netns, '-json', 'link')) as { ifname: string; mtu: number }[];
  return links.find((link) => link.ifname === name) ?? null;
}

/** The rest of an answer that tests look into. */
export interface PluginResult {
  cniVersion: string;
  interfaces: { name: string; mac: string; mtu?: number; sandbox?: string }[];
  ips: { address: string; gateway?: string; interface?: number; version?: string }[];
  routes?: { dst: string; gw?: string }[];
  code?: number;
  msg?: string;
}

let labs = 0;

export class Lab implements AsyncDisposable {
  readonly dir = mkdtempSync(join(tmpdir(), 'nodelet-cni-test-'));
  readonly node: string;
  readonly dataDir = join(this.dir, 'data');
  readonly socket = join(this.dir, 'run/cni.sock');
  readonly #spaces: string[] = [];
  readonly #children = new Set<ChildProcess>();
  readonly #suffix: string;
  #daemon: ChildProcess | null = null;
  /** Of the network configuration, beside what every test has. */
  conf: Record<string, unknown> = {};

  constructor() {
    this.#suffix = `${process.pid}-${++labs}`;
    execFileSync('sh', [join(ROOT, 'sys/build.sh'), '--front', join(this.dir, 'bin/nodelet')]);
    linkSync(join(this.dir, 'bin/nodelet'), join(this.dir, 'bin/loopback'));
    writeFileSync(
      join(this.dir, 'bin/fallback'),
      `#!/bin/sh\nNODELET_SYS=${sysPath} exec ${process.execPath} --disable-warning=ExperimentalWarning ${program} cni plugin\n`,
    );
    chmodSync(join(this.dir, 'bin/fallback'), 0o755);
    this.node = this.space('node');
    ip('-n', this.node, 'link', 'set', 'lo', 'up');
  }

  /** A network namespace that goes with the lab. */
  space(name: string): string {
    const full = `ncni-${name}-${this.#suffix}`;
    ip('netns', 'add', full);
    this.#spaces.push(full);
    return full;
  }

  /** Ends a namespace and makes an empty one of its name. */
  renew(full: string): void {
    ip('netns', 'delete', full);
    ip('netns', 'add', full);
  }

  /** A machine outside on the node's uplink: 192.0.2.200 and 2001:db8::200; the node has .10 and ::10 and its default route there. */
  uplink(mtu = 1500): string {
    const outside = this.space('ext');
    ip('link', 'add', 'up0', 'netns', this.node, 'mtu', String(mtu), 'type', 'veth', 'peer', 'name', 'up1', 'netns', outside);
    for (const [space, link, host] of [
      [this.node, 'up0', '10'],
      [outside, 'up1', '200'],
    ] as const) {
      ip('-n', space, 'addr', 'add', `192.0.2.${host}/24`, 'dev', link);
      ip('-n', space, 'addr', 'add', `2001:db8::${host}/64`, 'dev', link, 'nodad');
      ip('-n', space, 'link', 'set', link, 'up');
      ip('-n', space, 'link', 'set', 'lo', 'up');
    }
    ip('-n', this.node, 'route', 'add', 'default', 'via', '192.0.2.200');
    ip('-n', this.node, '-6', 'route', 'add', 'default', 'via', '2001:db8::200');
    return outside;
  }

  netns(full: string): string {
    return `/run/netns/${full}`;
  }

  /** A program in a namespace. */
  start(space: string, argv: readonly string[], options: { input?: string; env?: Record<string, string> } = {}): Running {
    const child = spawn('nsenter', [`--net=${this.netns(space)}`, ...argv], { stdio: ['pipe', 'pipe', 'pipe'], env: { PATH, ...options.env } });
    this.#children.add(child);
    const out: Buffer[] = [];
    const err: Buffer[] = [];
    child.stdout.on('data', (chunk: Buffer) => out.push(chunk));
    child.stderr.on('data', (chunk: Buffer) => err.push(chunk));
    child.stdin.on('error', () => {});
    child.stdin.end(options.input ?? '');
    const ended = new Promise<Ended>((resolve) =>
      child.once('close', (code) => {
        this.#children.delete(child);
        resolve({ code, out: Buffer.concat(out).toString(), err: Buffer.concat(err).toString() });
      }),
    );
    return { child, ended };
  }

  /** `nodelet …` on the node. */
  nodelet(...args: string[]): Running {
    return this.start(this.node, [process.execPath, '--disable-warning=ExperimentalWarning', program, ...args], { env: { NODELET_SYS: sysPath } });
  }

  /** The plugin as a runtime starts it, with the network configuration of the lab. */
  plugin(command: string, container: string, pod: string, extra: Record<string, unknown> = {}, name = 'nodelet'): Running {
    const conf = { cniVersion: '1.0.0', name: 'lab', type: name, ipam: { ranges: [[{ subnet: '10.244.1.0/24' }]] }, ...this.conf, ...extra };
    const ipam = { dataDir: this.dataDir, ...(conf.ipam as object) };
    const env = {
      CNI_COMMAND: command,
      CNI_CONTAINERID: container,
      CNI_IFNAME: name === 'loopback' ? 'lo' : 'eth0',
      CNI_NETNS: pod === '' ? '' : this.netns(pod),
      CNI_PATH: join(this.dir, 'bin'),
      NODELET_CNI_SOCKET: this.socket,
    };
    return this.start(this.node, [join(this.dir, 'bin', name)], { input: JSON.stringify({ ...conf, ipam }), env });
  }

  /** The answer of a call that must succeed, or must fail when `fails`. */
  async call(command: string, container: string, pod: string, extra: Record<string, unknown> = {}, fails = false): Promise<PluginResult> {
    const { code, out, err } = await this.plugin(command, container, pod, extra).ended;
    if ((code !== 0) !== fails) throw new Error(`${command} ${container} ended with ${code}: ${out}${err}`);
    return (out === '' ? {} : JSON.parse(out)) as PluginResult;
  }

  /** Starts the daemon and waits until it listens. */
  async daemon(config: Record<string, unknown> = {}): Promise<ChildProcess> {
    const file = join(this.dir, 'daemon.json');
    writeFileSync(file, JSON.stringify({ socket: this.socket, dataDir: this.dataDir, confFile: '', podCIDRs: ['10.244.1.0/24'], ...config }));
    const { child, ended } = this.start(this.node, [process.execPath, '--disable-warning=ExperimentalWarning', program, 'cni', 'daemon', '--config', file], {
      env: { NODELET_SYS: sysPath },
    });
    this.#daemon = child;
    let last: Ended | null = null;
    void ended.then((how) => (last = how));
    const isUp = async (): Promise<boolean> => (await this.plugin('VERSION', '', '').ended).code === 0 && existsSync(this.socket);
    for (const deadline = performance.now() + READY_MS; !existsSync(this.socket) || !(await isUp()); await delay(20)) {
      if (last !== null && !child.killed) throw new Error(`the daemon ended: ${(last as Ended).err}`);
      if (child.killed) return child;
      if (performance.now() > deadline) throw new Error('the daemon does not listen');
    }
    return child;
  }

  async stop(child: ChildProcess): Promise<void> {
    const closed = new Promise((resolve) => (child.exitCode !== null || child.signalCode !== null ? resolve(null) : child.once('close', resolve)));
    child.kill('SIGTERM');
    await closed;
  }

  nft(): string {
    return execFileSync('nsenter', [`--net=${this.netns(this.node)}`, 'nft', '-n', 'list', 'ruleset'], { encoding: 'utf8' });
  }

  /** Rows of the store by table. */
  rows(): Record<'attachment' | 'address' | 'port', Record<string, unknown>[]> {
    const db = new DatabaseSync(join(this.dataDir, 'state.db'));
    try {
      const all = (table: string): Record<string, unknown>[] => db.prepare(`SELECT * FROM ${table}`).all();
      return { attachment: all('attachment'), address: all('address'), port: all('port') };
    } finally {
      db.close();
    }
  }

  /** What pods left behind: names of links, rows, elements of the maps; empty when nothing. */
  remains(): string[] {
    const links = (JSON.parse(ip('-n', this.node, '-json', 'link')) as { ifname: string }[]).map((link) => link.ifname).filter((name) => name.startsWith('nl'));
    const rows = existsSync(join(this.dataDir, 'state.db'))
      ? Object.entries(this.rows()).flatMap(([table, list]) => list.map((row) => `${table} ${JSON.stringify(row)}`))
      : [];
    const routes = ip('-n', this.node, 'route')
      .split('\n')
      .filter((line) => line.includes(' nl'));
    const elements = [...this.nft().matchAll(/(?:map|set) (host-ports|host-ports-at|hairpin) \{[^}]*elements = \{([^}]*)\}/g)].map(
      (match) => `${match[1]}: ${match[2]!.trim()}`,
    );
    return [...links, ...rows, ...routes, ...elements];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#daemon !== null) await this.stop(this.#daemon);
    for (const child of this.#children) child.kill('SIGKILL');
    for (const space of this.#spaces) ip('netns', 'delete', space);
    rmSync(this.dir, { recursive: true, force: true });
  }
}

const PEER = fileURLToPath(new URL('peer.ts', import.meta.url));

/** The command line of the program at the ends of a test's packets. */
export const peer = (...args: string[]): string[] => [process.execPath, '--disable-warning=ExperimentalWarning', PEER, ...args];

/** A server in a namespace that answers with its name, on TCP and UDP; resolves when it listens at all `ports`. */
export async function serve(lab: Lab, space: string, name: string, ...ports: number[]): Promise<Running> {
  const running = lab.start(space, peer('serve', name, ...ports.map(String)));
  let lines = 0;
  await new Promise<void>((resolve, reject) => {
    running.child.stdout!.on('data', (chunk: Buffer) => {
      lines += chunk.toString().split('\n').length - 1;
      if (lines >= ports.length * 2) resolve();
    });
    void running.ended.then(({ err }) => reject(new Error(`a server ended: ${err}`)));
  });
  return running;
}
