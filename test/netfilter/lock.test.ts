import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { realClock } from '../../base/clock.ts';
import type { Iptables } from '../../netfilter/io/iptables.ts';
import { Lab, missing, service, slice, startProxy, until, type Reply, type RunningProxy } from './lab.ts';

/** Others write iptables, too: one of them holds the lock of the legacy kind, or several write through the nft kind at once. */

const reason = missing(['iptables', 'iptables-legacy', 'iptables-nft', 'flock']);
if (reason !== null) console.log(`skipped: tests of the iptables lock ${reason}`);

const web = { name: 'web', port: 8080, protocol: 'TCP' };
/** Of PB-22: longer than several writes wait. */
const HELD_SECONDS = 20;
const LONGEST_PAUSE_SECONDS = 4;
const FAILURES = 'kubeproxy_sync_proxy_rules_iptables_restore_failures_total';

suite('Somebody else writes iptables', { skip: reason ?? false }, () => {
  let lab: Lab;
  let proxy: RunningProxy;
  let folder: string;
  let restores = 0;
  const wrapIptables = (own: Iptables): Iptables => ({
    ...own,
    restore: async (family, text, signal) => {
      if (family === 'ip') restores++;
      return await own.restore(family, text, signal);
    },
  });
  const reach = (): Promise<Reply> => lab.peers.cli.connect('10.96.0.8', 80, { timeoutMs: 300 });
  const leadTo = (ip: string): void => proxy.api.put('endpointslices', slice('echo', web, [{ ip }]));
  const failures = (): number => proxy.metrics.value(FAILURES, { ip_family: 'IPv4' }) ?? 0;
  const start = async (variant: '-legacy' | '-nft', more: object = {}): Promise<void> => {
    await proxy?.[Symbol.asyncDispose]();
    proxy = await startProxy(lab, { config: { mode: 'iptables' }, wrapIptables, variant, ...more });
    proxy.api.put('services', service('echo', ['10.96.0.8'], [{ name: 'web', port: 80, protocol: 'TCP' }]));
    leadTo('10.244.0.3');
    await proxy.synced();
    assert.equal((await reach()).server, 'srv');
  };
  before(async () => {
    // A lock file of our own: the machine's is everybody's. The programs take its name from here.
    folder = await mkdtemp(join(tmpdir(), 'nft-lock-'));
    lab = new Lab('nfl', { XTABLES_LOCKFILE: join(folder, 'lock') });
    await lab.build();
  });
  after(async () => {
    await proxy?.[Symbol.asyncDispose]();
    await lab?.[Symbol.asyncDispose]();
    await rm(folder, { recursive: true });
  });
  /** Resolves when the lock is free again. */
  const hold = (seconds: number): Promise<string> => lab.run('node', ['flock', join(folder, 'lock'), 'sleep', String(seconds)], '', seconds * 1000 + 20_000);

  test('a lock held for three seconds makes a change late, and nothing fails', async () => {
    await start('-legacy');
    const startMs = realClock.monoMs();
    const held = hold(3);
    await realClock.sleep(100);
    leadTo('10.244.0.4');
    assert.equal((await until(reach, (reply) => reply.server === 'srv2', 5000)).server, 'srv2');
    assert.ok(realClock.monoMs() - startMs > 2900, 'the lock was not in the way');
    assert.equal(failures(), 0);
    await held;
  });

  test('a lock held for longer than a write waits is told, and the change lands without help', async () => {
    await start('-legacy');
    const startMs = realClock.monoMs();
    const held = hold(HELD_SECONDS);
    await realClock.sleep(100);
    leadTo('10.244.0.4');
    assert.ok(
      (await until(
        async () => failures(),
        (count) => count > 0,
        10_000,
      )) > 0,
      'no write failed',
    );
    assert.equal(proxy.health.healthy, true);
    assert.equal((await reach()).server, 'srv', 'the rules that were there go on');
    await held;
    assert.ok(failures() >= 2, `${failures()} writes failed`);
    assert.equal(proxy.health.healthy, true);
    // Each write waits five seconds, and the pauses between them are doubled from one second on.
    const withinMs = 2 * (HELD_SECONDS + LONGEST_PAUSE_SECONDS) * 1000 - (realClock.monoMs() - startMs);
    assert.equal((await until(reach, (reply) => reply.server === 'srv2', withinMs)).server, 'srv2');
  });

  test('a hundred changes in a second are at most three writes', async () => {
    await start('-legacy', { minSyncPeriodMs: 1000 });
    await realClock.sleep(1000);
    restores = 0;
    for (let change = 0; change < 100; change++) {
      leadTo(change % 2 === 0 ? '10.244.0.3' : '10.244.0.4');
      await realClock.sleep(10);
    }
    assert.equal((await until(reach, (reply) => reply.server === 'srv2', 3000)).server, 'srv2');
    await proxy.synced();
    assert.ok(restores >= 1 && restores <= 3, `${restores} writes`);
  });

  test('four others and the proxy write through the nft kind at once, and nobody loses a rule', async () => {
    await start('-nft');
    const others = ['a', 'b', 'c', 'd'].map((name) =>
      lab.run('node', [
        'sh',
        '-ec',
        `iptables-nft -w 5 -N other-${name}; for i in $(seq 50); do iptables-nft -w 5 -A other-${name} -s 10.9.0.$i -j RETURN; done`,
      ]),
    );
    for (let change = 0; change < 40; change++) {
      leadTo(change % 2 === 0 ? '10.244.0.3' : '10.244.0.4');
      await realClock.sleep(20);
    }
    await Promise.all(others);
    await proxy.synced();
    const saved = await lab.iptablesSave('ip', '-nft');
    for (const name of ['a', 'b', 'c', 'd']) assert.equal(saved.match(new RegExp(`^-A other-${name} `, 'gm'))?.length, 50, name);
    assert.equal((await reach()).server, 'srv2');
  });
});
