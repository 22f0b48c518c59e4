import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { OpError } from '../../base/errors.ts';
import { silentLog } from '../../base/log.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { FakeEvents } from '../fake.ts';
import { NodeShutdown } from './shutdown.ts';
import { FakeLogind } from './shutdown-fake.ts';

const podOf = (name: string, priority: number, grace = 30): Pod => ({
  metadata: { name, namespace: 'n', uid: name },
  spec: { containers: [], priority, terminationGracePeriodSeconds: grace },
});

/** A node with pods that take their whole grace period to end, but for those of `quick`. */
function world(pods: readonly Pod[], quick: readonly string[] = [], logind = new FakeLogind()) {
  const clock = createFakeClock();
  const lines: string[] = [];
  const say = (text: string): void => void lines.push(`${Math.round(clock.monoMs() / 1000)} ${text}`);
  const events = new FakeEvents();
  events.onEvent = (line) => say(`event ${line}`);
  const files: { text: string | null } = { text: null };
  const opened: FakeLogind[] = [];
  const shutdown = new NodeShutdown({
    clock,
    log: silentLog,
    events,
    periods: [
      { priority: 0, seconds: 20 },
      { priority: 2_000_000_000, seconds: 10 },
    ],
    openLogind: async () => {
      opened.push(opened.length === 0 ? logind : new FakeLogind());
      return opened.at(-1)!;
    },
    pods: {
      list: () => pods,
      mayRun: (uid) => uid !== 'over',
      isClean: async () => true,
      async evict(uid, { reason, message, graceMs, condition }, signal) {
        if (uid === 'stuck') throw new OpError('failed', 'end a pod', 'the runtime does not let go of it');
        say(`end ${uid} in ${(graceMs ?? 0) / 1000} s: ${reason}, ${message} ${condition?.type}/${condition?.reason}`);
        await clock.sleep(quick.includes(uid) ? 1000 : (graceMs ?? 0) + 5000, signal);
        say(`ended ${uid}`);
      },
    },
    target: () => ({ apiVersion: 'v1', kind: 'Node', name: 'node', uid: 'u' }),
    onChange: () => say(`ready: ${shutdown.trouble() ?? 'yes'}`),
    state: { read: async () => files.text, write: async (text) => void (files.text = text) },
    onState: ({ startMs, endMs }) => say(`state ${startMs === null ? '-' : 'begun'} ${endMs === null ? '-' : 'ended'}`),
  });
  return { clock, lines, shutdown, logind, files, opened };
}

const words = 'Terminated, Pod was terminated in response to imminent node shutdown. DisruptionTarget/TerminationByKubelet';

test('pods end by priority while logind waits, and what is late does not hold up the rest', async () => {
  const { clock, lines, shutdown, logind, files } = world(
    [podOf('slow', 0), podOf('quick', 0, 5), podOf('critical', 2_000_000_000), podOf('over', 0)],
    ['quick', 'critical'],
  );
  const stop = new AbortController();
  const run = shutdown.run(stop.signal);
  await clock.settle();
  await clock.advance(1000);
  assert.deepEqual([logind.delay, logind.locks, shutdown.admit()], [30_000, 1, null]);
  logind.tell(true);
  await clock.settle();
  assert.equal(shutdown.admit()?.reason, 'NodeShutdown');
  await clock.advance(60_000);
  assert.deepEqual(lines, [
    '1 event Normal NodeShutdown node: Shutdown manager detected shutdown event',
    '1 ready: node is shutting down',
    '1 state begun -',
    `1 end slow in 20 s: ${words}`,
    `1 end quick in 5 s: ${words}`,
    '2 ended quick',
    `21 end critical in 10 s: ${words}`,
    '22 ended critical',
    '22 state begun ended',
  ]);
  assert.equal(logind.locks, 0);
  assert.match(files.text ?? '', /^\{"startTime":"2026-01-01T00:00:01/);
  stop.abort();
  await run;
});

test('a pod that cannot be ended keeps neither the others nor the machine from their end', async () => {
  const { clock, lines, shutdown, logind } = world([podOf('stuck', 0), podOf('quick', 0, 5), podOf('critical', 2_000_000_000)], ['quick', 'critical']);
  const stop = new AbortController();
  const run = shutdown.run(stop.signal);
  await clock.advance(1000);
  logind.tell(true);
  await clock.advance(60_000);
  assert.deepEqual(
    lines.filter((line) => / (ended|state) /.test(line)),
    ['1 state begun -', '2 ended quick', '3 ended critical', '3 state begun ended'],
  );
  assert.equal(logind.locks, 0);
  stop.abort();
  await run;
});

test('a shutdown that is called off makes the node ready, and the next is put off again', async () => {
  const { clock, shutdown, logind } = world([]);
  const stop = new AbortController();
  const run = shutdown.run(stop.signal);
  await clock.advance(1000);
  logind.tell(true);
  await clock.settle();
  assert.deepEqual([logind.locks, shutdown.trouble()], [0, 'node is shutting down']);
  logind.tell(false);
  await clock.settle();
  assert.deepEqual([logind.locks, shutdown.trouble(), shutdown.admit()], [1, null, null]);
  stop.abort();
  await run;
  assert.equal(logind.locks, 0);
});

test('a lost connection is made again; logind that grants too little is no inhibitor', async () => {
  const { clock, shutdown, logind, opened } = world([]);
  const stop = new AbortController();
  const run = shutdown.run(stop.signal);
  await clock.advance(1000);
  logind.lose();
  await clock.advance(3000);
  assert.deepEqual([opened.length, opened[1]?.locks], [2, 1]);
  stop.abort();
  await run;
  const stingy = new FakeLogind();
  stingy.mostMs = 10_000;
  const other = world([], [], stingy);
  const end = new AbortController();
  const running = other.shutdown.run(end.signal);
  await other.clock.advance(3000);
  assert.equal(stingy.locks, 0);
  end.abort();
  await running;
});

test('what an earlier process did is in the metrics', async () => {
  const { clock, lines, shutdown, files } = world([]);
  files.text = '{"startTime":"2026-01-01T00:00:01Z","endTime":"0001-01-01T00:00:00Z"}';
  const stop = new AbortController();
  const run = shutdown.run(stop.signal);
  await clock.settle();
  assert.deepEqual(lines, ['0 state begun -']);
  stop.abort();
  await run;
});
