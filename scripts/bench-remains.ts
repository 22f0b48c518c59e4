import { readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Sys } from '../base/sys/types.ts';

/** What a bench makes on the machine, by the process it belongs to, and how it goes when that process did not take it back. */

const NETNS_FOLDER = '/run/netns';
const TIMEOUT_MS = 20_000;
const LOOK_MS = 500;

export interface Remains {
  /** Begins of names, which the number of the process and a `-` follow. */
  readonly netns: string;
  readonly folder: string;
}

/** Removes namespaces, with what runs in them, and folders of processes that are gone. */
export async function removeRemains(sys: Sys, { netns, folder }: Remains): Promise<void> {
  for (const name of await ofTheDead(NETNS_FOLDER, netns)) {
    const pids = await sys.run({ argv: ['ip', 'netns', 'pids', name], timeoutMs: TIMEOUT_MS });
    for (const pid of Buffer.from(pids.stdout).toString().split('\n').filter(Boolean).map(Number)) kill(pid);
    await sys.run({ argv: ['ip', 'netns', 'delete', name], timeoutMs: TIMEOUT_MS });
  }
  for (const name of await ofTheDead(tmpdir(), folder)) await rm(join(tmpdir(), name), { recursive: true, force: true });
}

/** Aborted when nobody wants the bench's figures any more: by a signal, when nobody reads, or when who started it is gone. */
export function untilUnwanted(): AbortController & Disposable {
  const stop = new AbortController();
  const end = (): void => stop.abort();
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, end);
  for (const stream of [process.stdout, process.stderr]) stream.on('error', end);
  const watch = onOrphaned(end);
  return Object.assign(stop, { [Symbol.dispose]: () => watch[Symbol.dispose]() });
}

/** Tells once that the process that started this one is gone. Who is started by nobody in particular is never told. */
function onOrphaned(tell: () => void): Disposable {
  const parent = process.ppid;
  const timer = setInterval(() => {
    if (parent === 1 || process.ppid === parent) return;
    clearInterval(timer);
    tell();
  }, LOOK_MS);
  timer.unref();
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

async function ofTheDead(folder: string, begin: string): Promise<string[]> {
  const names = await readdir(folder).catch((): string[] => []);
  return names.filter((name) => {
    const pid = name.startsWith(begin) ? /^(\d+)-/.exec(name.slice(begin.length))?.[1] : undefined;
    return pid !== undefined && !isAlive(Number(pid));
  });
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It ended by itself.
  }
}
