import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import type { Cri } from './cri.ts';
import { backoffRules } from '../core/backoff.ts';
import { createImagePuller, type ImageNeed } from './images.ts';
import type { PullRecords } from './pull-records.ts';

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

test('an image that is here is said to be there for the pod only where somebody has asked whether it may have it', async () => {
  const said = async (records: PullRecords | null): Promise<string[]> => {
    const messages: string[] = [];
    const images = { imageStatus: async () => ({ image: { id: 'sha256:1', uid: null, username: '' } }) };
    const puller = createImagePuller({
      clock: createFakeClock(),
      cri: { images } as unknown as Cri,
      credentials: { forImage: async () => ({ auths: [], missing: [] }) },
      rules: backoffRules(),
      serial: true,
      maxParallel: 0,
      timeoutMs: 1_000,
      records,
    });
    const pod = { metadata: { uid: 'u1', name: 'p' }, spec: { containers: [] } };
    const tell = ({ message }: { message: string }): void => void messages.push(message);
    for (const imagePullPolicy of ['IfNotPresent', 'Never']) {
      const need = { pod, container: { name: 'm', image: 'a:1', imagePullPolicy }, sandboxConfig: {}, runtimeHandler: '', tell };
      const outcome = await puller.ensure(need, new AbortController().signal);
      messages.push(outcome.ok ? 'ok' : outcome.reason);
    }
    return messages;
  };
  const records = (mustPull: boolean) =>
    ({ mustPull: async () => mustPull, begin: async () => undefined, done: async () => undefined, failed: async () => undefined }) as unknown as PullRecords;
  const here = 'Container image "a:1" already present on machine';
  assert.deepEqual(await said(null), [here, 'ok', here, 'ok']);
  const may = `${here} and can be accessed by the pod`;
  assert.deepEqual(await said(records(false)), [may, 'ok', may, 'ok']);
  // A pod that may not pull does not learn that somebody else has it.
  assert.deepEqual((await said(records(true))).slice(-2), ['Container image "a:1" is not present with pull policy of Never', 'ErrImageNeverPull']);
});
