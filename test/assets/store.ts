import { lstat, mkdir, readFile, rename, rm, stat, symlink } from 'node:fs/promises';
import { homedir } from 'node:os';
import { replaceFile } from '../../base/replace-file.ts';
import type { AssetName } from './catalogue.ts';

/** One built program, as the set's manifest knows it. */
export interface Made {
  /** Of everything that decides what is built: module files, package, flags, Go. */
  readonly key: string;
  readonly version: string;
  readonly sizeBytes: number;
  readonly sha256: string;
  readonly seconds: number;
}

/** `assets.json` of a set: a file that is not named here, or has another size, was left half by somebody. */
export interface Manifest {
  readonly set: string;
  readonly go: string;
  readonly platform: string;
  readonly programs: Readonly<Partial<Record<AssetName, Made>>>;
}

export type Env = Readonly<Record<string, string | undefined>>;

export const MANIFEST = 'assets.json';

/** Where sets are kept: one folder a set, and `current` pointing at the one in use. */
export function cacheRoot(env: Env): string {
  const { XDG_CACHE_HOME: cache, HOME: home } = env;
  const base = cache !== undefined && cache.startsWith('/') ? cache : `${home === undefined || home === '' ? homedir() : home}/.cache`;
  return `${base}/nodelet/assets`;
}

/** The manifest of a set, or null where there is none that can be read. */
export async function readManifest(folder: string): Promise<Manifest | null> {
  const text = await readFile(`${folder}/${MANIFEST}`, 'utf8').catch(() => null);
  if (text === null) return null;
  try {
    const value = JSON.parse(text) as Partial<Manifest> | null;
    return typeof value === 'object' && value !== null && typeof value.set === 'string' && typeof value.programs === 'object' && value.programs !== null
      ? (value as Manifest)
      : null;
  } catch {
    return null;
  }
}

export const writeManifest = (folder: string, manifest: Manifest): Promise<void> =>
  replaceFile(`${folder}/${MANIFEST}`, `${JSON.stringify(manifest, null, 2)}\n`, 0o644);

/** Whether a set's program is there as the manifest says. */
export async function isWhole(folder: string, name: string, made: Made): Promise<boolean> {
  const facts = await stat(`${folder}/${name}`).catch(() => null);
  return facts !== null && facts.isFile() && facts.size === made.sizeBytes && (facts.mode & 0o111) !== 0;
}

/** Points `current` at a set, whole or not at all. */
export async function makeCurrent(root: string, set: string): Promise<void> {
  await mkdir(root, { recursive: true });
  const beside = `${root}/current.${process.pid}`;
  await rm(beside, { force: true });
  await symlink(set, beside);
  const old = await lstat(`${root}/current`).catch(() => null);
  if (old !== null && !old.isSymbolicLink()) await rm(`${root}/current`, { recursive: true });
  await rename(beside, `${root}/current`);
}
