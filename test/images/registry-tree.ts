import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { createHash } from 'node:crypto';
import { blobPath, MANIFEST_TYPE, type ImageStore } from '../../node/io/images.ts';
import { shareBlob } from './layers.ts';

/** Where agnhost's fake-registry-server looks for a digest below `manifests` or `blobs`. */
export function digestPath(base: string, digest: string): string {
  const [algorithm = '', hash = ''] = digest.split(':');
  return `${base}/${algorithm}/${hash.slice(0, 2)}/${hash}/data`;
}

/** An index of one manifest for this machine's architecture; the server takes the content type from its `mediaType`. */
export function registryIndex(manifest: { readonly digest: string; readonly size: number }, architecture: string): string {
  return JSON.stringify({
    schemaVersion: 2,
    mediaType: 'application/vnd.oci.image.index.v1+json',
    manifests: [{ mediaType: MANIFEST_TYPE, digest: manifest.digest, size: manifest.size, platform: { architecture, os: 'linux' } }],
  });
}

/** Writes an image of the store below `dir` as the fake registry of agnhost serves it. */
export async function writeRegistry(store: ImageStore, digest: string, dir: string, names: { readonly as: string; readonly tag: string }): Promise<void> {
  const base = `${dir}/${names.as}`;
  const put = async (path: string, data: string | Uint8Array): Promise<void> => {
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, data);
  };
  const text = await readFile(blobPath(store, digest), 'utf8');
  const index = registryIndex({ digest, size: Buffer.byteLength(text) }, process.arch === 'arm64' ? 'arm64' : 'amd64');
  const indexDigest = `sha256:${createHash('sha256').update(index).digest('hex')}`;
  await put(`${base}/manifests/${names.tag}`, `${indexDigest}\n`);
  await put(digestPath(`${base}/manifests`, indexDigest), index);
  await put(digestPath(`${base}/manifests`, digest), text);
  const manifest = JSON.parse(text) as { config: { digest: string }; layers: { digest: string }[] };
  for (const blob of [manifest.config, ...manifest.layers]) {
    const path = digestPath(`${base}/blobs`, blob.digest);
    await mkdir(dirname(path), { recursive: true });
    await shareBlob(blobPath(store, blob.digest), path);
  }
}
