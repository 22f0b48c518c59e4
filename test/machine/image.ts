import { createHash } from 'node:crypto';
import { access, chmod, copyFile, mkdir, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { exec } from '../../base/exec.ts';
import { messageOf, OpError } from '../../base/errors.ts';
import type { Progress } from '../../node/io/progress.ts';
import { imageName, INITRD_MODULES, KERNEL_PACKAGE, MASKED_UNITS, PACKAGES, type Origin, type Recipe } from './plan.ts';
import { bootstrap, forgetLists, installPackages, readOrigin } from './tree.ts';

export interface Image {
  readonly name: string;
  readonly disk: string;
  readonly kernel: string;
  readonly initrd: string;
}

interface Making {
  readonly root: string;
  readonly cache: string;
  readonly progress: Progress;
  readonly signal: AbortSignal;
}

const INSIDE = new URL('inside/image/', import.meta.url).pathname;
const FIRST = 'nodelet-init';
const UNIT = 'nodelet-work.service';
const APT = '/etc/apt';
const MINUTES = 60_000;
const DISK = '8G';

/** The image for this machine's packages and sources: out of the cache, or made (minutes, needs root and the apt mirror). */
export async function findImage(making: Making): Promise<Image> {
  const origin = await readOrigin(making.signal);
  const name = imageName(await readRecipe(making.root, origin));
  const folder = `${making.cache}/images/${name}`;
  const image = { name, disk: `${folder}/disk`, kernel: `${folder}/vmlinuz`, initrd: `${folder}/initrd` };
  if (await exists(image.disk)) return image;
  const work = `${making.cache}/images/${name}.making`;
  await rm(work, { recursive: true, force: true });
  await mkdir(work, { recursive: true });
  try {
    await make(making, origin, work);
    await rename(work, folder);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
  return image;
}

const exists = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  );

async function readRecipe(root: string, origin: Origin): Promise<Recipe> {
  const lists = (await readdir(`${APT}/sources.list.d`).catch(() => [] as string[])).filter((name) => /\.(list|sources)$/.test(name)).toSorted();
  const read = (path: string): Promise<string> => readFile(path, 'utf8').catch(() => '');
  const sources = await Promise.all([`${APT}/sources.list`, ...lists.map((name) => `${APT}/sources.list.d/${name}`)].map(read));
  const scripts = await Promise.all([FIRST, UNIT].map((name) => readFile(`${INSIDE}${name}`, 'utf8')));
  const lock = await readFile(`${root}/package-lock.json`);
  return {
    release: origin.release,
    sources: sources.join('\n'),
    packageLock: createHash('sha256').update(lock).digest('hex'),
    nodeVersion: (await readFile(`${root}/.node-version`, 'utf8')).trim(),
    scripts,
  };
}

async function make(making: Making, origin: Origin, work: string): Promise<void> {
  const { progress, signal } = making;
  const tree = `${work}/root`;
  await progress.step(`${origin.release} unpacked`, () => bootstrap(making, origin, tree));
  await progress.step(`${PACKAGES.length} packages and a kernel installed`, () => installAll(tree, signal));
  await progress.step('Node and npm packages copied', () => copyTools(making.root, tree, signal));
  await configure(tree);
  await progress.step('disk written', async () => {
    const boot = (await readdir(`${tree}/boot`)).toSorted();
    for (const [prefix, name] of [
      ['vmlinuz-', 'vmlinuz'],
      ['initrd.img-', 'initrd'],
    ] as const) {
      const file = boot.findLast((each) => each.startsWith(prefix));
      if (file === undefined) throw new OpError('failed', 'making the image', `${KERNEL_PACKAGE} brought no /boot/${prefix}…`);
      await copyFile(`${tree}/boot/${file}`, `${work}/${name}`);
    }
    await exec(['truncate', '-s', DISK, `${work}/disk`], { signal });
    await exec(['mke2fs', '-q', '-F', '-t', 'ext4', '-m', '0', '-E', 'root_owner=0:0', '-d', tree, `${work}/disk`], {
      doing: 'writing the disk',
      signal,
      timeoutMs: 10 * MINUTES,
    });
    await rm(tree, { recursive: true, force: true });
  });
}

async function installAll(tree: string, signal: AbortSignal): Promise<void> {
  await installPackages(tree, PACKAGES, signal);
  await writeFile(`${tree}/etc/initramfs-tools/conf.d/nodelet`, 'MODULES=list\n');
  await writeFile(`${tree}/etc/initramfs-tools/modules`, `${INITRD_MODULES.join('\n')}\n`);
  await installPackages(tree, [KERNEL_PACKAGE], signal);
  await forgetLists(tree, signal);
}

async function copyTools(root: string, tree: string, signal: AbortSignal): Promise<void> {
  const version = (await readFile(`${root}/.node-version`, 'utf8')).trim();
  const to = `${tree}/root/nodelet`;
  await mkdir(`${to}/.tools`, { recursive: true });
  await exec(['cp', '-a', `${root}/node_modules`, `${to}/`], { doing: 'copying npm packages', signal });
  await exec(['cp', '-a', `${root}/.tools/node-${version}`, `${to}/.tools/`], { doing: 'copying Node', signal });
}

async function configure(tree: string): Promise<void> {
  const units = `${tree}/etc/systemd/system`;
  await mkdir(`${units}/multi-user.target.wants`, { recursive: true });
  await writeFile(`${tree}/etc/hostname`, 'machine\n');
  await writeFile(`${tree}/etc/fstab`, '');
  await mkdir(`${tree}/exchange`, { recursive: true });
  await mkdir(`${tree}/assets`, { recursive: true });
  await copyFile(`${INSIDE}${FIRST}`, `${tree}/usr/local/sbin/${FIRST}`);
  await chmod(`${tree}/usr/local/sbin/${FIRST}`, 0o755);
  await copyFile(`${INSIDE}${UNIT}`, `${units}/${UNIT}`);
  await link(`../${UNIT}`, `${units}/multi-user.target.wants/${UNIT}`);
  for (const unit of MASKED_UNITS) await link('/dev/null', `${units}/${unit}`);
}

async function link(target: string, path: string): Promise<void> {
  await rm(path, { force: true });
  await symlink(target, path).catch((error: unknown) => {
    throw new OpError('failed', `linking ${path}`, messageOf(error), { cause: error });
  });
}
