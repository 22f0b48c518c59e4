import { exec } from '../../base/exec.ts';
import { OpError } from '../../base/errors.ts';
import { findPlace, nodesOf, type Place } from '../../scripts/kind/place.ts';
import type { Viewpoint } from './clients.ts';
import { NAMESPACE } from './pods.ts';

const SERVICE = 'web';

/**
 * Where clients stand: on this machine, at each node's NodePort; in the network of another worker and in that of a pod
 * there, at the ClusterIP. None of them stands on the node under test.
 */
export async function viewpointsOf(place: Place): Promise<Viewpoint[]> {
  const service = JSON.parse(await place.kubectl(['get', 'service', SERVICE, `--namespace=${NAMESPACE}`, '--output=json'])) as {
    spec: { clusterIP: string; ports: { port: number; nodePort: number }[] };
  };
  const port = service.spec.ports[0] ?? { port: 0, nodePort: 0 };
  const inside = `http://${service.spec.clusterIP}:${port.port}/hostname`;
  const nodes = await nodesOf(place.engine, place.cluster);
  const other = nodes.find(({ name, role }) => name !== place.node && role === 'worker') ?? nodes.find(({ name }) => name !== place.node);
  if (other === undefined) throw new OpError('unsupported', 'placing clients', `${place.node} is the only node, and clients stand outside it`);
  const there = await findPlace(place.engine, other.name);
  const pid = await initPidOf(there);
  const byNode: Record<string, string> = {};
  for (const { name } of nodes) byNode[`NodePort of ${name}`] = `http://${await addressOf(place, name)}:${port.nodePort}/hostname`;
  return [
    { name: 'this machine', netns: null, urls: byNode },
    { name: there.node, netns: `/proc/${pid}/ns/net`, urls: { ClusterIP: inside } },
    { name: `a pod on ${there.node}`, netns: `/proc/${pid}/root${await podNetworkOf(there)}`, urls: { ClusterIP: inside } },
  ];
}

async function addressOf(place: Place, node: string): Promise<string> {
  const path = '--output=jsonpath={.status.addresses[?(@.type=="InternalIP")].address}';
  const [first = ''] = (await place.kubectl(['get', 'node', node, path])).trim().split(' ');
  return first.includes(':') ? `[${first}]` : first;
}

/** The node container's first process, as this machine numbers it. */
export async function initPidOf({ engine, node }: Place): Promise<number> {
  const { stdout } = await exec(['docker', 'inspect', '--format', '{{.State.Pid}}', node], {
    env: engine.env,
    signal: engine.signal,
    doing: `looking at ${node}`,
  });
  return Number(stdout.trim());
}

/** The network namespace of a pod of the workload there, as a path in the node. */
async function podNetworkOf(there: Place): Promise<string> {
  const list = await there.inside(['crictl', 'pods', `--namespace=${NAMESPACE}`, '--state=Ready', '--quiet']);
  const [id = ''] = list.trim().split('\n');
  if (id === '') throw new OpError('not-found', 'placing clients', `no pod of ${NAMESPACE} runs on ${there.node}`);
  const { info } = JSON.parse(await there.inside(['crictl', 'inspectp', id])) as {
    info: { runtimeSpec: { linux: { namespaces: { type: string; path?: string }[] } } };
  };
  const path = info.runtimeSpec.linux.namespaces.find(({ type }) => type === 'network')?.path;
  if (path === undefined) throw new OpError('unsupported', 'placing clients', `the pod ${id} on ${there.node} tells no network namespace`);
  // A link to /run, which another process’s root would not follow.
  return path.replace(/^\/var\/run\//, '/run/');
}
