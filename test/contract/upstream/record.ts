import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Pod } from '../../../proto/kube/types.ts';
import type { Progress } from '../../../node/io/progress.ts';
import { eventsOf, lookAtPod, writesOf } from './collect.ts';
import { keepCalls } from './keep-calls.ts';
import type { Lab } from './lab.ts';
import { normalise, type Names } from '../../../cri/core/by-nature.ts';
import { IMAGE, NAMESPACE, OBJECTS, PODS, type RecordedPod } from './pods.ts';
import { requestsOf } from './requests.ts';

const READY_MS = 120_000;
const RESTARTED_MS = 180_000;
const GONE_MS = 60_000;
/** A kubelet takes dead sandboxes away once a minute. */
const SWEPT_MS = 150_000;

async function podOf(lab: Lab, name: string): Promise<Pod> {
  return lab.get<Pod>(['pod', '-n', NAMESPACE, name]);
}

async function reached(lab: Lab, { name, until }: RecordedPod): Promise<Pod> {
  return lab.until(
    `${name} to be ${'condition' in until ? until.condition : `started again ${until.restarts} times`}`,
    async () => {
      const pod = await podOf(lab, name);
      if ('condition' in until) return pod.status?.conditions?.find(({ type }) => type === until.condition)?.status === 'True' ? pod : null;
      const [main] = pod.status?.containerStatuses ?? [];
      return (main?.restartCount ?? 0) >= until.restarts && main?.state?.waiting?.reason === 'CrashLoopBackOff' ? pod : null;
    },
    'condition' in until ? READY_MS : RESTARTED_MS,
  );
}

async function resize(lab: Lab, name: string, resources: object): Promise<Pod> {
  const patch = JSON.stringify({ spec: { containers: [{ name: 'main', resources }] } });
  await lab.kubectl(['patch', 'pod', '-n', NAMESPACE, name, '--subresource', 'resize', '--patch', patch]);
  return lab.until(
    `${name} to have its new resources`,
    async () => {
      const pod = await podOf(lab, name);
      const told = pod.status?.containerStatuses?.[0]?.resources;
      const wanted = resources as { limits: { cpu: string; memory: string } };
      const settled = !(pod.status?.conditions ?? []).some(({ type }) => type.startsWith('PodResize'));
      return settled && told?.limits?.cpu === wanted.limits.cpu && told.limits.memory === wanted.limits.memory ? pod : null;
    },
    READY_MS,
  );
}

/** Of one pod: its names for what was made up, and what was seen of it. */
interface Seen {
  readonly uid: string;
  readonly names: Names;
  /** As the API server has it: defaults, service account volume and tolerations are in it. */
  readonly pod: Pod;
  readonly running: Record<string, unknown>;
  readonly resized?: Record<string, unknown>;
}

async function live(lab: Lab, recorded: RecordedPod): Promise<Seen> {
  await lab.kubectl(['apply', '-f', '-'], JSON.stringify(recorded.pod));
  const pod = await reached(lab, recorded);
  const uid = pod.metadata.uid ?? '';
  const names: Names = {
    texts: new Map([
      [uid, '<pod uid>'],
      [uid.replaceAll('-', '_'), '<pod_uid>'],
      [pod.status?.podIP ?? '', '<pod ip>'],
      ...idsOf(pod),
      ...(await clusterTexts(lab)),
    ]),
  };
  const running = await lookAtPod(lab, pod);
  const after = recorded.resizeTo === undefined ? undefined : await resize(lab, recorded.name, recorded.resizeTo);
  const resized = after === undefined ? undefined : await lookAtPod(lab, after);
  await lab.kubectl(['delete', 'pod', '-n', NAMESPACE, recorded.name, '--wait=false']);
  await lab.until(`${recorded.name} to be gone`, async () => ((await exists(lab, recorded.name)) ? null : true), GONE_MS);
  const { status: _status, ...asked } = pod;
  return { uid, names, pod: asked, running, ...(resized === undefined ? {} : { resized: { cgroups: resized['cgroups'], state: resized['state'] } }) };
}

async function exists(lab: Lab, name: string): Promise<boolean> {
  return (await lab.kubectl(['get', 'pod', '-n', NAMESPACE, name, '--ignore-not-found', '-o', 'name'])) !== '';
}

/** Ids of the containers that are there; the one that is left over is the sandbox's. */
function idsOf(pod: Pod): [string, string][] {
  const statuses = [...(pod.status?.initContainerStatuses ?? []), ...(pod.status?.containerStatuses ?? [])];
  return statuses.flatMap(({ name, restartCount, containerID = '', lastState }) => {
    const last = lastState?.terminated?.containerID ?? '';
    return [
      [containerID.replace('containerd://', ''), `<container ${name}#${restartCount}>`],
      [last.replace('containerd://', ''), `<container ${name}#${restartCount - 1}>`],
    ] as [string, string][];
  });
}

async function clusterTexts(lab: Lab): Promise<[string, string][]> {
  const service = async (namespace: string, name: string): Promise<string> =>
    lab.kubectl(['get', 'service', '-n', namespace, name, '--ignore-not-found', '-o', 'jsonpath={.spec.clusterIP}']);
  const dns = (await readFile(`${lab.node.directory}/agent.json`, 'utf8')).match(/"clusterDNS":\s*\[\s*"([^"]+)"/)?.[1] ?? '';
  return [
    [lab.node.ip, '<node ip>'],
    [lab.node.name, '<node>'],
    [await service('default', 'kubernetes'), '<api service ip>'],
    [dns, '<dns ip>'],
    [`/nodelet-${lab.name}/${lab.node.name}`, '/<node cgroup>'],
  ];
}

async function swept(file: string, uids: readonly string[]): Promise<boolean> {
  for (const uid of uids) if (!(await requestsOf(file, uid)).some(({ method }) => method === 'RemovePodSandbox')) return false;
  return true;
}

/** Where the calls go beside: all of them, with secrets; and those about the six pods, without. */
export interface Recordings {
  readonly keep?: string;
  readonly calls?: string;
}

/** Runs the six pods one after the other on a cluster that is up, and writes one file for each into `out`. */
export async function recordPods(lab: Lab, agent: 'ours' | 'upstream', out: string, progress: Progress, recordings: Recordings = {}): Promise<string[]> {
  const folder = await mkdtemp(join(tmpdir(), 'contract-'));
  const file = recordings.keep ?? join(folder, 'calls.crirec');
  try {
    await lab.kubectl(['create', 'namespace', NAMESPACE]).catch(() => '');
    await lab.kubectl(['delete', 'pods', '--all', '-n', NAMESPACE, '--grace-period=1']);
    await lab.kubectl(['apply', '-f', '-'], JSON.stringify({ apiVersion: 'v1', kind: 'List', items: OBJECTS }));
    await progress.step('image made', () => lab.nodelet(['image', 'make', IMAGE, '--from', 'busybox']));
    const seen = new Map<string, Seen>();
    {
      await using _tap = await progress.step('tap between kubelet and runtime', () => lab.tap(file, agent));
      try {
        await lab.until('the service account', () => lab.kubectl(['get', 'serviceaccount', '-n', NAMESPACE, 'default']), READY_MS);
        await lab.until('the node', async () => ((await lab.kubectl(['get', 'node', lab.node.name])).includes(' Ready') ? true : null), READY_MS);
        for (const recorded of PODS) seen.set(recorded.name, await progress.step(`pod ${recorded.name}`, () => live(lab, recorded)));
        await progress.step('sandboxes taken away', () =>
          lab.until(
            'the sandboxes to be taken away',
            async () =>
              (await swept(
                file,
                [...seen.values()].map(({ uid }) => uid),
              ))
                ? true
                : null,
            SWEPT_MS,
          ),
        );
      } catch (error) {
        lab.failing = true;
        throw error;
      }
    }
    if (recordings.calls !== undefined) await keepCalls(file, recordings.calls);
    await mkdir(out, { recursive: true });
    const written: string[] = [];
    for (const [name, { uid, names, pod, running, resized }] of seen) {
      const contract = normalise(
        {
          pod,
          cri: await requestsOf(file, uid),
          running,
          ...(resized === undefined ? {} : { resized }),
          apiWrites: await writesOf(`${lab.node.directory}/../../hub/log/audit.log`, name, uid),
          events: await eventsOf(lab, uid),
        },
        names,
      );
      const path = join(out, `${name}.json`);
      await writeFile(path, `${JSON.stringify(contract, null, 1)}\n`);
      written.push(path);
    }
    return written;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
