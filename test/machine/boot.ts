import { spawn } from 'node:child_process';
import { access, constants, copyFile, mkdir, open, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { exec } from '../../base/exec.ts';
import { OpError } from '../../base/errors.ts';
import { isAlive, processOf } from '../../node/io/processes.ts';
import type { Image } from './image.ts';
import { acceleratorOf, bootCommand, jobScript, type Kind } from './plan.ts';

/** A machine that runs. */
export interface Machine {
  readonly kind: Kind;
  /** Its process group, as seen by this machine. */
  readonly pid: number;
  readonly startTicks: string;
  readonly runDir: string;
  readonly image: string;
  readonly hasAssets: boolean;
  /** Seconds from the start of its process until it took work; null: not yet. */
  readonly bootSeconds: number | null;
  /** What it says of itself: kernel, init, controllers, uptime. */
  readonly facts: Readonly<Record<string, string>>;
}

export interface BootOptions {
  readonly kind: Kind;
  /** A folder of its own, made anew. */
  readonly runDir: string;
  readonly program: string;
  readonly image: Image;
  readonly assets: string | null;
  readonly images: string | null;
  readonly kubectl: string | null;
  readonly memoryMiB: number;
  /** The machine's whole life. */
  readonly seconds: number;
  readonly signal: AbortSignal;
}

const BOOT_MS = 15 * 60_000;
const POLL_MS = 250;
const POWEROFF_MS = 60_000;
const END = 'end';

/** The machine that runs in this folder, or null; what a dead one left is not touched. */
export async function runningMachine(runDir: string): Promise<Machine | null> {
  const text = await readFile(`${runDir}/machine.json`, 'utf8').catch(() => null);
  if (text === null) return null;
  const machine = JSON.parse(text) as Machine;
  return (await isAlive(machine)) ? machine : null;
}

/** Boots a machine and waits until it takes work. Its process group ends at its deadline, whatever becomes of this command. */
export async function bootMachine(options: BootOptions): Promise<Machine> {
  const { runDir } = options;
  await rm(runDir, { recursive: true, force: true });
  const exchange = `${runDir}/exchange`;
  await mkdir(exchange, { recursive: true, mode: 0o700 });
  for (const script of ['init.sh', 'work.sh']) await copyFile(new URL(`inside/${script}`, import.meta.url).pathname, `${exchange}/${script}`);
  if (options.kubectl !== null) await copyFile(options.kubectl, `${exchange}/kubectl`);
  const cpuinfo = await readFile('/proc/cpuinfo', 'utf8');
  const mayOpenKvm = await access('/dev/kvm', constants.R_OK | constants.W_OK).then(
    () => true,
    () => false,
  );
  const command = bootCommand({ ...options, exchange, cpus: 2, accelerator: acceleratorOf(cpuinfo, mayOpenKvm) });
  const begunAt = performance.now();
  const pid = await start(['timeout', '--kill-after=10', String(options.seconds), 'nice', '-n', '10', ...command], runDir, options.kind);
  const process = await processOf(pid);
  if (process === null) throw new OpError('failed', 'booting a machine', `it ended at once: ${await lastWords(runDir)}`);
  const machine: Machine = {
    ...{ kind: options.kind, pid, startTicks: process.startTicks, runDir, image: options.image.name },
    ...{ hasAssets: options.assets !== null, bootSeconds: null, facts: {} },
  };
  try {
    await writeFile(`${runDir}/machine.json`, JSON.stringify(machine));
    const ready = await waitForFile(machine, 'ready', BOOT_MS, options.signal);
    const made: Machine = { ...machine, bootSeconds: Math.round((performance.now() - begunAt) / 100) / 10, facts: factsOf(ready) };
    await writeFile(`${runDir}/machine.json`, JSON.stringify(made));
    return made;
  } catch (error) {
    await killMachine(machine);
    await rm(runDir, { recursive: true, force: true });
    throw error;
  }
}

function factsOf(text: string): Record<string, string> {
  const pairs = text.split('\n').map((line) => line.split(': '));
  return Object.fromEntries(pairs.flatMap(([key, value]) => (key === undefined || value === undefined ? [] : [[key, value]])));
}

async function start(command: readonly string[], runDir: string, kind: Kind): Promise<number> {
  await using console = await open(`${runDir}/console`, 'a');
  const child = spawn(command[0] ?? '', command.slice(1), {
    detached: true,
    stdio: ['ignore', console.fd, console.fd],
    // What is written to the image's copy goes to the run's own folder and vanishes with it; user-mode-linux keeps its memory there.
    env: { ...globalThis.process.env, TMPDIR: kind === 'uml' ? '/dev/shm' : runDir },
  });
  const pid = await new Promise<number>((resolve, reject) => {
    child.on('error', (cause) => reject(new OpError('failed', 'booting a machine', cause.message, { cause })));
    child.on('spawn', () => resolve(child.pid ?? 0));
  });
  child.unref();
  return pid;
}

async function lastWords(runDir: string): Promise<string> {
  const text = await readFile(`${runDir}/console`, 'utf8').catch(() => '');
  const lines = text
    .replaceAll(/[^\x20-\x7e\n]/g, '')
    .split('\n')
    .filter((line) => line.trim() !== '');
  return lines.length === 0 ? 'it said nothing' : lines.slice(-3).join(' | ');
}

/** The text of a file of the exchange folder, once the machine has put it there. */
async function waitForFile(machine: Machine, name: string, ms: number, signal: AbortSignal): Promise<string> {
  const until = performance.now() + ms;
  for (;;) {
    signal.throwIfAborted();
    const text = await readFile(`${machine.runDir}/exchange/${name}`, 'utf8').catch(() => null);
    if (text !== null) return text;
    if (!(await isAlive(machine)))
      throw new OpError('unavailable', `waiting for the machine’s ${name}`, `the machine ended: ${await lastWords(machine.runDir)}`);
    if (performance.now() > until)
      throw new OpError('deadline', `waiting for the machine’s ${name}`, `not there after ${ms / 1000} s: ${await lastWords(machine.runDir)}`);
    await delay(POLL_MS, undefined, { signal }).catch(() => undefined);
  }
}

export interface WorkOptions {
  /** The checkout whose sources the machine gets. */
  readonly root: string;
  readonly commit: string;
  readonly work: string;
  readonly signal: AbortSignal;
  readonly onOutput: (text: string) => void;
}

/** Gives a running machine the checkout's sources and a line of shell; its exit status. Stopped, it ends the job in the machine. */
export async function runJob(machine: Machine, options: WorkOptions): Promise<number> {
  const { runDir } = machine;
  const exchange = `${runDir}/exchange`;
  const jobs = (await readdir(exchange)).filter((name) => name.endsWith('.job')).length;
  const id = String(jobs + 1).padStart(3, '0');
  await packSources(options.root, `${exchange}/${id}.tar`, options.signal);
  await writeFile(`${exchange}/${id}.part`, jobScript({ work: options.work, archive: `${id}.tar`, hasAssets: machine.hasAssets, commit: options.commit }));
  await rename(`${exchange}/${id}.part`, `${exchange}/${id}.job`);
  let read = 0;
  const echo = async (): Promise<void> => {
    const file = await open(`${exchange}/${id}.log`).catch(() => null);
    if (file === null) return;
    await using log = file;
    const { size } = await log.stat();
    if (size <= read) return;
    const part = Buffer.alloc(size - read);
    await log.read(part, 0, part.length, read);
    read = size;
    options.onOutput(part.toString('utf8'));
  };
  for (;;) {
    await echo();
    const status = await readFile(`${exchange}/${id}.status`, 'utf8').catch(() => null);
    if (status !== null) {
      await echo();
      await rm(`${exchange}/${id}.tar`, { force: true });
      return Number(status);
    }
    if (options.signal.aborted) {
      await writeFile(`${exchange}/${id}.end`, '');
      throw new OpError('aborted', 'running in the machine', 'stopped by the caller');
    }
    if (!(await isAlive(machine))) {
      throw new OpError('unavailable', 'running in the machine', `the machine ended (or its time did): ${await lastWords(runDir)}`, {
        advice: 'give it longer with --seconds',
      });
    }
    await delay(POLL_MS, undefined, { signal: options.signal }).catch(() => undefined);
  }
}

/** Packs the sources as they lie there, with what a first start would build. */
export async function packSources(root: string, to: string, signal: AbortSignal): Promise<void> {
  const listed = await exec(['git', '-c', 'safe.directory=*', 'ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
    doing: 'listing the sources',
    cwd: root,
    signal,
  });
  const names = listed.stdout.split('\0').filter((name) => name !== '');
  const there = await Promise.all(
    [...names, 'dist/nodelet.mjs', 'dist/netfilter.cjs', 'dist/sys', 'dist/cni/nodelet'].map((name) =>
      access(`${root}/${name}`).then(
        () => [name],
        () => [],
      ),
    ),
  );
  await exec(['tar', '--create', `--file=${to}`, '--owner=0', '--group=0', '--no-recursion', '--null', '--files-from=-'], {
    doing: 'packing the sources',
    cwd: root,
    input: there.flat().join('\0'),
    signal,
  });
}

/** Ends a machine: it is asked, then killed with all its processes; its folder goes. */
export async function endMachine(machine: Machine): Promise<void> {
  const { runDir } = machine;
  await writeFile(`${runDir}/exchange/${END}`, '').catch(() => undefined);
  const until = performance.now() + POWEROFF_MS;
  while ((await isAlive(machine)) && performance.now() < until) await delay(POLL_MS);
  await killMachine(machine);
  await rm(runDir, { recursive: true, force: true });
}

/** Kills the process group of a machine, and what of user-mode-linux left that group. */
export async function killMachine(machine: { readonly pid: number; readonly startTicks: string; readonly runDir: string }): Promise<void> {
  if (await isAlive(machine)) killOne(-machine.pid);
  await killLeft(machine.runDir);
}

/** Kills every process that was started with this folder's disk: user-mode-linux makes a session of its own. */
export async function killLeft(runDir: string): Promise<void> {
  for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    const words = (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).split('\0');
    if (words.some((word) => word.startsWith(`ubd0=${runDir}/`))) killOne(Number(pid));
  }
}

function killOne(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}
