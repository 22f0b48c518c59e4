import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { OpError } from '../../base/errors.ts';
import { exec } from '../../base/exec.ts';
import { eventually } from '../eventually.ts';
import { findPlace, type Engine, type Place } from '../../scripts/kind/place.ts';
import type { CriContainer, CriSandbox, Seen, Told, Watched } from './walk-facts.ts';

/** A kind cluster whose nodes may come and go. */
export interface Cluster {
  readonly name: string;
  readonly control: Place;
  readonly workers: readonly string[];
  readonly engine: Engine;
  at(node: string): Place;
  docker(args: readonly [string, ...string[]], timeoutMs?: number): Promise<string>;
  /** kubectl as the administrator; its trimmed output. */
  k(args: readonly string[], input?: string): Promise<string>;
  list(args: readonly string[]): Promise<readonly Seen[]>;
  get(args: readonly string[]): Promise<Seen>;
}

const DOCKER_MS = 180_000;
const LABEL = 'io.x-k8s.kind';

/** Finds a cluster by its name. Throws OpError `not-found` when its control plane does not run. */
export async function openCluster(engine: Engine, name: string): Promise<Cluster> {
  const docker: Cluster['docker'] = async (args, timeoutMs = DOCKER_MS) =>
    (await exec(['docker', ...args], { env: engine.env, signal: engine.signal, timeoutMs, doing: `docker ${args[0]}` })).stdout.trim();
  const format = `{{.Names}} {{.Label "${LABEL}.role"}}`;
  const lines = (await docker(['ps', '--filter', `label=${LABEL}.cluster=${name}`, '--format', format])).split('\n').filter((line) => line !== '');
  const nodes = lines.map((line) => line.split(' ')).map(([node = '', role = '']) => ({ node, role }));
  if (nodes.length === 0)
    throw new OpError('not-found', `finding the cluster ${name}`, 'none of its nodes runs', { advice: 'make one with: nodelet kind up --workers 2' });
  const places = new Map<string, Place>();
  for (const { node } of nodes) places.set(node, await findPlace(engine, node));
  const at = (node: string): Place => {
    const place = places.get(node);
    if (place === undefined) throw new OpError('not-found', 'looking for a node', `${node} is none of ${[...places.keys()].join(', ')}`);
    return place;
  };
  const control = at(nodes.find(({ role }) => role === 'control-plane')?.node ?? '');
  const workers = nodes.filter(({ role }) => role === 'worker').map(({ node }) => node);
  const k: Cluster['k'] = async (args, input) => (await control.kubectl(args, input === undefined ? {} : { input })).trim();
  return {
    name,
    control,
    workers: workers.toSorted(),
    engine,
    at,
    docker,
    k,
    list: async (args) => (JSON.parse(await k(['get', ...args, '--output=json'])) as { items: Seen[] }).items,
    get: async (args) => JSON.parse(await k(['get', ...args, '--output=json'])) as Seen,
  };
}

/** `eventually`, for as long as the cluster is worked on. */
export function awaited<T>(cluster: Cluster, what: string, timeoutMs: number, look: () => Promise<T | null>, everyMs = 500): Promise<T> {
  return eventually(what, timeoutMs, look, { everyMs, signal: cluster.engine.signal });
}

export async function rolledOut(cluster: Cluster, namespace: string, what: string): Promise<void> {
  await cluster.k(['--namespace', namespace, 'rollout', 'status', what, '--timeout=180s']);
}

export const nodeReady = async (cluster: Cluster, node: string): Promise<boolean> =>
  (await cluster.k(['get', 'node', node, '--output=jsonpath={.status.conditions[?(@.type=="Ready")].status}'])) === 'True';

export async function sandboxesOf(place: Place): Promise<CriSandbox[]> {
  return (JSON.parse(await place.inside(['crictl', 'pods', '--output=json'])) as { items?: CriSandbox[] }).items ?? [];
}

export async function containersOf(place: Place): Promise<CriContainer[]> {
  return (JSON.parse(await place.inside(['crictl', 'ps', '--all', '--output=json'])) as { containers?: CriContainer[] }).containers ?? [];
}

/** A program in a container outlives the client that started it: this one ends with its standard input. */
const TIED = 'exec 3<&0; "$@" 3<&- </dev/null & k=$!; (cat <&3; kill $k) >/dev/null 2>&1 & exec 3<&-; wait $k';
const HOUR_S = 3_600;
const PAUSE_MS = 20;
const END_MS = 5_000;

/** Watches of a cluster, each event with the moment at which it came. */
export class Recorder implements AsyncDisposable {
  readonly told: Told[] = [];
  readonly #cluster: Cluster;
  readonly #children: { end: () => void; ended: Promise<void> }[];
  #isOver = false;

  constructor(cluster: Cluster, paths: Readonly<Partial<Record<Watched, string>>>) {
    this.#cluster = cluster;
    this.#children = (Object.entries(paths) as [Watched, string][]).map(([kind, path]) => this.#watch(kind, path));
  }

  #watch(kind: Watched, path: string): { end: () => void; ended: Promise<void> } {
    const { control, engine } = this.#cluster;
    const kubectl = ['kubectl', '--kubeconfig=/etc/kubernetes/admin.conf', 'get', '--raw', `${path}?watch=1&timeoutSeconds=${HOUR_S}`];
    const argv = ['exec', '-i', control.node, 'sh', '-c', TIED, 'sh', ...kubectl];
    const child = spawn('docker', argv, { env: { ...engine.env }, stdio: ['pipe', 'pipe', 'ignore'] });
    const ended = new Promise<void>((resolve) => {
      child.once('error', () => resolve());
      child.once('close', () => resolve());
    });
    void ended.then(() => (this.#isOver = true));
    child.stdin.on('error', () => undefined);
    createInterface({ input: child.stdout }).on('line', (line) => {
      const atMs = Date.now();
      const { type, object } = JSON.parse(line) as { type: string; object: Seen };
      this.told.push({ atMs, kind, type, object });
    });
    return {
      ended,
      end: () => {
        child.stdin.end();
        const late = setTimeout(() => child.kill('SIGKILL'), END_MS);
        void ended.then(() => clearTimeout(late));
      },
    };
  }

  /** Waits until the record has what `find` looks for. */
  async until<T>(what: string, timeoutMs: number, find: (told: readonly Told[]) => T | null): Promise<T> {
    const end = performance.now() + timeoutMs;
    for (;;) {
      const found = find(this.told);
      if (found !== null) return found;
      if (this.#isOver) throw new OpError('unavailable', `waiting until ${what}`, 'a watch of the API ended');
      if (performance.now() > end) throw new OpError('deadline', `waiting until ${what}`, `not in ${timeoutMs / 1000} s`);
      await delay(PAUSE_MS, undefined, { signal: this.#cluster.engine.signal });
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const child of this.#children) child.end();
    await Promise.all(this.#children.map(({ ended }) => ended));
  }
}
