import assert from 'node:assert/strict';
import type { NodePlan } from '../../../node/core/plan.ts';
import type { Lab } from './lab.ts';
import { apartOf, ledgerOf, sumOf, type Ledger } from './ledger.ts';
import { pinned } from './manifests.ts';
import { readyPods } from './objects.ts';
import type { Step } from './step.ts';

const LIVES = 3;
const NAMESPACE = 'ledger';

interface Life {
  readonly ledger: Ledger;
  readonly events: number;
  readonly tokens: number;
}

/** One pod from its creation until it is gone: everything that was written about it. */
async function live(lab: Lab, node: NodePlan, name: string): Promise<Life> {
  const sinceMs = Date.now();
  await lab.k(['apply', '-f', '-'], pinned(name, node.name, { namespace: NAMESPACE }));
  await readyPods(lab, NAMESPACE, `app=${name}`, 1);
  // A second look at a pod that runs must find nothing to write.
  await lab.pause(6_000);
  await lab.k(['-n', NAMESPACE, 'delete', 'pod', name]);
  await lab.pause(3_000);
  const events = await lab.audit(sinceMs);
  return { ledger: ledgerOf(events, NAMESPACE, name), ...apartOf(events, NAMESPACE, node.name) };
}

/** The more telling of two makes' numbers: the least of each kind over all lives, where one life may have had a write more by chance. */
const fewest = (lives: readonly Life[]): number => Math.min(...lives.map(({ ledger }) => sumOf(ledger['kubelet'])));

export const lifeStep: Step = {
  id: '4.7',
  what: 'writes about one pod’s life, by both makes of kubelet in turn',
  async run(lab) {
    await lab.kubectl(['create', 'namespace', NAMESPACE]);
    await lab.eventually('the namespace’s account', 30_000, async () =>
      (await lab.kubectl(['-n', NAMESPACE, 'get', 'serviceaccount', 'default'])).code === 0 ? true : null,
    );
    const [worker] = lab.workers;
    assert.ok(worker, 'a worker');
    const lives: Record<string, Life[]> = { upstream: [], ours: [] };
    // The first of each pulls the image, which leaves an Event more.
    for (const node of [worker, lab.aside]) await live(lab, node, `warm-${node.agent}`);
    for (let round = 1; round <= LIVES; round += 1) {
      // Order alternated.
      for (const node of round % 2 === 0 ? [lab.aside, worker] : [worker, lab.aside]) lives[node.agent]?.push(await live(lab, node, `${node.agent}-${round}`));
    }
    const { upstream = [], ours = [] } = lives;
    for (const side of [upstream, ours]) for (const { ledger } of side) assert.ok(sumOf(ledger['kubelet']) > 0, 'a kubelet wrote');
    const most = (side: readonly Life[], of: (life: Life) => number): number => Math.max(...side.map(of));
    const kubelet = ({ ledger }: Life): number => sumOf(ledger['kubelet']);
    assert.ok(
      fewest(ours) <= fewest(upstream) && most(ours, kubelet) <= most(upstream, kubelet),
      `ours ${ours.map(kubelet).join(' ')}, upstream ${upstream.map(kubelet).join(' ')}`,
    );
    assert.ok(most(ours, (life) => life.events) <= most(upstream, (life) => life.events), 'Events');
    assert.ok(most(ours, (life) => life.tokens) <= most(upstream, (life) => life.tokens), 'token requests');
    return { exact: { oursAboveUpstream: false }, seen: { upstream, ours } };
  },
};
