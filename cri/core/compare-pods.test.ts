import assert from 'node:assert/strict';
import { test } from 'node:test';
import { alignPods, type LifePair, type PodMapping } from './align.ts';
import { comparePods } from './compare-pods.ts';
import { Findings } from './diff-findings.ts';
import { Expectations } from './expected.ts';
import { fakeRecording, fakeUid, type FakePod, type FakeRecordingOptions } from './fake-recording.ts';
import { KeptCalls, type KeptCall } from './kept-calls.ts';
import { PodCalls, type PodLife } from './pod-calls.ts';

function pod(name: string, more: Partial<FakePod> = {}): FakePod {
  return { namespace: 'default', name, uid: fakeUid(`${name} ${JSON.stringify(more)}`), containers: ['main'], ...more };
}

function kept(pods: readonly FakePod[], seed: number, change?: FakeRecordingOptions['change']): KeptCalls {
  const calls = new PodCalls();
  const out = new KeptCalls();
  for (const entry of fakeRecording({ pods, seed, everyMs: 1_000, relistMs: 1_000, ...(change === undefined ? {} : { change }) })) {
    const call = calls.take(entry);
    if (call !== null) out.take(call);
  }
  return out;
}

function pairs(a: KeptCalls, b: KeptCalls, mappings: readonly PodMapping[] = []): LifePair[] {
  return alignPods(a.lives, b.lives, mappings);
}

/** `pod: path: a → b` of all that differs. */
function told(a: KeptCalls, b: KeptCalls, options: { all?: boolean; ignore?: readonly string[]; mappings?: readonly PodMapping[] } = {}): string[] {
  const findings = new Findings(options.ignore ?? [], null);
  return pairs(a, b, options.mappings).flatMap((pair) =>
    findings
      .of(comparePods(pair, { all: options.all ?? false }))
      .map((found) => `${found.byNature ? '. ' : ''}${found.pod}: ${found.path}: ${JSON.stringify(found.a)} → ${JSON.stringify(found.b)}`),
  );
}

test('two recordings of the same pods differ in nothing but what is made up', () => {
  const web = (run: number): FakePod => pod('web', { uid: fakeUid(`run ${run}`), labels: { app: 'web' } });
  const [a, b] = [kept([web(1)], 1), kept([web(2)], 2)];
  assert.deepEqual(told(a, b), []);
  const all = told(a, b, { all: true });
  assert.ok(
    all.some((line) => /^\. default\/web: RunPodSandbox\.config\.metadata\.uid: /.test(line)),
    all.join('\n'),
  );
  assert.ok(
    all.every((line) => line.startsWith('. ')),
    'all of them are so by nature',
  );
});

test('fields, calls that are missing, failures and the number of looks', () => {
  const [a] = [kept([pod('web')], 1)];
  const b = kept([pod('web')], 1, (method, _pod, request) => {
    if (method === 'StartContainer') return { fails: 'no such file' };
    if (method === 'PodSandboxStatus') return null;
    if (method !== 'CreateContainer') return request;
    const config = structuredClone(request['config']) as { linux: { resources: object }; mounts: object[]; command?: string[] };
    config.linux.resources = { cpuShares: '103' };
    config.mounts.push({ containerPath: '/data', hostPath: '/srv' });
    delete config.command;
    return { ...request, config };
  });
  assert.deepEqual(told(a, b), [
    'default/web: CreateContainer main#0.config.command: ["sh","-c","sleep 3600"] → undefined',
    'default/web: CreateContainer main#0.config.linux.resources.cpuShares: "102" → "103"',
    'default/web: CreateContainer main#0.config.linux.resources.oomScoreAdj: "998" → undefined',
    'default/web: CreateContainer main#0.config.mounts[/data]: undefined → {"containerPath":"/data","hostPath":"/srv"}',
    'default/web: StartContainer main#0.outcome: "OK" → "Unknown: no such file"',
    'default/web: PodSandboxStatus: "made" → undefined',
  ]);
  assert.deepEqual(told(a, b, { ignore: ['config.*', 'PodSandboxStatus', '*.outcome'] }), []);
});

test('generated names are matched by their owner, in order; static ones without their node; others as they are mapped', () => {
  const hash = { 'pod-template-hash': '7d9c5b6f4c' };
  const fixed = { 'kubernetes.io/config.source': 'file' };
  const a = kept(
    [
      pod('web-7d9c5b6f4c-x2x9k', { labels: hash }),
      pod('web-7d9c5b6f4c-bbbbb', { labels: hash }),
      pod('etcd-node-1', { annotations: fixed }),
      pod('dns-node-1', { annotations: fixed }),
      pod('job-29000001-q7q7q', { labels: { 'batch.kubernetes.io/job-name': 'job-29000001' } }),
      pod('mapped'),
      pod('gone'),
    ],
    1,
  );
  const b = kept(
    [
      pod('web-7d9c5b6f4c-zzzzz', { labels: hash }),
      pod('etcd-node-b', { annotations: fixed }),
      pod('dns-node-b', { annotations: fixed }),
      pod('web-5f5f5f5f5f-ccccc', { labels: { 'pod-template-hash': '5f5f5f5f5f' } }),
      pod('job-29000009-w8w8w', { labels: { 'batch.kubernetes.io/job-name': 'job-29000009' } }),
      pod('other', { namespace: 'elsewhere' }),
      pod('new'),
    ],
    2,
  );
  const found = pairs(a, b, [{ from: 'default/mapped', to: 'elsewhere/other' }]).map((pair) => `${pair.name}: ${pair.a?.pod?.name} = ${pair.b?.pod?.name}`);
  assert.deepEqual(found, [
    '(node): undefined = undefined',
    'default/web: web-7d9c5b6f4c-x2x9k = web-7d9c5b6f4c-zzzzz',
    'default/web: web-7d9c5b6f4c-bbbbb = web-5f5f5f5f5f-ccccc',
    'default/etcd: etcd-node-1 = etcd-node-b',
    'default/dns: dns-node-1 = dns-node-b',
    'default/job: job-29000001-q7q7q = job-29000009-w8w8w',
    'elsewhere/mapped: mapped = other',
    'default/gone: gone = undefined',
    'default/new: undefined = new',
  ]);
});

test('looks that say different things are told apart by what they say; how often they are made does not count', () => {
  const look = (request: object, count: number): [string, KeptCall] => [
    `${count} ${JSON.stringify(request)}`,
    { method: 'ListContainers', about: '', startMs: 0, endMs: 1, outcome: 'OK', message: '', request: JSON.stringify(request), count, totalMs: count },
  ];
  const node = (...looks: [string, KeptCall][]): LifePair['a'] => ({ pod: null, changes: [], looks: new Map(looks) });
  const running = { filter: { state: { state: 'CONTAINER_RUNNING' } } };
  const ofPod = (uid: string): object => ({ filter: { labelSelector: { 'io.kubernetes.pod.uid': uid } } });
  const of = (a: LifePair['a'], b: LifePair['a']): string[] =>
    new Findings([], null)
      .of(comparePods({ name: '(node)', a, b }, { all: false }))
      .map(({ path, a: inA, b: inB }) => `${path}: ${JSON.stringify(inA)} → ${JSON.stringify(inB)}`);
  const ofRunning = 'ListContainers {"filter":{"state":{"state":"CONTAINER_RUNNING"}}}';
  assert.deepEqual(of(node(look({}, 9), look(running, 3)), node(look({}, 1), look(ofPod(fakeUid('x')), 2), look(ofPod(fakeUid('y')), 4))), [
    `${ofRunning}.filter.labelSelector: undefined → {"io.kubernetes.pod.uid":"<uid>"}`,
    `${ofRunning}.filter.state: {"state":"CONTAINER_RUNNING"} → undefined`,
  ]);
  assert.deepEqual(of(node(look({}, 9), look(running, 3)), node(look({}, 1))), [`${ofRunning}: "made" → undefined`]);
});

test('a second pod of the same name is another one', () => {
  const again = [pod('db', { uid: fakeUid('first') }), pod('db', { uid: fakeUid('second') })];
  const [a, b] = [kept(again, 1), kept([...again.slice(0, 1), pod('web')], 2)];
  assert.deepEqual(told(a, b), ['default/db: pod: "made" → undefined', 'default/web: pod: undefined → "made"']);
});

/** Changes of one pod, in order, each with its start and end. */
function life(calls: readonly (readonly [string, string, number, number])[]): LifePair['a'] {
  const podLife: PodLife = { key: 'a/b', namespace: 'a', name: 'b', uid: 'u', labels: {}, annotations: {}, hostname: '', ips: [] };
  const changes = calls.map(([method, about, startMs, endMs]): KeptCall => ({
    method,
    about,
    startMs,
    endMs,
    outcome: 'OK',
    message: '',
    request: '{}',
    count: 1,
    totalMs: endMs - startMs,
  }));
  return { pod: podLife, changes, looks: new Map() };
}

test('order counts where one call was over before the other began', () => {
  const a = life([
    ['StopContainer', 'main#0', 0, 10],
    ['StopContainer', 'beside#0', 20, 30],
    ['StopPodSandbox', '', 40, 50],
  ]);
  const swapped = life([
    ['StopContainer', 'beside#0', 0, 10],
    ['StopContainer', 'main#0', 20, 30],
    ['StopPodSandbox', '', 40, 50],
  ]);
  const sideBySide = life([
    ['StopContainer', 'beside#0', 0, 25],
    ['StopContainer', 'main#0', 1, 30],
    ['StopPodSandbox', '', 40, 50],
  ]);
  const of = (b: LifePair['a']): string[] =>
    new Findings([], null).of(comparePods({ name: 'a/b', a, b }, { all: false })).map((found) => `${found.path}: ${String(found.a)} → ${String(found.b)}`);
  assert.deepEqual(of(swapped), ['StopContainer main#0.order: first → after StopContainer beside#0']);
  assert.deepEqual(of(sideBySide), []);
});

test('containers that were removed side by side have no order; more attempts are one difference', () => {
  const start = (attempt: number): (readonly [string, string, number, number])[] => [
    ['CreateContainer', `main#${attempt}`, attempt * 100, attempt * 100 + 10],
    ['StartContainer', `main#${attempt}`, attempt * 100 + 20, attempt * 100 + 30],
  ];
  const a = life([...start(0), ...start(1), ...start(2), ['RemoveContainer', 'x#0', 900, 901], ['RemoveContainer', 'y#0', 902, 903]]);
  const b = life([...start(0), ['RemoveContainer', 'y#0', 900, 901], ['RemoveContainer', 'x#0', 902, 903]]);
  const compared = comparePods({ name: 'a/b', a, b }, { all: false });
  assert.deepEqual(
    new Findings([], null).of(compared).map(({ path, a: inA, b: inB }) => [path, inA, inB]),
    [['attempts of main', 3, 1]],
  );
});

test('expectations match by pod and path, and tell which are no more', () => {
  const expectations = new Expectations([
    { pod: '*', path: '*.config.linux.*', reason: 'depends on the machine' },
    { pod: 'default/web', path: 'PodSandboxStatus', reason: 'looked at elsewhere' },
    { pod: 'default/other', path: '*', reason: 'not here' },
  ]);
  const [a] = [kept([pod('web')], 1)];
  const b = kept([pod('web')], 1, (method, _pod, request) =>
    method === 'PodSandboxStatus' ? null : method === 'CreateContainer' ? { ...request, config: { ...(request['config'] as object), linux: {} } } : request,
  );
  const findings = new Findings([], expectations);
  const found = pairs(a, b).flatMap((pair) => findings.of(comparePods(pair, { all: false })));
  assert.deepEqual(
    found.map(({ reason }) => reason),
    [...Array<string>(found.length - 1).fill('depends on the machine'), 'looked at elsewhere'],
  );
  assert.deepEqual(
    expectations.stale.map(({ pod: name }) => name),
    ['default/other'],
  );
});
