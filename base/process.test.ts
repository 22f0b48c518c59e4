import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, open, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
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

test('a path that leads through a file is told', async () => {
  const { host, said } = fakeHost();
  assert.equal(failure(host, await thrownBy(() => readFile('/etc/passwd/below'))), 1);
  assert.equal(said(), 'nodelet: open /etc/passwd/below: a part of that path is no folder\n');
});

test('too many watches are no full disk', () => {
  const { host, said } = fakeHost();
  assert.equal(failure(host, Object.assign(new Error('ENOSPC'), { code: 'ENOSPC', syscall: 'watch', path: '/run/x' })), 1);
  assert.match(said(), /^nodelet: watching \/run\/x: .*\n  raise fs\.inotify\.max_user_watches/);
});

test('a flag that is not there is a wrong use, and no defect', async () => {
  const error = await thrownBy(async () => parseArgs({ args: ['--bogus'], options: {} }));
  const { host, said } = fakeHost();
  assert.equal(failure(host, error), 2);
  assert.match(said(), /^nodelet: reading the command line: Unknown option '--bogus'/);
});

/** A program whose output goes to a full disk; its exit status. */
async function onFullDisk(which: 'stdout' | 'stderr', program: string): Promise<unknown> {
  await using full = await open('/dev/full', 'w');
  const stdio = which === 'stdout' ? (['ignore', full.fd, 'ignore'] as const) : (['ignore', 'ignore', full.fd] as const);
  const text = `import { hostOf } from ${JSON.stringify(new URL('process.ts', import.meta.url).href)};\nconst host = hostOf([]);\n${program}`;
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', '--input-type=module-typescript', '-e', text], { stdio: [...stdio] });
  return ((await once(child, 'exit')) as [number])[0];
}

test('a full disk below its log does not end a daemon; an answer that cannot be written is a failure', async () => {
  const later = (work: string): string => `setTimeout(() => { ${work} }, 50);`;
  assert.equal(await onFullDisk('stderr', `host.stderr('one\\n'); ${later("host.stderr('two\\n'); setTimeout(() => process.exit(7), 50);")}`), 7);
  assert.equal(await onFullDisk('stdout', `host.stdout('an answer\\n'); ${later('process.exit(7);')}`), 1);
});
