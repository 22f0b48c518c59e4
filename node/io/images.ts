import { createHash } from 'node:crypto';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { OpError } from '../../base/errors.ts';
import { imageConfig, imageManifest, imageNameText, type Blob, type ImageName, type ImageRecipe, type ImageSettings, type Layer } from '../core/oci.ts';
import { lockFile } from './lock.ts';

/** Where images that were made on this machine lie: an OCI image layout (image-spec v1.1). */
export interface ImageStore {
  readonly dir: string;
}

export interface StoredImage {
  readonly name: string;
  readonly digest: string;
  readonly size: number;
}

interface Index {
  schemaVersion: 2;
  manifests: { mediaType: string; digest: string; size: number; annotations: Record<string, string> }[];
}

const LOCK_WAIT_MS = 10_000;
const REF = 'org.opencontainers.image.ref.name';
/** Bytes of the whole image, so that a listing need not read the manifests. */
const SIZE = 'io.nodelet.image.size';
export const MANIFEST_TYPE = 'application/vnd.oci.image.manifest.v1+json';

async function readIndex(store: ImageStore): Promise<Index> {
  try {
    return JSON.parse(await readFile(`${store.dir}/index.json`, 'utf8')) as Index;
  } catch {
    return { schemaVersion: 2, manifests: [] };
  }
}

async function writeAtomically(path: string, data: string | Uint8Array): Promise<void> {
  const temporary = `${path}.${process.pid}.tmp`;
  await writeFile(temporary, data);
  await rename(temporary, path);
}

export function blobPath(store: ImageStore, digest: string): string {
  return `${store.dir}/blobs/sha256/${digest.slice('sha256:'.length)}`;
}

/** Stores bytes under their digest. */
export async function putBlob(store: ImageStore, data: string | Uint8Array): Promise<Blob> {
  const bytes = typeof data === 'string' ? Buffer.from(data) : data;
  const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
  await writeAtomically(blobPath(store, digest), bytes);
  return { digest, size: bytes.byteLength };
}

async function layerTar(recipe: ImageRecipe): Promise<Buffer> {
  const { pack } = await import('tar-stream');
  const archive = pack();
  const chunks: Buffer[] = [];
  archive.on('data', (chunk) => void chunks.push(chunk as Buffer));
  const ended = new Promise<void>((resolve, reject) => archive.on('end', resolve).on('error', reject));
  const mtime = new Date(0);
  for (const file of recipe.files) {
    const name = file.path.slice(1);
    const header = { mode: file.mode, mtime, uid: 0, gid: 0 };
    switch (file.content.kind) {
      case 'directory':
        archive.entry({ ...header, name: `${name}/`, type: 'directory' });
        break;
      case 'link':
        archive.entry({ ...header, name, type: 'symlink', linkname: file.content.to });
        break;
      case 'text':
        archive.entry({ ...header, name }, file.content.text);
        break;
      case 'file':
        archive.entry({ ...header, name }, await readSource(file.content.from));
        break;
    }
  }
  archive.finalize();
  await ended;
  return Buffer.concat(chunks);
}

async function readSource(path: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (cause) {
    throw new OpError('not-found', 'making an image', `cannot read ${path}`, { cause, advice: 'install the package that has this file, or give another' });
  }
}

/** Makes an image from a recipe and stores it under `name`, replacing what had the name before. */
export async function makeImage(store: ImageStore, name: ImageName, recipe: ImageRecipe): Promise<StoredImage> {
  const tar = await layerTar(recipe);
  const diffId = `sha256:${createHash('sha256').update(tar).digest('hex')}`;
  await mkdir(`${store.dir}/blobs/sha256`, { recursive: true });
  const layer = await putBlob(store, await promisify(gzip)(tar, { level: 6 }));
  return storeImage(store, name, [{ ...layer, diffId }], recipe.settings);
}

/** Stores an image of layers that lie in the store, lowest first, under `name`, replacing what had the name before. */
export async function storeImage(store: ImageStore, name: ImageName, layers: readonly Layer[], settings: ImageSettings): Promise<StoredImage> {
  await mkdir(`${store.dir}/blobs/sha256`, { recursive: true });
  const diffIds = layers.map((layer) => layer.diffId);
  const config = await putBlob(store, imageConfig(settings, process.arch === 'arm64' ? 'arm64' : 'amd64', diffIds));
  const manifest = await putBlob(store, imageManifest(config, layers));
  const text = imageNameText(name);
  await using _lock = await lockFile(`${store.dir}/lock`, 'changing the images made here', LOCK_WAIT_MS);
  const index = await readIndex(store);
  index.manifests = index.manifests.filter((entry) => entry.annotations[REF] !== text);
  const size = layers.reduce((sum, layer) => sum + layer.size, manifest.size + config.size);
  index.manifests.push({ mediaType: MANIFEST_TYPE, ...manifest, annotations: { [REF]: text, [SIZE]: String(size) } });
  await writeAtomically(`${store.dir}/index.json`, JSON.stringify(index));
  await writeAtomically(`${store.dir}/oci-layout`, '{"imageLayoutVersion":"1.0.0"}');
  return { name: text, digest: manifest.digest, size };
}

/** What is stored, sorted by name. */
export async function listImages(store: ImageStore): Promise<StoredImage[]> {
  const index = await readIndex(store);
  return index.manifests
    .map((entry) => ({ name: entry.annotations[REF] ?? '', digest: entry.digest, size: Number(entry.annotations[SIZE] ?? entry.size) }))
    .sort((a, b) => a.name.localeCompare(b.name));
}

/** Forgets a name. The blobs stay: other names may use them. */
export async function removeImage(store: ImageStore, name: ImageName): Promise<'removed' | 'absent'> {
  const text = imageNameText(name);
  await using _lock = await lockFile(`${store.dir}/lock`, 'changing the images made here', LOCK_WAIT_MS);
  const index = await readIndex(store);
  const kept = index.manifests.filter((entry) => entry.annotations[REF] !== text);
  if (kept.length === index.manifests.length) return 'absent';
  await writeAtomically(`${store.dir}/index.json`, JSON.stringify({ ...index, manifests: kept }));
  return 'removed';
}
