import assert from 'node:assert/strict';
import { firstProcess } from '../../../node/io/running.ts';
import { redisConfig } from '../../walkthrough/manifests.ts';
import { isWrite, type AuditEvent } from './audit.ts';
import type { Lab } from './lab.ts';
import { pinned, redis } from './manifests.ts';
import { countByNode, isReady, lostTaints, podsOf, readyOf, readyPods, type NodeSeen, type PodSeen, type SliceSeen } from './objects.ts';
import { seconds, type Step } from './step.ts';
import { shopThere } from './two-nodes.ts';

/** Bounds for what upstream's controllers do by a timer: never before, and not much after on a machine with other work. */
const GRACE_MS = { least: 45_000, most: 90_000 };
const LATE_MS = 45_000;

/** What the steps of one loss know of each other. */
interface Loss {
  /** Worker that is lost, and what was on it. */
  node: string;
  pods: PodSeen[];
  folder: string;
  /** Wall clock at which the power went. */
  offMs: number;
  taintedMs: number;
  /** Least number of web pods Ready at any look. */
  fewest: number;
}

const isController = (event: AuditEvent): boolean => event.user.startsWith('system:serviceaccount:kube-system:') || event.user.startsWith('system:kube-');

function first(events: readonly AuditEvent[], what: string, wanted: (event: AuditEvent) => boolean): AuditEvent {
  const found = events.find((event) => isWrite(event) && wanted(event));
  assert.ok(found, `the audit log has: ${what}`);
  return found;
}

function within(what: string, ms: number, leastMs: number, mostMs: number): number {
  assert.ok(ms >= leastMs && ms <= mostMs, `${what}: ${seconds(ms)} s, not between ${seconds(leastMs)} and ${seconds(mostMs)}`);
  return seconds(ms);
}

/** Everything about the loss of one node and of all, in the order in which it happens. */
export function lossSteps(): readonly Step[] {
  const loss: Loss = { node: '', pods: [], folder: '', offMs: 0, taintedMs: 0, fewest: Number.POSITIVE_INFINITY };
  const names = (): string[] => loss.pods.map(({ metadata }) => metadata.name);
  const requireLoss = (): void => assert.ok(loss.taintedMs > 0, 'the node’s loss was seen (2.7)');

  const countWeb = async (lab: Lab): Promise<void> => {
    loss.fewest = Math.min(loss.fewest, (await podsOf(lab, 'shop', 'app=web')).filter(isReady).length);
  };
  const nodeSeen = (lab: Lab, name = loss.node): Promise<NodeSeen> => lab.get<NodeSeen>(['node', name]);

  async function prepare(lab: Lab): Promise<void> {
    await shopThere(lab);
    const web = await readyPods(lab, 'shop', 'app=web', 3);
    loss.node = [...countByNode(web)].at(-1)?.[0] ?? '';
    const node = lab.node(loss.node);
    loss.folder = `${node.dir}/redis-data`;
    const made = await lab.inside(node, ['mkdir', '-p', loss.folder]);
    assert.equal(made.code, 0, made.err);
    await lab.k(['apply', '-f', '-'], redisConfig);
    await lab.k(['apply', '-f', '-'], redis(loss.node, loss.folder));
    await lab.k(['apply', '-f', '-'], pinned('short', loss.node, { namespace: 'shop', tolerateSeconds: 60 }));
    await readyPods(lab, 'shop', 'app=redis', 1);
    await readyPods(lab, 'shop', 'app=short', 1);
    await lab.k(['-n', 'shop', 'exec', 'redis-0', '--', 'sh', '-c', 'echo 42 >/data/key && sync']);
    loss.pods = (await podsOf(lab, 'shop')).filter(({ spec }) => spec.nodeName === loss.node);
  }

  return [
    {
      id: '2.7',
      what: 'a lost node is Unknown 50 s after its last Lease, and tainted',
      async run(lab) {
        await prepare(lab);
        const offMs = Date.now();
        await lab.power('stop', loss.node);
        loss.offMs = offMs;
        const node = await lab.eventually(`${loss.node} tainted twice`, 150_000, async () => {
          const seen = await nodeSeen(lab);
          return readyOf(seen) === 'Unknown' && lostTaints(seen).length === 2 ? seen : null;
        });
        const pods = await lab.eventually('its pods are not Ready', 30_000, async () => {
          const there = (await podsOf(lab, 'shop')).filter(({ spec }) => spec.nodeName === loss.node);
          return there.every((pod) => !isReady(pod)) ? there : null;
        });
        const events = await lab.audit(offMs - 30_000);
        const lease = events.findLast((event) => isWrite(event) && event.resource === 'leases' && event.user === `system:node:${loss.node}`);
        assert.ok(lease, 'a last Lease renewal');
        // Between the last renewal and the loss controllers still write about pods that have just come.
        const after = events.filter(({ atMs }) => atMs > offMs);
        const unknown = first(after, 'Ready=Unknown', (event) => event.resource === 'nodes/status' && event.name === loss.node && isController(event));
        const taint = first(after, 'the taint', (event) => event.resource === 'nodes' && event.name === loss.node && isController(event));
        const podLine = first(after, 'a pod’s Ready=False', (event) => event.resource === 'pods/status' && names().includes(event.name) && isController(event));
        // Two of the node's controllers taint, each for itself: the one for NoExecute when it looks at Ready=Unknown.
        const taints = after.filter((event) => isWrite(event) && event.resource === 'nodes' && event.name === loss.node && isController(event));
        loss.taintedMs = taints.at(-1)?.atMs ?? taint.atMs;
        assert.ok(taint.atMs >= unknown.atMs && podLine.atMs >= unknown.atMs, 'Unknown comes first');
        return {
          exact: { ready: readyOf(node), taints: lostTaints(node), pods: pods.every((pod) => !isReady(pod)) ? 'Ready=False' : 'Ready' },
          seen: {
            unknownAfterLeaseSeconds: within('Ready=Unknown', unknown.atMs - lease.atMs, GRACE_MS.least, GRACE_MS.most),
            taintAfterUnknownSeconds: seconds(taint.atMs - unknown.atMs),
            podsAfterUnknownSeconds: seconds(podLine.atMs - unknown.atMs),
          },
        };
      },
    },
    {
      id: '2.8',
      what: 'at once the lost pod is out of the EndpointSlice',
      async run(lab) {
        requireLoss();
        const lost = loss.pods.find(({ metadata }) => metadata.labels?.['app'] === 'web');
        const ready = await lab.eventually('the slice without the lost pod', 30_000, async () => {
          const { items } = await lab.get<{ items: SliceSeen[] }>(['-n', 'shop', 'endpointslices', '-l', 'kubernetes.io/service-name=web']);
          const addresses = items.flatMap(({ endpoints }) => endpoints).filter(({ conditions }) => conditions.ready === true);
          return addresses.some(({ targetRef }) => targetRef?.name === lost?.metadata.name) ? null : addresses;
        });
        const events = await lab.audit(loss.offMs);
        const pod = first(
          events,
          'the pod’s Ready=False',
          (event) => event.resource === 'pods/status' && event.name === lost?.metadata.name && isController(event),
        );
        const slice = first(
          events,
          'the slice’s update',
          (event) => event.resource === 'endpointslices' && event.namespace === 'shop' && event.name.startsWith('web-') && event.atMs > pod.atMs,
        );
        return { exact: { ready: ready.length }, seen: { sliceAfterPodSeconds: within('the slice', slice.atMs - pod.atMs, 0, LATE_MS) } };
      },
    },
    {
      id: '2.13',
      what: 'with tolerationSeconds 60 the eviction comes after 60 s',
      async run(lab) {
        requireLoss();
        const events = await lab.eventually('short is marked', 60_000 + LATE_MS, async () => {
          await countWeb(lab);
          const pod = (await podsOf(lab, 'shop', 'app=short'))[0];
          return pod?.metadata.deletionTimestamp === undefined ? null : lab.audit(loss.offMs);
        });
        const marked = first(events, 'the eviction of short', (event) => event.verb === 'delete' && event.resource === 'pods' && event.name === 'short');
        assert.ok(isController(marked), marked.user);
        return { exact: { by: marked.user }, seen: { afterTaintSeconds: within('the eviction', marked.atMs - loss.taintedMs, 58_000, 60_000 + LATE_MS) } };
      },
    },
    {
      id: '2.9',
      what: '300 s after the taint its pods are marked for deletion, and stay',
      async run(lab) {
        requireLoss();
        await lab.eventually(
          'all its pods are marked',
          300_000 + LATE_MS,
          async () => {
            await countWeb(lab);
            const pods = (await podsOf(lab, 'shop')).filter(({ metadata }) => names().includes(metadata.name));
            return pods.every(({ metadata }) => metadata.deletionTimestamp !== undefined) ? true : null;
          },
          2_000,
        );
        const events = await lab.audit(loss.offMs);
        const marks = names()
          .filter((name) => name !== 'short')
          .map((name) => first(events, `the eviction of ${name}`, (event) => event.verb === 'delete' && event.resource === 'pods' && event.name === name));
        const after = marks.map(({ atMs }) => within('the eviction', atMs - loss.taintedMs, 298_000, 300_000 + LATE_MS));
        return { exact: { by: [...new Set(marks.map(({ user }) => user))] }, seen: { afterTaintSeconds: after.sort((a, b) => a - b) } };
      },
    },
    {
      id: '2.10',
      what: 'a replacement comes at once, on the other worker',
      async run(lab) {
        requireLoss();
        const old = new Set(loss.pods.map(({ metadata }) => metadata.uid));
        const pods = await lab.eventually('three other web pods Ready', 120_000, async () => {
          await countWeb(lab);
          const living = (await podsOf(lab, 'shop', 'app=web')).filter((pod) => !old.has(pod.metadata.uid) && isReady(pod));
          return living.length === 3 ? living : null;
        });
        const events = await lab.audit(loss.offMs);
        const web = loss.pods.find(({ metadata }) => metadata.labels?.['app'] === 'web')?.metadata.name;
        const marked = first(events, 'the web pod’s eviction', (event) => event.verb === 'delete' && event.resource === 'pods' && event.name === web);
        const created = first(
          events,
          'the replacement',
          (event) => event.verb === 'create' && event.resource === 'pods' && event.user.endsWith(':replicaset-controller') && event.atMs > marked.atMs - 5,
        );
        const newest = pods.map(({ metadata }) => metadata.name).at(-1);
        const other = lab.workers.find(({ name }) => name !== loss.node)?.name;
        assert.ok(
          pods.every(({ spec }) => spec.nodeName === other),
          'all run on the other worker',
        );
        assert.ok(loss.fewest >= 2, `at least 2 web pods Ready all the time, seen ${loss.fewest}`);
        const replacement =
          pods.find(({ metadata }) => Date.parse(metadata.creationTimestamp) >= Math.floor(created.atMs / 1000) * 1000 - 1000)?.metadata.name ?? newest;
        const ready = events.findLast((event) => isWrite(event) && event.resource === 'pods/status' && event.name === replacement);
        return {
          exact: { node: 'the other worker', fewestReady: loss.fewest },
          seen: {
            createdAfterMarkSeconds: seconds(created.atMs - marked.atMs),
            lastStatusAfterCreateSeconds: seconds((ready?.atMs ?? created.atMs) - created.atMs),
          },
        };
      },
    },
    {
      id: '2.11',
      what: 'no second redis-0 while the first is Terminating',
      async run(lab) {
        requireLoss();
        await lab.pause(20_000);
        const pods = await podsOf(lab, 'shop', 'app=redis');
        const before = loss.pods.find(({ metadata }) => metadata.name === 'redis-0');
        assert.deepEqual(
          pods.map(({ metadata }) => metadata.uid),
          [before?.metadata.uid],
        );
        assert.ok(pods[0]?.metadata.deletionTimestamp !== undefined, 'it is Terminating');
        const made = (await lab.audit(loss.offMs)).filter(
          (event) => event.verb === 'create' && event.resource === 'pods' && event.user.endsWith(':statefulset-controller'),
        );
        assert.equal(made.length, 0);
        return { exact: { redis: 'one, Terminating', created: made.length } };
      },
    },
    {
      id: '2.12',
      what: 'the node returns: deletions confirmed, redis-0 there with its data',
      run: (lab) => returned(lab, loss, nodeSeen),
    },
    { id: '2.14', what: 'all nodes lost at once: Unknown, but nobody is evicted', run: (lab) => allLost(lab) },
  ];
}

async function returned(
  lab: Lab,
  loss: Loss,
  nodeSeen: (lab: Lab) => Promise<NodeSeen>,
): Promise<{ exact: Record<string, unknown>; seen: Record<string, unknown> }> {
  assert.ok(loss.taintedMs > 0, 'the node’s loss was seen (2.7)');
  const old = new Set(loss.pods.map(({ metadata }) => metadata.uid));
  const startMs = Date.now();
  await lab.power('start', loss.node);
  await lab.eventually(`${loss.node} is Ready`, 120_000, async () => (readyOf(await nodeSeen(lab)) === 'True' ? true : null));
  await lab.eventually('the deletions are confirmed', 120_000, async () => {
    const pods = await podsOf(lab, 'shop');
    return pods.some(({ metadata }) => old.has(metadata.uid)) ? null : true;
  });
  const [redisPod] = await readyPods(lab, 'shop', 'app=redis', 1);
  assert.ok(redisPod !== undefined && !old.has(redisPod.metadata.uid), 'a new redis-0');
  assert.equal(redisPod.spec.nodeName, loss.node);
  const data = await lab.k(['-n', 'shop', 'exec', 'redis-0', '--', 'cat', '/data/key', '/data/starts']);
  assert.equal(data, '42\nstarted with 2 lines\nstarted with 2 lines');
  await lab.eventually('the taints are gone', 60_000, async () => (lostTaints(await nodeSeen(lab)).length === 0 ? true : null));
  const strays = await lab.eventually('no container of the old pods runs', 60_000, async () => {
    const running = await lab.podsRunning(lab.node(loss.node));
    return [...running].some((uid) => old.has(uid)) ? null : running;
  });
  const current = new Set((await lab.get<{ items: PodSeen[] }>(['pods', '-A'])).items.map(({ metadata }) => metadata.uid));
  for (const uid of strays) assert.ok(current.has(uid), `a container of pod ${uid}, which is not there any more, runs`);
  const events = await lab.audit(startMs);
  const kubelet = `system:node:${loss.node}`;
  const status = first(events, 'the node’s status', (event) => event.resource === 'nodes/status' && event.user === kubelet);
  const confirmed = first(
    events,
    'redis-0 confirmed',
    (event) => event.verb === 'delete' && event.resource === 'pods' && event.name === 'redis-0' && event.user === kubelet,
  );
  const created = first(
    events,
    'the new redis-0',
    (event) => event.verb === 'create' && event.resource === 'pods' && event.user.endsWith(':statefulset-controller'),
  );
  assert.ok(status.atMs < confirmed.atMs && confirmed.atMs < created.atMs, 'Ready, then confirmed, then created');
  return {
    exact: { node: 'the same', data: 'intact', taints: [], oldContainers: 0, confirmedBy: 'its kubelet' },
    seen: {
      confirmedAfterStatusSeconds: seconds(confirmed.atMs - status.atMs),
      createdAfterConfirmedSeconds: seconds(created.atMs - confirmed.atMs),
      withoutRedisSeconds: seconds(created.atMs - loss.offMs),
    },
  };
}

const SHORT_S = 30;

async function allLost(lab: Lab): Promise<{ exact: Record<string, unknown>; seen: Record<string, unknown> }> {
  await lab.kubectl(['create', 'namespace', 'shop']);
  const worker = lab.workers[0]?.name ?? '';
  await lab.k(['apply', '-f', '-'], pinned('hasty', worker, { namespace: 'shop', tolerateSeconds: SHORT_S }));
  await readyPods(lab, 'shop', 'app=hasty', 1);
  const before = (await podsOf(lab, 'shop')).map(({ metadata }) => metadata.uid).sort();
  const processes = await Promise.all(lab.plan.nodes.map(({ dir }) => firstProcess(dir)));
  const offMs = Date.now();
  for (const one of processes) if (one !== null) process.kill(one.pid, 'SIGKILL');
  const nodes = await lab.eventually('all nodes Unknown', 150_000, async () => {
    const { items } = await lab.get<{ items: NodeSeen[] }>(['nodes']);
    return items.every((node) => readyOf(node) === 'Unknown') ? items : null;
  });
  const unknownMs = Date.now();
  assert.equal(nodes.length, 3);
  // Longer than the pod would be tolerated, with a look of the controller before and after.
  await lab.pause((SHORT_S + 20) * 1000);
  const pods = await podsOf(lab, 'shop');
  assert.deepEqual(pods.map(({ metadata }) => metadata.uid).sort(), before);
  assert.ok(
    pods.every(({ metadata }) => metadata.deletionTimestamp === undefined),
    'no pod is marked for deletion',
  );
  const deleted = (await lab.audit(offMs)).filter((event) => isWrite(event) && event.verb === 'delete' && event.resource === 'pods');
  assert.equal(deleted.length, 0);
  const taints = (await lab.get<{ items: NodeSeen[] }>(['nodes'])).items.map(lostTaints);
  return { exact: { ready: 'Unknown', evicted: deleted.length, taints }, seen: { unknownAfterSeconds: seconds(unknownMs - offMs) } };
}
