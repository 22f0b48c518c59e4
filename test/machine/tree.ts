import { access, chmod, cp, rename, rm, writeFile } from 'node:fs/promises';
import { exec, tryExec } from '../../base/exec.ts';
import { OpError } from '../../base/errors.ts';
import type { Progress } from '../../node/io/progress.ts';
import { originOf, type Origin } from './plan.ts';

/** What making a tree needs of the program around it. */
export interface TreeMaking {
  readonly progress: Progress;
  readonly signal: AbortSignal;
}

const APT = '/etc/apt';
const MINUTES = 60_000;
/** Mounts of its own. */
const APART = ['nice', '-n', '10', 'unshare', '--mount', '--propagation', 'private'] as const;

const exists = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  );

/** Where apt takes packages from on this machine. */
export async function readOrigin(signal: AbortSignal): Promise<Origin> {
  const doing = 'asking apt for its sources';
  const { stdout } = await exec(['apt-get', 'indextargets', '--format', '$(SITE) $(CODENAME)', 'Created-By: Packages'], { doing, signal });
  const origin = originOf(stdout);
  if (origin === null)
    throw new OpError('not-found', doing, 'there is none with a whole distribution', { advice: 'add one to /etc/apt and run: apt-get update' });
  return origin;
}

/** A tree of the distribution with packages in it, whole or not at all. */
export async function makeTree(making: TreeMaking, origin: Origin, tree: string, packages: readonly string[]): Promise<void> {
  // Two commands may make the same one at once: the first that is done counts.
  const work = `${tree}.making-${process.pid}`;
  try {
    await making.progress.step(`${origin.release} unpacked`, () => bootstrap(making, origin, work));
    await making.progress.step(`${packages.length} packages installed`, async () => {
      await installPackages(work, packages, making.signal);
      await forgetLists(work, making.signal);
    });
    await rename(work, tree).catch(async (error: unknown) => {
      if (!(await exists(tree))) throw error;
    });
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/** A bare tree of the distribution. */
export async function bootstrap(making: TreeMaking, origin: Origin, tree: string): Promise<void> {
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

/** Installs packages in a tree from where this machine's apt takes them. */
export async function installPackages(tree: string, packages: readonly string[], signal: AbortSignal): Promise<void> {
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
  // What dpkg would sync again and again is packed in the end.
  await writeFile(`${tree}/etc/dpkg/dpkg.cfg.d/nodelet`, 'force-unsafe-io\n');
  const line = `apt-get update -q && apt-get install -y -q --no-install-recommends ${packages.join(' ')}`;
  await inTree(tree, line, `installing packages in ${tree}`, signal);
}

/** Leaves out what only apt reads. */
export const forgetLists = (tree: string, signal: AbortSignal): Promise<void> =>
  inTree(tree, 'apt-get clean && rm -rf /var/lib/apt/lists/*', 'clearing what apt fetched', signal);
