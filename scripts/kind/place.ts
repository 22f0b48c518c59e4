import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { realClock, type Clock } from '../../base/clock.ts';
import { exec, tryExec, type ExecResult } from '../../base/exec.ts';
import { OpError } from '../../base/errors.ts';

/** How this machine reaches its container engine. */
export interface Engine {
  readonly env: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}

/** A node container of a kind cluster, and the way to its API server. */
export interface Place {
  readonly node: string;
  readonly cluster: string;
  readonly role: string;
  readonly controlPlane: string;
  readonly engine: Engine;
  readonly clock: Clock;
  /** A command in the node; non-zero is an error. */
  inside(argv: readonly string[], options?: { input?: string; timeoutMs?: number }): Promise<string>;
  /** As `inside`; non-zero is an ordinary result. */
  ask(argv: readonly string[], options?: { input?: string; timeoutMs?: number }): Promise<ExecResult>;
  /** kubectl with the cluster's administrator's rights, in a control plane's container. */
  kubectl(args: readonly string[], options?: { input?: string; timeoutMs?: number }): Promise<string>;
  /** Copies a file of this machine into the node, whole or not at all, and executable. */
  copy(from: string, to: string): Promise<void>;
  /** Writes a small file in the node, whole or not at all. */
  write(path: string, text: string, mode?: string): Promise<void>;
  /** Tells each version of the node's status, as JSON in a line; `onEnd` when no more can come. */
  watch(onStatus: (line: string) => void, onEnd: () => void): AsyncDisposable;
  /** The same place for what has to be done although the caller was stopped, such as taking something back. */
  unstoppable(): Place;
}

/** The variables of an environment that are set. */
export const setOf = (env: Readonly<Record<string, string | undefined>>): Record<string, string> =>
  Object.fromEntries(Object.entries(env).filter((entry): entry is [string, string] => entry[1] !== undefined));

const CALL_MS = 120_000;
const UNSTOPPABLE_MS = 600_000;
const CLUSTER_LABEL = 'io.x-k8s.kind.cluster';
const ROLE_LABEL = 'io.x-k8s.kind.role';
const KUBECTL = ['kubectl', '--kubeconfig=/etc/kubernetes/admin.conf'] as const;
const WATCH_END_MS = 5_000;

const docker = (engine: Engine, args: readonly string[], options: { input?: string; timeoutMs?: number } = {}): Promise<ExecResult> =>
  tryExec(['docker', ...args], { env: engine.env, signal: engine.signal, timeoutMs: CALL_MS, doing: 'asking Docker', ...options });

/** Finds a node by its container's name. Throws OpError `not-found` or `unsupported` with what is there instead. */
export async function findPlace(engine: Engine, node: string): Promise<Place> {
  const doing = `finding the node ${node}`;
  if (!/^[a-z0-9][a-z0-9_.-]*$/i.test(node)) throw new OpError('invalid', doing, 'that is no name of a container');
  const nodes = await listNodes(engine);
  const found = nodes.find(({ name }) => name === node);
  if (found === undefined) {
    const running = nodes.map(({ name }) => name).join(', ');
    throw new OpError('not-found', doing, running === '' ? 'no node of a kind cluster runs in this engine' : `the nodes that run are ${running}`);
  }
  const controlPlane = nodes.find(({ cluster, role }) => cluster === found.cluster && role === 'control-plane')?.name;
  if (controlPlane === undefined) throw new OpError('unavailable', doing, `no control plane of the cluster "${found.cluster}" runs`);
  return placeAt({ node, cluster: found.cluster, role: found.role, controlPlane }, engine);
}

function placeAt(names: Pick<Place, 'node' | 'cluster' | 'role' | 'controlPlane'>, engine: Engine): Place {
  const { node, controlPlane } = names;
  const enter = (container: string, argv: readonly string[], options: { input?: string; timeoutMs?: number } = {}): Promise<ExecResult> =>
    docker(engine, ['exec', ...(options.input === undefined ? [] : ['-i']), container, ...argv], options);
  const place: Place = {
    ...names,
    engine,
    clock: realClock,
    ask: (argv, options) => enter(node, argv, options),
    inside: async (argv, options) => wholeOf(await enter(node, argv, options), `${argv[0] ?? ''} in ${node}`),
    kubectl: async (args, options) => wholeOf(await enter(controlPlane, [...KUBECTL, ...args], options), `kubectl ${args.slice(0, 2).join(' ')}`),
    copy: async (from, to) => {
      await place.inside(['mkdir', '-p', to.slice(0, to.lastIndexOf('/'))]);
      await exec(['docker', 'cp', from, `${node}:${to}.new`], {
        env: engine.env,
        signal: engine.signal,
        doing: `copying into ${node}`,
        timeoutMs: CALL_MS * 5,
      });
      await place.inside(['sh', '-ec', 'chown 0:0 "$0.new"; chmod 0755 "$0.new"; mv "$0.new" "$0"', to]);
    },
    write: async (path, text, mode = '0644') => {
      const line = 'umask 077; mkdir -p -m 0755 "$(dirname "$0")"; cat >"$0.new"; chmod "$1" "$0.new"; mv "$0.new" "$0"';
      await place.inside(['sh', '-ec', line, path, mode], { input: text });
    },
    watch: (onStatus, onEnd) => watchNode(place, onStatus, onEnd),
    unstoppable: () => placeAt(names, { env: engine.env, signal: AbortSignal.timeout(UNSTOPPABLE_MS) }),
  };
  return place;
}

/** A program in a container outlives the client that started it: this one ends with its standard input. */
const WATCH = 'exec 3<&0; "$@" 3<&- </dev/null & k=$!; (cat <&3; kill $k) >/dev/null 2>&1 & exec 3<&-; wait $k';

function watchNode({ node, controlPlane, engine }: Place, onStatus: (line: string) => void, onEnd: () => void): AsyncDisposable {
  const argv = [...KUBECTL, 'get', 'node', node, '--watch', '--output=jsonpath={.status}{"\\n"}'];
  const child = spawn('docker', ['exec', '-i', controlPlane, 'sh', '-c', WATCH, 'sh', ...argv], { env: { ...engine.env }, stdio: ['pipe', 'pipe', 'ignore'] });
  const ended = new Promise<void>((resolve) => {
    child.once('error', () => resolve());
    child.once('close', () => resolve());
  });
  void ended.then(onEnd);
  child.stdin.on('error', () => undefined);
  createInterface({ input: child.stdout }).on('line', onStatus);
  return {
    async [Symbol.asyncDispose]() {
      child.stdin.end();
      const late = setTimeout(() => child.kill('SIGKILL'), WATCH_END_MS);
      await ended;
      clearTimeout(late);
    },
  };
}

function wholeOf(result: ExecResult, doing: string): string {
  if (result.code === 0) return result.stdout;
  const last = (result.stderr.trim() === '' ? result.stdout : result.stderr).trim().split('\n').at(-1);
  throw new OpError('failed', doing, last ?? `ended with ${result.code}`);
}

interface NodeContainer {
  readonly name: string;
  readonly cluster: string;
  readonly role: string;
}

/** The node containers of a cluster that run. */
export const nodesOf = async (engine: Engine, cluster: string): Promise<NodeContainer[]> =>
  (await listNodes(engine)).filter((node) => node.cluster === cluster);

async function listNodes(engine: Engine): Promise<NodeContainer[]> {
  const format = `{{.Names}} {{.Label "${CLUSTER_LABEL}"}} {{.Label "${ROLE_LABEL}"}}`;
  const { stdout } = await exec(['docker', 'ps', '--filter', `label=${CLUSTER_LABEL}`, '--format', format], {
    env: engine.env,
    signal: engine.signal,
    timeoutMs: CALL_MS,
    doing: 'asking Docker for nodes',
    advice: 'does Docker Engine run here, and may you use it? docker ps',
  });
  return stdout
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => {
      const [name = '', cluster = '', role = ''] = line.split(' ');
      return { name, cluster, role };
    });
}
