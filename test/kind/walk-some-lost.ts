import type { Steps } from './walk-steps.ts';
import { first, mostLost, statusOf, taintsOf } from './walk-facts.ts';
import { impatient, SHOP } from './walk-manifests.ts';
import { GRACE_MS, SLACK_MS, UNREACHABLE } from './walk-lost.ts';
import { inShop } from './walk-two.ts';
import { awaited, nodeReady, Recorder, type Cluster } from './walk-world.ts';

const PATIENCE_S = 5;
/** One node in 10 s: kube-controller-manager's --node-eviction-rate of 0.1. */
const APART_MS = 10_000;
/** How much of it may be lost between the controller and the watch here. */
const WATCH_MS = 500;
const READY_MS = 180_000;
const PATHS = {
  nodes: '/api/v1/nodes',
  pods: `/api/v1/namespaces/${SHOP}/pods`,
  leases: '/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases',
} as const;

const seconds = (ms: number): string => `${(ms / 1000).toFixed(1)} s`;

/**
 * The second half of step 2.14: several workers are killed at once, as many as may be lost while evictions go on, and
 * their pods leave one node after the other.
 */
export async function walkSomeLost(steps: Steps, cluster: Cluster): Promise<void> {
  const lost = cluster.workers.slice(0, mostLost(cluster.workers.length + 1));
  await steps.step('2.14b', `${lost.length} of ${cluster.workers.length + 1} nodes lost at once: evicted at most one node in 10 s`, async (saw) => {
    const names = lost.map((_node, at) => `leaving-${at}`);
    await cluster.k(['create', 'namespace', SHOP]).catch(() => undefined);
    for (const [at, node] of lost.entries()) await cluster.k(['apply', '--filename=-'], impatient(names[at] ?? '', node, PATIENCE_S));
    await cluster.k(inShop('wait', '--for=condition=Ready', ...names.map((name) => `pod/${name}`), '--timeout=180s'));
    await using record = new Recorder(cluster, PATHS);
    await record.until('every watch tells', 30_000, (told) => (Object.keys(PATHS).every((kind) => told.some((one) => one.kind === kind)) ? true : null));
    await renewTogether(cluster, record, lost);
    const killedMs = Date.now();
    try {
      await cluster.docker(['kill', ...lost]);
      const unknown: number[] = [];
      const tainted: number[] = [];
      const marked: number[] = [];
      const wait = GRACE_MS + 3 * SLACK_MS + lost.length * APART_MS;
      for (const [at, node] of lost.entries()) {
        const its = (told: Parameters<typeof first>[0], isWanted: Parameters<typeof first>[2]): number | null => first(told, killedMs, isWanted)?.atMs ?? null;
        const ofNode = (kind: string, name: string): boolean => kind === 'nodes' && name === node;
        unknown.push(
          await record.until(`${node} is Unknown`, wait, (told) =>
            its(told, ({ kind, object }) => ofNode(kind, object.metadata.name) && statusOf(object, 'Ready') === 'Unknown'),
          ),
        );
        tainted.push(
          await record.until(`${node} has the taint that evicts`, wait, (told) =>
            its(told, ({ kind, object }) => ofNode(kind, object.metadata.name) && taintsOf(object, UNREACHABLE).includes('NoExecute')),
          ),
        );
        marked.push(
          await record.until(`${names[at] ?? ''} is marked`, wait, (told) =>
            its(told, ({ kind, object }) => kind === 'pods' && object.metadata.name === names[at] && object.metadata.deletionTimestamp !== undefined),
          ),
        );
      }
      const spread = Math.max(...unknown) - Math.min(...unknown);
      saw.check(spread < APART_MS, `Unknown ${lost.map((node, at) => `${node} ${seconds((unknown[at] ?? 0) - killedMs)}`).join(', ')} after they were killed`);
      const apart = gaps(tainted);
      saw.check(
        apart.every((gap) => gap >= APART_MS - WATCH_MS),
        `NoExecute ${apart.map(seconds).join(', ')} apart`,
      );
      const left = gaps(marked);
      saw.check(
        left.every((gap) => gap >= APART_MS - WATCH_MS - 1_000),
        `their pods, with a patience of ${PATIENCE_S} s, are marked ${left.map(seconds).join(', ')} apart`,
      );
    } finally {
      await cluster.docker(['start', ...lost]);
    }
    for (const node of lost) await awaited(cluster, `${node} is Ready`, READY_MS, async () => ((await nodeReady(cluster, node)) ? true : null));
    await record.until('the pods are gone', READY_MS, (told) => (names.every((name) => hasGone(told, name)) ? true : null));
    saw.check(true, 'all are Ready again, and the marked pods are gone');
  });
}

const gaps = (times: readonly number[]): number[] => times.toSorted((a, b) => a - b).flatMap((time, at, all) => (at === 0 ? [] : [time - (all[at - 1] ?? 0)]));

const hasGone = (told: Parameters<typeof first>[0], name: string): boolean =>
  told.some(({ kind, type, object }) => kind === 'pods' && type === 'DELETED' && object.metadata.name === name);

/** Starts the kubelets again at once, so that their last renewals lie close together. */
async function renewTogether(cluster: Cluster, record: Recorder, nodes: readonly string[]): Promise<void> {
  await Promise.all(nodes.map((node) => cluster.at(node).inside(['systemctl', 'restart', 'kubelet'])));
  const startedMs = Date.now();
  await record.until('every Lease is renewed', 60_000, (told) =>
    nodes.every((node) => first(told, startedMs, ({ kind, object }) => kind === 'leases' && object.metadata.name === node) !== null) ? true : null,
  );
}
