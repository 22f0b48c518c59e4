import type { Saw } from './walk-steps.ts';
import { first, isReady, podOf, taintsOf, uidOf, type Told } from './walk-facts.ts';
import { SHOP } from './walk-manifests.ts';
import { inShop } from './walk-two.ts';
import { awaited, containersOf, sandboxesOf, type Cluster, type Recorder } from './walk-world.ts';

/** What ran on a node before it was lost. */
export interface Before {
  readonly pods: readonly { readonly namespace: string; readonly name: string; readonly uid: string }[];
  readonly containers: ReadonlySet<string>;
  readonly sandboxes: ReadonlySet<string>;
  readonly redisUid: string;
  /** UIDs of the web pods, on whichever node. */
  readonly webs: ReadonlySet<string>;
}

const READY_MS = 120_000;
/** Within this of Ready the deletions that waited are confirmed. */
const CONFIRMED_MS = 3_000;
/** What nobody needs any more is collected once a minute. */
const COLLECTED_MS = 150_000;

/** What the runtime of a node has. */
export async function runtimeOf(cluster: Cluster, node: string): Promise<Omit<Before, 'redisUid' | 'webs'>> {
  const place = cluster.at(node);
  const sandboxes = await sandboxesOf(place);
  const pods = new Map(
    sandboxes.map((one) => [uidOf(one), { namespace: podOf(one).split('/')[0] ?? '', name: podOf(one).split('/')[1] ?? '', uid: uidOf(one) }]),
  );
  return {
    pods: [...pods.values()],
    containers: new Set((await containersOf(place)).map(({ id }) => id)),
    sandboxes: new Set(sandboxes.map(({ id }) => id)),
  };
}

/** Step 2.12: the node is started, and what waited for it goes on. */
export async function returned(saw: Saw, cluster: Cluster, record: Recorder, node: string, before: Before, stoppedMs: number): Promise<void> {
  const begunMs = Date.now();
  const waiting = before.pods.filter(({ namespace }) => namespace === SHOP);
  await cluster.docker(['start', node]);
  const ready = await record.until('the node is Ready', READY_MS, (told) =>
    first(told, begunMs, (one) => one.kind === 'nodes' && one.object.metadata.name === node && isReady(one.object)),
  );
  saw.check(true, `Ready ${((ready.atMs - begunMs) / 1000).toFixed(1)} s after the start (1.8 s in the document)`);
  const deleted = await record.until('the waiting deletions are confirmed', READY_MS, (told) => {
    const gone = told.filter((one) => one.atMs >= begunMs && one.type === 'DELETED' && waiting.some(({ uid }) => uid === one.object.metadata.uid));
    return gone.length === waiting.length ? gone : null;
  });
  const lastMs = Math.max(...deleted.map(({ atMs }) => atMs)) - ready.atMs;
  const words = deleted.map((one) => `${one.object.metadata.name} ${((one.atMs - ready.atMs) / 1000).toFixed(2)} s`).join(', ');
  saw.check(lastMs <= CONFIRMED_MS, `the waiting deletions are confirmed after Ready: ${words} (1.8 s in the document, at most 3 s)`);
  await redisAgain(saw, cluster, record, node, before, deleted, stoppedMs);
  const taints = await awaited(cluster, 'the taints are gone', READY_MS, async () => {
    const all = taintsOf(await cluster.get(['node', node]), 'node.kubernetes.io/unreachable');
    return all.length === 0 ? 'the taints are gone' : null;
  });
  saw.check(true, taints);
  await leftOver(saw, cluster, node, before);
}

async function redisAgain(
  saw: Saw,
  cluster: Cluster,
  record: Recorder,
  node: string,
  before: Before,
  deleted: readonly Told[],
  stoppedMs: number,
): Promise<void> {
  const gone = deleted.find(({ object }) => object.metadata.uid === before.redisUid);
  const isNew = ({ kind, object }: Told): boolean => kind === 'pods' && object.metadata.name === 'redis-0' && object.metadata.uid !== before.redisUid;
  const added = await record.until('a new redis-0 is there', READY_MS, (told) => first(told, stoppedMs, isNew));
  const ready = await record.until('it is Ready', READY_MS, (told) => first(told, stoppedMs, (one) => isNew(one) && isReady(one.object)));
  saw.check(gone !== undefined && gone.atMs <= added.atMs, `the new redis-0 is made ${added.atMs - (gone?.atMs ?? 0)} ms after the old is gone (6 ms)`);
  saw.check(ready.object.spec?.nodeName === node, `it runs on ${ready.object.spec?.nodeName ?? ''}, Ready ${ready.atMs - added.atMs} ms later (0.4 s)`);
  saw.note(`redis was away for ${((ready.atMs - stoppedMs) / 1000).toFixed(1)} s`);
  const data = await cluster.k(inShop('exec', 'redis-0', '--', 'redis-cli', 'get', 'greeting'));
  saw.check(data === 'hello', `greeting is ${data}`);
}

/** No container of the old set runs, and of pods that are no more there is soon neither sandbox nor container. */
async function leftOver(saw: Saw, cluster: Cluster, node: string, before: Before): Promise<void> {
  const place = cluster.at(node);
  const old = (await containersOf(place)).filter(({ id, state }) => before.containers.has(id) && state === 'CONTAINER_RUNNING');
  saw.check(old.length === 0, `no container of the old set runs${old.length === 0 ? '' : `: ${old.map(podOf).join(', ')}`}`);
  const live = (await sandboxesOf(place)).filter(({ id, state }) => before.sandboxes.has(id) && state === 'SANDBOX_READY');
  saw.check(live.length === 0, `no sandbox of the old set is Ready${live.length === 0 ? '' : `: ${live.map(podOf).join(', ')}`}`);
  const begunMs = performance.now();
  const stale = async (): Promise<string[]> => {
    const uids = new Set((await cluster.list(['pods', '--all-namespaces'])).map(({ metadata }) => metadata.uid));
    const all = [...(await sandboxesOf(place)), ...(await containersOf(place))];
    return all.filter((one) => !uids.has(uidOf(one))).map(podOf);
  };
  let last: string[] = [];
  await awaited(
    cluster,
    'nothing is left of pods that are no more',
    COLLECTED_MS,
    async () => ((last = await stale()).length === 0 ? true : null),
    2_000,
  ).catch(() => null);
  saw.check(
    last.length === 0,
    `stale sandboxes and containers are removed ${last.length === 0 ? `(${((performance.now() - begunMs) / 1000).toFixed(0)} s)` : `: ${last.join(', ')}`}`,
  );
}
