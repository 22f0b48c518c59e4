import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { createLine } from './line.ts';

const never = new AbortController().signal;

function world(limit: number, lentAfterMs?: number) {
  const clock = createFakeClock();
  const turns = createLine({ clock, what: 'try', limit, ...(lentAfterMs === undefined ? {} : { lentAfterMs }) });
  const order: string[] = [];
  const held = new Map<string, Disposable>();
  const take = (name: string, place: number, signal = never): Promise<void> =>
    turns.take(place, signal).then((turn) => {
      order.push(name);
      held.set(name, turn);
    });
  const done = async (name: string): Promise<void> => {
    held.get(name)![Symbol.dispose]();
    await clock.settle();
  };
  return { clock, turns, order, take, done };
}

test('who came first goes first, whenever it asked', async () => {
  const { clock, order, take, done } = world(2);
  for (const [name, place] of [
    ['a', 1],
    ['b', 2],
    ['d', 4],
    ['c', 3],
    ['c2', 3],
  ] as const)
    void take(name, place);
  await clock.settle();
  assert.deepEqual(order, ['a', 'b']);
  await done('b');
  assert.deepEqual(order, ['a', 'b', 'c']);
  await done('c');
  await done('a');
  assert.deepEqual(order, ['a', 'b', 'c', 'c2', 'd']);
});

test('what is stuck holds up nobody for longer than the bound, and its late end frees nothing twice', async () => {
  const { clock, turns, order, take, done } = world(1, 3000);
  for (const name of ['stuck', 'next', 'last']) void take(name, 1);
  await clock.advance(2999);
  assert.deepEqual(order, ['stuck']);
  await clock.advance(1);
  assert.deepEqual(order, ['stuck', 'next']);
  await done('stuck');
  assert.deepEqual(order, ['stuck', 'next']);
  await done('next');
  assert.deepEqual(order, ['stuck', 'next', 'last']);
  await done('last');
  assert.deepEqual([turns.held, turns.waiting, clock.armed], [0, 0, 0]);
});

test('who is stopped leaves the line', async () => {
  const { clock, turns, order, take, done } = world(1);
  const stop = new AbortController();
  void take('a', 1);
  const refused = assert.rejects(take('b', 2, stop.signal), /wait for the turn to try/);
  void take('c', 3);
  await clock.settle();
  stop.abort();
  await refused;
  assert.equal(turns.waiting, 1);
  await assert.rejects(take('d', 4, stop.signal), /stopped by the caller/);
  await done('a');
  assert.deepEqual(order, ['a', 'c']);
});

test('0 is no limit', async () => {
  const { clock, order, take } = world(0, 10);
  for (const name of ['a', 'b', 'c']) void take(name, 1);
  await clock.settle();
  assert.deepEqual([order.length, clock.armed], [3, 0]);
});
