import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { RecordedCall, RecordedEntry } from './recording.ts';
import { ReplayPlan } from './replay-plan.ts';

interface Sketch {
  readonly method: string;
  readonly request?: object;
  readonly response?: object;
  readonly at?: readonly [startMs: number, endMs: number | null];
  readonly service?: string;
  readonly cut?: string;
  readonly code?: number;
}

let calls = 0;
function call({ method, request = {}, response = {}, at = [0, 1], service = 'RuntimeService', cut, code = 0 }: Sketch): RecordedCall {
  const [startMs, endMs] = at;
  const time = (monoMs: number) => ({ wall: new Date(monoMs).toISOString(), monoMs });
  return {
    type: 'call',
    call: ++calls,
    connection: 1,
    stream: 1,
    service: service.includes('.') ? service : `runtime.v1.${service}`,
    method,
    start: time(startMs),
    end: endMs === null ? null : time(endMs),
    requests: [{ fields: request, sizeBytes: 1 }],
    responses: [{ fields: response, sizeBytes: 1 }],
    status: cut === undefined ? { code, name: code === 0 ? 'OK' : 'Unknown', message: '' } : null,
    ...(cut === undefined ? {} : { cut }),
  };
}

const config = { metadata: { name: 'web', namespace: 'default', uid: 'u' } };

test('calls about one pod are one lane, whatever id they name', () => {
  const plan = new ReplayPlan();
  const steps = [
    call({ method: 'Version', at: [1000, 1001] }),
    call({ method: 'PullImage', service: 'ImageService', request: { image: { image: 'busybox' } } }),
    call({ method: 'RunPodSandbox', request: { config }, response: { podSandboxId: 's1' }, at: [1200, 1500] }),
    call({ method: 'CreateContainer', request: { podSandboxId: 's1', config: { metadata: { name: 'app' } } }, response: { containerId: 'c1' } }),
    call({ method: 'StartContainer', request: { containerId: 'c1' } }),
    call({ method: 'ListContainers', request: { filter: { podSandboxId: 's1' } }, response: { containers: [{ id: 'c1' }] } }),
    call({ method: 'ListContainers', response: { containers: [{ id: 'c1' }] } }),
  ].map((entry) => plan.take(entry));
  assert.deepEqual(
    steps.map((step) => (step !== null && 'lane' in step ? [step.method, step.lane, step.subject, step.changes] : step)),
    [
      ['Version', '', '', false],
      ['PullImage', 'image busybox', 'busybox', true],
      ['RunPodSandbox', 'default/web u', 'default/web', true],
      ['CreateContainer', 'default/web u', 'default/web/app', true],
      ['StartContainer', 'default/web u', 'default/web/app', true],
      ['ListContainers', 'default/web u', 'default/web', false],
      ['ListContainers', '', '', false],
    ],
  );
  const run = steps[2];
  assert.ok(run !== null && run !== undefined && 'lane' in run);
  assert.deepEqual([run.startMs, run.endMs], [200, 500], 'from the first call on');
  const list = steps[6];
  assert.ok(list !== null && list !== undefined && 'lane' in list);
  assert.deepEqual(list.response, {}, 'lists are not held');
});

test('what cannot be made again says why', () => {
  const cases: readonly [RecordedEntry, string][] = [
    [call({ method: 'StartContainer', request: { containerId: 'older' } }), 'it is about something that was there before the recording'],
    [call({ method: 'UpdateRuntimeConfig' }), 'it would change the runtime itself'],
    [call({ method: 'RemoveImage', service: 'ImageService', request: { image: { image: 'busybox' } } }), 'it would take away images that were there before'],
    [call({ method: 'GetContainerEvents' }), 'it is a stream'],
    [call({ method: 'Version', at: [0, null] }), 'it had no end'],
    [call({ method: 'Version', cut: 'the connection was closed' }), 'it was cut off'],
    [call({ method: 'Get', service: 'containerd.services.images.v1.Images' }), 'it is not of CRI v1'],
    [{ ...call({ method: 'Version' }), requests: [{ sizeBytes: 9, withheld: true }] }, 'its message is not in the recording'],
  ];
  for (const [entry, why] of cases) {
    const step = new ReplayPlan().take(entry);
    assert.ok(step !== null && 'why' in step, why);
    assert.equal(step.why, why);
  }
});

test('a call that its caller gave up is made, and given up again', () => {
  const step = new ReplayPlan().take(call({ method: 'RunPodSandbox', request: { config }, cut: 'the caller reset it: cancelled', at: [0, 240_000] }));
  assert.ok(step !== null && 'lane' in step);
  assert.deepEqual([step.status, step.endMs - step.startMs], [null, 240_000]);
});

test('images are known by what the recorded runtime called them', () => {
  const plan = new ReplayPlan();
  plan.take(
    call({
      method: 'ListImages',
      service: 'ImageService',
      response: { images: [{ id: 'sha256:a', repoTags: ['busybox:1'], repoDigests: ['busybox@sha256:b'] }] },
    }),
  );
  plan.take(
    call({ method: 'ImageStatus', service: 'ImageService', request: { image: { image: 'x' } }, response: { image: { id: 'sha256:c', repoTags: ['x:2'] } } }),
  );
  assert.deepEqual(
    [...plan.imageNames],
    [
      ['sha256:a', ['busybox:1', 'busybox@sha256:b']],
      ['sha256:c', ['x:2']],
    ],
  );
});
