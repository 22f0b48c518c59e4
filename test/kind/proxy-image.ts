import { mkdtemp, readFile, rename, rm } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { OpError } from '../../base/errors.ts';
import { kubernetesVersion } from '../../base/version.ts';
import { PROXY_FLAGS } from '../../node/core/services.ts';
import { parseImageName, type Layer } from '../../node/core/oci.ts';
import { blobPath, listImages, makeImage, storeImage, type StoredImage } from '../../node/io/images.ts';
import type { Program } from '../../scripts/command.ts';
import { partsOf } from '../../scripts/release/parts.ts';
import type { Assets } from '../assets/find.ts';
import { imagesDir } from '../images/command.ts';
import { PROXY_BASE } from '../images/kind.ts';
import { makeE2eImages } from '../images/make.ts';
import { archiveOf } from './node-image.ts';

/** The name that examples/kube-proxy.yaml asks for. */
export const PROXY_IMAGE = `localhost/nodelet/kube-proxy:${kubernetesVersion}`;
const HOME = '/usr/local/lib/nodelet';
const PATH = 'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

const named = (text: string) => {
  const name = parseImageName(text);
  if (name === null) throw new Error(`${text} is not an image name`);
  return name;
};

/** The image of our proxy for a DaemonSet: iptables and nft of the distribution, and a release, unpacked. */
export async function makeProxyImage(program: Program, assets: Assets, root: string): Promise<StoredImage> {
  const store = { dir: imagesDir() };
  const { host, progress } = program;
  const base = await makeE2eImages({ host, store, assets, progress, choice: { only: [PROXY_BASE] }, build: false });
  const [left] = base.left;
  if (left !== undefined) throw new OpError('not-found', 'making the image of the proxy', `${left.name}: ${left.why}`);
  const files = (await partsOf(root)).map(({ name, from, mode }) => ({ path: `${HOME}/${name}`, mode, content: { kind: 'file' as const, from } }));
  const settings = {
    env: [PATH, `NODELET_ROOT=${HOME}`, `NODELET_SYS=${HOME}/dist/sys`, 'MALLOC_ARENA_MAX=2'],
    entrypoint: [
      `${HOME}/bin/node`,
      ...PROXY_FLAGS,
      '--max-old-space-size=512',
      '--disable-warning=ExperimentalWarning',
      `${HOME}/dist/netfilter.cjs`,
      'netfilter',
    ],
  };
  return progress.step(PROXY_IMAGE, async () => {
    await makeImage(store, named(PROXY_IMAGE), { files, settings });
    const layers = [...(await layersOf(PROXY_BASE)), ...(await layersOf(PROXY_IMAGE))];
    return storeImage(store, named(PROXY_IMAGE), layers, settings);
  });
}

async function layersOf(image: string): Promise<Layer[]> {
  const store = { dir: imagesDir() };
  const found = (await listImages(store)).find(({ name }) => name === image);
  if (found === undefined) throw new OpError('not-found', `reading ${image}`, `it is not in ${store.dir}`);
  const json = async (digest: string): Promise<unknown> => JSON.parse(await readFile(blobPath(store, digest), 'utf8'));
  const manifest = (await json(found.digest)) as { config: { digest: string }; layers: { digest: string; size: number }[] };
  const { rootfs } = (await json(manifest.config.digest)) as { rootfs: { diff_ids: string[] } };
  return manifest.layers.map(({ digest, size }, at) => ({ digest, size, diffId: rootfs.diff_ids[at] ?? '' }));
}

/** The image as an archive that `kind load image-archive` and `ctr images import` read. */
export async function writeProxyArchive(file: string): Promise<void> {
  const to = resolve(file);
  const folder = await mkdtemp(`${dirname(to)}/.proxy-`);
  try {
    await rename(await archiveOf({ dir: imagesDir() }, PROXY_IMAGE, folder), to);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
