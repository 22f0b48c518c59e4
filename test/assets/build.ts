import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { chmod, link, mkdir, readdir, rename, rm, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { messageOf, OpError } from '../../base/errors.ts';
import type { Progress } from '../../node/io/progress.ts';
import { lockFile } from '../../node/io/lock.ts';
import { askVersion } from './ask.ts';
import { ASSET_NAMES, rowOf, type AssetName } from './catalogue.ts';
import { compile, findGo, keyOf, setName, type Toolchain } from './go.ts';
import { isWhole, makeCurrent, readManifest, writeManifest, type Env, type Made, type Manifest } from './store.ts';
import { prepareCgo } from './cgo.ts';
import { misfit } from './version.ts';

export interface Built {
  readonly folder: string;
  readonly set: string;
  readonly toolchain: Toolchain;
  /** What this run built, with seconds. */
  readonly built: Readonly<Partial<Record<AssetName, number>>>;
  /** What was there already. */
  readonly kept: readonly AssetName[];
  readonly failed: Readonly<Partial<Record<AssetName, string>>>;
}

const WORK = '.work-';
const SAY_MS = 60_000;

/** Holds the cache for one command that changes it. */
export const lockCache = (root: string): Promise<AsyncDisposable> => lockFile(`${root}/lock`, `changing ${root}`, 0);

/**
 * Builds what is missing of `names` into the set that the sources and this Go decide, and points `current` at it. Each
 * program is compiled beside and renamed, and counts once the manifest names it: ended at any point, the next run goes
 * on from there. One that fails does not keep the others from being built.
 */
export async function buildAssets(names: readonly AssetName[], options: { root: string; env: Env; signal: AbortSignal; progress: Progress }): Promise<Built> {
  const { root, env, signal, progress } = options;
  const toolchain = await findGo(env, signal);
  const keys = Object.fromEntries(await Promise.all(ASSET_NAMES.map(async (name) => [name, await keyOf(name, toolchain)] as const))) as Record<
    AssetName,
    string
  >;
  const set = setName(ASSET_NAMES.map((name) => keys[name]));
  const folder = `${root}/${set}`;
  await mkdir(folder, { recursive: true });
  await using _lock = await lockCache(root);
  await removeLeftovers(root);
  let manifest = await carryOver(root, { set, go: toolchain.go, platform: toolchain.platform, programs: {} }, keys);
  await writeManifest(folder, manifest);
  await makeCurrent(root, set);
  const built: Partial<Record<AssetName, number>> = {};
  const failed: Partial<Record<AssetName, string>> = {};
  const kept = names.filter((name) => manifest.programs[name] !== undefined);
  const missing = names.filter((name) => manifest.programs[name] === undefined);
  const work = `${root}/${WORK}${process.pid}`;
  await mkdir(work);
  try {
    for (const [at, name] of missing.entries()) {
      try {
        signal.throwIfAborted();
        const made = await progress.step(`${name} ${rowOf(name).version} (${at + 1} of ${missing.length})`, () =>
          buildOne(name, keys[name], { work, folder, env, signal, progress }),
        );
        manifest = { ...manifest, programs: { ...manifest.programs, [name]: made } };
        await writeManifest(folder, manifest);
        built[name] = made.seconds;
      } catch (error) {
        if (signal.aborted) throw new OpError('aborted', `building ${name}`, 'stopped; what was built stays, and the next run goes on from there');
        if (!(error instanceof OpError)) throw error;
        failed[name] = `${messageOf(error)}${error.advice === '' ? '' : ` (${error.advice})`}`;
        progress.note(`    ${failed[name]}`);
      }
    }
  } finally {
    await rm(work, { recursive: true, force: true });
  }
  if (ASSET_NAMES.every((name) => manifest.programs[name] !== undefined)) await removeOldSets(root, set);
  return { folder, set, toolchain, built, kept, failed };
}

async function buildOne(name: AssetName, key: string, how: { work: string; folder: string; env: Env; signal: AbortSignal; progress: Progress }): Promise<Made> {
  const row = rowOf(name);
  const started = performance.now();
  if (row.cgo) await prepareCgo(name, how);
  const out = `${how.work}/${name.replaceAll('/', '_')}`;
  let packages = 0;
  let last = '';
  const timer = setInterval(() => {
    how.progress.note(`    ${name}: ${Math.round((performance.now() - started) / 1000)} s, ${packages} packages, now ${last === '' ? 'linking' : last}`);
  }, SAY_MS);
  try {
    await compile(name, out, {
      env: how.env,
      signal: how.signal,
      scratch: how.work,
      onPackage(line) {
        packages++;
        last = line;
      },
    });
  } finally {
    clearInterval(timer);
  }
  await chmod(out, 0o755);
  await checkStamp(name, out);
  const { size } = await stat(out);
  const sha256 = await hashFile(out);
  const place = `${how.folder}/${name}`;
  await mkdir(dirname(place), { recursive: true });
  await rename(out, place);
  return { key, version: row.version, sizeBytes: size, sha256, seconds: Math.round((performance.now() - started) / 100) / 10 };
}

/** A program whose stamp is wrong would tell the scoreboard a version that was never there. */
async function checkStamp(name: AssetName, path: string): Promise<void> {
  const row = rowOf(name);
  if (row.ask === null) return;
  const version = await askVersion(path, row.ask);
  const why = version === null ? 'it does not tell its version' : misfit({ version: row.version, fits: 'exact' }, version);
  if (why !== null) throw new OpError('failed', `building ${name}`, `what was built says ${version ?? 'nothing'}: ${why}`);
}

/** SHA-256 of a file, in hex. */
export async function hashFile(path: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path, { highWaterMark: 1 << 20 }), hash);
  return hash.digest('hex');
}

/** What killed builds left; nobody else builds while the cache is held. */
async function removeLeftovers(root: string): Promise<void> {
  for (const entry of await readdir(root)) {
    if (entry.startsWith(WORK)) await rm(`${root}/${entry}`, { recursive: true, force: true });
  }
}

async function setsIn(root: string): Promise<string[]> {
  return (await readdir(root, { withFileTypes: true })).filter((entry) => entry.isDirectory() && !entry.name.startsWith('.')).map((entry) => entry.name);
}

/** The set's manifest, with what it or another set has already of the same content key, by hard link. */
async function carryOver(root: string, fresh: Manifest, keys: Readonly<Record<AssetName, string>>): Promise<Manifest> {
  const programs: Partial<Record<AssetName, Made>> = {};
  const target = `${root}/${fresh.set}`;
  const sets = await setsIn(root);
  for (const set of [fresh.set, ...sets.filter((other) => other !== fresh.set)]) {
    const manifest = await readManifest(`${root}/${set}`);
    if (manifest === null) continue;
    for (const name of ASSET_NAMES) {
      const made = manifest.programs[name];
      if (programs[name] !== undefined || made === undefined || made.key !== keys[name] || !(await isWhole(`${root}/${set}`, name, made))) continue;
      if (set !== fresh.set) {
        await mkdir(dirname(`${target}/${name}`), { recursive: true });
        await rm(`${target}/${name}`, { force: true });
        await link(`${root}/${set}/${name}`, `${target}/${name}`);
      }
      programs[name] = made;
    }
  }
  return { ...fresh, programs };
}

/** Keeps the set in use and the one before it, so that going back to other sources costs nothing. */
async function removeOldSets(root: string, set: string): Promise<void> {
  const others = await Promise.all(
    (await setsIn(root)).filter((other) => other !== set).map(async (other) => ({ other, at: (await stat(`${root}/${other}`)).mtimeMs })),
  );
  for (const { other } of others.sort((a, b) => b.at - a.at).slice(1)) await rm(`${root}/${other}`, { recursive: true, force: true });
}
