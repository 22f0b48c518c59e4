import { mkdir, readFile, rmdir, unlink, writeFile } from 'node:fs/promises';
import { OpError } from '../../base/errors.ts';
import { isAlive, processOf } from './processes.ts';

/**
 * Holds a set for one command that changes it. The lock is a file that names a process; that of a process which
 * ended without giving it back is taken over.
 */
export async function lockSet(home: string, name: string): Promise<AsyncDisposable> {
  const path = `${home}/${name}.lock`;
  const self = await processOf(process.pid);
  await mkdir(home, { recursive: true, mode: 0o755 });
  for (let attempt = 0; attempt < 3; attempt += 1) {
    try {
      await writeFile(path, `${self?.pid} ${self?.startTicks}`, { flag: 'wx' });
      return {
        async [Symbol.asyncDispose]() {
          await unlink(path).catch(() => undefined);
          await rmdir(home).catch(() => undefined);
        },
      };
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') await mkdir(home, { recursive: true, mode: 0o755 });
      else if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    const [pid = '', startTicks = ''] = (await readFile(path, 'utf8').catch(() => '')).split(' ');
    if (await isAlive({ pid: Number(pid), startTicks })) {
      throw new OpError('conflict', `changing the set "${name}"`, `another command (process ${pid}) is at it`, { advice: 'wait for it to end, or end it' });
    }
    await unlink(path).catch(() => undefined);
  }
  throw new OpError('conflict', `changing the set "${name}"`, 'other commands keep taking it');
}
