import { opendir, readlink } from 'node:fs/promises';

/** Names are read and looked at in such parts: a process may have a million files open, and a pod chooses how many. */
const partMax = 64;
/** Of more open files it is not looked at what they are. */
export const looksMax = 16_384;

export interface OpenFiles {
  readonly files: number;
  readonly sockets: number;
}

/** What a process has open, and how much of it are sockets (among the first `looks`); nothing of one that is gone. */
export async function openFiles(pid: number, looks = looksMax, look: (path: string) => Promise<string> = readlink): Promise<OpenFiles> {
  let [files, sockets] = [0, 0];
  let part: string[] = [];
  const take = async (): Promise<void> => {
    const targets = await Promise.all(part.map((path) => look(path).catch(() => '')));
    sockets += targets.filter((target) => target.startsWith('socket:')).length;
    part = [];
  };
  try {
    for await (const { name } of await opendir(`/proc/${pid}/fd`, { bufferSize: partMax })) {
      files += 1;
      if (files <= looks) part.push(`/proc/${pid}/fd/${name}`);
      if (part.length === partMax) await take();
    }
  } catch {
    // It has ended, now or in between.
  }
  await take();
  return { files, sockets };
}
