import { spawn } from 'node:child_process';
import { mkdir, open, readFile, writeFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { exec, tryExec, type ExecResult } from '../../base/exec.ts';
import { OpError } from '../../base/errors.ts';
import { installPackages } from '../../node/io/packages.ts';
import { setOf } from '../../scripts/kind/place.ts';
import type { Program } from '../../scripts/command.ts';

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
const START_MS = 60_000;
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

/** Ends an engine that `openDocker` started, if one runs; others are left alone. */
export async function endDocker(): Promise<boolean> {
  const pid = Number((await readFile(`${RUN}/dockerd.pid`, 'utf8').catch(() => '')).trim());
  if (!Number.isInteger(pid) || pid <= 1) return false;
  const name = await readFile(`/proc/${pid}/comm`, 'utf8').catch(() => '');
  if (name.trim() !== 'dockerd') return false;
  process.kill(pid, 'SIGTERM');
  const until = performance.now() + START_MS;
  while ((await readFile(`/proc/${pid}/comm`, 'utf8').catch(() => '')) !== '') {
    if (performance.now() > until) throw new OpError('deadline', 'ending Docker Engine', `process ${pid} goes on`);
    await delay(100);
  }
  return true;
}
