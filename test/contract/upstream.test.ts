import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { test } from 'node:test';
import { pods } from '../../base/kubeapi/refs.ts';
import { normalise } from '../../cri/core/by-nature.ts';
import { differences, type Difference } from '../../cri/core/differences.ts';
import { judge } from '../../cri/core/expected.ts';
import type { Interceptor, RuntimeCall } from '../../cri/transport.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { defaultPod } from '../../control/core/defaults-pod.ts';
import { AgentWorld } from '../golden/agent-world.ts';
import { comparableRequests, CONTRACTS, readContracts, readKnown } from './upstream/compare.ts';
import { NAMESPACE, OBJECTS, PODS } from './upstream/pods.ts';
import { requestsFrom, type CriRequest, type SeenCall } from './upstream/requests.ts';

/*
 * What upstream's kubelet asked of containerd for the six pods (recorded), and what our agent asks of the fake runtime
 * for the same pods. Whatever differs has its reason in upstream/known-fake.json, or this fails.
 */

const problem = existsSync(`${CONTRACTS}plain.json`) ? null : 'no recordings: make them with nodelet contract record';
if (problem !== null) console.log(`skipped: ${problem}`);

/** The rest depends on the clock (garbage collection) or on parts that are fakes here (cgroups of a resize). */
const COMPARED = new Set(['RunPodSandbox', 'CreateContainer', 'StartContainer', 'StopContainer', 'ExecSync']);

class RecordedWorld extends AgentWorld {
  readonly seen: SeenCall[] = [];

  override interceptors(recorder: Interceptor): Interceptor[] {
    // The constructor of AgentWorld asks for these before `seen` is there.
    const record = async (call: RuntimeCall, answer: Promise<object>): Promise<object> => {
      const startMs = this.clock.monoMs();
      const given = await answer;
      this.seen.push({ method: call.method, request: call.request as Record<string, unknown>, answer: given as Record<string, unknown>, startMs });
      return given;
    };
    return [{ call: (call, options, next) => record(call, next(call, options)) }, ...super.interceptors(recorder)];
  }
}

/** A pod as an API server gives it: with defaults, and the volume of its service account's token. */
function served(asked: Pod): Pod {
  const pod = structuredClone(asked) as Pod & { spec: NonNullable<Pod['spec']> };
  pod.metadata = { ...pod.metadata, uid: '<pod uid>', generation: 1, creationTimestamp: '1970-01-01T00:00:00Z' };
  const volume = 'kube-api-access-<suffix>';
  pod.spec.nodeName = 'node-1';
  pod.spec.serviceAccountName = 'default';
  if (pod.spec.volumes?.some(({ name }) => name === volume) !== true) {
    pod.spec.volumes = [
      ...(pod.spec.volumes ?? []),
      { name: volume, projected: { sources: [{ serviceAccountToken: { path: 'token', expirationSeconds: 3607 } }] } },
    ];
    for (const container of [...(pod.spec.initContainers ?? []), ...pod.spec.containers])
      container.volumeMounts = [
        ...(container.volumeMounts ?? []),
        { name: volume, mountPath: '/var/run/secrets/kubernetes.io/serviceaccount', readOnly: true },
      ];
  }
  defaultPod(pod);
  return pod;
}

/** The life of the pod on fakes: until it is as it was when it was recorded, then deleted. */
async function ours(pod: Pod, waitMs: number): Promise<CriRequest[]> {
  const world = new RecordedWorld();
  for (const container of [...(pod.spec?.initContainers ?? []), ...(pod.spec?.containers ?? [])]) {
    world.runtime.images.add({ name: container.image ?? '', present: true });
    const [program, , script = ''] = container.command ?? [];
    if (program === 'true') world.runtime.script(container.name, { exitAfterMs: 100, exitCode: 0 });
    if (script.includes('exit 3')) world.runtime.script(container.name, { exitAfterMs: 100, exitCode: 3 });
  }
  for (const object of OBJECTS) {
    const key = `${NAMESPACE}/${object.metadata.name}`;
    if (object.kind === 'ConfigMap') world.sources.configMaps.set(key, object);
    else world.sources.secrets.set(key, { ...object, data: { password: Buffer.from('open sesame').toString('base64') } });
  }
  await world.start();
  world.api.put(pods(NAMESPACE, pod.metadata.name), { ...pod, status: { phase: 'Pending' } });
  await world.clock.settle();
  await world.clock.advance(waitMs);
  await world.api.delete(pods(NAMESPACE, pod.metadata.name), { gracePeriodSeconds: 5 });
  await world.clock.settle();
  await world.clock.advance(20_000);
  await world.stop();
  if (world.bug !== undefined) throw world.bug;
  return requestsFrom(world.seen, pod.metadata.uid ?? '');
}

test('our agent asks of a runtime what upstream’s kubelet asked for the same pods', { skip: problem ?? false }, async () => {
  const recorded = await readContracts(CONTRACTS);
  const found = new Map<string, Difference[]>();
  for (const { name, until } of PODS) {
    const contract = recorded.get(name);
    assert.ok(contract !== undefined, `${name} is recorded`);
    const of = (requests: readonly CriRequest[]): Record<string, unknown> => comparableRequests(requests.filter(({ method }) => COMPARED.has(method)));
    // As many starts as were recorded: the second at once, then 10 s, 20 s, 40 s … after one another.
    const restarts = contract.cri.filter(({ method }) => method === 'CreateContainer').length - 1;
    const asked = await ours(served(contract['pod'] as Pod), 'restarts' in until ? 10_000 * (2 ** (restarts - 1) - 1) + 5_000 : 5_000);
    assert.ok(asked.length > 2, `${name}: our agent did something`);
    const names = { texts: new Map<string, string>([['node-1', '<node>']]) };
    found.set(name, differences(of(contract.cri), normalise(of(asked), names)));
  }
  const { judged, stale } = judge(found, await readKnown('known-fake.json'));
  const unknown = judged.filter(({ reason }) => reason === null);
  assert.deepEqual(
    unknown.map(({ pod, difference }) => `${pod}: ${difference.path}: ${JSON.stringify(difference.a)} | ${JSON.stringify(difference.b)}`),
    [],
    'differences that nobody has given a reason for',
  );
  assert.deepEqual(stale, [], 'reasons for differences that are no more');
});
