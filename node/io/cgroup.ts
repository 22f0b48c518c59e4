import { mkdir, readdir, readFile, rmdir, writeFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { OpError } from '../../base/errors.ts';
import type { Machine } from './machine.ts';

type Cgroups = NonNullable<Machine['cgroup']>;

const REMOVE_MS = 20_000;

async function copyCpuset(root: string, path: string): Promise<void> {
  // A new v1 cpuset is empty and refuses processes until it has CPUs and memory nodes.
  let at = root;
  for (const part of path.split('/').filter((name) => name !== '')) {
    const parent = at;
    at = `${at}/${part}`;
    for (const file of ['cpuset.cpus', 'cpuset.mems']) {
      const current = (await readFile(`${at}/${file}`, 'utf8')).trim();
      if (current === '') await writeFile(`${at}/${file}`, (await readFile(`${parent}/${file}`, 'utf8')).trim());
    }
  }
}

/** Controllers that pods and their runtime need; those that the kernel lacks are left out. */
const CONTROLLERS = ['cpuset', 'cpu', 'io', 'memory', 'hugetlb', 'pids'];
/** In a container: where the processes go that stood in its topmost cgroup. */
const OUTSIDE = '/nodelet-outside';
const NOT_GIVEN = 'run the container privileged with a cgroup namespace of its own (docker run --privileged --cgroupns=private), or run on the machine itself';

function codeOf(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? '';
}

async function procsOf(dir: string): Promise<string[]> {
  return (await readFile(`${dir}/cgroup.procs`, 'utf8').catch(() => '')).split('\n').filter((line) => line !== '' && line !== '0');
}

async function moveAll(from: string, to: string): Promise<void> {
  // A process that forks meanwhile leaves a child behind: look again until nobody is there.
  for (let attempt = 0; attempt < 20; attempt += 1) {
    const pids = await procsOf(from);
    if (pids.length === 0) return;
    for (const pid of pids) {
      await writeFile(`${to}/cgroup.procs`, pid).catch((error: unknown) => {
        if (codeOf(error) !== 'ESRCH') throw error;
      });
    }
  }
}

async function enableControllers(root: string, path: string): Promise<void> {
  let at = root;
  for (const part of ['', ...path.split('/').filter((name) => name !== '')]) {
    if (part !== '') at = `${at}/${part}`;
    const available = (await readFile(`${at}/cgroup.controllers`, 'utf8')).split(/\s+/);
    const wanted = CONTROLLERS.filter((name) => available.includes(name)).map((name) => `+${name}`);
    const enable = async (): Promise<void> => writeFile(`${at}/cgroup.subtree_control`, wanted.join(' '));
    try {
      await enable().catch(async (error: unknown) => {
        if (at !== root || codeOf(error) !== 'EBUSY') throw error;
        // Only a container's topmost cgroup is refused for the processes in it: they go one below, until `down`.
        await mkdir(`${root}${OUTSIDE}`, { recursive: true });
        await moveAll(root, `${root}${OUTSIDE}`);
        await enable();
      });
    } catch (cause) {
      const kind = (await readFile(`${at}/cgroup.type`, 'utf8').catch(() => 'domain')).trim();
      const why = kind === 'domain' ? `the kernel says ${codeOf(cause)}` : `its type is "${kind}": a threaded cgroup holds no pods`;
      throw new OpError('denied', `handing ${wanted.join(' ')} on in ${at}`, why, { cause, advice: NOT_GIVEN });
    }
  }
}

/** One by one from the top: where nothing may be made, a recursive mkdir tells ENOENT in place of the reason. */
async function makeEach(root: string, path: string): Promise<void> {
  let at = root;
  for (const part of path.split('/').filter((name) => name !== '')) {
    at = `${at}/${part}`;
    await mkdir(at).catch((cause: unknown) => {
      if (codeOf(cause) === 'EEXIST') return;
      const why = codeOf(cause) === 'EROFS' ? 'the cgroup file system is mounted read-only' : `the kernel says ${codeOf(cause)}`;
      throw new OpError('denied', `making the cgroup ${at}`, why, { cause, advice: NOT_GIVEN });
    });
  }
}

/**
 * Makes the cgroup of a node and, below it, `system` for its own processes (v2 allows processes in leaves only).
 * Returns the directories whose `cgroup.procs` the node's first process goes to, one a hierarchy.
 */
export async function createCgroup(cgroups: Cgroups, path: string): Promise<string[]> {
  const dirs: string[] = [];
  for (const hierarchy of cgroups.hierarchies) {
    const leaf = `${hierarchy}${path}/system`;
    await makeEach(hierarchy, `${path}/system`);
    if (cgroups.version === 2) await enableControllers(hierarchy, path);
    else if (
      await readFile(`${hierarchy}/cpuset.cpus`, 'utf8').then(
        () => true,
        () => false,
      )
    )
      await copyCpuset(hierarchy, `${path}/system`);
    dirs.push(leaf);
  }
  return dirs;
}

/**
 * Removes a cgroup and all below it in every hierarchy where nothing runs in them; kills nothing. Where the runtime is
 * told no parent, its containers' cgroups stand outside the node's, and it leaves the empty folder above them.
 */
export async function removeEmptyCgroup(cgroups: Cgroups, path: string): Promise<void> {
  for (const hierarchy of cgroups.hierarchies) await removeTree(`${hierarchy}${path}`);
}

/** In which hierarchies a cgroup stands. */
export async function findCgroup(cgroups: Cgroups, path: string): Promise<string[]> {
  const found = await Promise.all(
    cgroups.hierarchies.map((hierarchy) =>
      readdir(`${hierarchy}${path}`).then(
        () => true,
        () => false,
      ),
    ),
  );
  return cgroups.hierarchies.filter((_, at) => found[at]);
}

async function removeTree(dir: string): Promise<boolean> {
  const entries = await readdir(dir, { withFileTypes: true }).catch(() => null);
  if (entries === null) return true;
  for (const entry of entries) if (entry.isDirectory()) await removeTree(`${dir}/${entry.name}`);
  return rmdir(dir).then(
    () => true,
    (error: NodeJS.ErrnoException) => error.code === 'ENOENT',
  );
}

/** Removes a cgroup and all below it in every hierarchy, killing what is left in them. */
export async function removeCgroup(cgroups: Cgroups, path: string): Promise<void> {
  for (const hierarchy of cgroups.hierarchies) {
    const deadline = performance.now() + REMOVE_MS;
    while (!(await removeTree(`${hierarchy}${path}`))) {
      if (performance.now() > deadline)
        throw new OpError('failed', `removing the cgroup ${hierarchy}${path}`, 'processes stay in it', { advice: `look at ${hierarchy}${path}/cgroup.procs` });
      await killAll(`${hierarchy}${path}`);
      await delay(20);
    }
  }
  if (cgroups.version === 2) await takeBackOutside(cgroups.root);
}

/** Once no set is left in a container, its processes stand where they stood before the first. */
async function takeBackOutside(root: string): Promise<void> {
  const names = (await readdir(root)).filter((name) => name.startsWith('nodelet-'));
  if (names.length !== 1 || names[0] !== OUTSIDE.slice(1)) return;
  const handedOn = (await readFile(`${root}/cgroup.subtree_control`, 'utf8')).split(/\s+/).filter((name) => name !== '');
  try {
    await writeFile(`${root}/cgroup.subtree_control`, handedOn.map((name) => `-${name}`).join(' '));
    await moveAll(`${root}${OUTSIDE}`, root);
    await rmdir(`${root}${OUTSIDE}`);
  } catch {
    // Somebody else hands controllers on by now: then they stay where they are, which takes nothing from anybody.
  }
}

async function killAll(dir: string): Promise<void> {
  for (const pid of await procsOf(dir)) {
    try {
      process.kill(Number(pid), 'SIGKILL');
    } catch {
      // It ended between the reading and the signal.
    }
  }
  for (const entry of await readdir(dir, { withFileTypes: true }).catch(() => [])) if (entry.isDirectory()) await killAll(`${dir}/${entry.name}`);
}
