import { watch } from 'node:fs';
import { open, stat } from 'node:fs/promises';
import { messageOf, OpError } from '../../base/errors.ts';

/**
 * Calls `changed` once when the file at `path` is written or moved away, as upstream ends its proxy then, to be started
 * anew with what is there. A file that is removed, or that a link leads away from (a ConfigMap), changes nothing.
 */
export async function watchConfigFile(path: string, changed: () => void): Promise<AsyncDisposable> {
  try {
    const file = await open(path, 'r');
    const read = async (): Promise<Buffer> => (await file.read({ buffer: Buffer.alloc((await file.stat()).size), position: 0 })).buffer;
    const { ino } = await file.stat();
    const first = await read();
    const isChanged = async (): Promise<boolean> => {
      if ((await file.stat()).nlink === 0) return false;
      if (!first.equals(await read())) return true;
      return (await stat(path).catch(() => null))?.ino !== ino;
    };
    let looking: Promise<void> = Promise.resolve();
    let isOver = false;
    const look = async (): Promise<void> => {
      if (isOver || !(await isChanged())) return;
      isOver = true;
      changed();
    };
    const watcher = watch(path, { persistent: false }, () => void (looking = looking.then(look, look)));
    return {
      async [Symbol.asyncDispose]() {
        isOver = true;
        watcher.close();
        await looking.catch(() => {});
        await file.close();
      },
    };
  } catch (cause) {
    throw new OpError('failed', `watch ${path}`, messageOf(cause), { cause });
  }
}
