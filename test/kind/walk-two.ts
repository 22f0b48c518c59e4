import { shopService } from '../walkthrough/manifests.ts';
import type { Saw, Steps } from './walk-steps.ts';
import { isReady, podOf, type Seen } from './walk-facts.ts';
import type { Registry } from './walk-images.ts';
import { redis, SHOP, spread, web } from './walk-manifests.ts';
import { awaited, containersOf, rolledOut, sandboxesOf, type Cluster } from './walk-world.ts';

const NODE_KUBECTL = ['kubectl', '--kubeconfig=/etc/kubernetes/kubelet.conf'] as const;
const ASKED = 24;
/** What M2 asks for. */
const WEB_IMAGE = 'nginx:1.30-alpine';
const READY_MS = 180_000;

export const inShop = (...args: readonly string[]): string[] => ['--namespace', SHOP, ...args];

/** Pods of an app in the order in which they were made, without those that are ending. */
export async function podsOf(cluster: Cluster, app: string): Promise<readonly Seen[]> {
  const pods = await cluster.list(inShop('pods', `--selector=app=${app}`, '--sort-by=.metadata.creationTimestamp'));
  return pods.filter(({ metadata }) => metadata.deletionTimestamp === undefined);
}

const byNode = (cluster: Cluster, pods: readonly Seen[]): string =>
  cluster.workers.map((node) => `${pods.filter(({ spec }) => spec?.nodeName === node).length} on ${node}`).join(', ');

/** Namespace, Deployment, Service and StatefulSet of the documents, as steps 2.1 to 2.6 and the lost node need them. */
export async function settle(cluster: Cluster): Promise<void> {
  await cluster.k(['create', 'namespace', SHOP]);
  await cluster.k(['apply', '--filename=-'], web);
  await rolledOut(cluster, SHOP, 'deployment/web');
}

export async function serveShop(cluster: Cluster): Promise<void> {
  await cluster.k(['apply', '--filename=-'], shopService);
  for (const { metadata } of await podsOf(cluster, 'web'))
    await cluster.k(inShop('exec', metadata.name, '--', 'sh', '-c', `echo ${metadata.name} >/usr/share/nginx/html/name`));
}

export async function startRedis(cluster: Cluster): Promise<void> {
  await cluster.k(['apply', '--filename=-'], redis);
  await rolledOut(cluster, SHOP, 'statefulset/redis');
}

/** Steps 2.1 to 2.6: pods on two workers, and what one node may and does see of the other. */
export async function walkTwo(steps: Steps, cluster: Cluster, registry: Registry | null): Promise<void> {
  // What a node gave away before counts on: only where it gave nothing yet is the first address .2.
  const fresh = new Set<string>();
  for (const node of cluster.workers) {
    const { stdout } = await cluster.at(node).ask(['sh', '-c', 'ls /run/cni-addresses/*/ 2>/dev/null | grep -c "^10\\."']);
    const last = await cluster.at(node).ask(['sh', '-c', 'ls /run/cni-addresses/*/last_reserved_ip.0']);
    if (stdout.trim() === '0' && last.code !== 0) fresh.add(node);
  }
  await steps.step('2.1', 'three web pods on two workers', async (saw) => {
    // What was walked before has left it, and then nobody pulls.
    if (registry !== null) for (const node of cluster.workers) await cluster.at(node).ask(['crictl', 'rmi', WEB_IMAGE]);
    await settle(cluster);
    const pods = await podsOf(cluster, 'web');
    saw.check(
      pods.length === 3 && pods.every(({ spec }) => cluster.workers.includes(spec?.nodeName ?? '')),
      `web: ${byNode(cluster, pods)}; none on the control plane`,
    );
    await cluster.k(['apply', '--filename=-'], spread);
    await rolledOut(cluster, SHOP, 'deployment/even');
    const even = await podsOf(cluster, 'even');
    saw.check(
      cluster.workers.every((node) => even.some(({ spec }) => spec?.nodeName === node)),
      `with DoNotSchedule and maxSkew 1: ${byNode(cluster, even)}`,
    );
    await cluster.k(inShop('delete', 'deployment', 'even', '--wait=true'));
    await awaited(cluster, 'its pods are gone', READY_MS, async () => ((await cluster.list(inShop('pods', '--selector=app=even'))).length === 0 ? true : null));
  });
  const pods = await podsOf(cluster, 'web').catch(() => []);
  await steps.step('2.3', 'a slice of 10.244.0.0/16 for each node, and pods that reach each other', (saw) => addresses(saw, cluster, pods, fresh));
  await steps.step('2.4', 'each node pulls an image once', async (saw) => {
    if (registry === null) return saw.note('not looked at: the engine runs on another machine, and the images were loaded');
    for (const node of cluster.workers.filter((one) => pods.some(({ spec }) => spec?.nodeName === one))) {
      const [address = ''] = (await cluster.get(['node', node])).status?.addresses?.filter(({ type }) => type === 'InternalIP').map((one) => one.address) ?? [];
      const asked = registry.pulls.filter((one) => one === `library/nginx from ${address}` || one === `library/nginx from ::ffff:${address}`);
      saw.check(asked.length === 1, `${node} asked the registry for nginx ${asked.length} times`);
    }
    const events = await cluster.k(
      inShop('get', 'events', '--field-selector=reason=Pulled', '--output=jsonpath={range .items[*]}{.involvedObject.name}: {.message}{"\\n"}{end}'),
    );
    for (const line of events.split('\n').filter((text) => text.startsWith('web-'))) saw.note(line);
  });
  await steps.step('2.6', 'sandboxes and containers as the runtime of each worker counts them', async (saw) => {
    for (const node of cluster.workers) {
      const place = cluster.at(node);
      const web = pods.filter(({ spec }) => spec?.nodeName === node).length;
      const sandboxes = (await sandboxesOf(place)).filter(({ state }) => state === 'SANDBOX_READY');
      const containers = (await containersOf(place)).filter(({ state }) => state === 'CONTAINER_RUNNING');
      saw.check(sandboxes.length === web + 2, `${node}: ${sandboxes.length} sandboxes: ${sandboxes.map(podOf).join(', ')}`);
      saw.check(containers.length === web + 2, `${node}: ${containers.length} containers`);
    }
  });
  await steps.step('2.5', 'the ClusterIP from each worker reaches pods on both', async (saw) => {
    await serveShop(cluster);
    const address = await cluster.k(inShop('get', 'service', 'web', '--output=jsonpath={.spec.clusterIP}'));
    for (const node of cluster.workers) {
      const line = `for i in $(seq ${ASKED}); do curl -fsS -m 5 http://${address}/name; done | sort | uniq -c`;
      const answers = await awaited(cluster, `${address} answers ${node}`, 30_000, async () => cluster.at(node).inside(['sh', '-ec', line]));
      const named = pods.filter(({ metadata }) => answers.includes(metadata.name));
      const nodes = new Set(named.map(({ spec }) => spec?.nodeName));
      saw.check(nodes.size === new Set(pods.map(({ spec }) => spec?.nodeName)).size, `from ${node}: ${answers.trim().replaceAll(/\s+/g, ' ')}`);
    }
  });
  await steps.step('2.2', 'a kubelet may ask for its own pods and what they name, and for no more', async (saw) => {
    await startRedis(cluster);
    await authorized(saw, cluster);
  });
}

async function addresses(saw: Saw, cluster: Cluster, pods: readonly Seen[], fresh: ReadonlySet<string>): Promise<void> {
  for (const node of cluster.workers) {
    const cidr = (await cluster.get(['node', node])).spec?.podCIDR ?? '';
    const here = pods.filter(({ spec }) => spec?.nodeName === node).map(({ status }) => status?.podIP ?? '');
    const prefix = cidr.replace(/0\/24$/, '');
    saw.check(/^10\.244\.\d+\.0\/24$/.test(cidr) && here.every((ip) => ip.startsWith(prefix)), `${node}: ${cidr}, web at ${here.join(' ')}`);
    const last = here.map((ip) => Number(ip.slice(prefix.length))).toSorted((a, b) => a - b);
    if (fresh.has(node))
      saw.check(last.join() === here.map((_ip, at) => at + 2).join(), `${node}: the first is .2, then one by one: ${last.map((one) => `.${one}`).join(' ')}`);
    else saw.note(`${node} had given addresses away before: .2 is not expected`);
  }
  const [one] = pods;
  const other = pods.find(({ spec }) => spec?.nodeName !== one?.spec?.nodeName);
  if (one === undefined || other === undefined) return saw.check(false, 'pods on both workers');
  for (const [from, to] of [
    [one, other],
    [other, one],
  ] as const) {
    await cluster.k(inShop('exec', from.metadata.name, '--', 'wget', '-q', '-O', '/dev/null', `http://${to.status?.podIP ?? ''}/`));
    const log = await awaited(cluster, 'the other pod logs the request', 10_000, async () => {
      const lines = (await cluster.k(inShop('logs', to.metadata.name))).split('\n').filter((line) => line.startsWith(`${from.status?.podIP ?? ''} `));
      return lines.at(-1) ?? null;
    });
    saw.check(log !== '', `${from.metadata.name} to ${to.metadata.name}, which logs ${log.slice(0, 60)}…`);
  }
}

async function authorized(saw: Saw, cluster: Cluster): Promise<void> {
  const [redisPod] = await podsOf(cluster, 'redis');
  const here = redisPod?.spec?.nodeName ?? '';
  saw.check(redisPod !== undefined && isReady(redisPod), `redis-0 is on ${here}`);
  for (const node of cluster.workers) {
    const ask = async (...args: string[]): Promise<string> => {
      const { code, stdout, stderr } = await cluster.at(node).ask([...NODE_KUBECTL, ...args]);
      return code === 0 ? stdout.trim() : stderr.trim();
    };
    const own = await ask('get', 'pods', '--all-namespaces', `--field-selector=spec.nodeName=${node}`, '--output=jsonpath={.items[*].spec.nodeName}');
    saw.check(
      own.split(' ').every((name) => name === node),
      `${node}: its own ${own.split(' ').length} pods are told`,
    );
    const all = await ask('get', 'pods', '--all-namespaces');
    saw.check(all.includes('Forbidden'), `${node}: all pods: ${all.slice(0, 180)}`);
    const secret = await ask(...inShop('get', 'secret', 'redis-auth', '--output=name'));
    if (node === here) saw.check(secret === 'secret/redis-auth', `${node}, where redis-0 is: ${secret}`);
    else saw.check(secret.includes('Forbidden'), `${node}: a Secret that none of its pods names: ${secret.slice(0, 180)}`);
  }
}
