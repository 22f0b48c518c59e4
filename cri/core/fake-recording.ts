import type { RecordedCall, RecordedEntry, RecordedTime } from './recording.ts';

/** A pod whose life is made up, for tests of what reads recordings. */
export interface FakePod {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly containers: readonly string[];
}

export interface FakeRecordingOptions {
  readonly pods: readonly FakePod[];
  /** Makes ids, addresses and times of a recording its own. */
  readonly seed: number;
  /** Between two pods. */
  readonly everyMs: number;
  /** Between two looks at all sandboxes and containers. */
  readonly relistMs: number;
  /** May change a request, or make the call fail or not happen. */
  readonly change?: (method: string, pod: FakePod, request: Record<string, unknown>) => Record<string, unknown> | { readonly fails: string } | null;
}

type Fields = Record<string, unknown>;

/** 64 digits, or as many as asked for; the same for the same words. */
export function fakeId(words: string, digits = 64): string {
  let out = '';
  for (let round = 0; out.length < digits; round += 1) {
    let hash = 0x811c9dc5 ^ round;
    for (let at = 0; at < words.length; at += 1) hash = Math.imul(hash ^ words.charCodeAt(at), 0x01000193) >>> 0;
    out += Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d)
      .toString(16)
      .replace('-', '')
      .padStart(8, '0')
      .slice(-8);
  }
  return out.slice(0, digits);
}

/** `0a1b2c3d-…`, the same for the same words. */
export function fakeUid(words: string): string {
  const id = fakeId(words, 32);
  return `${id.slice(0, 8)}-${id.slice(8, 12)}-4${id.slice(13, 16)}-8${id.slice(17, 20)}-${id.slice(20)}`;
}

class FakeRecording {
  readonly #options: FakeRecordingOptions;
  readonly #startMs: number;
  readonly #sandboxes: Fields[] = [];
  readonly #containers: Fields[] = [];
  #call = 0;

  constructor(options: FakeRecordingOptions) {
    this.#options = options;
    this.#startMs = Date.UTC(2026, 0, 2, 3, options.seed % 60);
  }

  #at(monoMs: number): RecordedTime {
    return { wall: new Date(this.#startMs + monoMs).toISOString(), monoMs: 1000 + monoMs };
  }

  #sized(fields: Fields): { fields: Fields; sizeBytes: number } {
    return { fields, sizeBytes: JSON.stringify(fields).length };
  }

  #one(method: string, startMs: number, tookMs: number, request: Fields, response: Fields, fails?: string): RecordedCall {
    this.#call += 1;
    return {
      type: 'call',
      call: this.#call,
      connection: 1,
      stream: this.#call * 2 - 1,
      service: `runtime.v1.${/Image/.test(method) ? 'ImageService' : 'RuntimeService'}`,
      method,
      start: this.#at(startMs),
      end: this.#at(startMs + tookMs),
      requests: [this.#sized(request)],
      responses: fails === undefined ? [this.#sized(response)] : [],
      status: fails === undefined ? { code: 0, name: 'OK', message: '' } : { code: 2, name: 'Unknown', message: fails },
    };
  }

  *#ofPod(pod: FakePod, fromMs: number): Generator<RecordedCall> {
    const { seed, change } = this.#options;
    let at = fromMs;
    const made = (method: string, request: Fields, tookMs: number, response: Fields): RecordedCall | null => {
      const changed = change === undefined ? request : change(method, pod, request);
      if (changed === null) return null;
      at += tookMs + 2;
      const fails = typeof changed['fails'] === 'string' ? changed['fails'] : undefined;
      return this.#one(method, at - tookMs - 2, tookMs, fails === undefined ? changed : request, response, fails);
    };
    const { namespace, name, uid } = pod;
    const metadata = { name, namespace, uid };
    const usual = { 'io.kubernetes.pod.name': name, 'io.kubernetes.pod.namespace': namespace, 'io.kubernetes.pod.uid': uid };
    const config = {
      metadata,
      hostname: name,
      logDirectory: `/var/log/pods/${namespace}_${name}_${uid}`,
      dnsConfig: { servers: ['10.96.0.10'], searches: [`${namespace}.svc.cluster.local`, 'svc.cluster.local'], options: ['ndots:5'] },
      labels: { ...pod.labels, ...usual },
      annotations: { 'kubernetes.io/config.seen': new Date(this.#startMs + fromMs).toISOString(), 'kubernetes.io/config.source': 'api', ...pod.annotations },
      linux: { cgroupParent: `/kubepods/burstable/pod${uid}`, securityContext: { namespaceOptions: { pid: 'CONTAINER' } }, resources: { cpuShares: '102' } },
    };
    const sandboxId = fakeId(`sandbox ${seed} ${uid}`);
    const run = made('RunPodSandbox', { config }, 180 + (fromMs % 97), { podSandboxId: sandboxId });
    if (run === null) return;
    yield run;
    if (run.status?.code !== 0) return;
    this.#sandboxes.push({ id: sandboxId, metadata, state: 'SANDBOX_READY', createdAt: `${this.#startMs + at}000000`, labels: config.labels });
    const status = {
      id: sandboxId,
      metadata,
      state: 'SANDBOX_READY',
      network: { ip: `10.${seed}.${(fromMs >> 8) % 256}.${fromMs % 256}` },
      labels: config.labels,
    };
    const look = made('PodSandboxStatus', { podSandboxId: sandboxId }, 2, { status });
    if (look !== null) yield look;
    for (const container of pod.containers) {
      const containerId = fakeId(`${container} ${seed} ${uid}`);
      const image = made('ImageStatus', { image: { image: 'docker.io/library/busybox:1.36' } }, 1, { image: { id: `sha256:${fakeId('busybox')}` } });
      if (image !== null) yield image;
      const containerConfig = {
        metadata: { name: container },
        image: { image: `sha256:${fakeId('busybox')}`, userSpecifiedImage: 'docker.io/library/busybox:1.36' },
        command: ['sh', '-c', 'sleep 3600'],
        envs: [{ key: 'KUBERNETES_SERVICE_HOST', value: '(withheld)' }],
        mounts: [{ containerPath: '/etc/hosts', hostPath: `/var/lib/kubelet/pods/${uid}/etc-hosts` }],
        labels: { 'io.kubernetes.container.name': container, ...usual },
        annotations: { 'io.kubernetes.container.restartCount': '0' },
        logPath: `${container}/0.log`,
        linux: { resources: { cpuShares: '102', oomScoreAdj: '998' }, securityContext: { maskedPaths: ['/proc/acpi', '/proc/kcore'] } },
      };
      const create = made('CreateContainer', { podSandboxId: sandboxId, config: containerConfig, sandboxConfig: config }, 20, { containerId });
      if (create === null) continue;
      yield create;
      if (create.status?.code !== 0) continue;
      const start = made('StartContainer', { containerId }, 40, {});
      if (start !== null) yield start;
      this.#containers.push({
        id: containerId,
        podSandboxId: sandboxId,
        metadata: { name: container },
        state: 'CONTAINER_RUNNING',
        labels: containerConfig.labels,
      });
      for (let times = 0; times < 3; times += 1) {
        const seen = made('ContainerStatus', { containerId }, 1, { status: { id: containerId, metadata: { name: container }, state: 'CONTAINER_RUNNING' } });
        if (seen !== null) yield seen;
      }
    }
  }

  *entries(): Generator<RecordedEntry> {
    const { pods, everyMs, relistMs } = this.#options;
    yield {
      type: 'recording',
      version: 1,
      recorder: 'made up',
      startedAt: this.#at(0),
      listen: 'unix:///run/tap.sock',
      upstream: 'unix:///run/containerd/containerd.sock',
      redacted: true,
    };
    yield { type: 'connection', connection: 1, at: this.#at(0), event: 'open' };
    yield this.#one('Version', 1, 1, {}, { runtimeName: 'containerd', runtimeVersion: 'v2.4.0', runtimeApiVersion: 'v1' });
    let nextMs = relistMs;
    for (const [at, pod] of pods.entries()) {
      yield* this.#ofPod(pod, 10 + at * everyMs);
      for (; nextMs <= at * everyMs; nextMs += relistMs) {
        yield this.#one('ListPodSandbox', nextMs, 1, {}, { items: [...this.#sandboxes] });
        yield this.#one('ListContainers', nextMs + 2, 2, {}, { containers: [...this.#containers] });
      }
    }
    yield { type: 'stop', at: this.#at(10 + pods.length * everyMs), reason: 'ended', calls: this.#call, blindConnections: 0 };
  }
}

/** Entries of a recording that nobody made: pods start one after the other, with the looks that a kubelet takes. */
export function fakeRecording(options: FakeRecordingOptions): Generator<RecordedEntry> {
  return new FakeRecording(options).entries();
}
