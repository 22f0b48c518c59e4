import { readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Sys } from '../../base/sys/types.ts';

/** What the bench makes on the machine, by the process it belongs to, and how it goes when that process did not take it back. */

const NETNS_FOLDER = '/run/netns';
const NETNS = /^nfb-(\d+)-/;
const FOLDER = /^bench-netfilter-(\d+)-/;
const TIMEOUT_MS = 20_000;
const LOOK_MS = 500;

export const netnsName = (name: string, pid = process.pid): string => `nfb-${pid}-${name}`;
/** The begin of the name of its folder. */
export const folderName = (pid = process.pid): string => `bench-netfilter-${pid}-`;

/** Removes namespaces, with what runs in them, and folders of processes that are gone. */
export async function removeRemains(sys: Sys): Promise<void> {
  for (const name of await ofTheDead(NETNS_FOLDER, NETNS)) {
    const pids = await sys.run({ argv: ['ip', 'netns', 'pids', name], timeoutMs: TIMEOUT_MS });
    for (const pid of Buffer.from(pids.stdout).toString().split('\n').filter(Boolean).map(Number)) kill(pid);
    await sys.run({ argv: ['ip', 'netns', 'delete', name], timeoutMs: TIMEOUT_MS });
  }
  for (const name of await ofTheDead(tmpdir(), FOLDER)) await rm(join(tmpdir(), name), { recursive: true, force: true });
}

/** Tells once that the process that started this one is gone. Who is started by nobody in particular is never told. */
export function onOrphaned(tell: () => void): Disposable {
  const parent = process.ppid;
  const timer = setInterval(() => {
    if (parent === 1 || process.ppid === parent) return;
    clearInterval(timer);
    tell();
  }, LOOK_MS);
  timer.unref();
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

async function ofTheDead(folder: string, pattern: RegExp): Promise<string[]> {
  const names = await readdir(folder).catch((): string[] => []);
  return names.filter((name) => {
    const pid = pattern.exec(name)?.[1];
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
