import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OpError } from '../../base/errors.ts';
import { createFakeClock } from '../../base/fake-clock.ts';
import { silentLog } from '../../base/log.ts';
import { createFakeSys, fakeRunResult } from '../../base/sys/fake.ts';
import { keepUtilChains } from './iptables-chains.ts';

test('written once, and again after somebody flushed a table; a machine without iptables is left alone', async () => {
  const clock = createFakeClock();
  const sys = createFakeSys();
  const written: string[] = [];
  let there = false;
  sys.onRun = ({ argv, stdin }) => {
    if (argv[0]?.startsWith('ip6') === true) throw new OpError('not-found', 'run ip6tables', 'no such file');
    if (argv[0] === 'iptables-restore') {
      written.push(stdin as string);
      there = true;
    }
    return fakeRunResult({ code: argv.includes('KUBE-KUBELET-CANARY') && !there ? 1 : 0 });
  };
  const stop = new AbortController();
  const running = keepUtilChains({ clock, log: silentLog, sys }, stop.signal);
  await clock.settle();
  assert.equal(written.length, 1);
  await clock.advance(180_000);
  assert.equal(written.length, 1);
  there = false;
  await clock.advance(60_000);
  assert.equal(written.length, 2);
  assert.equal(sys.runs.filter(({ argv }) => argv[0] === 'ip6tables').length, 1);
  stop.abort();
  await running;
});
