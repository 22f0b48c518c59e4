import { spawn } from 'node:child_process';
import { mkdir, open, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { exec, tryExec, type ExecResult } from '../../base/exec.ts';
import { OpError } from '../../base/errors.ts';
import { installPackages } from '../../node/io/packages.ts';
import { setOf } from '../../scripts/kind/place.ts';
import type { Program } from '../../scripts/command.ts';
import { emptyTables, networksOf, tablesIn, withoutDocker, type DockerNetwork, type Networks } from './docker-rules.ts';

/** A Docker Engine, as programs find it: `env` is what they are started with. */
export interface Docker {
  readonly env: Readonly<Record<string, string>>;
  run(args: readonly string[], options?: { timeoutMs?: number; input?: string | Uint8Array }): Promise<ExecResult>;
  /** As `run`; ending non-zero is an ordinary result. */
  ask(args: readonly string[], options?: { timeoutMs?: number; input?: string | Uint8Array }): Promise<ExecResult>;
}

/** Where an engine of ours keeps its things; one for all clones of a machine, for its images are large. */
const ROOT = '/var/lib/nodelet/docker';
const RUN = '/run/nodelet-docker';
const SOCKET = `unix://${RUN}/docker.sock`;
const TABLES = `${RUN}/tables.json`;
const START_MS = 60_000;
const ASK_MS = 20_000;
const CALL_MS = 300_000;
const CAP_SYS_RESOURCE = 24n;
const RUNTIME = new URL('lessened-runc', import.meta.url).pathname;

function dockerAt(program: Program, host: string | undefined): Docker {
  const env = { ...setOf(program.host.env), ...(host === undefined ? {} : { DOCKER_HOST: host }) };
  const options = (given: { timeoutMs?: number; input?: string | Uint8Array } = {}) => ({ env, signal: program.host.signal, timeoutMs: CALL_MS, ...given });
  return {
    env,
    run: (args, given) => exec(['docker', ...args], { doing: `docker ${args[0] ?? ''}`, ...options(given) }),
    ask: (args, given) => tryExec(['docker', ...args], options(given)),
  };
}

/** The engine that answers on this machine, or one of ours, which is started and stays until `endDocker`. */
export async function openDocker(program: Program): Promise<Docker> {
  const theirs = dockerAt(program, undefined);
  const version = (docker: Docker): Promise<boolean> =>
    docker.ask(['version', '--format', '{{.Server.Version}}'], { timeoutMs: 5_000 }).then(
      ({ code }) => code === 0,
      () => false,
    );
  if (await version(theirs)) return theirs;
  const ours = dockerAt(program, SOCKET);
  if (await version(ours)) return ours;
  await program.progress.step('Docker Engine started', async () => {
    if ((await tryExec(['sh', '-c', 'command -v dockerd && command -v docker && command -v jq'])).code !== 0) await installPackages(['docker.io', 'jq']);
    await startEngine();
    const until = performance.now() + START_MS;
    while (!(await version(ours))) {
      if (performance.now() > until)
        throw new OpError('deadline', 'starting Docker Engine', `it does not answer at ${SOCKET}`, { advice: `its log is ${RUN}/dockerd.log` });
      await delay(300, undefined, { signal: program.host.signal });
    }
  });
  return ours;
}

/** Whether this machine may give CAP_SYS_RESOURCE to what it starts. */
export async function hasSysResource(): Promise<boolean> {
  const bounding = /^CapBnd:\s*(\w+)$/m.exec(await readFile('/proc/self/status', 'utf8'))?.[1] ?? '0';
  return ((BigInt(`0x${bounding}`) >> CAP_SYS_RESOURCE) & 1n) === 1n;
}

async function startEngine(): Promise<void> {
  await mkdir(ROOT, { recursive: true });
  await mkdir(RUN, { recursive: true });
  await rememberTables();
  // An engine that has to switch forwarding on itself would also close it to everybody else on this machine.
  await writeFile('/proc/sys/net/ipv4/ip_forward', '1');
  await using log = await open(`${RUN}/dockerd.log`, 'a');
  const child = spawn(
    'dockerd',
    [
      ...['--host', SOCKET, '--data-root', ROOT, '--exec-root', `${RUN}/exec`, '--pidfile', `${RUN}/dockerd.pid`],
      ...((await hasSysResource()) ? [] : ['--add-runtime', `lessened=${RUNTIME}`, '--default-runtime', 'lessened']),
    ],
    { detached: true, stdio: ['ignore', log.fd, log.fd] },
  );
  const failed = new Promise<never>((_resolve, reject) => child.once('error', reject));
  failed.catch(() => undefined);
  await Promise.race([failed, delay(100)]);
  child.unref();
}

/** What is left of an engine that was ended. */
export interface Ended {
  readonly ended: boolean;
  /** Bridges, and rules and chains of iptables, that it had left and that were removed. */
  readonly bridges: readonly string[];
  readonly rules: number;
}

/** Ends an engine that `openDocker` started, if one runs, and removes its rules and bridges; others are left alone. */
export async function endDocker(program: Program): Promise<Ended> {
  const nothing = { ended: false, bridges: [], rules: 0 };
  const pid = Number((await readFile(`${RUN}/dockerd.pid`, 'utf8').catch(() => '')).trim());
  if (!Number.isInteger(pid) || pid <= 1) return nothing;
  const nameOf = async (of: number): Promise<string> => (await readFile(`/proc/${of}/comm`, 'utf8').catch(() => '')).trim();
  if ((await nameOf(pid)) !== 'dockerd') return nothing;
  const networks = await networksNow(dockerAt(program, SOCKET));
  process.kill(pid, 'SIGTERM');
  const until = performance.now() + START_MS;
  while ((await nameOf(pid)) !== '') {
    if (performance.now() > until) throw new OpError('deadline', 'ending Docker Engine', `process ${pid} goes on`);
    await delay(100);
  }
  const others = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  // Chains have the same names for every engine.
  for (const other of others) if ((await nameOf(Number(other))) === 'dockerd') return { ...nothing, ended: true };
  return { ended: true, ...(await clear(networks)) };
}

async function networksNow(docker: Docker): Promise<Networks> {
  const list = await docker.ask(['network', 'ls', '--quiet', '--no-trunc', '--filter', 'driver=bridge'], { timeoutMs: ASK_MS });
  const ids = list.stdout.split('\n').filter((id) => id !== '');
  if (list.code !== 0 || ids.length === 0) return { bridges: [], subnets: [] };
  return networksOf(JSON.parse((await docker.run(['network', 'inspect', ...ids], { timeoutMs: ASK_MS })).stdout) as DockerNetwork[]);
}

const FAMILIES = ['iptables', 'ip6tables'] as const;
const saved = async (family: (typeof FAMILIES)[number]): Promise<string> =>
  (await tryExec([`${family}-save`], { timeoutMs: ASK_MS }).catch(() => ({ stdout: '' }))).stdout;

async function clear(networks: Networks): Promise<Omit<Ended, 'ended'>> {
  const before = JSON.parse(await readFile(TABLES, 'utf8').catch(() => 'null')) as Record<string, string[]> | null;
  let rules = 0;
  for (const family of FAMILIES) {
    const input = withoutDocker(await saved(family), networks);
    rules += input.split('\n').filter((line) => /^-[DX] /.test(line)).length;
    if (input !== '') await exec([`${family}-restore`, '--noflush'], { input, doing: 'removing the rules of Docker Engine', timeoutMs: ASK_MS });
    // iptables of today keeps its tables in nftables, where an empty one would stay.
    const isNft = (await tryExec([family, '--version'])).stdout.includes('nf_tables');
    const gone = before === null || !isNft ? [] : emptyTables(await saved(family)).filter((table) => before[family]?.includes(table) === false);
    for (const table of gone) await tryExec(['nft', 'delete', 'table', family === 'iptables' ? 'ip' : 'ip6', table], { timeoutMs: ASK_MS });
  }
  const bridges: string[] = [];
  for (const bridge of networks.bridges)
    if ((await tryExec(['ip', 'link', 'delete', bridge, 'type', 'bridge'], { timeoutMs: ASK_MS })).code === 0) bridges.push(bridge);
  await rm(TABLES, { force: true });
  return { bridges, rules };
}

/** Tables that are there before the engine: what it adds is its own. */
async function rememberTables(): Promise<void> {
  const tables: Record<string, string[]> = {};
  for (const family of FAMILIES) tables[family] = tablesIn(await saved(family));
  await writeFile(TABLES, JSON.stringify(tables));
}
