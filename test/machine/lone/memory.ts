import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { messageOf } from '../../../base/errors.ts';
import { pods, subresource } from '../../../base/kubeapi/refs.ts';
import { hostOf } from '../../../base/process.ts';
import type { Container, Pod } from '../../../proto/kube/types.ts';
import { classFacts, podFacts, type CgroupFacts } from './facts.ts';
import { LoneNode, type Agent, type Driver } from './node.ts';
import { isReady, make, makeNamespace } from './pods.ts';

/*
 * In a machine with cgroup v2 (`nodelet machine run memory`): what becomes of memory requests and limits under MemoryQoS, of
 * resources of whole pods, and of OOM scores, with upstream's kubelet and with ours: every control of every cgroup must be the
 * same. `memory.ts [AGENT:DRIVER…]` chooses; what was seen goes to /exchange/out.
 */

const OUT = '/exchange/out';
const NAMESPACE = 'memory';
const IMAGE = 'docker.io/contract/busybox:1';
const ALL = ['upstream:systemd', 'ours:systemd', 'upstream:cgroupfs', 'ours:cgroupfs'];
/** Longer than the minute after which either kubelet looks at its classes again. */
const STILL_MS = 65_000;
/** Classes that never stand still are read all the same. */
const CLASS_MS = 150_000;
const POLL_MS = 1000;

type Lists = NonNullable<Container['resources']>;
const asks = (cpu: string, memory: string): Record<string, string> => ({ ...(cpu === '' ? {} : { cpu }), ...(memory === '' ? {} : { memory }) });
const of = (requests: Record<string, string>, limits: Record<string, string> = {}): Lists => ({ requests, limits });

/** Shapes of pods: what each container has, and what the pod has as a whole. */
const SHAPES: Readonly<Record<string, { readonly containers: readonly Lists[]; readonly whole?: Lists; readonly isCritical?: true }>> = {
  burstable: { containers: [of(asks('50m', '256Mi'), asks('100m', '512Mi'))] },
  guaranteed: { containers: [of(asks('100m', '64Mi'), asks('100m', '64Mi'))] },
  'best-effort': { containers: [{}] },
  two: { containers: [of(asks('', '32Mi'), asks('', '128Mi')), of(asks('', '64Mi'), asks('', '128Mi'))] },
  'no-limit': { containers: [of(asks('', '48Mi'))] },
  equal: { containers: [of(asks('100m', '32Mi'), asks('200m', '32Mi'))] },
  critical: { containers: [of(asks('', '16Mi'))], isCritical: true },
  whole: { containers: [{}, of(asks('30m', '30Mi'), asks('50m', '50Mi'))], whole: of(asks('100m', '100Mi'), asks('200m', '200Mi')) },
  'whole-guaranteed': { containers: [{}, of(asks('30m', '30Mi'), asks('50m', '50Mi'))], whole: of(asks('100m', '96Mi'), asks('100m', '96Mi')) },
  'whole-requests': { containers: [of(asks('50m', '50Mi'), asks('50m', '50Mi')), {}], whole: of(asks('100m', '100Mi')) },
  'whole-limits': { containers: [of(asks('50m', '50Mi')), of(asks('', ''), asks('30m', '30Mi'))], whole: of({}, asks('100m', '100Mi')) },
};
/** The one that is resized, and the one that goes. */
const RESIZED = 'burstable';
const GOES = 'two';

function podOf(name: string): Pod {
  const { containers = [], whole, isCritical } = SHAPES[name] ?? {};
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, namespace: NAMESPACE },
    spec: {
      terminationGracePeriodSeconds: 1,
      ...(whole === undefined ? {} : { resources: whole }),
      ...(isCritical === true ? { priorityClassName: 'system-node-critical' } : {}),
      containers: containers.map((resources, index) => ({ name: `c${index + 1}`, image: IMAGE, command: ['sleep', '100000'], resources })),
    },
  };
}

/** What stands in the cgroups, and the OOM scores of their processes, step by step. */
type Seen = Record<string, CgroupFacts>;

const host = hostOf(process.argv.slice(2));
let failed = 0;
const say = (text: string): void => host.stdout(`${text}\n`);
const step = async (text: string): Promise<void> => say(`== ${(await readFile('/proc/uptime', 'utf8')).split(' ')[0]} s: ${text}`);

/** The OOM scores of all containers of a pod by their status, the sandbox left out. */
async function scores(pod: Pod): Promise<Record<string, string>> {
  const found: Record<string, string> = {};
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  for (const { name, containerID = '' } of pod.status?.containerStatuses ?? []) {
    const id = containerID.replace(/^.*:\/\//, '');
    for (const pid of pids) {
      const cgroup = await readFile(`/proc/${pid}/cgroup`, 'utf8').catch(() => '');
      if (id !== '' && cgroup.includes(id)) found[name] = (await readFile(`/proc/${pid}/oom_score_adj`, 'utf8').catch(() => '')).trim();
    }
  }
  return found;
}

async function look(node: LoneNode, driver: Driver, names: readonly string[]): Promise<CgroupFacts> {
  const all: CgroupFacts = await classFacts(driver);
  for (const name of names) {
    const pod = await node.api.get<Pod>(pods(NAMESPACE, name));
    for (const [path, files] of Object.entries(await podFacts(driver, pod))) all[`${name}: ${path}`] = files;
    all[`${name}: oom_score_adj`] = await scores(pod);
  }
  return all;
}

/** Waits until the classes have stood still for longer than the minute after which a kubelet looks at them again. */
async function classesSettle(driver: Driver): Promise<void> {
  const began = performance.now();
  let [last, since] = [JSON.stringify(await classFacts(driver)), began];
  while (performance.now() - since < STILL_MS && performance.now() - began < CLASS_MS) {
    await delay(POLL_MS);
    const now = JSON.stringify(await classFacts(driver));
    if (now !== last) [last, since] = [now, performance.now()];
  }
}

async function resize(node: LoneNode, request: number, limit: number): Promise<void> {
  const resources = { requests: { memory: `${request}Mi` }, limits: { memory: `${limit}Mi` } };
  const patch = { spec: { containers: [{ name: 'c1', resources }] } };
  await node.api.patch(subresource(pods(NAMESPACE, RESIZED), 'resize'), 'strategic', patch);
  await node.until(NAMESPACE, RESIZED, 'resized', ({ status }) => {
    const told = status?.containerStatuses?.[0]?.resources?.limits?.['memory'];
    return told === `${limit}Mi` && !(status?.conditions ?? []).some(({ type }) => type.startsWith('PodResize'));
  });
}

async function observe(node: LoneNode, agent: string, driver: Driver): Promise<Seen> {
  const seen: Seen = {};
  const names = Object.keys(SHAPES);
  const note = async (title: string, of_: readonly string[]): Promise<void> => {
    await classesSettle(driver);
    seen[title] = await look(node, driver, of_);
    await step(`${agent}, ${driver}: ${title}`);
  };
  await makeNamespace(node, NAMESPACE);
  for (const name of names) await make(node, podOf(name));
  for (const name of names) await node.until(NAMESPACE, name, 'Ready', isReady);
  await note('protected and throttled', names);
  await resize(node, 288, 384);
  await note('one resized', [RESIZED]);
  await node.remove(NAMESPACE, [GOES]);
  await note('one gone', []);
  const rest = names.filter((name) => name !== GOES);
  await node.configure({ memoryReservationPolicy: 'None' });
  await note('nothing protected any more', rest);
  await node.configure({ featureGates: { MemoryQoS: false }, memoryThrottlingFactor: undefined });
  await note('without the gate', rest);
  await resize(node, 128, 256);
  await note('resized without the gate', [RESIZED]);
  return seen;
}

async function tryOne(agent: Agent, driver: Driver): Promise<Seen | null> {
  try {
    await using node = await LoneNode.open({
      agent,
      driver,
      folder: `/var/lib/lone/${agent}-${driver}`,
      assets: host.env['NODELET_ASSETS'] ?? null,
      dist: new URL('../../../dist', import.meta.url).pathname,
      image: IMAGE,
      signal: host.signal,
      configuration: { featureGates: { MemoryQoS: true }, memoryReservationPolicy: 'TieredReservation', memoryThrottlingFactor: 0.9 },
    });
    try {
      return await observe(node, agent, driver);
    } catch (error) {
      for (const line of await node.lastWords()) say(`     ${line}`);
      throw error;
    }
  } catch (error) {
    failed += 1;
    say(`FAIL ${agent}, ${driver}: ${messageOf(error)}`);
    return null;
  }
}

/** Where two kubelets differ, a line each. */
function differences(upstream: Seen, ours: Seen): string[] {
  const lines: string[] = [];
  for (const title of Object.keys(upstream)) {
    const [theirs, own] = [upstream[title] ?? {}, ours[title] ?? {}];
    for (const path of [...new Set([...Object.keys(theirs), ...Object.keys(own)])].sort())
      for (const file of [...new Set([...Object.keys(theirs[path] ?? {}), ...Object.keys(own[path] ?? {})])].sort()) {
        const [a, b] = [theirs[path]?.[file] ?? 'not there', own[path]?.[file] ?? 'not there'];
        if (a !== b) lines.push(`${title}: ${path}/${file}: upstream ${a}, ours ${b}`);
      }
  }
  return lines;
}

const results = new Map<string, Seen | null>();
for (const choice of ALL.filter((one) => host.args.length === 0 || host.args.includes(one))) {
  const [agent, driver] = choice.split(':') as [Agent, Driver];
  await step(`${agent}, ${driver}`);
  const seen = await tryOne(agent, driver);
  results.set(choice, seen);
  await mkdir(OUT, { recursive: true });
  if (seen !== null) await writeFile(`${OUT}/memory-${agent}-${driver}.json`, `${JSON.stringify(seen, null, 1)}\n`);
}
for (const driver of ['systemd', 'cgroupfs']) {
  const [upstream, ours] = [results.get(`upstream:${driver}`), results.get(`ours:${driver}`)];
  if (upstream === undefined || upstream === null || ours === undefined || ours === null) continue;
  const lines = differences(upstream, ours);
  failed += lines.length;
  for (const line of lines) say(`FAIL ${driver}: ${line}`);
  const all = Object.values(upstream)
    .flatMap((facts) => Object.values(facts))
    .reduce((count, files) => count + Object.keys(files).length, 0);
  say(`ok   ${driver}: ${all - lines.length} of ${all} values as upstream's`);
}
await step('end');
say(`memory: ${failed} failed`);
process.exitCode = failed > 0 ? 1 : 0;
