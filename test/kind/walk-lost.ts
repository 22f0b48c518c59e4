import { setTimeout as delay } from 'node:timers/promises';
import type { Saw, Steps } from './walk-steps.ts';
import { first, isOf, isReady, lastRenewalMs, leastReady, overlaps, sendsTo, statusOf, taintsOf, type Told } from './walk-facts.ts';
import { impatient, SHOP } from './walk-manifests.ts';
import { returned, runtimeOf, type Before } from './walk-return.ts';
import { inShop, podsOf, serveShop, settle, startRedis } from './walk-two.ts';
import { awaited, Recorder, rolledOut, type Cluster } from './walk-world.ts';

export const UNREACHABLE = 'node.kubernetes.io/unreachable';
export const GRACE_MS = 50_000;
/** Later than the figures by no more than this: the controller looks every 5 s, and the machine has other work. */
export const SLACK_MS = 20_000;
const TOLERATED_S = 300;
const IMPATIENT = 'impatient';
const IMPATIENT_S = 60;
const ASKED = 20;
const STEPS = ['2.7', '2.8', '2.9', '2.10', '2.11', '2.12', '2.13'] as const;
const PATHS = {
  nodes: '/api/v1/nodes',
  pods: `/api/v1/namespaces/${SHOP}/pods`,
  endpointslices: `/apis/discovery.k8s.io/v1/namespaces/${SHOP}/endpointslices`,
  leases: '/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases',
} as const;

const ofNode = (one: Told, node: string): boolean => one.kind === 'nodes' && one.object.metadata.name === node;
const seconds = (ms: number): string => `${(ms / 1000).toFixed(1)} s`;

/** Steps 2.7 to 2.13: a worker stops as by power loss, its pods are evicted after their patience, and it comes back. */
export async function walkLost(steps: Steps, cluster: Cluster, wanted: string | null): Promise<void> {
  const ready = await steps.step('2.0', 'redis-0, one web pod and an impatient pod on the worker that will be lost', (saw) => prepare(saw, cluster, wanted));
  if (ready === null) return steps.unreached(STEPS, 'step 2.0 failed');
  const { node, before } = ready;
  await using record = new Recorder(cluster, PATHS);
  await record.until('every watch tells', 30_000, (told) => (Object.keys(PATHS).every((kind) => told.some((one) => one.kind === kind)) ? true : null));
  const lost = await steps.step('2.7', `${node} is stopped: Ready becomes Unknown, with taints`, (saw) => unknown(saw, cluster, record, node));
  if (lost === null) {
    await cluster.docker(['start', node]);
    return steps.unreached(STEPS, 'step 2.7 failed');
  }
  await steps.step('2.8', 'its web pod is out of the EndpointSlice at once after', (saw) => sliced(saw, cluster, record, { node, ...lost }));
  await steps.step('2.13', `a pod with tolerationSeconds ${IMPATIENT_S} is evicted first`, async (saw) => {
    const marked = await record.until('it is marked for deletion', IMPATIENT_S * 1000 + SLACK_MS, (told) =>
      first(told, lost.stoppedMs, ({ object }) => object.metadata.name === IMPATIENT && object.metadata.deletionTimestamp !== undefined),
    );
    const afterMs = marked.atMs - lost.taintedMs;
    saw.check(Math.abs(afterMs - IMPATIENT_S * 1000) < SLACK_MS, `${IMPATIENT} is marked ${seconds(afterMs)} after the taint`);
  });
  await steps.step('2.9', 'all pods there are marked for deletion after their tolerance, and stay', (saw) => evicted(saw, cluster, record, node, lost, before));
  await steps.step('2.10', 'a replacement on the other worker', (saw) => replaced(saw, cluster, record, { node, before, stoppedMs: lost.stoppedMs }));
  await steps.step('2.11', 'no second redis-0 while the first is Terminating', async (saw) => {
    const [redis] = await cluster.list(inShop('pods', '--selector=app=redis'));
    saw.check(redis?.metadata.uid === before.redisUid && redis.metadata.deletionTimestamp !== undefined, 'redis-0 is the old one, Terminating');
    saw.check(overlaps(record.told, 'redis-0').length === 0, `no other beside it for ${seconds(Date.now() - lost.stoppedMs)}`);
  });
  await steps.step('2.12', `${node} is started`, (saw) => returned(saw, cluster, record, node, before, lost.stoppedMs));
}

/** Puts redis-0 on a worker with one web pod at least, and remembers what runs there. */
async function prepare(saw: Saw, cluster: Cluster, wanted: string | null): Promise<{ node: string; before: Before }> {
  if ((await cluster.list(['namespaces', `--field-selector=metadata.name=${SHOP}`])).length === 0) {
    await settle(cluster);
    await serveShop(cluster);
  }
  const node = wanted ?? (await leastLoaded(cluster));
  const others = cluster.workers.filter((name) => name !== node);
  // redis-0 may be on another worker, whose volume it would keep.
  if ((await podsOf(cluster, 'redis'))[0]?.spec?.nodeName !== node) {
    await cluster.k(inShop('delete', 'statefulset,persistentvolumeclaim', '--all', '--ignore-not-found'));
    await without(cluster, others, () => startRedis(cluster));
  }
  await spreadWeb(cluster, node, others);
  await cluster.k(['apply', '--filename=-'], impatient(IMPATIENT, node, IMPATIENT_S));
  await cluster.k(inShop('wait', '--for=condition=Ready', `pod/${IMPATIENT}`, '--timeout=120s'));
  await cluster.k(inShop('exec', 'redis-0', '--', 'redis-cli', 'set', 'greeting', 'hello'));
  await cluster.k(inShop('exec', 'redis-0', '--', 'redis-cli', 'save'));
  const [redis] = await podsOf(cluster, 'redis');
  saw.check(redis?.spec?.nodeName === node && isReady(redis), `redis-0 on ${node} has greeting=hello, saved`);
  const web = (await podsOf(cluster, 'web')).filter(({ spec }) => spec?.nodeName === node);
  saw.check(web.length === 1, `${web.length} web pod on ${node}`);
  const version = (await cluster.get(['node', node])).status?.nodeInfo?.kubeletVersion ?? '';
  saw.note(`${node} has ${version}`);
  return {
    node,
    before: {
      ...(await runtimeOf(cluster, node)),
      redisUid: redis?.metadata.uid ?? '',
      webs: new Set((await podsOf(cluster, 'web')).map(({ metadata }) => metadata.uid ?? '')),
    },
  };
}

/** Something done while new pods go to other nodes. */
async function without(cluster: Cluster, nodes: readonly string[], run: () => Promise<void>): Promise<void> {
  for (const name of nodes) await cluster.k(['cordon', name]);
  try {
    await run();
  } finally {
    for (const name of nodes) await cluster.k(['uncordon', name]);
  }
}

async function leastLoaded(cluster: Cluster): Promise<string> {
  const pods = await podsOf(cluster, 'web');
  const count = (node: string): number => pods.filter(({ spec }) => spec?.nodeName === node).length;
  return cluster.workers.toSorted((a, b) => count(a) - count(b))[0] ?? '';
}

/** One web pod on `node`, the others elsewhere: then two stay Ready when it is lost, as in the documents. */
async function spreadWeb(cluster: Cluster, node: string, others: readonly string[]): Promise<void> {
  for (let round = 0; round < 5; round += 1) {
    const here = (await podsOf(cluster, 'web')).filter(({ spec }) => spec?.nodeName === node);
    if (here.length === 1) return;
    const away = here.length > 1 ? [node] : others;
    const [victim] = here.length > 1 ? here : (await podsOf(cluster, 'web')).slice(0, 1);
    await without(cluster, away, async () => {
      await cluster.k(inShop('delete', 'pod', victim?.metadata.name ?? ''));
      await rolledOut(cluster, SHOP, 'deployment/web');
    });
  }
}

interface Lost {
  readonly stoppedMs: number;
  readonly unknownMs: number;
  readonly taintedMs: number;
}

async function unknown(saw: Saw, cluster: Cluster, record: Recorder, node: string): Promise<Lost> {
  const begunMs = Date.now();
  await cluster.docker(['stop', node]);
  const stoppedMs = Date.now();
  saw.note(`docker stop took ${seconds(stoppedMs - begunMs)}`);
  const failed = await asked(cluster, await addressOf(cluster));
  saw.check(failed > 0, `${failed} of ${ASKED} new connections to web go nowhere meanwhile (a third)`);
  const gone = await record.until('Ready is Unknown', GRACE_MS + 3 * SLACK_MS, (told) =>
    first(told, begunMs, (one) => ofNode(one, node) && statusOf(one.object, 'Ready') === 'Unknown'),
  );
  const renewedMs = lastRenewalMs(record.told, node, gone.atMs) ?? 0;
  const afterMs = gone.atMs - renewedMs;
  saw.check(afterMs > GRACE_MS - 1000 && afterMs < GRACE_MS + SLACK_MS, `Unknown ${seconds(afterMs)} after the last renewal (50.5 s in the document)`);
  const tainted = await record.until('it has both taints', SLACK_MS, (told) =>
    first(told, begunMs, (one) => ofNode(one, node) && taintsOf(one.object, UNREACHABLE).join() === 'NoExecute,NoSchedule'),
  );
  saw.check(true, `${UNREACHABLE} with NoExecute and NoSchedule ${seconds(tainted.atMs - gone.atMs)} later`);
  const unready = await record.until('its pods are not Ready', SLACK_MS, (told) => {
    const last = new Map(told.filter(({ kind, type }) => kind === 'pods' && type !== 'DELETED').map((one) => [one.object.metadata.name, one.object]));
    const there = [...last.values()].filter(({ spec }) => spec?.nodeName === node);
    return there.length > 0 && there.every((pod) => statusOf(pod, 'Ready') === 'False') ? there : null;
  });
  saw.check(true, `Ready is False of ${unready.map(({ metadata }) => metadata.name).join(', ')}`);
  return { stoppedMs: begunMs, unknownMs: gone.atMs, taintedMs: tainted.atMs };
}

async function sliced(saw: Saw, cluster: Cluster, record: Recorder, { node, stoppedMs, unknownMs }: Lost & { node: string }): Promise<void> {
  const slices = record.told.filter(({ kind, object, atMs }) => kind === 'endpointslices' && object.metadata.name.startsWith('web-') && atMs >= stoppedMs);
  const out =
    slices.find(({ object }) => !sendsTo(object, node)) ??
    (await record.until('the slice has no ready endpoint there', SLACK_MS, (told) =>
      first(told, unknownMs, ({ kind, object }) => kind === 'endpointslices' && object.metadata.name.startsWith('web-') && !sendsTo(object, node)),
    ));
  const afterMs = out.atMs - unknownMs;
  saw.check(
    afterMs > -1000 && afterMs < SLACK_MS,
    `out of the slice ${seconds(afterMs)} after Unknown (15 ms), ${seconds(out.atMs - stoppedMs)} after the stop (44 s)`,
  );
  const address = await addressOf(cluster);
  const failed = await awaited(cluster, 'the proxies have followed', SLACK_MS, async () => ((await asked(cluster, address)) === 0 ? 0 : null));
  saw.check(failed === 0, `${ASKED} new connections from the control plane's node, none lost`);
}

const addressOf = (cluster: Cluster): Promise<string> => cluster.k(inShop('get', 'service', 'web', '--output=jsonpath={.spec.clusterIP}'));

/** How many of some new connections to the Service go nowhere. */
async function asked(cluster: Cluster, address: string): Promise<number> {
  const line = `n=0; for i in $(seq ${ASKED}); do curl -fsS -m 2 -o /dev/null http://${address}/ 2>/dev/null || n=$((n+1)); done; echo $n`;
  return Number(await cluster.control.inside(['sh', '-c', line]));
}

async function evicted(saw: Saw, cluster: Cluster, record: Recorder, node: string, lost: Lost, before: Before): Promise<void> {
  const names = (told: readonly Told[]): Told[] => {
    const marks = new Map<string, Told>();
    for (const one of told)
      if (one.kind === 'pods' && one.object.spec?.nodeName === node && one.object.metadata.deletionTimestamp !== undefined && one.atMs >= lost.taintedMs)
        if (!marks.has(one.object.metadata.name)) marks.set(one.object.metadata.name, one);
    return [...marks.values()].filter(({ object }) => object.metadata.name !== IMPATIENT);
  };
  const expected = before.pods.filter(({ namespace, name }) => namespace === SHOP && name !== IMPATIENT).length;
  const marked = await record.until('all pods there are marked', TOLERATED_S * 1000 + SLACK_MS, (told) =>
    names(told).length >= expected ? names(told) : null,
  );
  const times = marked.map(({ atMs }) => atMs - lost.taintedMs);
  saw.check(
    Math.min(...times) > TOLERATED_S * 1000 - 2_000 && Math.max(...times) < TOLERATED_S * 1000 + SLACK_MS,
    `${marked.map(({ object }) => object.metadata.name).join(', ')} marked ${times.map(seconds).join(', ')} after the taint (300.1 s)`,
  );
  await delay(5_000, undefined, { signal: cluster.engine.signal });
  const there = (await cluster.list(inShop('pods', `--field-selector=spec.nodeName=${node}`))).filter(
    ({ metadata }) => metadata.deletionTimestamp !== undefined,
  );
  saw.check(there.length === expected + 1, `5 s later ${there.length} are Terminating still`);
}

async function replaced(
  saw: Saw,
  cluster: Cluster,
  record: Recorder,
  { node, before, stoppedMs }: { node: string; before: Before; stoppedMs: number },
): Promise<void> {
  const isNew = ({ kind, object }: Told): boolean =>
    kind === 'pods' && isOf(object, 'web') && object.spec?.nodeName !== node && !before.webs.has(object.metadata.uid ?? '');
  const mark = first(record.told, stoppedMs, ({ kind, object }) => kind === 'pods' && isOf(object, 'web') && object.metadata.deletionTimestamp !== undefined);
  const added = await record.until('a new web pod is there', SLACK_MS, (told) => first(told, stoppedMs, (one) => one.type === 'ADDED' && isNew(one)));
  const uid = added.object.metadata.uid;
  const ready = await record.until('it is Ready', 60_000, (told) =>
    first(told, stoppedMs, (one) => isNew(one) && one.object.metadata.uid === uid && isReady(one.object)),
  );
  const ms = (from: Told | null, to: Told): string => (from === null ? '?' : `${to.atMs - from.atMs} ms`);
  saw.check(cluster.workers.includes(ready.object.spec?.nodeName ?? ''), `${ready.object.metadata.name} on ${ready.object.spec?.nodeName ?? ''}`);
  saw.note(`made ${ms(mark, added)} after the mark (12 ms), Ready ${ms(added, ready)} after that (1.4 s)`);
  const least = leastReady(record.told, 'web', stoppedMs);
  saw.check(least >= 2, `at least ${least} web pods Ready all the time`);
}
