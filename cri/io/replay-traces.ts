import { tmpdir } from 'node:os';
import { mkdir, readdir, rm, rmdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import { OpError } from '../../base/errors.ts';
import type { CriClient } from '../client.ts';
import { REPLAY_LABEL, type Needed } from '../core/replay-rewrite.ts';
import { ownerOf, type RunOwner } from '../core/replay-run.ts';
import { isAlive, namespaceOf, processOf } from './processes.ts';

const CGROUPS = '/sys/fs/cgroup';
const AT_ONCE = 8;
const CGROUP_TRIES = 50;

/** This process as the owner of a replay. Throws OpError when it cannot be told. */
export async function ownOwner(pid: number): Promise<RunOwner> {
  const self = await processOf(pid);
  const namespace = /\d+/.exec(await namespaceOf('self', 'pid'))?.[0];
  if (self === null || namespace === undefined) throw new OpError('failed', 'naming the replay', 'this process cannot see itself in /proc');
  return { ...self, namespace };
}

export function replayCgroup(run: string): string {
  return `/nodelet-replay-${run}`;
}

export function replayFolder(run: string): string {
  return join(tmpdir(), `nodelet-replay-${run}`);
}

/** The replays that left something in this runtime, or in a cgroup or folder here, and whose process is dead. */
export async function deadReplays(client: CriClient, namespace: string): Promise<string[]> {
  const { items } = await client.runtime.listPodSandbox({});
  const names = await Promise.all([CGROUPS, tmpdir()].map(async (path) => readdir(path).catch(() => [])));
  const runs = new Set([
    ...items.map(({ labels }) => labels[REPLAY_LABEL] ?? ''),
    ...names.flat().flatMap((name) => (name.startsWith('nodelet-replay-') ? [name.slice('nodelet-replay-'.length)] : [])),
  ]);
  const dead: string[] = [];
  for (const run of runs) {
    const owner = ownerOf(run);
    if (owner !== null && owner.namespace === namespace && !(await isAlive(owner))) dead.push(run);
  }
  return dead;
}

/** Makes files and folders that containers are to mount or log to. */
export async function makeNeeded(needed: readonly Needed[]): Promise<void> {
  for (const { path, kind } of needed) {
    await mkdir(kind === 'folder' ? path : dirname(path), { recursive: true });
    // A file that is there keeps what a container wrote into it.
    if (kind === 'file') await writeFile(path, '', { flag: 'a' });
  }
}

/** Stops and removes every sandbox of a replay, also those of which no answer came. Returns how many there were. */
export async function removeSandboxes(client: CriClient, run: string): Promise<number> {
  const { items } = await client.runtime.listPodSandbox({ filter: { labelSelector: { [REPLAY_LABEL]: run } } });
  const left = items.map(({ id }) => id);
  const next = async (): Promise<void> => {
    for (let id = left.pop(); id !== undefined; id = left.pop()) {
      await client.runtime.stopPodSandbox({ podSandboxId: id });
      await client.runtime.removePodSandbox({ podSandboxId: id });
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, next));
  return items.length;
}

async function removeTree(path: string, clock: Clock): Promise<void> {
  const entries = await readdir(path, { withFileTypes: true }).catch(() => []);
  for (const entry of entries) if (entry.isDirectory()) await removeTree(join(path, entry.name), clock);
  for (let tries = 0; tries < CGROUP_TRIES; tries++) {
    const code = await rmdir(path).then(
      () => null,
      (error: NodeJS.ErrnoException) => error.code,
    );
    // Processes that end take a moment.
    if (code !== 'EBUSY') return;
    await clock.sleep(20);
  }
}

/** Takes away a cgroup with all below it, in every hierarchy that this machine shows. */
export async function removeCgroup(parent: string, clock: Clock): Promise<void> {
  const hierarchies = await readdir(CGROUPS, { withFileTypes: true }).catch(() => []);
  for (const root of [CGROUPS, ...hierarchies.filter((entry) => entry.isDirectory()).map((entry) => join(CGROUPS, entry.name))])
    await removeTree(join(root, parent), clock);
}

export async function removeFolder(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
}
