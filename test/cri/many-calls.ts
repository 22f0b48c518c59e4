import { RecordingWriter } from '../../cri/io/recording-write.ts';
import type { RecordedCall, RecordedEntry, RecordedStatus, RecordedTime } from '../../cri/core/recording.ts';

const START_MS = Date.parse('2026-06-01T08:00:00Z');
const OK: RecordedStatus = { code: 0, name: 'OK', message: '' };

/** Numbers that look like chance and are the same each time. */
function chance(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

function at(ms: number): RecordedTime {
  return { wall: new Date(START_MS + ms).toISOString(), monoMs: Number((1_000 + ms).toFixed(3)) };
}

interface Planned {
  readonly method: string;
  readonly startMs: number;
  readonly durationMs: number;
  readonly request: object;
  readonly response: object | null;
  readonly status?: RecordedStatus | null;
}

function fail(name: string, code: number, message: string): RecordedStatus {
  return { code, name, message };
}

/** The life of one pod, one in nine with a failure of some kind; some of them crash again and again. */
function podLife(index: number, startMs: number, calls: number, draw: () => number): Planned[] {
  const names = ['web', 'api', 'worker', 'cache', 'report-generator-of-the-night'];
  const metadata = {
    name: `${names[index % names.length]}-${(index * 7_919).toString(36)}`,
    namespace: index % 11 === 0 ? 'kube-system' : index % 3 === 0 ? 'payments' : 'default',
    uid: `00000000-0000-4000-8000-${String(index).padStart(12, '0')}`,
  };
  const sandbox = `5b${index.toString(16).padStart(62, '0')}`;
  const plan: Planned[] = [];
  let now = startMs;
  const add = (method: string, lasts: number, request: object, response: object | null, status?: RecordedStatus | null): void => {
    plan.push({ method, startMs: now, durationMs: lasts, request, response, ...(status === undefined ? {} : { status }) });
    now += lasts + 1 + draw() * 8;
  };
  const config = { metadata, hostname: metadata.name, labels: { app: names[index % names.length], 'pod-template-hash': index.toString(36) } };
  if (index % 9 === 4)
    add(
      'RunPodSandbox',
      90 + draw() * 200,
      { config, runtimeHandler: '' },
      null,
      fail('Unknown', 2, 'failed to set up sandbox network: no IP addresses available in range set 10.244.0.0-10.244.0.255'),
    );
  add('RunPodSandbox', 120 + draw() * 500, { config, runtimeHandler: '' }, { podSandboxId: sandbox });
  const image = { image: `registry.example/${names[index % names.length]}:1.${index % 7}` };
  add('ImageStatus', 0.6 + draw(), { image }, {});
  if (index % 6 === 0) add('PullImage', 700 + draw() * 4_000, { image, sandboxConfig: config }, { imageRef: `sha256:${index.toString(16).padStart(64, 'a')}` });
  for (const container of index % 4 === 0 ? ['app', 'sidecar'] : ['app']) {
    const lives = index % 13 === 5 && container === 'app' ? 4 : 1;
    for (let attempt = 0; attempt < lives; attempt += 1) {
      const id = `c${index.toString(16).padStart(40, '0')}${container.length}${attempt}`.padEnd(64, '0');
      add(
        'CreateContainer',
        18 + draw() * 40,
        {
          podSandboxId: sandbox,
          config: { metadata: { name: container, attempt }, image, envs: [{ key: 'PORT', value: '(withheld)' }], command: ['/bin/app', '--port=8080'] },
        },
        { containerId: id },
      );
      add(
        'StartContainer',
        40 + draw() * 60,
        { containerId: id },
        {},
        index % 17 === 3 ? fail('Unknown', 2, `failed to create containerd task: exec: "/bin/app": no such file or directory`) : OK,
      );
      if (lives > 1) now += 400 * 2 ** attempt;
      if (lives > 1) add('RemoveContainer', 15 + draw() * 20, { containerId: id }, {});
    }
  }
  const id = `c${index.toString(16).padStart(40, '0')}30`.padEnd(64, '0');
  while (plan.length < calls - 2) {
    now += 900 + draw() * 1_500;
    if (draw() < 0.2)
      add('ExecSync', 15 + draw() * 60, { containerId: id, cmd: ['/bin/ready'], timeout: '1' }, { exitCode: 0, stdout: 'b2sK' }, draw() < 0.02 ? null : OK);
    else if (draw() < 0.5)
      add('ContainerStatus', 0.4 + draw() * 2, { containerId: id }, { status: { id, state: 'CONTAINER_RUNNING', metadata: { name: 'app', attempt: 0 } } });
    else
      add(
        'PodSandboxStatus',
        0.4 + draw() * 2,
        { podSandboxId: sandbox },
        { status: { id: sandbox, state: 'SANDBOX_READY', metadata } },
        draw() < 0.001 ? fail('NotFound', 5, `an error occurred when try to find sandbox: not found`) : OK,
      );
  }
  add('StopPodSandbox', 60 + draw() * 200, { podSandboxId: sandbox }, {});
  add('RemovePodSandbox', 20 + draw() * 60, { podSandboxId: sandbox }, {});
  return plan;
}

/** A recording of a busy node: pods that come and go, relists, failures, an event stream that stays open. */
export function* manyCalls(pods: number, calls: number): Generator<RecordedEntry> {
  const draw = chance(pods * 31 + calls);
  const each = Math.max(12, Math.floor((calls * 0.8) / pods));
  const plan: Planned[] = [];
  for (let index = 0; index < pods; index += 1) plan.push(...podLife(index, index * 40 + draw() * 30, each, draw));
  const lastMs = plan.reduce((last, { startMs }) => Math.max(last, startMs), 0);
  const rest = Math.max(10, calls - plan.length);
  for (let index = 0; index < rest; index += 1) {
    const startMs = (index / rest) * lastMs;
    const method = ['ListContainers', 'ListPodSandbox', 'Status', 'ListImages', 'ImageFsInfo'][index % 5] ?? '';
    plan.push({ method, startMs, durationMs: 0.8 + draw() * (method === 'ListContainers' ? 6 : 2), request: {}, response: {} });
  }
  plan.sort((a, b) => a.startMs + a.durationMs - (b.startMs + b.durationMs));
  yield {
    type: 'recording',
    version: 1,
    recorder: 'many-calls',
    startedAt: at(0),
    listen: '/run/tap.sock',
    upstream: '/run/containerd/containerd.sock',
    redacted: true,
  };
  yield { type: 'connection', connection: 1, at: at(0), event: 'open' };
  const of = { connection: 1, service: 'runtime.v1.RuntimeService' };
  yield { ...of, type: 'opening', call: 1, stream: 1, method: 'GetContainerEvents', start: at(1), requests: [{ fields: {}, sizeBytes: 0 }] };
  for (const [index, { method, startMs, durationMs, request, response, status = OK }] of plan.entries()) {
    if (index % 500 === 7)
      yield {
        type: 'message',
        call: 1,
        at: at(startMs),
        message: { fields: { containerId: 'c0', containerEventType: 'CONTAINER_STARTED_EVENT' }, sizeBytes: 120 },
      };
    yield {
      ...of,
      ...(/Image/.test(method) ? { service: 'runtime.v1.ImageService' } : {}),
      type: 'call',
      call: index + 2,
      stream: 2 * index + 3,
      method,
      start: at(startMs),
      end: at(startMs + durationMs),
      requests: [{ fields: request, sizeBytes: JSON.stringify(request).length }],
      responses: response === null || status?.code !== 0 ? [] : [{ fields: response, sizeBytes: JSON.stringify(response).length }],
      status,
      ...(status === null ? { cut: 'the caller reset it: cancelled' } : {}),
    } satisfies RecordedCall;
  }
  yield { type: 'stop', at: at(lastMs + 1_000), reason: 'ended', calls: plan.length + 1, blindConnections: 0 };
}

/** Writes such a recording. */
export function writeManyCalls(path: string, pods: number, calls: number): { calls: number; fileBytes: number } {
  using writer = new RecordingWriter(path, { maxBytes: 1024 ** 3, append: false });
  let count = 0;
  for (const entry of manyCalls(pods, calls)) {
    if (entry.type === 'call') count += 1;
    writer.add(entry);
  }
  writer.flush();
  return { calls: count, fileBytes: writer.sizeBytes };
}
