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
  /** A command in the node; non-zero is an error. */
  inside(argv: readonly string[], options?: { input?: string; timeoutMs?: number }): Promise<string>;
  /** As `inside`; non-zero is an ordinary result. */
  ask(argv: readonly string[], options?: { input?: string; timeoutMs?: number }): Promise<ExecResult>;
  /** kubectl with the cluster's administrator's rights, in a control plane's container. */
  kubectl(args: readonly string[], options?: { input?: string; timeoutMs?: number }): Promise<string>;
}

/** The variables of an environment that are set. */
export const setOf = (env: Readonly<Record<string, string | undefined>>): Record<string, string> =>
  Object.fromEntries(Object.entries(env).filter((entry): entry is [string, string] => entry[1] !== undefined));

const CALL_MS = 120_000;
const CLUSTER_LABEL = 'io.x-k8s.kind.cluster';
const ROLE_LABEL = 'io.x-k8s.kind.role';

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
  const enter = (container: string, argv: readonly string[], options: { input?: string; timeoutMs?: number } = {}): Promise<ExecResult> =>
    docker(engine, ['exec', ...(options.input === undefined ? [] : ['-i']), container, ...argv], options);
  return {
    node,
    cluster: found.cluster,
    role: found.role,
    controlPlane,
    engine,
    ask: (argv, options) => enter(node, argv, options),
    inside: async (argv, options) => wholeOf(await enter(node, argv, options), `${argv[0] ?? ''} in ${node}`),
    kubectl: async (args, options) =>
      wholeOf(await enter(controlPlane, ['kubectl', '--kubeconfig=/etc/kubernetes/admin.conf', ...args], options), `kubectl ${args.slice(0, 2).join(' ')}`),
  };
}

function wholeOf(result: ExecResult, doing: string): string {
  if (result.code === 0) return result.stdout;
  const last = (result.stderr.trim() === '' ? result.stdout : result.stderr).trim().split('\n').at(-1);
  throw new OpError('failed', doing, last ?? `ended with ${result.code}`);
}

async function listNodes(engine: Engine): Promise<{ name: string; cluster: string; role: string }[]> {
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

/** Copies a file of this machine into the node, whole or not at all, and executable. */
export async function copyIn(place: Place, from: string, to: string): Promise<void> {
  await place.inside(['mkdir', '-p', to.slice(0, to.lastIndexOf('/'))]);
  await exec(['docker', 'cp', from, `${place.node}:${to}.new`], {
    env: place.engine.env,
    signal: place.engine.signal,
    doing: `copying into ${place.node}`,
    timeoutMs: CALL_MS * 5,
  });
  await place.inside(['sh', '-ec', 'chown 0:0 "$0.new"; chmod 0755 "$0.new"; mv "$0.new" "$0"', to]);
}

/** Writes a small file in the node, whole or not at all. */
export async function writeIn(place: Place, path: string, text: string, mode = '0644'): Promise<void> {
  await place.inside(['sh', '-ec', 'umask 077; mkdir -p -m 0755 "$(dirname "$0")"; cat >"$0.new"; chmod "$1" "$0.new"; mv "$0.new" "$0"', path, mode], {
    input: text,
  });
}
