import { setTimeout as delay } from 'node:timers/promises';
import { OpError } from '../../base/errors.ts';
import { findPlace, type Engine, type Place } from '../../scripts/kind/place.ts';
import { clientRenewed, controlPlaneRenewed, servingRenewed } from './upkeep-certs.ts';
import { isReady, podOf, taintsOf, uidOf, type Seen } from './walk-facts.ts';
import { Steps, type Saw, type Step } from './walk-steps.ts';
import { awaited, containersOf, nodeReady, openCluster, type Cluster } from './walk-world.ts';

/** What people do to a node, in an order in which each leaves it for the next. */
export const WORKS = ['version', 'cordon', 'drain', 'reboot', 'delete', 'join', 'client-certificate', 'serving-certificate', 'control-plane'] as const;
export type Work = (typeof WORKS)[number];

export interface Upkeep {
  readonly node: string;
  readonly kubeletVersion: string;
  readonly steps: readonly Step[];
}

interface Kept {
  readonly cluster: Cluster;
  readonly place: Place;
  readonly node: string;
}

const NAMESPACE = 'upkeep';
const KUBEADM = '/kind/kubeadm.conf';
const READY_MS = 240_000;
/** A pod of a node that is no more is collected 40 s after the node went, at the next look (20 s). */
const ORPHANED_MS = 120_000;
/** So long the kubelet of a deleted node is watched for making it again by itself. */
const DELETED_MS = 30_000;

const WORDS: Readonly<Record<Work, string>> = {
  version: 'what the kubelet says it is, and its cgroup driver',
  cordon: 'cordon keeps new pods away, uncordon lets them in',
  drain: 'drain evicts all but DaemonSets’ pods, and uncordon brings the node back',
  reboot: 'the node container is restarted: its pods run again',
  delete: 'the Node is deleted: its pods end, and a restarted kubelet registers it again',
  join: 'delete, kubeadm reset, kubeadm join',
  'client-certificate': 'TLS bootstrap to a certificate of three minutes, and its renewal',
  'serving-certificate': 'serverTLSBootstrap: a serving certificate that the cluster signs',
  'control-plane': 'kubeadm certs renew on the control plane, with the worker running on',
};

/** Does each of the works to a worker and tells what was seen; the cluster is as it was afterwards. */
export async function upkeep(engine: Engine, options: { node: string; works: readonly Work[] }, onStep: (step: Step) => void): Promise<Upkeep> {
  const place = await findPlace(engine, options.node);
  if (place.role !== 'worker') throw new OpError('unsupported', `keeping ${options.node}`, `it is a ${place.role}, and this is for workers`);
  const cluster = await openCluster(engine, place.cluster);
  const kept: Kept = { cluster, place, node: options.node };
  const steps = new Steps(onStep);
  const doing: Readonly<Record<Work, (saw: Saw) => Promise<void>>> = {
    version: (saw) => version(saw, kept),
    cordon: (saw) => cordon(saw, kept),
    drain: (saw) => drain(saw, kept),
    reboot: (saw) => reboot(saw, kept),
    delete: (saw) => deleted(saw, kept),
    join: (saw) => joined(saw, kept),
    'client-certificate': (saw) => clientRenewed(saw, cluster, options.node),
    'serving-certificate': (saw) => servingRenewed(saw, cluster, options.node),
    'control-plane': (saw) => controlPlaneRenewed(saw, cluster, options.node),
  };
  const { status } = await cluster.get(['node', options.node]);
  try {
    await workload(kept);
    for (const work of options.works) await steps.step(work, WORDS[work], doing[work]);
  } finally {
    await cluster.k(['delete', 'namespace', NAMESPACE, '--ignore-not-found', '--timeout=110s']);
    await cluster.k(['uncordon', options.node]).catch(() => undefined);
  }
  return { node: options.node, kubeletVersion: status?.nodeInfo?.kubeletVersion ?? '', steps: steps.done };
}

/** Two pods of a Deployment that prefer the node and can run elsewhere. */
async function workload({ cluster, node }: Kept): Promise<void> {
  const prefer = { weight: 100, preference: { matchExpressions: [{ key: 'kubernetes.io/hostname', operator: 'In', values: [node] }] } };
  const labels = { app: 'kept' };
  const spec = {
    terminationGracePeriodSeconds: 1,
    affinity: { nodeAffinity: { preferredDuringSchedulingIgnoredDuringExecution: [prefer] } },
    tolerations: [{ key: 'node-role.kubernetes.io/control-plane', operator: 'Exists' }],
    containers: [{ name: 'pause', image: 'registry.k8s.io/pause:3.10.2' }],
  };
  const items = [
    { apiVersion: 'v1', kind: 'Namespace', metadata: { name: NAMESPACE } },
    {
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      metadata: { name: 'kept', namespace: NAMESPACE },
      spec: { replicas: 2, selector: { matchLabels: labels }, template: { metadata: { labels }, spec } },
    },
  ];
  await cluster.k(['apply', '--filename=-'], JSON.stringify({ apiVersion: 'v1', kind: 'List', items }));
  await rolledOut(cluster);
}

async function rolledOut(cluster: Cluster): Promise<void> {
  await cluster.k(['--namespace', NAMESPACE, 'rollout', 'status', 'deployment/kept', '--timeout=110s']);
}

const podsOn = (cluster: Cluster, node: string): Promise<readonly Seen[]> =>
  cluster.list(['pods', '--all-namespaces', `--field-selector=spec.nodeName=${node}`]);

const names = (pods: readonly Seen[]): string => pods.map(({ metadata }) => `${metadata.namespace ?? ''}/${metadata.name}`).join(', ');

const isDaemon = ({ metadata }: Seen): boolean => metadata.ownerReferences?.[0]?.kind === 'DaemonSet';

/** Deletes the Deployment's pods, which the scheduler places anew; tells where. */
async function placedAnew({ cluster }: Kept): Promise<readonly Seen[]> {
  await cluster.k(['--namespace', NAMESPACE, 'delete', 'pods', '--all', '--timeout=110s']);
  await rolledOut(cluster);
  return (await cluster.list(['pods', '--namespace', NAMESPACE])).filter(({ metadata }) => metadata.deletionTimestamp === undefined);
}

/** Waits until the node is Ready and every pod that belongs there is too. */
async function settled({ cluster, node }: Kept): Promise<void> {
  await awaited(cluster, `${node} is Ready with its pods`, READY_MS, async () => {
    const pods = await podsOn(cluster, node);
    return (await nodeReady(cluster, node)) && pods.filter(isDaemon).length >= 2 && pods.every(isReady) ? true : null;
  });
}

async function version(saw: Saw, { cluster, place, node }: Kept): Promise<void> {
  const line = 'p=$(systemctl show kubelet --property=ExecStart --value | sed "s/.*path=\\([^ ]*\\) .*/\\1/"); echo "$p"; "$p" --version';
  const [program = '', text = ''] = (await place.inside(['sh', '-ec', line])).trim().split('\n');
  const told = (await cluster.get(['node', node])).status?.nodeInfo?.kubeletVersion ?? '';
  if (told.includes('nodelet')) saw.check(/^Kubernetes v1\.37\.2\+nodelet/.test(text), `${program} --version: ${text}`);
  else saw.note(`${program} --version: ${text}: not ours`);
  saw.check(text === `Kubernetes ${told}`, `the Node says ${told}`);
  const driver = (await place.inside(['grep', '-E', '^cgroup(Driver|Root):', '/var/lib/kubelet/config.yaml'])).trim().replaceAll('\n', ', ');
  saw.check(driver.includes('cgroupDriver: systemd'), `kubeadm's configuration: ${driver}`);
  const slices = (await place.inside(['sh', '-c', 'systemctl list-units --type=slice --plain --no-legend "kubelet-kubepods*" | cut -d" " -f1']))
    .trim()
    .split('\n');
  saw.check(
    slices.some((name) => /pod[0-9a-f_]+\.slice$/.test(name)),
    `${slices.length} slices of systemd, such as ${slices.at(-1) ?? ''}`,
  );
}

async function cordon(saw: Saw, kept: Kept): Promise<void> {
  const { cluster, node } = kept;
  const on = (pods: readonly Seen[]): number => pods.filter(({ spec }) => spec?.nodeName === node).length;
  saw.note(await cluster.k(['cordon', node]));
  const cordoned = await cluster.get(['node', node]);
  saw.check(
    cordoned.spec?.unschedulable === true && taintsOf(cordoned, 'node.kubernetes.io/unschedulable').join() === 'NoSchedule',
    'unschedulable, with its taint',
  );
  saw.check(on(await placedAnew(kept)) === 0, 'of two new pods none is placed there');
  saw.note(await cluster.k(['uncordon', node]));
  await awaited(cluster, 'the taint is gone', READY_MS, async () =>
    taintsOf(await cluster.get(['node', node]), 'node.kubernetes.io/unschedulable').length === 0 ? true : null,
  );
  saw.check(on(await placedAnew(kept)) > 0, 'of two new pods one at least is placed there again');
}

async function drain(saw: Saw, kept: Kept): Promise<void> {
  const { cluster, node, place } = kept;
  const begunMs = performance.now();
  const text = await cluster.k(['drain', node, '--ignore-daemonsets', '--delete-emptydir-data', '--timeout=110s']);
  saw.note(`${text.split('\n').at(-1) ?? ''} (${((performance.now() - begunMs) / 1000).toFixed(1)} s)`);
  const left = await podsOn(cluster, node);
  saw.check(left.length > 0 && left.every(isDaemon), `left: ${names(left)}`);
  await awaited(cluster, 'their containers are gone', READY_MS, async () =>
    (await running(place)).some((one) => podOf(one).startsWith(`${NAMESPACE}/`)) ? null : true,
  );
  await rolledOut(cluster);
  saw.check(true, 'the Deployment is available elsewhere, and no container of its pods runs here');
  saw.note(await cluster.k(['uncordon', node]));
  saw.check(
    (await placedAnew(kept)).some(({ spec }) => spec?.nodeName === node),
    'new pods are placed there again',
  );
}

const running = async (place: Place): ReturnType<typeof containersOf> => (await containersOf(place)).filter(({ state }) => state === 'CONTAINER_RUNNING');

async function reboot(saw: Saw, kept: Kept): Promise<void> {
  const { cluster, node, place } = kept;
  const before = await podsOn(cluster, node);
  const old = new Set((await containersOf(place)).map(({ id }) => id));
  const begunMs = performance.now();
  const seconds = (): string => `${((performance.now() - begunMs) / 1000).toFixed(1)} s`;
  await cluster.docker(['restart', node]);
  saw.note(`docker restart took ${seconds()}`);
  const boot = (seen: Seen): string => (seen.status?.nodeInfo as { bootID?: string } | undefined)?.bootID ?? '';
  await awaited(cluster, 'every pod runs anew', READY_MS, async () => {
    const now = await running(place);
    const pods = await podsOn(cluster, node);
    return pods.every(isReady) && now.length >= before.length && now.every(({ id }) => !old.has(id)) ? true : null;
  });
  saw.check(true, `Ready with its pods after ${seconds()}; boot ID ${boot(await cluster.get(['node', node])).slice(0, 8)}…`);
  const after = await podsOn(cluster, node);
  const same = before.filter(({ metadata }) => after.some((pod) => pod.metadata.uid === metadata.uid));
  saw.check(same.length === before.length, `${same.length} of ${before.length} pods are the same: ${names(same)}`);
  const counts = after.map(({ metadata, status }) => `${metadata.name} ${status?.containerStatuses?.[0]?.restartCount ?? 0}`);
  saw.check(
    after.every(({ status }) => (status?.containerStatuses?.[0]?.restartCount ?? 0) > 0),
    `restarts: ${counts.join(', ')}`,
  );
}

async function deleted(saw: Saw, kept: Kept): Promise<void> {
  const { cluster, node, place } = kept;
  const { uid } = (await cluster.get(['node', node])).metadata;
  const old = new Set((await podsOn(cluster, node)).map((pod) => pod.metadata.uid));
  await cluster.k(['delete', 'node', node]);
  const there = async (): Promise<boolean> => (await cluster.list(['nodes'])).some(({ metadata }) => metadata.name === node);
  await awaited(cluster, 'its pods are collected and end', ORPHANED_MS + DELETED_MS, async () => {
    const left = (await podsOn(cluster, node)).filter((pod) => old.has(pod.metadata.uid));
    return left.length === 0 && !(await running(place)).some((one) => old.has(uidOf(one))) ? true : null;
  });
  saw.check(true, 'its pods are gone from the API, and no container of them runs');
  await delay(DELETED_MS, undefined, { signal: cluster.engine.signal });
  saw.check(!(await there()), 'the kubelet did not make the Node again by itself (upstream’s neither)');
  await place.inside(['systemctl', 'restart', 'kubelet']);
  await settled(kept);
  const again = await cluster.get(['node', node]);
  saw.check(again.metadata.uid !== uid, 'after a restart of the kubelet the Node is registered again and Ready, with its DaemonSets’ pods');
  await placedAnew(kept);
}

async function joined(saw: Saw, kept: Kept): Promise<void> {
  const { cluster, node, place } = kept;
  await cluster.k(['drain', node, '--ignore-daemonsets', '--delete-emptydir-data', '--timeout=110s']);
  await cluster.k(['delete', 'node', node]);
  await place.inside(['kubeadm', 'reset', '--force'], { timeoutMs: READY_MS });
  const left = await place.ask(['sh', '-c', 'ls /etc/kubernetes/kubelet.conf /var/lib/kubelet/pki 2>/dev/null']);
  saw.check(left.stdout.trim() === '', 'kubeadm reset: kubeconfig and certificates are gone');
  // kind's own configuration with a token of now: its flags name the cluster's address of this node.
  const token = (await cluster.control.inside(['kubeadm', 'token', 'create', '--ttl=10m'])).trim();
  const config = (await place.inside(['cat', KUBEADM])).replaceAll(/\b[a-z0-9]{6}\.[a-z0-9]{16}\b/g, token);
  await place.write(`${KUBEADM}.again`, config, '0600');
  const begunMs = performance.now();
  const text = await place.inside(['kubeadm', 'join', `--config=${KUBEADM}.again`, '--ignore-preflight-errors=all'], { timeoutMs: READY_MS });
  await place.inside(['rm', '-f', `${KUBEADM}.again`]);
  saw.check(
    text.includes('This node has joined the cluster'),
    `kubeadm join: ${/This node has joined the cluster/.exec(text)?.[0] ?? text.slice(-200)} (${((performance.now() - begunMs) / 1000).toFixed(1)} s)`,
  );
  await settled(kept);
  saw.check(true, `Ready with its DaemonSets' pods ${((performance.now() - begunMs) / 1000).toFixed(1)} s after kubeadm began`);
  saw.check(
    (await placedAnew(kept)).some(({ spec }) => spec?.nodeName === node),
    'new pods are placed there',
  );
  const cidr = (await cluster.get(['node', node])).spec?.podCIDR ?? '';
  saw.note(`its range is ${cidr}`);
}
