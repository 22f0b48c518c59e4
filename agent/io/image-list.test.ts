import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import type { Cri } from './cri.ts';
import { createImageList } from './image-list.ts';

test('the largest images are told, digests before tags, five names each, renewed every half minute, also after a failure', async () => {
  const clock = createFakeClock();
  let answer: (() => object[]) | null = null;
  let asked = 0;
  const listImages = async () => {
    asked += 1;
    if (answer === null) throw new Error('not up yet');
    return { images: answer() };
  };
  const list = (max: number) => createImageList({ cri: { images: { listImages } } as unknown as Cri, clock, max });
  const [two, all] = [list(2), list(-1)];
  const stop = new AbortController();
  const running = Promise.all([two.run(stop.signal), all.run(stop.signal)]);
  await clock.settle();
  assert.deepEqual([two.current(), asked], [[], 2]);
  const tags = ['a:1', 'a:2', 'a:3', 'a:4', 'a:5'];
  answer = () => [
    { repoDigests: [], repoTags: ['small:1'], size: '9' },
    { repoDigests: ['a@sha256:1'], repoTags: tags, size: '1000' },
    { repoDigests: ['b@sha256:2'], repoTags: [], size: '200' },
  ];
  await clock.advance(30_000);
  assert.deepEqual(two.current(), [
    { names: ['a@sha256:1', ...tags.slice(0, 4)], sizeBytes: 1000 },
    { names: ['b@sha256:2'], sizeBytes: 200 },
  ]);
  assert.equal(all.current().length, 3);
  answer = () => [];
  await clock.advance(30_000);
  assert.deepEqual([two.current(), asked], [[], 6]);
  stop.abort();
  await running;
});
