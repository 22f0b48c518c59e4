import { setTimeout as delay } from 'node:timers/promises';
import type { Saw, Steps } from './walk-steps.ts';
import { census, podOf, type Seen } from './walk-facts.ts';
import { staticPod } from './walk-manifests.ts';
import { awaited, containersOf, nodeReady, type Cluster } from './walk-world.ts';

const ETCD = ['--cacert=/etc/kubernetes/pki/etcd/ca.crt', '--cert=/etc/kubernetes/pki/etcd/server.crt', '--key=/etc/kubernetes/pki/etcd/server.key'];
const STATIC = ['etcd', 'kube-apiserver', 'kube-controller-manager', 'kube-scheduler'];
const NAMESPACES = ['default', 'kube-node-lease', 'kube-public', 'kube-system', 'local-path-storage'];
const MANIFESTS = '/etc/kubernetes/manifests';
const READY_MS = 120_000;
const RUNTIME_AWAY_MS = 6_000;

/** Steps 3.7 and 4.10 to 4.14: what a new cluster of kind is, node by node. Walked before anything is applied. */
export async function walkCluster(steps: Steps, cluster: Cluster): Promise<void> {
  await steps.step('3.7', 'the pod network’s files in each worker', async (saw) => {
    for (const node of cluster.workers) {
      const text = await cluster.at(node).inside(['sh', '-c', 'ls /etc/cni/net.d; echo --; ls /opt/cni/bin']);
      const [conf = [], bin = []] = text.split('--\n').map((part) => part.split('\n').filter((name) => name !== ''));
      saw.check(conf.length === 1 && /^10-.*\.conflist$/.test(conf[0] ?? ''), `${node}: one 10-….conflist: ${conf.join(' ')}`);
      saw.check(
        ['host-local', 'loopback', 'portmap', 'ptp'].every((name) => bin.includes(name)),
        `${node}: host-local, loopback, portmap, ptp among ${bin.join(' ')}`,
      );
    }
  });
  await steps.step('4.10', 'pods, namespaces and Leases of a new cluster', async (saw) => {
    const nodes = cluster.workers.length + 1;
    const pods = await awaited(cluster, 'all pods run', READY_MS, async () => {
      const all = await cluster.list(['pods', '--all-namespaces']);
      return all.every(({ status }) => status?.phase === 'Running') ? all : null;
    });
    const system = pods.filter(({ metadata }) => metadata.namespace === 'kube-system').length;
    const counted = census(pods);
    const expected = 4 + 2 * nodes + 3;
    saw.check(
      pods.length === expected,
      `${pods.length} pods (${expected} for ${nodes} nodes): ${counted.static} static, ${counted.daemons} of DaemonSets, ${counted.others} others`,
    );
    saw.check(
      counted.static === 4 && counted.daemons === 2 * nodes && counted.others === 3,
      '4 static, proxy and network on each node, 2 CoreDNS, 1 provisioner',
    );
    saw.check(system === expected - 1, `${system} of them in kube-system`);
    const namespaces = (await cluster.list(['namespaces'])).map(({ metadata }) => metadata.name).toSorted();
    saw.check(namespaces.join() === NAMESPACES.join(), `namespaces ${namespaces.join(', ')}`);
    const leases = (await cluster.list(['leases', '--namespace=kube-node-lease'])).map(({ metadata }) => metadata.name).toSorted();
    saw.check(leases.join() === [cluster.control.node, ...cluster.workers].toSorted().join(), `Leases ${leases.join(', ')}`);
  });
  await steps.step('4.11', 'static pods and their mirrors', async (saw) => {
    const files = (await cluster.control.inside(['ls', MANIFESTS])).trim().split('\n');
    saw.check(files.join() === STATIC.map((name) => `${name}.yaml`).join(), `${MANIFESTS}: ${files.join(' ')}`);
    const mirrors = (await cluster.list(['pods', '--namespace=kube-system'])).filter(({ metadata }) => metadata.annotations?.['kubernetes.io/config.mirror']);
    saw.check(
      STATIC.every((name) => mirrors.some(({ metadata }) => metadata.name === `${name}-${cluster.control.node}`)),
      `mirrors ${mirrors.map(({ metadata }) => metadata.name).join(', ')}`,
    );
    for (const node of cluster.workers) await mirrored(saw, cluster, node);
  });
  await steps.step('4.12', 'keys of etcd', async (saw) => {
    const keys = (await etcdctl(cluster, ['get', '/registry', '--prefix', '--keys-only'])).split('\n').filter((line) => line !== '');
    const nodes = keys.filter((key) => key.startsWith('/registry/minions/'));
    const size = (JSON.parse(await etcdctl(cluster, ['endpoint', 'status', '--write-out=json'])) as { Status: { dbSize: number } }[])[0]?.Status.dbSize ?? 0;
    saw.check(keys.length > 250 && keys.length < 700, `${keys.length} keys (408 in the document), ${(size / 1e6).toFixed(1)} MB (1.6 MB)`);
    saw.check(nodes.length === cluster.workers.length + 1, `nodes are ${nodes.join(' ')}`);
  });
  await steps.step('4.13', 'exec through the API server into a static pod', async (saw) => {
    const value = await etcdctl(cluster, ['get', '/registry/namespaces/default', '--print-value-only']);
    saw.check(value.startsWith('k8s'), `etcdctl in etcd-${cluster.control.node} reads /registry/namespaces/default: ${value.slice(0, 3)}…`);
  });
  await steps.step('4.14', 'kubelet and containerd are units, and the relist complains when the runtime is away', (saw) => units(saw, cluster));
}

async function etcdctl(cluster: Cluster, args: readonly string[]): Promise<string> {
  return cluster.k(['--namespace=kube-system', 'exec', `etcd-${cluster.control.node}`, '--', 'etcdctl', ...ETCD, ...args]);
}

/** A static pod on a worker: its mirror cannot be changed, comes back when it is deleted, and its container lives on. */
async function mirrored(saw: Saw, cluster: Cluster, node: string): Promise<void> {
  const place = cluster.at(node);
  const name = `walked-${node}`;
  const running = async (): Promise<Seen | null> => {
    const pod = await cluster.get(['pod', name, '--namespace=default']);
    return pod.status?.phase === 'Running' ? pod : null;
  };
  await place.write(`${MANIFESTS}/walked.yaml`, staticPod);
  try {
    const before = await awaited(cluster, `${name} runs`, READY_MS, running);
    const container = before.status?.containerStatuses?.[0]?.containerID ?? '';
    await cluster.k(['set', 'image', `pod/${name}`, 'pause=other:1', '--namespace=default']).catch(() => undefined);
    await cluster.k(['delete', 'pod', name, '--namespace=default', '--wait=false']);
    const after = await awaited(cluster, `${name} is mirrored again`, READY_MS, async () => {
      const pod = await running();
      return pod !== null && pod.metadata.uid !== before.metadata.uid ? pod : null;
    });
    saw.check(
      after.status?.containerStatuses?.[0]?.containerID === container,
      `${name} was given another image and deleted: it is there again as its file says, and its container runs on`,
    );
  } finally {
    await place.inside(['rm', '-f', `${MANIFESTS}/walked.yaml`]);
  }
  await awaited(cluster, `${name} is gone`, READY_MS, async () => ((await containersOf(place)).some((one) => podOf(one) === `default/${name}`) ? null : true));
  saw.check(true, `${name} is gone with its file`);
}

async function units(saw: Saw, cluster: Cluster): Promise<void> {
  for (const node of [cluster.control.node, ...cluster.workers]) {
    const states = await cluster.at(node).ask(['systemctl', 'is-active', 'kubelet', 'containerd']);
    saw.check(states.stdout.trim() === 'active\nactive', `${node}: kubelet and containerd are active units`);
  }
  for (const node of cluster.workers) {
    const place = cluster.at(node);
    const before = (await containersOf(place)).filter(({ state }) => state === 'CONTAINER_RUNNING').map(({ id }) => id);
    await place.inside(['systemctl', 'stop', 'containerd']);
    try {
      await delay(RUNTIME_AWAY_MS, undefined, { signal: cluster.engine.signal });
    } finally {
      await place.inside(['systemctl', 'start', 'containerd']);
    }
    const { stdout } = await place.ask(['sh', '-c', 'journalctl --unit=kubelet --no-pager --since=-60s | grep -i pleg | tail -1']);
    saw.check(/pleg/i.test(stdout), `${node}: ${stdout.trim().slice(0, 200)}`);
    await awaited(cluster, `${node} is Ready`, READY_MS, async () => ((await nodeReady(cluster, node)) ? true : null));
    const after = new Set((await containersOf(place)).filter(({ state }) => state === 'CONTAINER_RUNNING').map(({ id }) => id));
    saw.check(
      before.every((id) => after.has(id)),
      `${node}: its ${before.length} containers ran on meanwhile`,
    );
  }
}
