import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { OpError } from './errors.ts';
import type { Host } from './host.ts';
import { failure } from './process.ts';

function fakeHost(signal = new AbortController().signal): { host: Host; said: () => string } {
  let said = '';
  const host: Host = { args: [], env: {}, pid: 1, stdout: () => undefined, stderr: (text) => void (said += text), signal, isTerminal: false };
  return { host, said: () => said };
}

const thrownBy = (work: () => Promise<unknown>): Promise<unknown> =>
  work().then(
    () => assert.fail('it must fail'),
    (error: unknown) => error,
  );

test('an operating failure is one message with its advice, and its code is the exit status', () => {
  for (const [code, status] of [
    ['failed', 1],
    ['invalid', 2],
    ['aborted', 130],
  ] as const) {
    const { host, said } = fakeHost();
    assert.equal(failure(host, new OpError(code, 'trying', 'it did not', { advice: 'try again' })), status);
    assert.equal(said(), 'nodelet: trying: it did not\n  try again\n');
  }
});

test('a wait that a signal ended is no defect', async () => {
  const stop = new AbortController();
  const waiting = thrownBy(() => delay(60_000, undefined, { signal: stop.signal }));
  stop.abort();
  const { host, said } = fakeHost(stop.signal);
  assert.equal(failure(host, await waiting), 130);
  assert.equal(said(), 'nodelet: stopped\n');
  const unasked = fakeHost();
  assert.equal(failure(unasked.host, await waiting), 70);
  assert.match(unasked.said(), /AbortError.*\n {4}at /s);
});

test('what fails while a failure is cleared up does not stand in front of it', () => {
  const { host, said } = fakeHost();
  const both = new SuppressedError(
    new OpError('failed', 'ending it', 'it runs on'),
    new OpError('invalid', 'starting', 'no such thing', { advice: 'name another' }),
  );
  assert.equal(failure(host, both), 2);
  assert.equal(said(), 'nodelet: starting: no such thing\n  name another\nnodelet: and then ending it: it runs on\n');
});

test('a full disk is told with what names another folder, whosever file it was', () => {
  const full = Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC', syscall: 'write', path: '/cache/x' });
  const { host, said } = fakeHost();
  assert.equal(failure(host, full), 1);
  assert.match(said(), /^nodelet: writing \/cache\/x: no space is left\n.*NODELET_STATE.*XDG_CACHE_HOME/);
});

test('anything else shows its stack', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'process-'));
  const error = await thrownBy(() => readFile(join(folder, 'missing')));
  await rm(folder, { recursive: true });
  const { host, said } = fakeHost();
  assert.equal(failure(host, error), 70);
  assert.match(said(), /ENOENT/);
});
