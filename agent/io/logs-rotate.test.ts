import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { createFakeClock } from '../../base/fake-clock.ts';
import { silentLog } from '../../base/log.ts';
import { FakeSys } from '../../base/sys/fake.ts';
import type { ContainerFacts, PodFacts } from '../core/types.ts';
import { gzipFile, LogRotation } from './logs-rotate.ts';

const signal = new AbortController().signal;
const dir = '/var/log/pods/n_p_u/m';

function world(maxFiles: number) {
  const sys = new FakeSys();
  const clock = createFakeClock(Date.UTC(2026, 0, 1, 10, 0, 0));
  const reopened: string[] = [];
  const state = { refuse: false };
  const container = { id: 'c1', state: 'running', logPath: '' } as ContainerFacts;
  const facts: PodFacts[] = [{ uid: 'u', namespace: 'n', name: 'p', sandboxes: [], containers: [container, { ...container, id: 'dead', state: 'exited' }] }];
  sys.put(`${dir}/0.log`, 'x'.repeat(10));
  const runtime = {
    containerStatus: async () => ({ status: { logPath: `${dir}/0.log` } }),
    reopenContainerLog: async ({ containerId = '' }) => {
      if (state.refuse) throw new Error('no');
      reopened.push(containerId);
      sys.put(`${dir}/0.log`, '');
      return {};
    },
  };
  const rotation = new LogRotation({
    cri: { runtime } as never,
    sys,
    clock,
    log: silentLog,
    podLogsDir: '/var/log/pods',
    maxBytes: 10,
    maxFiles,
    periodMs: 10_000,
    facts: () => facts,
    compress: async (from, to) => sys.put(to, `gz:${sys.get(from) ?? ''}`),
  });
  const names = async (): Promise<string[]> => ((await sys.fileOps({ root: dir, ops: [{ op: 'list', path: '' }], timeoutMs: 1 }))[0]?.names ?? []).toSorted();
  return { sys, clock, rotation, reopened, state, names };
}

test('a log that is too large is renamed and opened anew; older ones are compressed, the oldest go', async () => {
  const { sys, clock, rotation, reopened, names } = world(3);
  await rotation.pass(signal);
  assert.deepEqual([reopened, await names()], [['c1'], ['0.log', '0.log.20260101-100000']]);
  await rotation.pass(signal);
  assert.equal(reopened.length, 1, 'a small log stays');
  for (const content of ['second....', 'third.....']) {
    await clock.advance(10_000);
    sys.put(`${dir}/0.log`, content);
    await rotation.pass(signal);
  }
  assert.deepEqual(await names(), ['0.log', '0.log.20260101-100010.gz', '0.log.20260101-100020']);
  assert.equal(sys.get(`${dir}/0.log.20260101-100010.gz`), 'gz:second....');
  assert.equal(reopened.length, 3, 'one reopening for each rotation');
  await rotation.remove(`${dir}/0.log`);
  assert.deepEqual(await names(), []);
});

test('a runtime that does not open the log again gets its file back', async () => {
  const { sys, rotation, state, names } = world(5);
  state.refuse = true;
  await rotation.pass(signal);
  assert.deepEqual([await names(), sys.get(`${dir}/0.log`)], [['0.log'], 'x'.repeat(10)]);
});

test('a lost log is opened anew, a path elsewhere is not touched', async () => {
  const { sys, rotation, reopened, names } = world(5);
  await rotation.remove(`${dir}/0.log`);
  await rotation.pass(signal);
  assert.deepEqual([reopened, await names()], [['c1'], ['0.log']]);
  sys.put('/etc/passwd', 'root');
  await rotation.remove('/etc/passwd');
  assert.equal(sys.get('/etc/passwd'), 'root');
});

test('it looks each period until it is stopped', async () => {
  const { clock, rotation, reopened } = world(5);
  const stop = new AbortController();
  const running = rotation.run(stop.signal);
  await clock.advance(10_000);
  assert.equal(reopened.length, 1);
  stop.abort();
  await running;
});

test('compression streams, and follows no link', async () => {
  const scratch = mkdtempSync(join(tmpdir(), 'nodelet-gzip-'));
  try {
    mkdirSync(join(scratch, 'd'));
    writeFileSync(join(scratch, 'log'), 'line\n'.repeat(1000));
    await gzipFile(join(scratch, 'log'), join(scratch, 'log.tmp'), 0o640, signal);
    assert.equal(gunzipSync(readFileSync(join(scratch, 'log.tmp'))).toString(), 'line\n'.repeat(1000));
    await assert.rejects(gzipFile(join(scratch, 'none'), join(scratch, 'x'), 0o640, signal), /compress a log/);
    symlinkSync('log', join(scratch, 'link'));
    await assert.rejects(gzipFile(join(scratch, 'link'), join(scratch, 'x'), 0o640, signal), /compress a log/);
    writeFileSync(join(scratch, 'other'), 'of another');
    symlinkSync('other', join(scratch, 'planted'));
    await assert.rejects(gzipFile(join(scratch, 'log'), join(scratch, 'planted'), 0o640, signal), /compress a log/);
    assert.equal(readFileSync(join(scratch, 'other'), 'utf8'), 'of another');
  } finally {
    rmSync(scratch, { recursive: true });
  }
});

test('as many are looked at at once as there are workers', async () => {
  const facts = [1, 2, 3].map((id) => ({ id: `c${id}`, state: 'running', logPath: '' }) as ContainerFacts);
  const { promise: free, resolve } = Promise.withResolvers<void>();
  let asked = 0;
  const containerStatus = async (): Promise<object> => {
    asked += 1;
    await free;
    return { status: { logPath: '' } };
  };
  const rotation = new LogRotation({
    cri: { runtime: { containerStatus } } as never,
    sys: new FakeSys(),
    clock: createFakeClock(),
    log: silentLog,
    podLogsDir: '/var/log/pods',
    maxBytes: 10,
    maxFiles: 3,
    workers: 2,
    periodMs: 10_000,
    facts: () => [{ uid: 'u', namespace: 'n', name: 'p', sandboxes: [], containers: facts }],
  });
  const pass = rotation.pass(signal);
  await Promise.resolve();
  assert.equal(asked, 2);
  resolve();
  await pass;
  assert.equal(asked, 3);
});
