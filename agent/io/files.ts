import { constants } from 'node:fs';
import { access, chmod, mkdir, open, readdir, rmdir, symlink, unlink, writeFile } from 'node:fs/promises';
import { basename, dirname, join, relative } from 'node:path';
import type { ContainerStatus } from '../../proto/cri/types.ts';
import type { Rng } from '../../base/rng.ts';
import type { Sys } from '../../base/sys/types.ts';
import { hasCode, messageOf } from '../../base/errors.ts';
import { parseLogLine } from '../../cri/mod.ts';
import type { LastWords } from './facts.ts';

/** The few files beside volumes that starting a container needs. Logs and termination messages lie on the node's own disk. */
export interface PodFiles {
  mkdir(path: string): Promise<void>;
  /** A new empty file, writable by any user, that a container leaves its last words in; its path on the node. */
  terminationLog(rootDir: string, uid: string, container: string): Promise<string>;
  /** One more than the highest attempt that has a log file; 0 without any. */
  nextAttempt(logDir: string): Promise<number>;
  /** The link in /var/log/containers that log collectors follow; a missing target is no error. */
  linkLog(containersDir: string, name: string, target: string): Promise<void>;
  unlinkLog(containersDir: string, containerId: string): Promise<void>;
  removeTree(path: string): Promise<void>;
}

const logName = /^(\d+)\.log(\..*)?$/;

export function createPodFiles(rng: Rng): PodFiles {
  return {
    async mkdir(path) {
      await mkdir(path, { recursive: true, mode: 0o755 });
    },
    async terminationLog(rootDir, uid, container) {
      const dir = join(rootDir, 'pods', uid, 'containers', container);
      await mkdir(dir, { recursive: true, mode: 0o750 });
      const path = join(
        dir,
        rng
          .int(2 ** 32)
          .toString(16)
          .padStart(8, '0'),
      );
      await writeFile(path, '', { flag: 'wx' });
      // Not by the mode of open, which the umask cuts.
      await chmod(path, 0o666);
      return path;
    },
    async nextAttempt(logDir) {
      const names = await readdir(logDir).catch(() => [] as string[]);
      return names.reduce((next, name) => Math.max(next, Number(logName.exec(name)?.[1] ?? -1) + 1), 0);
    },
    async linkLog(containersDir, name, target) {
      try {
        await access(target);
        await mkdir(containersDir, { recursive: true, mode: 0o755 });
        await symlink(target, join(containersDir, name));
      } catch {
        // Only a convenience for collectors; the log itself is where the runtime writes it.
      }
    },
    async unlinkLog(containersDir, containerId) {
      const names = await readdir(containersDir).catch(() => [] as string[]);
      await Promise.all(names.filter((name) => name.endsWith(`-${containerId}.log`)).map((name) => unlink(join(containersDir, name)).catch(() => undefined)));
    },
    removeTree,
  };
}

/** Somebody may be at work in it: so often it is begun again. */
const removeTries = 3;

/** What a pod leaves is a few directories and files: a call for each is a third of what a careful walk makes of it. */
async function removeTree(path: string): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await removeEntry(dirname(path), basename(path));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
      if (tries === removeTries) throw error;
    }
  }
}

/** `at` is a directory that cannot become another one meanwhile: pods may write where logs are, and links they put there are not followed. */
async function removeEntry(at: string, name: string): Promise<void> {
  const path = `${at}/${name}`;
  const dir = await open(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOTDIR' || error.code === 'ELOOP') return null;
    throw error;
  });
  if (dir === null) return await unlink(path);
  try {
    const held = `/proc/self/fd/${dir.fd}`;
    for (const entry of await readdir(held, { withFileTypes: true })) {
      const removed = entry.isDirectory() ? removeEntry(held, entry.name) : unlink(`${held}/${entry.name}`);
      await removed.catch((error: NodeJS.ErrnoException) => {
        if (error.code !== 'ENOENT') throw error;
      });
    }
  } finally {
    await dir.close();
  }
  await rmdir(path);
}

const maxMessageBytes = 4096;
const maxLogBytes = 2048;
const maxLogLines = 80;

/** Where a container has its termination message: from its root, whether or not that is said. */
export function wholePath(path: string): string {
  return path === '' || path.startsWith('/') ? path : `/${path}`;
}

/** Last words from the termination file, or from the end of the log where the container asked for that and failed. */
export function createLastWords(deps: { sys: Pick<Sys, 'readBeneath'>; rootDir: string; podLogsDir: string }): LastWords {
  const { sys, rootDir, podLogsDir } = deps;
  const read = async (root: string, path: string, maxBytes: number): Promise<Uint8Array | null> => {
    const inside = relative(root, path);
    if (inside.startsWith('..')) return null;
    return sys.readBeneath(root, inside, { maxBytes, fromEnd: true });
  };
  return {
    async of(status) {
      const path = wholePath(status.annotations['io.kubernetes.container.terminationMessagePath'] ?? '');
      const fallback =
        status.annotations['io.kubernetes.container.terminationMessagePolicy'] === 'FallbackToLogsOnError' &&
        status.exitCode !== 0 &&
        status.reason !== 'ContainerCannotRun';
      const words = await fileWords(status, path);
      return words === '' && fallback ? logWords(status) : words;
    },
  };

  async function fileWords(status: ContainerStatus, path: string): Promise<string> {
    const mount = path === '' ? undefined : status.mounts.find((each) => each.containerPath === path);
    if (mount === undefined) return '';
    try {
      return text(await read(rootDir, mount.hostPath, maxMessageBytes));
    } catch (error) {
      return (error as { code?: string }).code === 'not-found' ? '' : `Error on reading termination log ${mount.hostPath}: ${messageOf(error)}`;
    }
  }

  async function logWords(status: ContainerStatus): Promise<string> {
    try {
      const bytes = await read(podLogsDir, status.logPath, maxLogBytes * 16);
      return text(bytes === null ? null : lastLines(bytes));
    } catch (error) {
      if (!hasCode(error, 'not-found')) return '';
      const { logPath } = status;
      return `Error on reading termination message from logs: failed to try resolving symlinks in path ${JSON.stringify(logPath)}: lstat ${logPath}: no such file or directory`;
    }
  }
}

/** What the application wrote in the last lines of a log in CRI's format. */
function lastLines(bytes: Uint8Array): Uint8Array {
  const parts: Uint8Array[] = [];
  let lines = 0;
  let size = 0;
  for (let end = bytes.length; end > 0 && lines < maxLogLines && size < maxLogBytes;) {
    const stop = bytes[end - 1] === 0x0a ? end - 1 : end;
    const start = bytes.lastIndexOf(0x0a, stop - 1) + 1;
    const entry = parseLogLine(bytes.subarray(start, stop));
    if (entry !== null) {
      parts.unshift(entry.partial ? entry.text : Buffer.concat([entry.text, Buffer.from('\n')]));
      size += entry.text.length + (entry.partial ? 0 : 1);
      if (!entry.partial) lines += 1;
    }
    end = start;
  }
  const all = Buffer.concat(parts);
  return all.subarray(Math.max(0, all.length - maxLogBytes));
}

function text(bytes: Uint8Array | null): string {
  return bytes === null ? '' : new TextDecoder().decode(bytes);
}
