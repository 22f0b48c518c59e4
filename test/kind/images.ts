import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { exec, tryExec } from '../../base/exec.ts';
import { OpError } from '../../base/errors.ts';
import { listImages } from '../../node/io/images.ts';
import type { Program } from '../../scripts/command.ts';
import type { Engine } from '../../scripts/kind/place.ts';
import type { Assets } from '../assets/find.ts';
import { imagesDir } from '../images/command.ts';
import { archiveOf } from './node-image.ts';

const LOAD_MS = 600_000;

export interface Loaded {
  readonly cluster: string;
  readonly nodes: readonly string[];
  /** Full names, or their last part. */
  readonly images: readonly string[];
}

/** Brings images of this machine's store into nodes of a kind cluster; those that are there already are left. Returns how many were brought. */
export async function loadImages(program: Program, assets: Assets, engine: Engine, { cluster, nodes, images }: Loaded): Promise<number> {
  const store = { dir: imagesDir() };
  const known = (await listImages(store)).map(({ name }) => name);
  const kind = assets.require('kind', 'loading images');
  const there = await Promise.all(nodes.map((node) => namesIn(engine, node)));
  const names = images.map((wanted) => {
    const name = known.find((one) => one === wanted) ?? known.find((one) => one.endsWith(`/${wanted}`));
    if (name === undefined) throw new OpError('not-found', 'loading images', `${wanted} is not in ${store.dir}`);
    return name;
  });
  const missing = names.filter((name) => there.some((has) => !has.has(name)));
  if (missing.length === 0) return 0;
  const without = nodes.filter((_, at) => missing.some((name) => there[at]?.has(name) !== true));
  const folder = await mkdtemp(`${tmpdir()}/nodelet-load-`);
  try {
    await program.progress.step(`${missing.length} images loaded into ${without.join(', ')}`, async () => {
      const archive = await archiveOf(store, missing, folder);
      const { env, signal } = engine;
      await exec([kind, 'load', 'image-archive', archive, '--name', cluster, '--nodes', without.join(',')], { env, signal, timeoutMs: LOAD_MS });
    });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
  return missing.length;
}

/** Names of the images that a node has. */
async function namesIn({ env, signal }: Engine, node: string): Promise<Set<string>> {
  const { code, stdout } = await tryExec(['docker', 'exec', node, 'crictl', 'images', '--output=json'], { env, signal, timeoutMs: LOAD_MS });
  if (code !== 0) return new Set();
  const { images } = JSON.parse(stdout) as { images: { repoTags?: string[] | null }[] };
  return new Set(images.flatMap(({ repoTags }) => repoTags ?? []));
}
