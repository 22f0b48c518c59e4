import { readdir, readFile } from 'node:fs/promises';
import { basename, posix } from 'node:path';
import { OpError } from '../../base/errors.ts';
import { readYaml } from '../../base/yaml.ts';
import { endpointsOf, readCommandLine, readInitSpec, unitOf, type Endpoints, type KubeletWords } from '../core/kubelet-words.ts';
import { allProcesses, ancestorsOf, cgroupOf, commandLine, innerPid, namespaceOf, processOf, type ProcessName } from './processes.ts';
import { resolveIn } from './resolve-in.ts';

/** How a kubelet is started again by whoever keeps it. */
export type Keeper =
  /** systemd, in the namespaces of the process `systemd` (1 for the machine's own). */
  | { readonly kind: 'systemd'; readonly unit: string; readonly systemd: number }
  /** The first process of a node of ours, by its control socket. */
  | { readonly kind: 'init'; readonly service: string; readonly control: string };

export interface Kubelet {
  readonly process: ProcessName;
  readonly endpoints: Endpoints;
  /** Null when nobody is known to start it again. */
  readonly keeper: Keeper | null;
}

/** The root of a process’s files; empty where it is ours. */
export async function rootOf(pid: number): Promise<string> {
  return (await namespaceOf(pid, 'mnt')) === (await namespaceOf('self', 'mnt')) ? '' : `/proc/${pid}/root`;
}

async function documents(root: string, words: KubeletWords): Promise<{ path: string; document: unknown }[]> {
  const paths = words.config === undefined ? [] : [words.config];
  if (words.configFolder !== undefined) {
    const names = await readdir(root + (await resolveIn(root, words.configFolder))).catch(() => [] as string[]);
    paths.push(
      ...names
        .filter((name) => name.endsWith('.conf'))
        .toSorted()
        .map((name) => posix.join(words.configFolder ?? '', name)),
    );
  }
  const found: { path: string; document: unknown }[] = [];
  for (const path of paths) {
    try {
      found.push({ path, document: await readYaml(await readFile(root + (await resolveIn(root, path)), 'utf8'), path) });
    } catch (cause) {
      throw new OpError('invalid', `reading the kubelet’s ${path}`, 'it cannot be read', { cause, advice: 'name the runtime’s socket with --socket' });
    }
  }
  return found;
}

/** What a `sys init` above the process was told of the service that the process belongs to. */
async function initService(pid: number): Promise<{ argv: readonly string[]; keeper: Keeper } | null> {
  const line = [{ pid, comm: '' }, ...(await ancestorsOf(pid))];
  const at = line.findIndex(({ comm }) => comm === 'sys-init');
  const [init, child] = [line[at], line[at - 1]];
  const path = init === undefined ? undefined : (await commandLine(init.pid)).at(-1);
  if (init === undefined || child === undefined || path === undefined) return null;
  const root = await rootOf(init.pid);
  const spec = readInitSpec(await readFile(root + path, 'utf8').catch(() => ''));
  const state = await readFile(`${root}${posix.dirname(path)}/init.state`, 'utf8').catch(() => '');
  const inner = String(await innerPid(child.pid));
  const service = state
    .split('\n')
    .map((row) => row.split(' '))
    .find((row) => row[1] === inner)?.[0];
  const argv = service === undefined ? undefined : spec.services.get(service);
  if (service === undefined || argv === undefined || spec.control === null) return null;
  return { argv, keeper: { kind: 'init', service, control: root + spec.control } };
}

async function systemdKeeper(pid: number): Promise<Keeper | null> {
  const unit = unitOf(await cgroupOf(pid));
  if (unit === null) return null;
  const namespace = await namespaceOf(pid, 'pid');
  const line = await ancestorsOf(pid);
  for (const one of line.toReversed()) {
    if (one.comm === 'systemd' && (await namespaceOf(one.pid, 'pid')) === namespace) return { kind: 'systemd', unit, systemd: one.pid };
  }
  return null;
}

/** A kubelet’s process, read: flags, configuration files, drop-ins, and who keeps it. Throws OpError `not-found`. */
export async function readKubelet(pid: number): Promise<Kubelet> {
  const process = await processOf(pid);
  if (process === null) throw new OpError('not-found', 'looking for the kubelet', `there is no process ${pid}`);
  const init = await initService(pid);
  // A daemon of ours writes its name over its command line; its first process knows what it was started with.
  const words = readCommandLine([...(init?.argv ?? []), ...(await commandLine(pid))]);
  return { process, endpoints: endpointsOf(words, await documents(await rootOf(pid), words)), keeper: init?.keeper ?? (await systemdKeeper(pid)) };
}

/** The kubelets among the processes that pass `where`. */
export async function findKubelets(where: (pid: number) => Promise<boolean>): Promise<number[]> {
  const found: number[] = [];
  for (const pid of await allProcesses()) {
    if (basename((await commandLine(pid))[0] ?? '') === 'kubelet' && (await processOf(pid)) !== null && (await where(pid))) found.push(pid);
  }
  return found;
}
