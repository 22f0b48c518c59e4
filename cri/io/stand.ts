import { chmodSync, chownSync, linkSync, lstatSync, renameSync, unlinkSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { OpError } from '../../base/errors.ts';
import type { Move, Name, Standing } from '../core/standing.ts';

const SUFFIX: Readonly<Record<Name, string>> = { path: '', real: '.real', own: '.nodelet', next: '.nodelet-next' };

/** The folder of a runtime's socket, held open: what is done there reaches it also when the way to it is gone. */
export interface Stand extends AsyncDisposable {
  /** Names the socket's place on this machine for good, however it is spelled and from wherever it is seen. */
  readonly key: string;
  /** A path of a name for this process: short enough for a socket, whatever the folder's own is. */
  at(name: Name): string;
  /** The same for other processes, as long as this one lives. */
  outside(name: Name | 'folder'): string;
  see(): Standing;
  /** Throws OpError `denied`, `unsupported` or `failed`; what was done before stays done. */
  move(moves: readonly Move[]): void;
  /** The tap's socket gets mode and owner of the one that it stands for. */
  dressAs(name: Name): void;
  isFolderGone(): Promise<boolean>;
}

function inode(path: string): string | null {
  const found = lstatSync(path, { throwIfNoEntry: false });
  return found === undefined ? null : `${found.dev}:${found.ino}`;
}

function refused(doing: string, cause: unknown): OpError {
  const { code, message } = cause as NodeJS.ErrnoException;
  if (code === 'EROFS')
    return new OpError('denied', doing, 'the folder is read-only', { cause, advice: 'use cri tap with a socket elsewhere, and point the kubelet there' });
  if (code === 'EACCES' || code === 'EPERM') return new OpError('denied', doing, message, { cause, advice: 'run it with sudo' });
  return new OpError(code === 'EOPNOTSUPP' || code === 'EMLINK' ? 'unsupported' : 'failed', doing, message, { cause });
}

/** Opens the folder of `name`. Throws OpError `not-found` and `denied`. */
export async function openStand(folder: string, name: string, pid: number): Promise<Stand> {
  const handle = await open(folder, 'r').catch((cause: NodeJS.ErrnoException) => {
    throw new OpError(cause.code === 'EACCES' ? 'denied' : 'not-found', `opening ${folder}`, cause.message, { cause });
  });
  const { dev, ino } = await handle.stat();
  const at = (which: Name): string => `/proc/self/fd/${handle.fd}/${name}${SUFFIX[which]}`;
  const doing = `changing ${folder}/${name}`;
  return {
    key: `${dev}-${ino}-${name}`,
    at,
    outside: (which) => `/proc/${pid}/fd/${handle.fd}${which === 'folder' ? '' : `/${name}${SUFFIX[which]}`}`,
    see: () => ({ path: inode(at('path')), real: inode(at('real')), own: inode(at('own')) }),
    move(moves) {
      try {
        // What an unfinished move left is in the way of the next one.
        if (moves.length > 0 && inode(at('next')) !== null) unlinkSync(at('next'));
        for (const one of moves) {
          if (one.do === 'unlink') unlinkSync(at(one.name));
          else if (one.do === 'link') linkSync(at(one.from), at(one.to));
          else renameSync(at(one.from), at(one.to));
        }
      } catch (cause) {
        throw refused(doing, cause);
      }
    },
    dressAs(which) {
      const like = lstatSync(at(which), { throwIfNoEntry: false });
      if (like === undefined) return;
      try {
        chmodSync(at('own'), like.mode & 0o777);
        if (process.geteuid?.() === 0) chownSync(at('own'), like.uid, like.gid);
      } catch (cause) {
        throw refused(doing, cause);
      }
    },
    isFolderGone: async () => (await handle.stat()).nlink === 0,
    [Symbol.asyncDispose]: () => handle.close(),
  };
}
