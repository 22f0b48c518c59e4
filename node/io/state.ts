import { mkdir, readdir, readFile, statfs } from 'node:fs/promises';
import { resolve } from 'node:path';
import { hasCode, OpError } from '../../base/errors.ts';
import { replaceFile } from '../../base/replace-file.ts';
import type { RealPrograms } from '../core/real.ts';
import { planSet, type SetOptions, type SetPlan } from '../core/plan.ts';

const NEEDED_MIB = 256;

/** What is remembered of a set between commands; everything else follows from it. */
export interface SavedSet {
  readonly version: 1;
  readonly options: Omit<SetOptions, 'stateHome'>;
  /** `--containerd`, as given. */
  readonly containerd?: string;
  /** Programs that are not ours, as they were found when the set was made. */
  readonly programs?: RealPrograms;
  readonly cgroupVersion: 1 | 2;
}

/** Folder of all sets. */
export function stateHome(env: Readonly<Record<string, string | undefined>>): string {
  return resolve(env['NODELET_STATE'] || '/var/lib/nodelet');
}

export async function loadSet(home: string, name: string): Promise<SavedSet | null> {
  const path = `${home}/${name}/set.json`;
  const text = await readFile(path, 'utf8').catch((cause: NodeJS.ErrnoException) => {
    if (cause.code === 'ENOENT' || cause.code === 'ENOTDIR') return null;
    // Keys of the set lie beside it, so the folder is root's alone.
    const isClosed = cause.code === 'EACCES' || cause.code === 'EPERM';
    throw new OpError(isClosed ? 'denied' : 'failed', `reading ${path}`, isClosed ? 'permission denied' : cause.message, {
      cause,
      advice: isClosed ? 'run it with sudo' : '',
    });
  });
  if (text === null) return null;
  try {
    const saved = JSON.parse(text) as SavedSet;
    if (saved.version !== 1) throw new Error(`version ${String(saved.version)}`);
    return saved;
  } catch (cause) {
    throw new OpError('invalid', `reading ${path}`, 'this file is not ours or is damaged', {
      cause,
      advice: `remove ${home}/${name} if nothing of it is needed`,
    });
  }
}

export async function saveSet(home: string, saved: SavedSet): Promise<void> {
  const dir = `${home}/${saved.options.name}`;
  await mkdir(dir, { recursive: true, mode: 0o700 });
  await replaceFile(`${dir}/set.json`, `${JSON.stringify(saved, null, 2)}\n`);
}

export function planOf(home: string, saved: SavedSet): SetPlan {
  return planSet({ ...saved.options, stateHome: home });
}

/** All sets of the machine, damaged ones left out. */
export async function listSets(home: string): Promise<SavedSet[]> {
  const names = await readdir(home).catch(() => [] as string[]);
  const sets: SavedSet[] = [];
  for (const name of names.sort()) {
    try {
      const saved = await loadSet(home, name);
      if (saved !== null) sets.push(saved);
    } catch (error) {
      if (!hasCode(error, 'invalid') && !hasCode(error, 'denied')) throw error;
    }
  }
  return sets;
}

/** Refuses a disk on which a set would starve: images, writable layers, logs and the API server's data lie below `home`. */
export async function requireSpace(home: string): Promise<void> {
  const { bavail, bsize } = await statfs(home);
  const freeMiB = Math.floor((bavail * bsize) / 2 ** 20);
  if (freeMiB >= NEEDED_MIB) return;
  throw new OpError('exhausted', 'looking for room', `${home} has ${freeMiB} MiB free, and a set needs ${NEEDED_MIB}`, {
    advice: 'nothing was started; make room there, or name a folder on another disk with NODELET_STATE',
  });
}
