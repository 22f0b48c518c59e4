import { setTimeout as delay } from 'node:timers/promises';
import type { Steps } from './walk-steps.ts';
import { statusOf } from './walk-facts.ts';
import { impatient, SHOP } from './walk-manifests.ts';
import { GRACE_MS, SLACK_MS, UNREACHABLE } from './walk-lost.ts';
import { inShop } from './walk-two.ts';
import { awaited, nodeReady, type Cluster } from './walk-world.ts';

/** Longer than the nodes' last renewals may lie apart: until the last of them is Unknown, the first counts as lost alone. */
const PATIENCE_S = 30;
const WATCHED_MS = 60_000;
const READY_MS = 180_000;

/**
 * Step 2.14: every kubelet of the cluster is silent at once, the control plane's own too, whose static pods run on. The
 * workers' containers are killed, as by power loss.
 */
export async function walkAllLost(steps: Steps, cluster: Cluster): Promise<void> {
  const nodes = [cluster.control.node, ...cluster.workers];
  await steps.step('2.14', 'all nodes lost at once: Unknown, and nobody is evicted', async (saw) => {
    await cluster.k(['create', 'namespace', SHOP]).catch(() => undefined);
    const names = cluster.workers.map((_node, at) => `waiting-${at}`);
    for (const [at, node] of cluster.workers.entries()) await cluster.k(['apply', '--filename=-'], impatient(names[at] ?? '', node, PATIENCE_S));
    await cluster.k(inShop('wait', '--for=condition=Ready', ...names.map((name) => `pod/${name}`), '--timeout=180s'));
    const uids = (): Promise<string> =>
      cluster.k(inShop('get', 'pods', ...names, '--output=jsonpath={range .items[*]}{.metadata.uid} {.metadata.deletionTimestamp} {end}'));
    const before = await uids();
    await cluster.control.inside(['systemctl', 'stop', 'kubelet']);
    try {
      await cluster.docker(['kill', ...cluster.workers]);
      await awaited(
        cluster,
        'every node is Unknown',
        GRACE_MS + 3 * SLACK_MS,
        async () => ((await cluster.list(['nodes'])).every((node) => statusOf(node, 'Ready') === 'Unknown') ? true : null),
        1_000,
      );
      saw.check(true, `Ready is Unknown of ${nodes.join(', ')}`);
      await delay(WATCHED_MS, undefined, { signal: cluster.engine.signal });
      const during = await uids();
      saw.check(during === before, `${names.join(', ')} would leave after ${PATIENCE_S} s, and are not marked ${WATCHED_MS / 1000} s later`);
      const taints = (await cluster.list(['nodes'])).flatMap(({ metadata, spec }) =>
        (spec?.taints ?? []).filter(({ key }) => key === UNREACHABLE).map(({ effect }) => `${metadata.name}: ${effect}`),
      );
      saw.check(!taints.some((text) => text.endsWith('NoExecute')), `taints: ${taints.join(', ') || 'none'}`);
    } finally {
      await cluster.control.inside(['systemctl', 'start', 'kubelet']);
      await cluster.docker(['start', ...cluster.workers]);
    }
    for (const node of nodes) await awaited(cluster, `${node} is Ready`, READY_MS, async () => ((await nodeReady(cluster, node)) ? true : null));
    await cluster.k(inShop('wait', '--for=condition=Ready', ...names.map((name) => `pod/${name}`), '--timeout=180s'));
    saw.check((await uids()) === before, 'all are Ready again, and the pods are the same');
  });
}
