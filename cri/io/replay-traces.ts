import { mkdir, readdir, rm, rmdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import type { CriClient } from '../client.ts';
import { REPLAY_LABEL, type Needed } from '../core/replay-rewrite.ts';

const CGROUPS = '/sys/fs/cgroup';
const AT_ONCE = 8;
const CGROUP_TRIES = 50;

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
