import { mkdir, readdir, readFile, rmdir, writeFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { OpError } from '../../base/errors.ts';
import type { Machine } from './machine.ts';

type Cgroups = NonNullable<Machine['cgroup']>;

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

async function enableControllers(root: string, path: string): Promise<void> {
  let at = root;
  for (const part of ['', ...path.split('/').filter((name) => name !== '')]) {
    if (part !== '') at = `${at}/${part}`;
    const available = (await readFile(`${at}/cgroup.controllers`, 'utf8')).split(/\s+/).filter((name) => name !== '');
    for (const name of available) {
      await writeFile(`${at}/cgroup.subtree_control`, `+${name}`).catch((cause: unknown) => {
        throw new OpError('denied', `enabling the cgroup controller ${name} in ${at}`, 'the kernel refused', {
          cause,
          advice: 'run where this cgroup is delegated, as a privileged container or on the machine itself',
        });
      });
    }
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
    await mkdir(leaf, { recursive: true });
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
    for (let attempt = 0; !(await removeTree(`${hierarchy}${path}`)); attempt += 1) {
      if (attempt >= 100)
        throw new OpError('failed', `removing the cgroup ${hierarchy}${path}`, 'processes stay in it', { advice: `look at ${hierarchy}${path}/cgroup.procs` });
      await killAll(`${hierarchy}${path}`);
      await delay(20);
    }
  }
}

async function killAll(dir: string): Promise<void> {
  const pids = (await readFile(`${dir}/cgroup.procs`, 'utf8').catch(() => '')).split('\n').filter((line) => line !== '' && line !== '0');
  for (const pid of pids) {
    try {
      process.kill(Number(pid), 'SIGKILL');
    } catch {
      // It ended between the reading and the signal.
    }
  }
  for (const entry of await readdir(dir, { withFileTypes: true }).catch(() => [])) if (entry.isDirectory()) await killAll(`${dir}/${entry.name}`);
}
