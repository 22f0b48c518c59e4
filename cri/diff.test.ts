import { FakeHost } from '../base/fake-host.ts';
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fakeRecording, fakeUid, type FakePod, type FakeRecordingOptions } from './core/fake-recording.ts';
import { diff, type DiffOptions } from './diff.ts';
import { RecordingWriter } from './io/recording-write.ts';

let folder = '';
before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'cri-diff-'));
});
after(async () => rm(folder, { recursive: true, force: true }));

const host = (): FakeHost => new FakeHost();

const pods: FakePod[] = ['web', 'db'].map((name) => ({ namespace: 'default', name, uid: fakeUid(name), containers: ['main'] }));

function written(name: string, change?: FakeRecordingOptions['change']): string {
  const path = join(folder, name);
  using writer = new RecordingWriter(path, { maxBytes: 1024 ** 2, append: false });
  for (const entry of fakeRecording({ pods, seed: name.length, everyMs: 1_000, relistMs: 1_000, ...(change === undefined ? {} : { change }) }))
    writer.add(entry);
  return path;
}

const shares: FakeRecordingOptions['change'] = (method, pod, request) => {
  if (method !== 'RunPodSandbox' || pod.name !== 'web') return request;
  const config = structuredClone(request['config']) as { linux: { resources: object } };
  config.linux.resources = { cpuShares: '103' };
  return { config };
};

const usual: DiffOptions = { all: false, ignore: [], map: [], update: false, json: false };

test('what differs stands below its call, with the times of both', async () => {
  const [a, b] = [written('one'), written('three', shares)];
  const seen = host();
  assert.equal(await diff(seen, a, b, usual), 0);
  const lines = seen.out.split('\n').map((line) => line.trimEnd());
  assert.deepEqual(lines.slice(2, 7), [
    '',
    '  default/web',
    '    RunPodSandbox                                       0     190 ms              0     190 ms',
    '~     config.linux.resources.cpuShares: "102" → "103"',
    '    CreateContainer main#0                        +199 ms      20 ms        +199 ms      20 ms',
  ]);
  assert.match(seen.out, /2 of 3 pods the same; calls: \d+ the same, 1 differ, 0 only in A, 0 only in B; 1 differences\n$/);
});

test('an expectation file is written, wants reasons, allows what it names, and tells what is no more', async () => {
  const [a, b] = [written('four'), written('five-', shares)];
  const expect = join(folder, 'known.yaml');
  await assert.rejects(diff(host(), a, b, { ...usual, expect }), { code: 'not-found' });
  assert.equal(await diff(host(), a, b, { ...usual, expect, update: true }), 0);
  await assert.rejects(diff(host(), a, b, { ...usual, expect }), {
    code: 'invalid',
    message: /default\/web: RunPodSandbox\.config\.linux\.resources\.cpuShares\) has no reason/,
  });
  await writeFile(expect, (await readFile(expect, 'utf8')).replace("reason: ''", 'reason: other rounding'));
  const known = host();
  assert.equal(await diff(known, a, b, { ...usual, expect }), 0, known.out);
  assert.doesNotMatch(known.out, /cpuShares/, 'what is known is not told');
  assert.equal(await diff(known, a, b, { ...usual, expect, all: true }), 0);
  assert.match(known.out, /^= {5}config\.linux\.resources\.cpuShares: "102" → "103" {3}\(other rounding\)$/m);
  const stale = host();
  assert.equal(await diff(stale, a, a, { ...usual, expect }), 1);
  assert.match(stale.out, /known, but no more: default\/web: RunPodSandbox\.config\.linux\.resources\.cpuShares/);
  const other = written('sixsix', (method, pod, request) => (method === 'StartContainer' ? null : (shares?.(method, pod, request) ?? null)));
  assert.equal(await diff(host(), a, other, { ...usual, expect }), 1);
  assert.equal(await diff(host(), a, other, { ...usual, expect, update: true, reason: 'never started' }), 0);
  const text = await readFile(expect, 'utf8');
  assert.match(text, /other rounding/);
  assert.match(text, /path: StartContainer main#0\n\s+reason: never started/);
  assert.equal(await diff(host(), a, other, { ...usual, expect }), 0);
  await diff(host(), a, b, { ...usual, expect, update: true });
  assert.doesNotMatch(await readFile(expect, 'utf8'), /never started/, 'what is no more is taken out');
});

test('as JSON: one object for each pod, then the sum', async () => {
  const [a, b] = [written('sevenseven'), written('eighteight-', shares)];
  const seen = host();
  await diff(seen, a, b, { ...usual, json: true, pod: 'default/*' });
  const lines = seen.out
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { type: string; name?: string; findings?: { path: string }[]; differences?: number });
  assert.deepEqual(
    lines.map(({ type, name }) => `${type} ${name ?? ''}`.trim()),
    ['pod default/web', 'pod default/db', 'summary'],
  );
  assert.equal(lines[0]?.findings?.[0]?.path, 'RunPodSandbox.config.linux.resources.cpuShares');
  assert.equal(lines.at(-1)?.differences, 1);
});

test('a wrong word is told before anything is read', async () => {
  await assert.rejects(diff(host(), 'a', 'b', { ...usual, map: ['web'] }), { code: 'invalid' });
  await assert.rejects(diff(host(), 'a', 'b', { ...usual, update: true }), { code: 'invalid' });
  await assert.rejects(diff(host(), join(folder, 'absent'), 'b', usual), { code: 'not-found' });
  const a = written('ninenine');
  await assert.rejects(diff(host(), a, a, { ...usual, pod: 'default/absent' }), { code: 'not-found' });
});
