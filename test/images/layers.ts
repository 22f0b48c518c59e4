import { createHash } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { chmod, copyFile, link, lstat, mkdir, mkdtemp, readFile, rename, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { PassThrough } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import { execa } from 'execa';
import { messageOf } from '../../base/errors.ts';
import type { Layer } from '../../node/core/oci.ts';
import { lockFile } from '../../node/io/lock.ts';
import { layerPackages, resolvePackages, unpackPackages, type Package } from './packages.ts';
import { hashFile, programPath, upstreamFile, type ProgramOptions } from './programs.ts';
import type { LayerFile, LayerRecipe } from './recipes.ts';

const LOCK_WAIT_MS = 30 * 60_000;

/** Raised when the same recipe gives another layer. */
const FORMAT = 1;

/** A layer in the cache, with what later layers must know of it. */
export interface MadeLayer extends Layer {
  readonly key: string;
  /** File names of the packages in it. */
  readonly packages: readonly string[];
  /** Paths of everything in it, so that applets above do not hide programs below. */
  readonly programs: readonly string[];
}

export interface LayerOptions extends ProgramOptions {
  /** Make it again although it is in the cache, with the packages of today. */
  readonly refresh: boolean;
  /** Wraps work that takes a while. */
  readonly step: <T>(work: () => Promise<T>) => Promise<T>;
  /** Writes the tree for `registryOf`. */
  readonly fillRegistry: (root: string, recipe: NonNullable<LayerRecipe['registryOf']>) => Promise<void>;
  /** Digest of the image that `registryOf` names. */
  readonly digestOf: (image: string) => string;
}

export const layerBlob = (dir: string, digest: string): string => `${dir}/blobs/${digest.slice('sha256:'.length)}`;

/** A file of a recipe with its source on this machine. */
interface Resolved {
  readonly file: LayerFile;
  readonly from: string | null;
  readonly hash: string;
}

async function resolve(options: LayerOptions, file: LayerFile): Promise<Resolved> {
  const { content } = file;
  if (content.kind !== 'program' && content.kind !== 'upstream') return { file, from: null, hash: '' };
  const from = content.kind === 'program' ? await programPath(options, content.source) : await upstreamFile(content.file, options.signal);
  return { file, from, hash: await hashFile(from) };
}

/** Throws OpError `not-found` where a program of the layer is not to be had. */
export async function requirePrograms(options: ProgramOptions, recipe: LayerRecipe): Promise<void> {
  for (const { content } of recipe.files ?? []) if (content.kind === 'program') await programPath(options, content.source);
}

/** Makes a layer, or finds it in the cache: its name there follows from its recipe, the bytes of its files and the layers below. */
export async function makeLayer(
  options: LayerOptions,
  recipe: LayerRecipe,
  below: readonly { readonly recipe: LayerRecipe; readonly layer: MadeLayer }[],
): Promise<MadeLayer> {
  const files: Resolved[] = [];
  for (const file of recipe.files ?? []) files.push(await resolve(options, file));
  const registry = recipe.registryOf === undefined ? '' : options.digestOf(recipe.registryOf.image);
  const parents = recipe.packages === undefined ? [] : below.map(({ layer }) => layer.key);
  const key = createHash('sha256')
    .update(JSON.stringify([FORMAT, recipe, files.map(({ hash }) => hash), registry, parents]))
    .digest('hex')
    .slice(0, 32);
  if (!options.refresh) {
    const known = await knownLayer(options.dir, key);
    if (known !== null) return known;
  }
  return options.step(async () => {
    await mkdir(`${options.dir}/layers`, { recursive: true });
    await using _lock = await lockFile(`${options.dir}/layers/${key}.lock`, 'making a layer of the e2e images', LOCK_WAIT_MS);
    const known = options.refresh ? null : await knownLayer(options.dir, key);
    // Awaited here, or the lock would be given back before the work is done.
    return known ?? (await build(options, recipe, files, below, key));
  });
}

/** A layer of the cache whose bytes are there. */
async function knownLayer(dir: string, key: string): Promise<MadeLayer | null> {
  try {
    const known = JSON.parse(await readFile(`${dir}/layers/${key}.json`, 'utf8')) as MadeLayer;
    return (await stat(layerBlob(dir, known.digest))).size === known.size ? known : null;
  } catch {
    return null;
  }
}

async function build(
  options: LayerOptions,
  recipe: LayerRecipe,
  files: readonly Resolved[],
  below: readonly { recipe: LayerRecipe; layer: MadeLayer }[],
  key: string,
): Promise<MadeLayer> {
  const record = `${options.dir}/layers/${key}.json`;
  await mkdir(`${options.dir}/blobs`, { recursive: true });
  const root = await mkdtemp(`${options.dir}/root-`);
  try {
    await chmod(root, 0o755);
    const packages = await placePackages(options, recipe, below, root);
    for (const entry of files) await place(root, entry);
    if (recipe.applets !== undefined) await placeApplets(root, recipe.applets, new Set(below.flatMap(({ layer }) => layer.programs)));
    if (recipe.registryOf !== undefined) await options.fillRegistry(root, recipe.registryOf);
    const programs = (await execa('find', [root, '-path', '*bin/*', '(', '-type', 'f', '-o', '-type', 'l', ')', '-printf', '/%P\n'])).stdout
      .split('\n')
      .filter((path) => path !== '');
    const layer: MadeLayer = { ...(await archive(options, root)), key, packages: packages.map(({ file }) => file), programs };
    const scratch = `${record}.${process.pid}`;
    await writeFile(scratch, JSON.stringify(layer));
    await rename(scratch, record);
    return layer;
  } finally {
    await rm(root, { recursive: true, force: true });
  }
}

async function placePackages(
  options: LayerOptions,
  recipe: LayerRecipe,
  below: readonly { recipe: LayerRecipe; layer: MadeLayer }[],
  root: string,
): Promise<Package[]> {
  if (recipe.packages === undefined) return [];
  const wanted = recipe.packages;
  // Two commands must not fetch into one folder.
  await using _lock = await lockFile(`${options.dir}/apt.lock`, 'fetching packages', LOCK_WAIT_MS);
  const names = [...below.flatMap((entry) => entry.recipe.packages ?? []), ...wanted];
  const all = await resolvePackages(options, names);
  const have = new Set(below.flatMap(({ layer }) => layer.packages.map((file) => file.split('_')[0] ?? '')));
  const onlyStatic = wanted.every((name) => name.endsWith('-static'));
  const packages = onlyStatic ? all.filter(({ name }) => wanted.includes(name)) : layerPackages(all, have, wanted, recipe.withScripting === true);
  // The distribution's tree: /bin and the like are links into /usr, which its packages expect to be there.
  if (!onlyStatic) {
    for (const name of ['bin', 'sbin', 'lib', 'lib64']) {
      await mkdir(`${root}/usr/${name}`, { recursive: true });
      await symlink(`usr/${name}`, `${root}/${name}`);
    }
  }
  await unpackPackages(options, names, packages, root);
  return packages;
}

async function place(root: string, { file, from }: Resolved): Promise<void> {
  const at = `${root}${file.path}`;
  await mkdir(dirname(at), { recursive: true });
  const { content } = file;
  if (content.kind === 'directory') {
    await mkdir(at, { recursive: true });
  } else {
    await rm(at, { force: true });
    if (content.kind === 'link') return symlink(content.to, at);
    if (content.kind === 'text') await writeFile(at, content.text);
    else if (from !== null) await copyFile(from, at);
  }
  // After writing, because the process's umask and a write take set-user-ID bits away.
  await chmod(at, file.mode ?? (content.kind === 'directory' ? 0o755 : 0o644));
}

async function placeApplets(root: string, applets: NonNullable<LayerRecipe['applets']>, taken: ReadonlySet<string>): Promise<void> {
  const binary = `${root}${applets.binary}`;
  const names = (await execa(binary, ['--list'])).stdout.split('\n').filter((name) => /^[\w[.-]+$/.test(name));
  const folders = ['/usr/bin', '/usr/sbin', '/bin', '/sbin'];
  for (const name of names) {
    const isThere = await Promise.all(
      folders.map((folder) =>
        taken.has(`${folder}/${name}`)
          ? Promise.resolve(true)
          : lstat(`${root}${folder}/${name}`).then(
              () => true,
              () => false,
            ),
      ),
    );
    if (!isThere.includes(true))
      await symlink(
        applets.binary.startsWith(`${applets.into}/`) ? applets.binary.slice(applets.into.length + 1) : applets.binary,
        `${root}${applets.into}/${name}`,
      );
  }
}

/** A tree as a compressed archive in the cache, streamed: neither is held in memory. Owners, modes and links as they stand. */
async function archive(options: LayerOptions, root: string): Promise<Layer> {
  const scratch = `${options.dir}/blobs/${process.pid}.tmp`;
  const plain = createHash('sha256');
  const packed = createHash('sha256');
  let size = 0;
  const tar = execa('tar', ['--create', '--sort=name', '--numeric-owner', '--mtime=@0', '--format=gnu', '--directory', root, '.'], {
    buffer: false,
    encoding: 'buffer',
    cancelSignal: options.signal,
  });
  const before = new PassThrough().on('data', (chunk: Buffer) => void plain.update(chunk));
  const after = new PassThrough().on('data', (chunk: Buffer) => {
    packed.update(chunk);
    size += chunk.byteLength;
  });
  try {
    await Promise.all([tar, pipeline(tar.stdout, before, createGzip({ level: 5 }), after, createWriteStream(scratch))]);
    const digest = `sha256:${packed.digest('hex')}`;
    await rename(scratch, layerBlob(options.dir, digest));
    return { digest, size, diffId: `sha256:${plain.digest('hex')}` };
  } catch (error) {
    await rm(scratch, { force: true });
    options.signal.throwIfAborted();
    throw new Error(`packing a layer: ${messageOf(error)}`, { cause: error });
  }
}

/** Puts a cached blob into a store: as a second name of the same bytes where that is possible. */
export async function shareBlob(from: string, to: string): Promise<void> {
  const known = await stat(to).then(
    (info) => info.size,
    () => -1,
  );
  if (known === (await stat(from)).size) return;
  await mkdir(dirname(to), { recursive: true });
  const scratch = `${to}.${process.pid}.tmp`;
  await link(from, scratch).catch(() => copyFile(from, scratch));
  await rename(scratch, to);
}
