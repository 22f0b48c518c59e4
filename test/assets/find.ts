import { access, constants, stat } from 'node:fs/promises';
import { basename, delimiter, dirname, resolve } from 'node:path';
import { OpError } from '../../base/errors.ts';
import { openMemory, type Memory } from './ask.ts';
import { ASSET_NAMES, FOLDER_NEEDS, isAssetName, rowOf, type AssetFolder, type AssetName } from './catalogue.ts';
import { cacheRoot, isWhole, readManifest, type Env, type Manifest } from './store.ts';
import { misfit } from './version.ts';

/** Where a component was found. */
export type Source = '--assets' | 'NODELET_ASSETS' | 'KUBEBUILDER_ASSETS' | 'cache' | 'PATH';

export interface Found {
  readonly path: string;
  readonly from: Source;
  /** Without its `v`; null where the program tells none. */
  readonly version: string | null;
}

/** Something of the right name that does not count. */
export interface Refused {
  readonly path: string;
  readonly from: Source;
  readonly version: string | null;
  readonly why: string;
}

/** The real components of this machine, found once per command. */
export interface Assets {
  /** The path of a component, or null where there is none that fits. */
  path(name: AssetName): string | null;
  /** As `path`; OpError `not-found` with advice where there is none. `forWhat` is what it is needed for. */
  require(name: AssetName, forWhat: string): string;
  /** A folder with all of a kind (containerd with shim and ctr; the CNI plugins that nodes use), or null. */
  dir(name: AssetFolder): string | null;
  /** As `dir`; OpError `not-found` with advice where there is none. */
  requireDir(name: AssetFolder, forWhat: string): string;
  /** What was found, by name. */
  versions(): Readonly<Partial<Record<AssetName, Found>>>;
  /** What was there but does not count, and why. */
  refused(): Readonly<Partial<Record<AssetName, readonly Refused[]>>>;
}

interface Place {
  readonly from: Source;
  readonly folder: string;
}

const CNI_FOLDERS = ['/opt/cni/bin', '/usr/libexec/cni', '/usr/lib/cni'];

/**
 * Finds each component in the folder that was named, `NODELET_ASSETS`, `KUBEBUILDER_ASSETS`, the cache of
 * `nodelet assets`, and PATH, in this order; the first whose version fits counts. Outside the cache the version is
 * what the program itself says. Throws OpError `invalid` when a named folder is none.
 */
export async function findAssets(options: { env: Env; dir?: string | undefined; cniFolders?: readonly string[] }): Promise<Assets> {
  const { env, dir } = options;
  const root = cacheRoot(env);
  const named: Place[] = [];
  for (const [from, folder] of [
    ['--assets', dir],
    ['NODELET_ASSETS', env['NODELET_ASSETS']],
    ['KUBEBUILDER_ASSETS', env['KUBEBUILDER_ASSETS']],
  ] as const) {
    if (folder === undefined || folder === '') continue;
    const whole = resolve(folder);
    if ((await stat(whole).catch(() => null))?.isDirectory() !== true)
      throw new OpError('invalid', 'looking for assets', `${from} names ${folder}, which is no folder`);
    named.push({ from, folder: whole });
  }
  const search: Search = {
    memory: await openMemory(`${dirname(root)}/asset-versions.json`),
    named,
    current: `${root}/current`,
    manifest: await readManifest(`${root}/current`),
    path: (env['PATH'] ?? '').split(delimiter).filter((folder) => folder.startsWith('/')),
    cni: options.cniFolders ?? CNI_FOLDERS,
  };
  const found: Partial<Record<AssetName, Found>> = {};
  const refused: Partial<Record<AssetName, Refused[]>> = {};
  // A few at a time: a program may have to start to tell its version.
  const left = [...ASSET_NAMES];
  await Promise.all(
    Array.from({ length: 4 }, async () => {
      for (let name = left.shift(); name !== undefined; name = left.shift()) {
        const result = await findOne(search, name);
        if (result.found !== null) found[name] = result.found;
        if (result.refused.length > 0) refused[name] = result.refused;
      }
    }),
  );
  await search.memory.keep();
  return answers(found, refused);
}

interface Search {
  readonly memory: Memory;
  readonly named: readonly Place[];
  readonly current: string;
  readonly manifest: Manifest | null;
  readonly path: readonly string[];
  readonly cni: readonly string[];
}

async function findOne(search: Search, name: AssetName): Promise<{ found: Found | null; refused: Refused[] }> {
  const row = rowOf(name);
  const refused: Refused[] = [];
  const look = async (from: Source, path: string): Promise<Found | null> => {
    if (!(await isProgram(path))) return null;
    if (row.ask === null) {
      // Nobody names PATH or another project's folder for this, so a file there of this name is a stranger's.
      return from === '--assets' || from === 'NODELET_ASSETS' ? { path, from, version: null } : null;
    }
    const version = await search.memory.ask(path, row.ask);
    const why = version === null ? 'it does not tell its version' : misfit(row, version);
    if (why === null) return { path, from, version };
    refused.push({ path, from, version, why });
    return null;
  };
  for (const { from, folder } of search.named) {
    const found = await look(from, `${folder}/${name}`);
    if (found !== null) return { found, refused };
  }
  const made = search.manifest?.programs[name];
  if (made !== undefined && (await isWhole(search.current, name, made))) {
    const path = `${search.current}/${name}`;
    const why = misfit(row, made.version);
    if (why === null) return { found: { path, from: 'cache', version: made.version }, refused };
    refused.push({ path, from: 'cache', version: made.version, why });
  }
  const folders = row.place === 'path' ? search.path : row.place === 'cni' ? search.cni : [];
  for (const folder of folders) {
    const found = await look('PATH', `${folder}/${basename(name)}`);
    if (found !== null) return { found, refused };
  }
  return { found: null, refused };
}

async function isProgram(path: string): Promise<boolean> {
  return (
    (await stat(path).catch(() => null))?.isFile() === true &&
    (await access(path, constants.X_OK).then(
      () => true,
      () => false,
    ))
  );
}

function answers(found: Partial<Record<AssetName, Found>>, refused: Partial<Record<AssetName, Refused[]>>): Assets {
  const missing = (name: AssetName, forWhat: string): OpError => {
    const [first] = refused[name] ?? [];
    const seen = first === undefined ? '' : `; ${first.path} is ${first.version ?? 'of unknown version'}, and ${first.why}`;
    return new OpError('not-found', forWhat, `${name} ${rowOf(name).version} is not there${seen}`, {
      advice: `run: nodelet assets build ${name} (needs Go), or name a folder that has it with --assets or NODELET_ASSETS`,
    });
  };
  const assets: Assets = {
    path: (name) => found[name]?.path ?? null,
    require(name, forWhat) {
      const path = assets.path(name);
      if (path === null) throw missing(name, forWhat);
      return path;
    },
    dir(name) {
      const folders = new Set(FOLDER_NEEDS[name].map((need) => (found[need] === undefined ? null : dirname(found[need].path))));
      const [only = null] = folders;
      return folders.size === 1 ? only : null;
    },
    requireDir(name, forWhat) {
      const folder = assets.dir(name);
      if (folder !== null) return folder;
      const lacking = FOLDER_NEEDS[name].find((need) => found[need] === undefined);
      if (lacking !== undefined) throw missing(lacking, forWhat);
      throw new OpError('not-found', forWhat, `the programs of ${name} are not in one folder`, { advice: `run: nodelet assets build ${name} (needs Go)` });
    },
    versions: () => found,
    refused: () => refused,
  };
  return assets;
}

/** Names that a person may give: a component, or a folder of them. OpError `invalid` for others. */
export function namesOf(given: readonly string[]): AssetName[] {
  const names = new Set<AssetName>();
  for (const word of given) {
    const below = ASSET_NAMES.filter((name) => name.startsWith(`${word}/`));
    if (isAssetName(word)) names.add(word);
    else if (below.length > 0) for (const name of below) names.add(name);
    else throw new OpError('invalid', 'choosing assets', `there is no component "${word}"`, { advice: 'nodelet assets list names them all' });
  }
  return ASSET_NAMES.filter((name) => names.has(name));
}
