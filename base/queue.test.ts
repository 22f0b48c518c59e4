import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock } from './fake-clock.ts';
import { createKeyedQueue, type KeyedQueue } from './queue.ts';

function setup(workMs: number, concurrency = 2): { clock: ReturnType<typeof createFakeClock>; queue: KeyedQueue; log: string[]; errors: string[] } {
  const clock = createFakeClock();
  const log: string[] = [];
  const errors: string[] = [];
  const queue = createKeyedQueue({
    clock,
    concurrency,
    async work(key, signal) {
      log.push(`${key}+${clock.monoMs()}`);
      await clock.sleep(workMs, signal);
      log.push(`${key}-${clock.monoMs()}`);
      if (key === 'bad') throw new Error('refused');
    },
    onError: (key, error) => errors.push(`${key}: ${String(error)}`),
  });
  return { clock, queue, log, errors };
}

test('a key added while it runs runs once more, never beside itself', async () => {
  const { clock, queue, log } = setup(10);
  queue.add('a');
  queue.add('a');
  queue.add('a');
  await clock.advance(5);
  queue.add('a');
  queue.add('a');
  await clock.advance(100);
  assert.deepEqual(log, ['a+0', 'a-10', 'a+10', 'a-20']);
  await queue.idle();
});

test('a key that runs does not hold a worker from others', async () => {
  const { clock, queue, log } = setup(10, 2);
  queue.add('a');
  await clock.advance(1);
  queue.add('a');
  queue.add('b');
  queue.add('c');
  await clock.advance(100);
  assert.deepEqual(log, ['a+0', 'b+1', 'a-10', 'a+10', 'b-11', 'c+11', 'a-20', 'c-21']);
});

test('of several delays the earliest counts, and it survives a plain add', async () => {
  const { clock, queue, log } = setup(0);
  queue.addAfter('a', 50);
  queue.addAfter('a', 20);
  queue.addAfter('a', 90);
  queue.add('a');
  await clock.advance(200);
  assert.deepEqual(log, ['a+0', 'a-0', 'a+20', 'a-20']);
  queue.addAfter('a', 5);
  queue.forget('a');
  await clock.advance(10);
  assert.equal(log.length, 4);
});

test('a failure reaches onError and the queue goes on', async () => {
  const { clock, queue, log, errors } = setup(1, 1);
  queue.add('bad');
  queue.add('good');
  await clock.advance(10);
  assert.deepEqual(errors, ['bad: Error: refused']);
  assert.deepEqual(log.at(-1), 'good-2');
});

test('disposing stops what runs, waits for it and drops the rest', async () => {
  const { clock, queue, log, errors } = setup(1000, 1);
  queue.add('a');
  queue.add('b');
  queue.addAfter('c', 10);
  await clock.settle();
  await queue[Symbol.asyncDispose]();
  queue.add('d');
  assert.deepEqual(log, ['a+0']);
  assert.equal(errors.length, 1);
  assert.equal(queue.running + queue.waiting + clock.armed, 0);
});
