import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { atMost } from '../../base/abort.ts';
import { realClock } from '../../base/clock.ts';
import { OpError } from '../../base/errors.ts';
import { silentLog } from '../../base/log.ts';
import { createSysClient } from '../../base/sys/client.ts';
import { createFakeSys } from '../../base/sys/fake.ts';
import { removeRemains } from '../../scripts/bench-remains.ts';
import { LockProbe } from './bench-lock.ts';
import { REMAINS } from './bench-subject.ts';
import { missing, sysPath, until } from './lab.ts';

/** The bench ends early, by whatever way: nothing of it stays on the machine. */

const reason = missing(['nsenter']);
if (reason !== null) console.log(`skipped: tests of the proxy's bench ${reason}`);

const WITHIN_MS = 60_000;
/** It does not finish what nobody wants any more. */
const END_MS = 20_000;
/** No process has this number: it is above what Linux gives out. */
const NOBODY = 4_194_305;
const BENCH = join(import.meta.dirname, 'bench.ts');
const WORDS = ['--services', '20', '--endpoints', '2', '--modes', 'nftables', '--only', 'ours', '--rounds', '0', '--changes', '200'];

const traces = async (pid: number): Promise<string[]> => {
  const [spaces, folders] = await Promise.all([readdir('/run/netns').catch((): string[] => []), readdir(tmpdir())]);
  return [...spaces.filter((name) => name.startsWith(`${REMAINS.netns}${pid}-`)), ...folders.filter((name) => name.startsWith(`${REMAINS.folder}${pid}-`))];
};

/** As a shell does: a process group of its own, which a terminal and timeout(1) signal as one. */
const start = (argv: readonly string[]): ChildProcess =>
  spawn(argv[0]!, argv.slice(1), {
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
    env: { ...process.env, NODELET_SYS: sysPath, NETFILTER_BENCH_PROGRAM: join(import.meta.dirname, '../../node/netfilter.ts') },
  });

test('a probe of the lock that fails is heard of when it ends, and not before', async () => {
  const sys = createFakeSys();
  sys.netlink = async () => await Promise.reject(new OpError('unavailable', 'netlink', 'sys ended'));
  const probe = new LockProbe(sys);
  await realClock.sleep(20);
  await assert.rejects(async () => await probe[Symbol.asyncDispose](), { code: 'unavailable' });
});

suite('A bench of the proxy that ends early', { skip: reason ?? false }, () => {
  for (const [signal, moment] of [
    ['SIGTERM', 'while it begins'],
    ['SIGINT', 'while it measures'],
  ] as const)
    test(`${signal} ${moment}: it takes back its namespaces and ends`, async () => {
      const bench = start([process.execPath, '--disable-warning=ExperimentalWarning', BENCH, ...WORDS]);
      const exit = once(bench, 'exit');
      if (moment === 'while it measures') await once(bench.stderr!, 'data');
      assert.notDeepEqual(
        await until(
          () => traces(bench.pid!),
          (names) => names.length > 1,
          WITHIN_MS,
        ),
        [],
      );
      process.kill(-bench.pid!, signal);
      assert.ok(await atMost(realClock, exit, END_MS));
      assert.equal(bench.exitCode, 143);
      assert.deepEqual(await traces(bench.pid!), []);
    });

  test('who started it is killed: it ends by itself', async () => {
    const shell = start(['sh', '-c', '"$@" & echo $!; wait', 'sh', process.execPath, '--disable-warning=ExperimentalWarning', BENCH, ...WORDS]);
    const [line] = (await once(shell.stdout!, 'data')) as [Buffer];
    const pid = Number(line.toString());
    assert.ok(
      (
        await until(
          () => traces(pid),
          (names) => names.length > 1,
          WITHIN_MS,
        )
      ).length > 1,
    );
    shell.stderr!.destroy();
    shell.kill('SIGKILL');
    assert.deepEqual(
      await until(
        () => traces(pid),
        (names) => names.length === 0,
        END_MS,
      ),
      [],
    );
  });

  test('what a killed one left is removed by the next, with what runs there; a living one keeps its own', async () => {
    await using sys = createSysClient({ path: sysPath, log: silentLog });
    const run = (...argv: string[]): Promise<unknown> => sys.run({ argv, timeoutMs: 20_000 });
    const [dead, alive] = [`${REMAINS.netns}${NOBODY}-x`, `${REMAINS.netns}${process.pid}-x`];
    for (const name of [dead, alive]) await run('ip', 'netns', 'add', name);
    await mkdtemp(join(tmpdir(), `${REMAINS.folder}${NOBODY}-`));
    const left = spawn('nsenter', [`--net=/run/netns/${dead}`, 'sleep', '1000'], { stdio: 'ignore' });
    const exit = once(left, 'exit');
    const isInside = async (): Promise<string> => Buffer.from((await sys.run({ argv: ['ip', 'netns', 'pids', dead], timeoutMs: 20_000 })).stdout).toString();
    await until(isInside, (text) => text !== '', WITHIN_MS);
    try {
      await removeRemains(sys, REMAINS);
      assert.deepEqual(await exit, [null, 'SIGKILL']);
      assert.deepEqual(await traces(NOBODY), []);
      assert.deepEqual(await traces(process.pid), [alive]);
    } finally {
      await run('ip', 'netns', 'delete', alive);
    }
  });
});
