import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { realClock } from '../../base/clock.ts';
import { createFakeClock } from '../../base/fake-clock.ts';
import { silentLog } from '../../base/log.ts';
import type { Pod } from '../../proto/kube/types.ts';
import type { Wish } from '../core/wishes.ts';
import { createExecKill } from './exec-kill.ts';
import { createProbeRunner } from './probes-run.ts';
import { whileRefreshed } from './refresh-ending.ts';

const never = new AbortController().signal;
const readFiles = (paths: readonly string[]) => Promise.all(paths.map((path) => readFile(path).catch(() => null)));

/** A process of ours stands in for what looks after a container: its children are the first process and the execs. */
test('a command is killed with its children, and neither the container nor another exec', async (t) => {
  const children: ChildProcess[] = [];
  const start = (argv: readonly string[]): ChildProcess => {
    const child = spawn(argv[0] ?? '', argv.slice(1), { stdio: ['ignore', 'pipe', 'ignore'] });
    children.push(child);
    t.after(() => child.kill('SIGKILL'));
    return child;
  };
  const first = start(['sleep', '1000']);
  const before = start(['sh', '-c', 'echo up; sleep 71 & sleep 72']);
  await once(before.stdout ?? before, 'data');
  await new Promise((resolve) => setTimeout(resolve, 400));
  const beganMs = realClock.monoMs();
  const cmd = ['sh', '-c', 'echo up; sleep 71 & sleep 72'];
  const exec = start(cmd);
  await once(exec.stdout ?? exec, 'data');
  const info = { info: JSON.stringify({ pid: first.pid }) };
  const kill = createExecKill({
    clock: realClock,
    log: silentLog,
    sys: { readFiles },
    runtime: { containerStatus: async () => ({ status: null, info }) },
  });
  // Its output closes when the last of them has ended.
  const closed = once(exec, 'close', { signal: AbortSignal.timeout(5_000) });
  await kill('c1', cmd, beganMs, never);
  await closed;
  assert.equal(exec.signalCode, 'SIGKILL');
  assert.deepEqual([first.exitCode, first.signalCode, before.exitCode, before.signalCode], [null, null, null, null]);
  for (const child of [before])
    for (const pid of (await readFile(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8')).trim().split(' ')) process.kill(Number(pid), 'SIGKILL');
});

const run = {
  pod: { metadata: {}, spec: { containers: [] } } as Pod,
  container: { name: 'c' },
  containerId: 'c1',
  podIP: '',
  probe: { exec: { command: ['slow'] }, timeoutSeconds: 2 },
};

test('an exec probe that takes too long is a failure when it is killed, in the runtime’s own words for it', async () => {
  const clock = createFakeClock();
  const killed: string[] = [];
  const ended = Promise.withResolvers<{ stdout: Uint8Array; stderr: Uint8Array; exitCode: number }>();
  const asked: unknown[] = [];
  const runner = createProbeRunner({ execSync: (async (request: { timeout: number }) => (asked.push(request.timeout), ended.promise)) as never }, clock, {
    kill: async (containerId) => {
      killed.push(containerId);
      ended.resolve({ stdout: new Uint8Array(), stderr: new Uint8Array(), exitCode: 137 });
    },
  });
  const answer = runner(run, never);
  await clock.advance(2_000);
  assert.deepEqual(await answer, { result: 'failure', output: 'command timed out: "slow" timed out after 2s' });
  assert.deepEqual([killed, asked], [['c1'], [3]]);
});

test('volumes of an ending pod follow when that is wished, and not after its end', async () => {
  const clock = createFakeClock();
  let refreshed = 0;
  const deps = { clock, volumes: { refresh: async () => void refreshed++ }, syncFrequencyMs: 60_000 };
  const end = async (wishes: ReadonlySet<Wish>): Promise<number> => {
    refreshed = 0;
    const work = whileRefreshed({ ...deps, wishes }, run.pod, never, () => clock.sleep(150_000));
    await clock.advance(150_000);
    await work;
    await clock.advance(600_000);
    return refreshed;
  };
  assert.equal(await end(new Set(['RefreshVolumesOfEndingPods'] as const)), 2);
  assert.equal(await end(new Set()), 0);
});
