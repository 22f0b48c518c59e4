import { mkdir, writeFile } from 'node:fs/promises';
import { OpError } from '../../base/errors.ts';
import { exec, tryExec } from '../../base/exec.ts';
import { nodesOf, type Engine, type Place } from '../../scripts/kind/place.ts';
import type { Assets } from '../assets/find.ts';
import type { Cluster } from '../conformance/cluster.ts';

type Side = Cluster['side'];

interface NodeObject {
  readonly metadata: { readonly name: string };
  readonly spec: { readonly unschedulable?: boolean; readonly taints?: readonly { readonly key: string }[] };
  readonly status: { readonly nodeInfo: Readonly<Record<string, string>> };
}

const KUBECTL_MS = 60_000;
export const sideOf = (kubeletVersion: string): Side => (kubeletVersion.includes('+nodelet') ? 'ours' : 'upstream');

/** All nodes of the place's cluster. */
export async function nodeObjects(place: Place): Promise<readonly NodeObject[]> {
  return (JSON.parse(await place.kubectl(['get', 'nodes', '--output=json'])) as { items: NodeObject[] }).items;
}

/** Writes the kubeconfig with which this machine reaches the cluster. Returns its path. */
export async function kubeconfigOf(assets: Assets, { env, signal }: Engine, cluster: string, folder: string): Promise<string> {
  const kind = assets.require('kind', 'asking for the kubeconfig');
  const { stdout } = await exec([kind, 'get', 'kubeconfig', '--name', cluster], { env, signal, timeoutMs: KUBECTL_MS });
  await mkdir(folder, { recursive: true });
  const path = `${folder}/kubeconfig`;
  await writeFile(path, stdout, { mode: 0o600 });
  return path;
}

/** A kind cluster as Kubernetes' suites see one: `nodes` are those on which specs may land. */
export async function openKindCluster(place: Place, assets: Assets, folder: string, tested: readonly string[]): Promise<Cluster> {
  const { engine, cluster } = place;
  const kubeconfig = await kubeconfigOf(assets, engine, cluster, folder);
  const program = assets.require('kubectl', 'running Kubernetes’ e2e suites');
  const argv = (args: readonly string[]): [string, ...string[]] => [program, `--kubeconfig=${kubeconfig}`, ...args];
  const kubectl: Cluster['kubectl'] = async (args, { timeoutMs = KUBECTL_MS } = {}) => (await exec(argv(args), { timeoutMs, signal: engine.signal })).stdout;
  const tryKubectl: Cluster['tryKubectl'] = (args, { timeoutMs = KUBECTL_MS } = {}) =>
    tryExec(argv(args), { timeoutMs }).then(
      ({ code, stdout, stderr }) => (code === 0 ? stdout : stderr),
      () => '',
    );
  const objects = (await nodeObjects(place)).filter(({ metadata }) => tested.includes(metadata.name));
  const versions = [...new Set(objects.map(({ status }) => status.nodeInfo['kubeletVersion'] ?? ''))];
  const sides = [...new Set(versions.map(sideOf))];
  const [side] = sides;
  if (side === undefined || sides.length > 1)
    throw new OpError('invalid', `judging ${tested.join(', ')}`, `their kubelets are ${versions.join(' and ')}`, { advice: 'name one node with --node' });
  const info = objects[0]?.status.nodeInfo ?? {};
  const proxies = await Promise.all(tested.map((node) => proxyOf(place, node)));
  return {
    name: cluster,
    state: folder,
    kubeconfig,
    side,
    nodes: tested,
    versions: {
      kubernetes: (JSON.parse(await kubectl(['version', '-o', 'json'])) as { serverVersion?: { gitVersion?: string } }).serverVersion?.gitVersion ?? '',
      agent: `${side} ${versions.join(' ')}, kind`,
      proxy: [...new Set(proxies)].join(' '),
      containerd: (info['containerRuntimeVersion'] ?? '').replace('containerd://', ''),
      kernel: info['kernelVersion'] ?? '',
    },
    kubectl,
    tryKubectl,
    isReady: async () => (await tryKubectl(['get', '--raw=/readyz', '--request-timeout=20s'])).trim() === 'ok',
  };
}

async function proxyOf(place: Place, node: string): Promise<string> {
  const mode = (await place.kubectl(['get', 'node', node, '--output=jsonpath={.metadata.labels.nodelet\\.dev/proxy}'])).trim();
  return mode === '' ? 'upstream' : mode;
}

/** Keeps every other node from new pods until it is disposed. */
export async function onlyOn(place: Place, node: string): Promise<AsyncDisposable> {
  const names = new Set((await nodesOf(place.engine, place.cluster)).map(({ name }) => name));
  const others = (await nodeObjects(place)).filter(
    ({ metadata, spec }) => names.has(metadata.name) && metadata.name !== node && spec.unschedulable !== true && (spec.taints ?? []).length === 0,
  );
  await using scope = new AsyncDisposableStack();
  for (const { metadata } of others) {
    await place.kubectl(['cordon', metadata.name]);
    // Taken at the end: its time is short, and a run is long.
    scope.defer(async () => void (await place.unstoppable().kubectl(['uncordon', metadata.name])));
  }
  return scope.move();
}
