import { mkdir, readlink, rename, rmdir, symlink, unlink } from 'node:fs/promises';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { OpError } from '../../base/errors.ts';
import { isAlive, processOf } from './processes.ts';

const RETRY_MS = 20;

/**
 * A lock that names its holder's process; that of a process which ended without giving it back is taken over. It is a
 * symbolic link to nowhere: made whole or not at all, and also on a full disk, where `down` must still work.
 * Waits for at most `waitMs`, then throws OpError `conflict`; at once where something else stands in its place.
 */
export async function lockFile(path: string, doing: string, waitMs: number): Promise<AsyncDisposable> {
  const self = await processOf(process.pid);
  const mine = `${self?.pid}-${self?.startTicks}`;
  const deadline = performance.now() + waitMs;
  for (;;) {
    if (await create(path, mine)) return { [Symbol.asyncDispose]: () => unlink(path).catch(() => undefined) };
    const text = await readlink(path).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EINVAL') return null;
      throw new OpError('conflict', doing, `${path} is no lock of ours`, { cause: error, advice: 'remove it if nothing needs it' });
    });
    if (text === null) continue;
    const [pid = '', startTicks = ''] = text.split('-');
    if (!(await isAlive({ pid: Number(pid), startTicks }))) await takeAway(path, text);
    else if (performance.now() > deadline) {
      throw new OpError('conflict', doing, `another command (process ${pid}) is at it`, { advice: 'wait for it to end, or end it' });
    } else await delay(RETRY_MS);
  }
}

async function create(path: string, content: string): Promise<boolean> {
  await mkdir(dirname(path), { recursive: true, mode: 0o755 });
  try {
    await symlink(content, path);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // ENOENT: the folder went between the two calls; whoever had the lock last removes it when it is empty.
    if (code !== 'EEXIST' && code !== 'ENOENT') throw error;
    return false;
  }
}

/** Removes a dead holder's lock; one that somebody else has put in its place meanwhile goes back. */
async function takeAway(path: string, dead: string): Promise<void> {
  const aside = `${path}.${process.pid}.dead`;
  await rename(path, aside).catch(() => undefined);
  const taken = await readlink(aside).catch(() => null);
  if (taken !== null && taken !== dead) await symlink(taken, path).catch(() => undefined);
  await unlink(aside).catch(() => undefined);
}

/** Holds a set for one command that changes it. */
export async function lockSet(home: string, name: string): Promise<AsyncDisposable> {
  const lock = await lockFile(`${home}/${name}.lock`, `changing the set "${name}"`, 0);
  return {
    async [Symbol.asyncDispose]() {
      await lock[Symbol.asyncDispose]();
      await rmdir(home).catch(() => undefined);
    },
  };
}
