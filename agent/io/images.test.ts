import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import type { Cri } from './cri.ts';
import { backoffRules } from '../core/backoff.ts';
import { createImagePuller, type ImageNeed } from './images.ts';

test('pulls beyond registryPullQPS are refused and counted, and go on a moment later', async () => {
  const clock = createFakeClock();
  const ensured: unknown[][] = [];
  const images = {
    imageStatus: async () => ({ image: null }),
    pullImage: async ({ image }: { image: { image: string } }) => ({ imageRef: `sha256:${image.image}` }),
  };
  const puller = createImagePuller({
    clock,
    cri: { images } as unknown as Cri,
    credentials: { forImage: async () => ({ auths: [], missing: [] }) },
    rules: backoffRules(),
    serial: true,
    maxParallel: 0,
    timeoutMs: 1_000,
    records: null,
    qps: 1,
    burst: 2,
    metrics: { pulled: () => undefined, ensured: (...all) => void ensured.push(all) },
  });
  const need = (image: string): ImageNeed => ({
    pod: { metadata: { uid: 'u1', name: 'p' }, spec: { containers: [] } },
    container: { name: 'm', image },
    sandboxConfig: {},
    runtimeHandler: '',
    tell: () => undefined,
  });
  const ask = async (image: string): Promise<string> => {
    const outcome = await puller.ensure(need(image), new AbortController().signal);
    return outcome.ok ? 'ok' : `${outcome.reason}: ${outcome.message}`;
  };
  assert.deepEqual([await ask('a:1'), await ask('b:1'), await ask('c:1')], ['ok', 'ok', 'ErrImagePull: pull QPS exceeded']);
  await clock.advance(1_000);
  assert.equal(await ask('d:1'), 'ok');
  assert.deepEqual(ensured[0], ['IfNotPresent', false, true]);
});
