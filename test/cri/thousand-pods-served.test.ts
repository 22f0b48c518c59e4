import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { connectRuntime } from '../../cri/grpc.ts';
import { createCriClient } from '../../cri/mod.ts';
import { eventually } from '../set.ts';
import { writeManyPods } from './thousand-pods.ts';

/* A recording of 1,000 pods is served, and replayed to what is served: both begin within seconds, in bounded memory. */
const MAIN = new URL('../../node/main.ts', import.meta.url).pathname;
const MAX_CPU_SECONDS = 15;
const MAX_RSS_MIB = 400;
const SLOW_MS = 120_000;
const TICKS_A_SECOND = 100;

let folder = '';
before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'thousand-served-'));
  writeManyPods(join(folder, 'many'), 1);
});
after(async () => rm(folder, { recursive: true, force: true }));

interface Command {
  readonly child: ChildProcess;
  out(): string;
  err(): string;
}

function start(...words: string[]): Command {
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', MAIN, 'cri', ...words], { stdio: ['ignore', 'pipe', 'pipe'] });
  let [out, err] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (text: string) => (out += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (err += text));
  return { child, out: () => out, err: () => err };
}

/** CPU seconds and highest memory of a process so far. */
function costOf(command: Command): string {
  const { child } = command;
  assert.equal(child.exitCode, null, command.err());
  const stat = readFileSync(`/proc/${child.pid}/stat`, 'utf8');
  const [user, system] = stat
    .slice(stat.lastIndexOf(')') + 2)
    .split(' ')
    .slice(11, 13)
    .map(Number);
  const cpuSeconds = ((user ?? 0) + (system ?? 0)) / TICKS_A_SECOND;
  const rssMib = Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'))?.[1]) / 1024;
  assert.ok(cpuSeconds < MAX_CPU_SECONDS, `${cpuSeconds} s of CPU`);
  assert.ok(rssMib < MAX_RSS_MIB, `${rssMib} MiB`);
  return `${cpuSeconds.toFixed(1)} s of CPU, ${rssMib.toFixed(0)} MiB`;
}

async function stop(command: Command, signal: NodeJS.Signals): Promise<number> {
  const closed = once(command.child, 'close');
  command.child.kill(signal);
  await closed;
  return command.child.exitCode ?? -1;
}

test('1,000 pods are served and replayed', { timeout: 4 * SLOW_MS }, async () => {
  const socket = join(folder, 'served.sock');
  const serving = start('serve', join(folder, 'many'), '--listen', socket, '--speed', 'max', '--quiet');
  await eventually('the recording is served', SLOW_MS, async () => (serving.err().includes('listening at') ? true : null));
  console.log(`served after ${costOf(serving)}`);
  const replaying = start('replay', join(folder, 'many'), '--upstream', socket, '--speed', 'max', '--json');
  await eventually('the replay has made a hundred calls', SLOW_MS, async () => (replaying.out().split('\n').length > 100 ? true : null));
  console.log(`a hundred calls replayed after ${costOf(replaying)}`);
  assert.equal(await stop(replaying, 'SIGINT'), 1, replaying.err());
  assert.match(replaying.out(), /"stopped":true\}\}\n$/);
  const client = createCriClient(connectRuntime(socket));
  assert.deepEqual((await client.runtime.listPodSandbox({})).items, [], 'what was made is gone');
  await client[Symbol.asyncDispose]();
  console.log(`served the replay and its end with ${costOf(serving)}`);
  assert.equal(await stop(serving, 'SIGTERM'), 0, serving.err());
});
