import { createHash } from 'node:crypto';
import { access, chmod, copyFile, cp, mkdir, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { exec, tryExec } from '../../base/exec.ts';
import { messageOf, OpError } from '../../base/errors.ts';
import type { Progress } from '../../node/io/progress.ts';
import { imageName, INITRD_MODULES, KERNEL_PACKAGE, MASKED_UNITS, originOf, PACKAGES, type Origin, type Recipe } from './plan.ts';

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
/** Mounts of its own. */
const APART = ['nice', '-n', '10', 'unshare', '--mount', '--propagation', 'private'] as const;

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

/** Where apt takes packages from on this machine. */
async function readOrigin(signal: AbortSignal): Promise<Origin> {
  const doing = 'asking apt for its sources';
  const { stdout } = await exec(['apt-get', 'indextargets', '--format', '$(SITE) $(CODENAME)', 'Created-By: Packages'], { doing, signal });
  const origin = originOf(stdout);
  if (origin === null)
    throw new OpError('not-found', doing, 'there is none with a whole distribution', { advice: 'add one to /etc/apt and run: apt-get update' });
  return origin;
}

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

async function bootstrap(making: Making, origin: Origin, tree: string): Promise<void> {
  const include = '--include=ca-certificates';
  const run = (extra: string[]): Promise<{ code: number; stdout: string; stderr: string }> =>
    // What it mounts in the tree goes with it, also when it is killed: the tree is removed then.
    tryExec([...APART, 'debootstrap', '--variant=minbase', include, ...extra, origin.release, tree, origin.site], {
      doing: 'unpacking the distribution',
      signal: making.signal,
      timeoutMs: 20 * MINUTES,
    });
  let result = await run([]);
  if (result.code !== 0 && /unknown key|no keyring|Invalid Release signature|cannot check Release/i.test(result.stdout + result.stderr)) {
    making.progress.note(`  debootstrap has no key for ${origin.site}: its signature is not checked`);
    await rm(tree, { recursive: true, force: true });
    result = await run(['--no-check-gpg']);
  }
  if (result.code === 0) return;
  const last = (result.stdout + result.stderr)
    .trim()
    .split('\n')
    .findLast((line) => /^[EW]:/.test(line));
  throw new OpError('failed', `unpacking ${origin.release} from ${origin.site}`, last ?? `debootstrap ended with ${result.code}`, {
    advice: 'does apt-get update work on this machine?',
  });
}

/** Runs a line in the tree with a /proc that goes with it. */
async function inTree(tree: string, line: string, doing: string, signal: AbortSignal): Promise<void> {
  const script = `mount -t proc proc "$0/proc" && exec chroot "$0" sh -ec "$1"`;
  await exec([...APART, '--pid', '--fork', '--kill-child', 'sh', '-c', script, tree, line], {
    doing,
    signal,
    timeoutMs: 30 * MINUTES,
    env: { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', DEBIAN_FRONTEND: 'noninteractive', LC_ALL: 'C' },
  });
}

async function installAll(tree: string, signal: AbortSignal): Promise<void> {
  // What this machine trusts and where it fetches, so that the tree's apt does as this machine's does.
  for (const path of [
    '/etc/resolv.conf',
    `${APT}/sources.list`,
    `${APT}/sources.list.d`,
    `${APT}/apt.conf.d`,
    `${APT}/auth.conf.d`,
    `${APT}/trusted.gpg.d`,
    '/usr/share/keyrings',
  ])
    if (await exists(path)) await cp(path, `${tree}${path}`, { recursive: true, dereference: path === '/etc/resolv.conf', force: true });
  await writeFile(`${tree}/usr/sbin/policy-rc.d`, '#!/bin/sh\nexit 101\n');
  await chmod(`${tree}/usr/sbin/policy-rc.d`, 0o755);
  // What dpkg would sync again and again becomes a disk image in the end.
  await writeFile(`${tree}/etc/dpkg/dpkg.cfg.d/nodelet`, 'force-unsafe-io\n');
  const install = 'apt-get install -y -q --no-install-recommends';
  await inTree(tree, `apt-get update -q && ${install} ${PACKAGES.join(' ')}`, 'installing packages in the image', signal);
  await writeFile(`${tree}/etc/initramfs-tools/conf.d/nodelet`, 'MODULES=list\n');
  await writeFile(`${tree}/etc/initramfs-tools/modules`, `${INITRD_MODULES.join('\n')}\n`);
  await inTree(tree, `${install} ${KERNEL_PACKAGE} && apt-get clean && rm -rf /var/lib/apt/lists/*`, 'installing a kernel in the image', signal);
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
