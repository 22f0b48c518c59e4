import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { link, mkdir, open, realpath, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, resolve } from 'node:path';
import { PassThrough } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { constants, createZstdCompress, createZstdDecompress } from 'node:zlib';
import { extract, pack } from 'tar-stream';
import { messageOf, OpError } from '../../base/errors.ts';
import { lockCache } from './build.ts';
import { isWhole, makeCurrent, MANIFEST, readManifest, writeManifest, type Made, type Manifest } from './store.ts';

export interface Packed {
  readonly file: string;
  /** SHA-256 over names, modes and contents: the same for the same programs, wherever they were built. */
  readonly content: string;
  readonly programs: number;
  readonly sizeBytes: number;
}

/** A file's name that says its content. */
const NAMED = /^nodelet-assets-([0-9a-f]{64})\.tar\.zst$/;
const NAME = /^[A-Za-z0-9_][A-Za-z0-9._-]*(?:\/[A-Za-z0-9_][A-Za-z0-9._-]*)?$/;
const MANIFEST_BYTES = 1 << 20;
const LEVEL = 6;

const entriesOf = (manifest: Manifest): [string, Made][] => Object.entries<Made>(manifest.programs).sort(([a], [b]) => (a < b ? -1 : 1));

/** The content hash of a set: of each program's name, size and bytes, and of the set's name. */
export function contentOf(manifest: Manifest): string {
  const hash = createHash('sha256').update(`${manifest.set} ${manifest.platform}\n`);
  for (const [name, made] of entriesOf(manifest)) hash.update(`${name} ${made.version} ${made.sizeBytes} ${made.sha256}\n`);
  return hash.digest('hex');
}

/**
 * Writes the set in use as one file, a zstd-compressed tar with the manifest first. `target` is a file, or a folder in
 * which the file gets its content hash as name. Each program is hashed again on its way. OpError `not-found` when
 * nothing is built, `failed` when a program is not what the manifest says.
 */
export async function packAssets(root: string, target: string, signal: AbortSignal): Promise<Packed> {
  const doing = 'packing assets';
  const folder = await realpath(`${root}/current`).catch(() => '');
  const manifest = await readManifest(folder);
  if (manifest === null || entriesOf(manifest).length === 0)
    throw new OpError('not-found', doing, `nothing is built in ${root}`, { advice: 'run: nodelet assets build' });
  const content = contentOf(manifest);
  const isFolder = (await stat(target).catch(() => null))?.isDirectory() === true;
  const file = resolve(isFolder ? `${target}/nodelet-assets-${content}.tar.zst` : target);
  const beside = `${file}.${process.pid}.part`;
  const tar = pack();
  const fill = async (): Promise<void> => {
    const text = `${JSON.stringify(manifest, null, 2)}\n`;
    tar.entry({ name: MANIFEST, mode: 0o644, mtime: new Date(0) }, text);
    for (const [name, made] of entriesOf(manifest)) {
      if (!(await isWhole(folder, name, made)))
        throw new OpError('failed', doing, `${name} is not there as the manifest says`, { advice: 'run: nodelet assets build' });
      const hash = createHash('sha256');
      const entry = tar.entry({ name, size: made.sizeBytes, mode: 0o755, mtime: new Date(0) });
      await pipeline(createReadStream(`${folder}/${name}`), hashing(hash), entry, { signal });
      if (hash.digest('hex') !== made.sha256)
        throw new OpError('failed', doing, `${name} is damaged: it is not what was built`, {
          advice: `remove ${folder}/${name} and run: nodelet assets build`,
        });
    }
    tar.finalize();
  };
  try {
    const written = pipeline(
      tar,
      createZstdCompress({ params: { [constants.ZSTD_c_compressionLevel]: LEVEL, [constants.ZSTD_c_checksumFlag]: 1 } }),
      createWriteStream(beside),
      { signal },
    );
    await Promise.all([
      written,
      fill().catch((error: unknown) => {
        tar.destroy(error as Error);
        throw error;
      }),
    ]);
    await rename(beside, file);
  } catch (error) {
    if (signal.aborted) throw new OpError('aborted', doing, 'stopped');
    throw error;
  } finally {
    await rm(beside, { force: true });
  }
  return { file, content, programs: entriesOf(manifest).length, sizeBytes: (await stat(file)).size };
}

function hashing(hash: ReturnType<typeof createHash>): PassThrough {
  const through = new PassThrough();
  through.on('data', (chunk: Buffer) => hash.update(chunk));
  return through;
}

/**
 * Puts a packed set in place as the one in use. Everything is unpacked beside and compared, first with the manifest
 * inside, then with the content hash in the file's name or `expected`; only then it is renamed. OpError `invalid` for
 * anything that is not exactly what it says it is.
 */
export async function unpackAssets(
  root: string,
  file: string,
  options: { expected?: string | undefined; platform: string; signal: AbortSignal },
): Promise<Manifest> {
  const doing = `unpacking ${file}`;
  if ((await stat(file).catch(() => null))?.isFile() !== true) throw new OpError('not-found', doing, 'there is no such file');
  await mkdir(root, { recursive: true });
  await using _lock = await lockCache(root);
  const work = `${root}/.work-${process.pid}`;
  await rm(work, { recursive: true, force: true });
  await mkdir(work);
  try {
    let manifest: Manifest;
    try {
      manifest = await unpackInto(work, file, doing, options.signal);
    } catch (error) {
      if (options.signal.aborted) throw new OpError('aborted', doing, 'stopped; nothing was put in place');
      if (error instanceof OpError) throw error;
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ENOSPC' || code === 'EACCES') throw error;
      throw new OpError('invalid', doing, `the file is damaged (${messageOf(error)})`, { cause: error, advice: 'copy it again; nothing was put in place' });
    }
    const content = contentOf(manifest);
    for (const [hash, whose] of [
      [NAMED.exec(basename(file))?.[1], 'its name'],
      [options.expected, '--hash'],
    ] as const) {
      if (hash !== undefined && hash !== content)
        throw new OpError('invalid', doing, `its content is ${content}, and ${whose} says ${hash}`, { advice: 'nothing was put in place' });
    }
    if (manifest.platform !== options.platform)
      throw new OpError('unsupported', doing, `it is for ${manifest.platform}, and this machine is ${options.platform}`);
    return await putInPlace(root, work, manifest);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

async function unpackInto(work: string, file: string, doing: string, signal: AbortSignal): Promise<Manifest> {
  const refuse = (detail: string): OpError => new OpError('invalid', doing, detail, { advice: 'nothing was put in place' });
  const tar = extract();
  const read = pipeline(createReadStream(file), createZstdDecompress(), tar, { signal });
  // Whoever waits on the entries hears of it there; this keeps it from counting as unheard.
  read.catch(() => undefined);
  let manifest: Manifest | null = null;
  const left = new Map<string, Made>();
  for await (const entry of tar) {
    const { name, type, size } = entry.header;
    if (type !== 'file') throw refuse(`it has ${JSON.stringify(name)}, a ${type}, where only files belong`);
    if (manifest === null) {
      if (name !== MANIFEST || size > MANIFEST_BYTES) throw refuse('it does not begin with a manifest of assets');
      manifest = await manifestIn(entry as unknown as AsyncIterable<Uint8Array>, work, refuse);
      for (const [program, made] of entriesOf(manifest)) left.set(program, made);
      continue;
    }
    const made = left.get(name);
    if (made === undefined) throw refuse(`it has ${JSON.stringify(name)}, which its manifest does not name`);
    left.delete(name);
    if (size !== made.sizeBytes) throw refuse(`${name} has ${size} bytes, and the manifest says ${made.sizeBytes}`);
    await mkdir(dirname(`${work}/${name}`), { recursive: true });
    const hash = createHash('sha256');
    await pipeline(entry, hashing(hash), createWriteStream(`${work}/${name}`, { mode: 0o755, flags: 'wx' }), { signal });
    if (hash.digest('hex') !== made.sha256) throw refuse(`${name} is not what the manifest says: it was changed or damaged`);
  }
  await read;
  if (manifest === null) throw refuse('it is empty');
  const [missing] = left.keys();
  if (missing !== undefined) throw refuse(`${missing} is missing in it`);
  return manifest;
}

async function manifestIn(entry: AsyncIterable<Uint8Array>, work: string, refuse: (detail: string) => OpError): Promise<Manifest> {
  await pipeline(entry, createWriteStream(`${work}/${MANIFEST}`, { flags: 'wx' }));
  const manifest = await readManifest(work);
  if (manifest === null || !/^[0-9a-f]{16}$/.test(manifest.set) || typeof manifest.platform !== 'string') throw refuse('its manifest cannot be read');
  for (const [name, made] of entriesOf(manifest)) {
    if (!NAME.test(name) || name === MANIFEST) throw refuse(`its manifest names ${JSON.stringify(name)}, which is no place below the assets folder`);
    if (!/^[0-9a-f]{64}$/.test(made.sha256) || !Number.isSafeInteger(made.sizeBytes) || typeof made.key !== 'string' || typeof made.version !== 'string')
      throw refuse(`its manifest does not say what ${name} is`);
  }
  return manifest;
}

/** Renames the unpacked set to its place, with what a set of that name had beyond it. */
async function putInPlace(root: string, work: string, manifest: Manifest): Promise<Manifest> {
  const place = `${root}/${manifest.set}`;
  const before = await readManifest(place);
  let whole = manifest;
  for (const [name, made] of before === null ? [] : entriesOf(before)) {
    if (name in manifest.programs || !NAME.test(name) || !(await isWhole(place, name, made))) continue;
    await mkdir(dirname(`${work}/${name}`), { recursive: true });
    await link(`${place}/${name}`, `${work}/${name}`);
    whole = { ...whole, programs: { ...whole.programs, [name]: made } };
  }
  await writeManifest(work, whole);
  await sync(`${work}/${MANIFEST}`);
  const aside = `${root}/.work-${process.pid}-old`;
  await rename(place, aside).catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  });
  await rename(work, place);
  await rm(aside, { recursive: true, force: true });
  await makeCurrent(root, manifest.set);
  return whole;
}

async function sync(path: string): Promise<void> {
  await using file = await open(path, 'r');
  await file.sync();
}
