import { readdir, readFile } from 'node:fs/promises';
import { lstatSync } from 'node:fs';
import { posix } from 'node:path';
import { hasCode, OpError } from '../../base/errors.ts';
import { tryExec } from '../../base/exec.ts';
import { findKubelets, readKubelet, rootOf, type Kubelet } from './find-kubelet.ts';
import { ancestorsOf, namespaceOf, processOf, type ProcessName } from './processes.ts';
import { resolveIn } from './resolve-in.ts';
import { socketPath } from './socket-path.ts';

/** Which kubelet and runtime are meant; nothing said means: the only ones. */
export interface Where {
  /** The runtime's socket, as the node sees it. */
  readonly socket?: string | undefined;
  /** The kubelet's process. */
  readonly pid?: number | undefined;
  /** A kind node: a container of docker, podman or nerdctl. */
  readonly kind?: string | undefined;
  /** A node of a set of ours. */
  readonly node?: string | undefined;
  readonly set?: string | undefined;
}

/** Where the runtime's socket is, and who calls there. */
export interface Place {
  /** Its folder as this process reaches it. */
  readonly folder: string;
  readonly name: string;
  /** Its path as the node sees it, links followed. */
  readonly socket: string;
  /** For a person: "this machine", "kind node …". */
  readonly words: string;
  readonly kubelet: Kubelet | null;
  /** The node’s first process, with which its files go; null for this machine. */
  readonly first: ProcessName | null;
}

const ENGINES = ['docker', 'podman', 'nerdctl'];
/** Where runtimes listen by themselves. */
const USUAL = ['/run/containerd/containerd.sock', '/run/crio/crio.sock', '/run/cri-dockerd.sock', '/run/k3s/containerd/containerd.sock'];

async function kindNode(name: string, signal: AbortSignal): Promise<number> {
  const doing = `looking for the kind node ${name}`;
  const said: string[] = [];
  for (const engine of ENGINES) {
    try {
      const { code, stdout, stderr } = await tryExec([engine, 'inspect', '--format', '{{.State.Pid}}', name], { doing, signal, timeoutMs: 20_000 });
      const pid = Number(stdout.trim());
      if (code === 0 && pid > 0) return pid;
      said.push(`${engine}: ${code === 0 ? 'it does not run' : (stderr.trim().split('\n').at(-1) ?? `ended with ${code}`)}`);
    } catch (error) {
      if (!hasCode(error, 'not-found')) throw error;
    }
  }
  throw new OpError('not-found', doing, said.length === 0 ? `none of ${ENGINES.join(', ')} is installed` : said.join('; '), {
    advice: 'kind get nodes lists them',
  });
}

/** The first process of a node of ours: `init.pid` in the node's folder names it. */
async function ownNode(where: Where, stateHome: string): Promise<{ pid: number; words: string }> {
  const set = where.set ?? 'default';
  const doing = `looking for the node ${where.node ?? ''} of the set ${set}`;
  const nodes = await readdir(`${stateHome}/${set}/nodes`).catch(() => [] as string[]);
  const node = where.node ?? (nodes.length === 1 ? nodes[0] : undefined);
  if (node === undefined || !nodes.includes(node))
    throw new OpError('not-found', doing, nodes.length === 0 ? 'there is no such set' : 'there is no such node', {
      advice: nodes.length === 0 ? 'nodelet up starts one' : `--node is one of: ${nodes.join(', ')}`,
    });
  const [pid, ticks] = (await readFile(`${stateHome}/${set}/nodes/${node}/init.pid`, 'utf8').catch(() => '')).trim().split(' ');
  const first = await processOf(Number(pid));
  if (first === null || first.startTicks !== ticks) throw new OpError('unavailable', doing, 'it does not run', { advice: `nodelet up --name ${set}` });
  return { pid: first.pid, words: `node ${node} of the set ${set}` };
}

/** The outermost process that sees the same files: it outlives the kubelet. */
async function keeperOfFiles(pid: number): Promise<number> {
  const files = await namespaceOf(pid, 'mnt');
  const line = await ancestorsOf(pid);
  for (const one of line.toReversed()) if ((await namespaceOf(one.pid, 'mnt')) === files) return one.pid;
  return pid;
}

interface Scope {
  /** A process whose files are meant; null for ours. */
  readonly first: number | null;
  readonly kubelets: readonly number[];
  readonly words: string;
}

async function scopeOf(where: Where, stateHome: string, signal: AbortSignal): Promise<Scope> {
  if (where.pid !== undefined) return { first: await keeperOfFiles(where.pid), kubelets: [where.pid], words: `process ${where.pid}` };
  if (where.kind !== undefined || where.node !== undefined || where.set !== undefined) {
    const own = where.kind === undefined ? await ownNode(where, stateHome) : { pid: await kindNode(where.kind, signal), words: `kind node ${where.kind}` };
    const inside = await namespaceOf(own.pid, 'pid');
    return { first: own.pid, kubelets: await findKubelets(async (pid) => (await namespaceOf(pid, 'pid')) === inside), words: own.words };
  }
  const ours = await namespaceOf('self', 'mnt');
  const here = await findKubelets(async (pid) => (await namespaceOf(pid, 'mnt')) === ours);
  if (here.length > 0 || where.socket !== undefined) return { first: null, kubelets: here, words: 'this machine' };
  const elsewhere = await findKubelets(() => Promise.resolve(true));
  const [only] = elsewhere;
  if (only === undefined) return { first: null, kubelets: [], words: 'this machine' };
  return { first: await keeperOfFiles(only), kubelets: elsewhere, words: `process ${only}, in namespaces of its own` };
}

async function isSocket(path: string): Promise<boolean> {
  return lstatSync(path, { throwIfNoEntry: false })?.isSocket() === true;
}

async function usualSocket(root: string): Promise<string> {
  const found: string[] = [];
  for (const path of USUAL) if (await isSocket(root + (await resolveIn(root, path)))) found.push(path);
  const [only] = found;
  if (only !== undefined && found.length === 1) return only;
  throw new OpError(
    'not-found',
    'looking for the runtime',
    found.length === 0 ? 'no kubelet runs, and no runtime listens at a usual place' : `no kubelet runs, and there are ${found.join(', ')}`,
    {
      advice: 'name the runtime’s socket with --socket',
    },
  );
}

/**
 * Finds the runtime's socket by what its kubelet was told, and the kubelet; through /proc also in other mount namespaces.
 * Throws OpError `not-found` when there is none, `invalid` when there are several and nothing says which.
 */
export async function findPlace(where: Where, stateHome: string, signal: AbortSignal): Promise<Place> {
  const scope = await scopeOf(where, stateHome, signal);
  const kubelets = await Promise.all(scope.kubelets.map(async (pid) => readKubelet(pid)));
  const root = scope.first === null ? '' : await rootOf(scope.first);
  const resolved = async (endpoint: string): Promise<string> => resolveIn(root, socketPath(endpoint));
  const given = where.socket === undefined ? null : await resolved(where.socket);
  const callers: Kubelet[] = [];
  for (const one of kubelets) if (given === null || (await resolved(one.endpoints.runtime)) === given) callers.push(one);
  if (callers.length > 1)
    throw new OpError('invalid', 'looking for the kubelet', `there are several: processes ${callers.map((one) => one.process.pid).join(', ')}`, {
      advice: 'say which: --pid PID, --kind NODE, or --node NODE --name SET',
    });
  const kubelet = callers[0] ?? null;
  const socket = given ?? (await resolved(kubelet?.endpoints.runtime ?? (await usualSocket(root))));
  if (!(await isSocket(root + socket)))
    throw new OpError('not-found', `looking for the runtime of ${scope.words}`, `there is no socket at ${socket}`, {
      advice: 'does the runtime run? name another socket with --socket',
    });
  return {
    folder: root + posix.dirname(socket),
    name: posix.basename(socket),
    socket,
    words: scope.words,
    kubelet,
    first: root === '' || scope.first === null ? null : await processOf(scope.first),
  };
}
