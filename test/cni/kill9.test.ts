import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { test } from 'node:test';
import { Lab, missing, type Running } from './lab.ts';

/** ADD and DEL while somebody kills the plugin, the daemon and its system calls at random; more with NODELET_CNI_KILLS=1000. */
const CALLS = Number(process.env['NODELET_CNI_KILLS'] ?? 40);
const SEED = Number(process.env['NODELET_CNI_SEED'] ?? 7);
const PODS = 6;
const LANES = 3;

/** Numbers from 0 to 1 that a seed repeats (mulberry32). */
function chance(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const childrenOf = (pid: number): number[] =>
  execFileSync('sh', ['-c', `cat /proc/${pid}/task/*/children 2>/dev/null || true`], { encoding: 'utf8' })
    .split(/\s+/)
    .filter((word) => word !== '')
    .map(Number);

test(`${CALLS} calls with kill -9 at random leave nothing behind`, { skip: missing() ?? false, timeout: 60_000 + CALLS * 5_000 }, async (t) => {
  await using lab = new Lab();
  const random = chance(SEED);
  lab.uplink();
  lab.conf = { ipMasq: true, ipam: { ranges: [[{ subnet: '10.244.1.0/28' }], [{ subnet: 'fd00:1::/120' }]] } };
  const pods = Array.from({ length: PODS }, (_, at) => ({ space: lab.space(`p${at}`), at, container: '', round: 0 }));
  let daemon = await lab.daemon();
  const over = new AbortController();
  const counts = { calls: 0, front: 0, daemon: 0, sys: 0, failed: 0 };

  /** The service manager: starts what died. */
  const keeper = (async () => {
    while (!over.signal.aborted) {
      if (daemon.exitCode !== null || daemon.signalCode !== null) daemon = await lab.daemon().catch(() => daemon);
      await delay(10);
    }
  })();

  const kill = async (call: Running): Promise<void> => {
    if (random() < 0.4) return;
    await delay(random() * 40);
    const which = random();
    if (which < 0.5) {
      counts.front += call.child.kill('SIGKILL') ? 1 : 0;
    } else if (which < 0.75) {
      counts.daemon += daemon.kill('SIGKILL') ? 1 : 0;
    } else {
      for (const pid of daemon.pid === undefined ? [] : childrenOf(daemon.pid)) {
        try {
          process.kill(pid, 'SIGKILL');
          counts.sys += 1;
        } catch {
          // It ended by itself.
        }
      }
    }
  };

  const extra = (at: number): Record<string, unknown> => ({
    runtimeConfig: { portMappings: [{ hostPort: 8000 + at, containerPort: 80, protocol: at % 2 === 0 ? 'tcp' : 'udp' }] },
  });
  const once = async (command: 'ADD' | 'DEL', pod: (typeof pods)[number], isSafe: boolean): Promise<boolean> => {
    const call = lab.plugin(command, pod.container, command === 'DEL' && pod.round % 3 === 0 ? '' : pod.space, extra(pod.at));
    const [{ code, out, err }] = await Promise.all([call.ended, isSafe ? undefined : kill(call)]);
    counts.calls += 1;
    if (code !== 0) counts.failed += 1;
    if (code !== 0 && isSafe) t.diagnostic(`${command} ${pod.container}: ${code} ${out}${err}`);
    return code === 0;
  };
  /** As a runtime: what was not added is deleted until that succeeds. */
  const remove = async (pod: (typeof pods)[number]): Promise<void> => {
    for (let tries = 0; !(await once('DEL', pod, tries > 3)); tries++) assert.ok(tries < 10, `DEL of ${pod.container} never succeeds`);
    pod.container = '';
    if (random() < 0.5) lab.renew(pod.space);
  };
  const lane = async (own: typeof pods): Promise<void> => {
    while (counts.calls < CALLS) {
      const pod = own[Math.floor(random() * own.length)]!;
      if (pod.container !== '') await remove(pod);
      else {
        pod.container = `c${pod.at}-${++pod.round}`;
        if (!(await once('ADD', pod, false))) await remove(pod);
      }
    }
    for (const pod of own) if (pod.container !== '') await remove(pod);
  };
  await Promise.all(Array.from({ length: LANES }, (_, at) => lane(pods.filter((pod) => pod.at % LANES === at))));
  over.abort();
  await keeper;
  t.diagnostic(JSON.stringify(counts));
  assert.ok(counts.front + counts.daemon + counts.sys > CALLS / 8, 'too little was killed to tell');
  assert.deepEqual(lab.remains(), []);
  await lab.stop(daemon);
  assert.deepEqual(lab.remains(), []);
  assert.deepEqual(
    readdirSync(lab.dataDir).filter((name) => !name.startsWith('state.db') && name !== 'turn.db'),
    [],
  );
  // A killed daemon leaves its socket; the next one takes the place and takes it away.
  if (daemon.exitCode === 0) assert.equal(existsSync(lab.socket), false);
});
