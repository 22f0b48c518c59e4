import { mkdir, readFile, rmdir, unlink, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { OpError } from '../../base/errors.ts';
import { isAlive, processOf } from './processes.ts';

const RETRY_MS = 20;

/**
 * A lock file that names its holder's process; that of a process which ended without giving it back is taken over.
 * Waits for at most `waitMs`, then throws OpError `conflict`.
 */
export async function lockFile(path: string, doing: string, waitMs: number): Promise<AsyncDisposable> {
  const self = await processOf(process.pid);
  const deadline = performance.now() + waitMs;
  for (;;) {
    try {
      await mkdir(dirname(path), { recursive: true, mode: 0o755 });
      await writeFile(path, `${self?.pid} ${self?.startTicks}`, { flag: 'wx' });
      return { [Symbol.asyncDispose]: () => unlink(path).catch(() => undefined) };
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ENOENT') continue;
      if (code !== 'EEXIST') throw error;
    }
    const text = await readFile(path, 'utf8').catch(() => null);
    const [pid = '', startTicks = ''] = (text ?? '').split(' ');
    if (text !== null && text !== '' && !(await isAlive({ pid: Number(pid), startTicks }))) {
      await unlink(path).catch(() => undefined);
    } else if (performance.now() > deadline) {
      throw new OpError('conflict', doing, `another command (process ${pid}) is at it`, { advice: 'wait for it to end, or end it' });
    } else await delay(RETRY_MS);
  }
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
