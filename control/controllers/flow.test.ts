import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock, type FakeClock } from '../../base/fake-clock.ts';
import { FakeKubeApi, refusals } from '../../base/kubeapi/fake.ts';
import { coreEvents, endpointSlices, leases, namespaces, nodes, pods, serviceAccounts, services } from '../../base/kubeapi/refs.ts';
import { silentLog } from '../../base/log.ts';
import { seededRng } from '../../base/rng.ts';
import type { Deployment, Endpoints, EndpointSlice, Event, Lease, Namespace, Node, Pod, ReplicaSet, Service, ServiceAccount } from '../../proto/kube/types.ts';
import { startScheduler } from '../scheduler/mod.ts';
import { DEPLOYMENTS, ENDPOINTS, REPLICA_SETS } from './collections.ts';
import type { ControlDeps } from './deps.ts';
import { startControllers } from './mod.ts';

/** Controllers and scheduler on an API server in memory, with somebody who plays the kubelets. */
class Cluster implements AsyncDisposable {
  readonly clock: FakeClock = createFakeClock();
  readonly api: FakeKubeApi = new FakeKubeApi({ clock: this.clock });
  readonly #stop = new AbortController();
  readonly #parts: AsyncDisposable[];
  #nextIp = 1;

  constructor(nodeNames: readonly string[]) {
    this.api.put<Namespace>(namespaces(), {
      apiVersion: 'v1',
      kind: 'Namespace',
      metadata: { name: 'default' },
      spec: { finalizers: ['kubernetes'] },
      status: { phase: 'Active' },
    });
    for (const name of nodeNames) {
      const status = { allocatable: { cpu: '4', memory: '8Gi', pods: '110' }, conditions: [{ type: 'Ready', status: 'True', lastHeartbeatTime: this.now() }] };
      this.api.put<Node>(nodes(), { apiVersion: 'v1', kind: 'Node', metadata: { name, labels: { 'kubernetes.io/hostname': name } }, spec: {}, status });
      this.beat(name);
    }
    const deps: ControlDeps = {
      api: this.api,
      clock: this.clock,
      rng: seededRng(1),
      log: silentLog,
      signal: this.#stop.signal,
      config: {
        clusterCIDR: '10.244.0.0/16',
        serviceCIDR: '10.96.0.0/16',
        clusterDomain: 'cluster.local',
        rootCA: 'PEM',
        dnsListen: '',
        dnsUpstreams: [],
        advertiseAddress: '192.0.2.1',
      },
    };
    this.#parts = [startControllers(deps), startScheduler(deps)];
  }

  now(): string {
    return new Date(this.clock.nowMs()).toISOString();
  }

  beat(name: string): void {
    this.api.put<Lease>(leases(), {
      apiVersion: 'coordination.k8s.io/v1',
      kind: 'Lease',
      metadata: { name, namespace: 'kube-node-lease' },
      spec: { renewTime: this.now() },
    });
  }

  pods(): Pod[] {
    return this.api.objects<Pod>(pods('default'));
  }

  /** The kubelets' part: bound pods run and are ready, ending ones go. */
  async run(): Promise<void> {
    for (let round = 0; round < 20; round++) {
      await this.clock.advance(100);
      for (const pod of this.pods()) {
        if (pod.metadata.deletionTimestamp) this.api.remove(pods('default', pod.metadata.name));
        else if (pod.spec.nodeName && pod.status?.phase !== 'Running') {
          const podIP = `10.244.0.${this.#nextIp++}`;
          this.api.put<Pod>(pods(), {
            ...pod,
            status: { phase: 'Running', podIP, podIPs: [{ ip: podIP }], conditions: [{ type: 'Ready', status: 'True', lastTransitionTime: this.now() }] },
          });
        }
      }
    }
  }

  apply(image: string, change: Partial<Deployment['spec']> = {}): void {
    const known = this.api.objects<Deployment>(DEPLOYMENTS)[0];
    this.api.put<Deployment>(DEPLOYMENTS, {
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      status: known?.status,
      metadata: { ...known?.metadata, name: 'web', namespace: 'default', generation: (known?.metadata.generation ?? 0) + 1 },
      spec: {
        replicas: 3,
        selector: { matchLabels: { app: 'web' } },
        strategy: { type: 'RollingUpdate', rollingUpdate: { maxSurge: '25%', maxUnavailable: '25%' } },
        progressDeadlineSeconds: 600,
        revisionHistoryLimit: 10,
        template: { metadata: { labels: { app: 'web' } }, spec: { containers: [{ name: 'c', image, resources: { requests: { cpu: '100m' } } }] } },
        ...change,
      },
    });
  }

  events(reason: string): string[] {
    return this.api
      .objects<Event>(coreEvents())
      .filter((event) => event.reason === reason)
      .map((event) => event.message ?? '');
  }

  deployment(): Deployment {
    const found = this.api.objects<Deployment>(DEPLOYMENTS)[0];
    assert.ok(found);
    return found;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#parts.map((part) => part[Symbol.asyncDispose]()));
    await this.clock.settle();
    assert.equal(this.clock.armed, 0, 'timers are left behind');
  }
}

test('a Deployment becomes running pods, spread over the nodes and listed behind its Service', async () => {
  await using cluster = new Cluster(['n1', 'n2']);
  cluster.apply('web:1');
  cluster.api.put<Service>(services(), {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'web', namespace: 'default' },
    spec: { clusterIP: '10.96.0.7', selector: { app: 'web' }, ports: [{ port: 80 }] },
  });
  await cluster.run();
  const [replicaSet] = cluster.api.objects<ReplicaSet>(REPLICA_SETS);
  const name = replicaSet?.metadata.name;
  assert.deepEqual(cluster.events('ScalingReplicaSet'), [`Scaled up replica set ${name} from 0 to 3`]);
  assert.deepEqual([...new Set(cluster.pods().map((pod) => String(pod.spec.nodeName)))].toSorted(), ['n1', 'n2']);
  assert.deepEqual(
    cluster.events('SuccessfulCreate').toSorted(),
    cluster
      .pods()
      .map((pod) => `Created pod: ${pod.metadata.name}`)
      .toSorted(),
  );
  assert.deepEqual(
    cluster.events('Scheduled').toSorted(),
    cluster
      .pods()
      .map((pod) => `Successfully assigned default/${pod.metadata.name} to ${pod.spec.nodeName}`)
      .toSorted(),
  );
  const [slice] = cluster.api.objects<EndpointSlice>(endpointSlices('default'));
  assert.deepEqual(
    slice?.endpoints?.map((endpoint) => endpoint.conditions?.ready),
    [true, true, true],
  );
  assert.equal(cluster.api.objects<Endpoints>(ENDPOINTS)[0]?.subsets?.[0]?.addresses?.length, 3);
  const { status } = cluster.deployment();
  assert.equal(status?.conditions?.find((condition) => condition.type === 'Progressing')?.reason, 'NewReplicaSetAvailable');
  assert.equal(status?.availableReplicas, 3);
});

test('each namespace has its ServiceAccount, each node its range', async () => {
  await using cluster = new Cluster(['n1', 'n2']);
  await cluster.clock.advance(1000);
  assert.deepEqual(
    cluster.api.objects<ServiceAccount>(serviceAccounts('default')).map((account) => account.metadata.name),
    ['default'],
  );
  assert.deepEqual(
    cluster.api
      .objects<Node>(nodes())
      .map((node) => String(node.spec.podCIDR))
      .toSorted(),
    ['10.244.0.0/24', '10.244.1.0/24'],
  );
});

test('a rollout never has more than four pods nor fewer than three ready ones', async () => {
  await using cluster = new Cluster(['n1', 'n2']);
  cluster.apply('web:1');
  await cluster.run();
  cluster.apply('web:2');
  const seen: number[][] = [];
  for (let round = 0; round < 40; round++) {
    await cluster.clock.advance(50);
    const alive = cluster.pods().filter((pod) => !pod.metadata.deletionTimestamp);
    seen.push([alive.length, alive.filter((pod) => pod.status?.phase === 'Running').length]);
    const waiting = cluster.pods().find((pod) => pod.spec.nodeName && pod.status?.phase !== 'Running');
    if (waiting !== undefined)
      cluster.api.put<Pod>(pods(), {
        ...waiting,
        status: {
          phase: 'Running',
          podIP: '10.244.9.9',
          podIPs: [{ ip: '10.244.9.9' }],
          conditions: [{ type: 'Ready', status: 'True', lastTransitionTime: cluster.now() }],
        },
      });
    for (const pod of cluster.pods()) if (pod.metadata.deletionTimestamp) cluster.api.remove(pods('default', pod.metadata.name));
  }
  assert.ok(
    seen.every(([all, ready]) => (all ?? 0) <= 4 && (ready ?? 0) >= 3),
    JSON.stringify(seen),
  );
  assert.deepEqual(
    cluster.pods().map((pod) => pod.spec.containers[0]?.image),
    ['web:2', 'web:2', 'web:2'],
  );
});

test('a relabelled pod is let go and replaced; labelled back it is adopted, and one too many goes', async () => {
  await using cluster = new Cluster(['n1']);
  cluster.apply('web:1');
  await cluster.run();
  const [pod] = cluster.pods();
  assert.ok(pod);
  cluster.api.put<Pod>(pods(), { ...pod, metadata: { ...pod.metadata, labels: { ...pod.metadata.labels, app: 'debug' } } });
  await cluster.run();
  const released = cluster.pods().find((other) => other.metadata.uid === pod.metadata.uid);
  assert.equal(released?.metadata.ownerReferences?.length ?? 0, 0);
  assert.equal(cluster.pods().length, 4);
  assert.ok(released);
  cluster.api.put<Pod>(pods(), { ...released, metadata: { ...released.metadata, labels: pod.metadata.labels } });
  await cluster.run();
  assert.equal(cluster.pods().length, 3);
  assert.ok(cluster.pods().every((other) => other.metadata.ownerReferences?.length === 1));
});

test('failing writes and lost answers are made up for, and no pod is made twice', async () => {
  await using cluster = new Cluster(['n1']);
  cluster.api.inject({ verb: 'create', resource: 'pods', times: 2, error: refusals.internal() });
  cluster.api.inject({ verb: 'create', resource: 'pods', error: refusals.unavailable(), after: true });
  cluster.api.inject({ verb: 'create', resource: 'pods/binding', times: 2, error: refusals.unavailable() });
  cluster.api.inject({ verb: 'update', resource: 'replicasets/status', times: 1, error: refusals.conflict() });
  cluster.api.inject({ verb: 'update', resource: 'deployments/status', times: 1, error: refusals.conflict() });
  cluster.apply('web:1');
  await cluster.run();
  await cluster.clock.advance(20_000);
  await cluster.run();
  assert.equal(cluster.pods().length, 3);
  assert.equal(cluster.deployment().status?.availableReplicas, 3);
  assert.equal(cluster.events('FailedCreate').length > 0, true);
});

test('a pod that fits nowhere says so, and is scheduled when a node comes', async () => {
  await using cluster = new Cluster(['n1']);
  cluster.api.put<Pod>(pods(), {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'big', namespace: 'default' },
    spec: { containers: [{ name: 'c', image: 'i', resources: { requests: { cpu: '16' } } }] },
    status: { phase: 'Pending' },
  });
  await cluster.clock.advance(500);
  const message = '0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.';
  assert.deepEqual(cluster.events('FailedScheduling'), [message]);
  const condition = cluster.pods()[0]?.status?.conditions?.find((one) => one.type === 'PodScheduled');
  assert.deepEqual([condition?.status, condition?.reason, condition?.message], ['False', 'Unschedulable', message]);
  cluster.api.put<Node>(nodes(), {
    apiVersion: 'v1',
    kind: 'Node',
    metadata: { name: 'n2' },
    spec: {},
    status: { allocatable: { cpu: '32', memory: '8Gi', pods: '110' }, conditions: [{ type: 'Ready', status: 'True' }] },
  });
  await cluster.clock.advance(5000);
  assert.equal(cluster.pods()[0]?.spec.nodeName, 'n2');
});

test('a lost node: Unknown after 50 s, its pods leave the Service, are evicted after their toleration and replaced', async () => {
  await using cluster = new Cluster(['n1', 'n2']);
  cluster.apply('web:1', {
    template: {
      metadata: { labels: { app: 'web' } },
      spec: {
        containers: [{ name: 'c', image: 'web:1' }],
        tolerations: [{ key: 'node.kubernetes.io/unreachable', operator: 'Exists', effect: 'NoExecute', tolerationSeconds: 60 }],
      },
    },
  });
  await cluster.run();
  const lost = cluster
    .pods()
    .filter((pod) => pod.spec.nodeName === 'n1')
    .map((pod) => String(pod.metadata.name));
  assert.ok(lost.length > 0);
  for (let seconds = 0; seconds < 60; seconds += 5) {
    cluster.beat('n2');
    await cluster.clock.advance(5000);
  }
  const node = cluster.api.objects<Node>(nodes()).find((one) => one.metadata.name === 'n1');
  assert.equal(node?.status?.conditions?.find((condition) => condition.type === 'Ready')?.status, 'Unknown');
  assert.deepEqual(
    node?.spec.taints?.map((taint) => taint.effect),
    ['NoSchedule', 'NoExecute'],
  );
  assert.ok(
    cluster
      .pods()
      .filter((pod) => lost.includes(String(pod.metadata.name)))
      .every((pod) => pod.status?.conditions?.find((condition) => condition.type === 'Ready')?.status === 'False'),
  );
  for (let seconds = 0; seconds < 65; seconds += 5) {
    cluster.beat('n2');
    await cluster.clock.advance(5000);
  }
  const marked = cluster.pods().filter((pod) => pod.metadata.deletionTimestamp);
  assert.deepEqual(marked.map((pod) => String(pod.metadata.name)).toSorted(), lost.toSorted());
  assert.equal(cluster.pods().filter((pod) => !pod.metadata.deletionTimestamp && pod.spec.nodeName === 'n2').length, 3);
});

test('a clock that is set anew, forward or back, loses no node', async () => {
  for (const jumpMs of [3_600_000, -3_600_000]) {
    await using cluster = new Cluster(['n1', 'n2']);
    await cluster.run();
    cluster.clock.jumpWall(jumpMs);
    const states = new Set<string | undefined>();
    for (let seconds = 0; seconds < 120; seconds += 5) {
      // The first renewal after the jump comes when it is due, not at once.
      if (seconds >= 10) for (const name of ['n1', 'n2']) cluster.beat(name);
      await cluster.clock.advance(5000);
      for (const node of cluster.api.objects<Node>(nodes())) states.add(node.status?.conditions?.find((one) => one.type === 'Ready')?.status);
    }
    assert.deepEqual([...states], ['True'], `${jumpMs} ms`);
  }
});
