import type { RecordedCall } from './recording.ts';

export type Fields = Readonly<Record<string, unknown>>;

/** A sandbox of the runtime that was recorded. */
interface PlayedSandbox {
  readonly id: string;
  /** `namespace/name`: what stays the same when ids, uids and attempts do not. */
  readonly pod: string;
  /** A PodSandboxConfig, as far as the recording tells it. */
  config: Fields;
  runtimeHandler: string;
  createdAtNs: bigint;
  ip: string;
  additionalIps: readonly string[];
  /** Was there before recording began. */
  wasThere: boolean;
  readyAtFirst: boolean;
  ready: boolean;
  /** Wall clock, milliseconds, of the first call that asked it to stop. */
  stopAskedMs: number | null;
}

/** A container of the runtime that was recorded. */
export interface PlayedContainer {
  readonly id: string;
  readonly sandboxId: string;
  readonly pod: string;
  readonly name: string;
  /** A ContainerConfig, as far as the recording tells it. */
  config: Fields;
  image: { tag: string; digest: string; id: string };
  logPath: string;
  createdAtNs: bigint;
  wasThere: boolean;
  stateAtFirst: string;
  state: string;
  startedAtNs: bigint;
  finishedAtNs: bigint;
  exitCode: number;
  reason: string;
  message: string;
  stopAskedMs: number | null;
  /** Of the StopContainer that succeeded first; null when there was none. */
  stopTookMs: number | null;
  stopGraceMs: number;
}

export function at(fields: unknown, ...path: readonly string[]): unknown {
  let value = fields;
  for (const name of path) value = (value as Fields | undefined | null)?.[name];
  return value;
}

export function textAt(fields: unknown, ...path: readonly string[]): string {
  const value = at(fields, ...path);
  return typeof value === 'string' ? value : typeof value === 'number' ? String(value) : '';
}

function listAt(fields: unknown, ...path: readonly string[]): readonly Fields[] {
  const value = at(fields, ...path);
  return Array.isArray(value) ? (value as Fields[]) : [];
}

function nsAt(fields: unknown, name: string): bigint {
  const text = textAt(fields, name);
  return /^\d+$/.test(text) ? BigInt(text) : 0n;
}

export function podOf(metadata: unknown): string {
  return `${textAt(metadata, 'namespace')}/${textAt(metadata, 'name')}`;
}

const NS_PER_MS = 1_000_000n;
const MAX_GONE = 10_000;
const MAX_ADDRESSES = 100;
const MAX_TRAITS = 100_000;

/** What the recorded runtime held, learned call by call; what was removed is forgotten, after `onGone` has seen it. */
export class PlayedWorld {
  readonly sandboxes = new Map<string, PlayedSandbox>();
  readonly containers = new Map<string, PlayedContainer>();
  /** Ids of what was there at the beginning and not at the end. */
  readonly removed = new Set<string>();
  /** By pod, in the order in which they were seen. */
  readonly addresses = new Map<string, (readonly string[])[]>();
  /** By `namespace/name/container`. */
  readonly traits = new Map<string, { readonly user: unknown; readonly stopSignal: unknown }>();
  #beganMs = 0;
  /** A list that was asked for before a removal and answered after it names what is gone. */
  readonly #gone = new Set<string>();
  readonly #onGone: (container: PlayedContainer) => void;

  constructor(onGone: (container: PlayedContainer) => void) {
    this.#onGone = onGone;
  }

  /** When recording began: wall clock, milliseconds. */
  get beganMs(): number {
    return this.#beganMs;
  }

  began(wallMs: number): void {
    if (this.#beganMs === 0) this.#beganMs = wallMs;
  }

  #sandbox(id: string, metadata: unknown, createdAtNs: bigint): PlayedSandbox {
    const known = this.sandboxes.get(id);
    if (known !== undefined) return known;
    const made: PlayedSandbox = {
      id,
      pod: podOf(metadata),
      config: {},
      runtimeHandler: '',
      createdAtNs,
      ip: '',
      additionalIps: [],
      wasThere: createdAtNs < BigInt(this.#beganMs) * NS_PER_MS,
      readyAtFirst: true,
      ready: true,
      stopAskedMs: null,
    };
    this.sandboxes.set(id, made);
    return made;
  }

  #container(id: string, sandboxId: string, fields: unknown): PlayedContainer {
    const known = this.containers.get(id);
    if (known !== undefined) return known;
    const labels = at(fields, 'labels');
    const createdAtNs = nsAt(fields, 'createdAt');
    const state = textAt(fields, 'state') || 'CONTAINER_CREATED';
    const made: PlayedContainer = {
      id,
      sandboxId,
      pod: this.sandboxes.get(sandboxId)?.pod ?? `${textAt(labels, 'io.kubernetes.pod.namespace')}/${textAt(labels, 'io.kubernetes.pod.name')}`,
      name: textAt(fields, 'metadata', 'name'),
      config: {},
      image: { tag: '', digest: '', id: '' },
      logPath: '',
      createdAtNs,
      wasThere: createdAtNs < BigInt(this.#beganMs) * NS_PER_MS,
      stateAtFirst: state,
      state,
      startedAtNs: 0n,
      finishedAtNs: 0n,
      exitCode: 0,
      reason: '',
      message: '',
      stopAskedMs: null,
      stopTookMs: null,
      stopGraceMs: 0,
    };
    this.containers.set(id, made);
    return made;
  }

  /** A sandbox as lists, statuses and events have it. */
  #sawSandbox(fields: Fields): void {
    const id = textAt(fields, 'id');
    if (id === '' || this.#gone.has(id)) return;
    const isNew = !this.sandboxes.has(id);
    const sandbox = this.#sandbox(id, at(fields, 'metadata'), nsAt(fields, 'createdAt'));
    sandbox.ready = textAt(fields, 'state') !== 'SANDBOX_NOTREADY';
    if (isNew) {
      sandbox.readyAtFirst = sandbox.ready;
      sandbox.config = { metadata: at(fields, 'metadata'), labels: at(fields, 'labels'), annotations: at(fields, 'annotations') };
    }
    sandbox.runtimeHandler ||= textAt(fields, 'runtimeHandler');
    const ip = textAt(fields, 'network', 'ip');
    if (ip !== '') {
      sandbox.ip = ip;
      sandbox.additionalIps = listAt(fields, 'network', 'additionalIps').map((one) => textAt(one, 'ip'));
      const known = this.addresses.get(sandbox.pod) ?? [];
      this.addresses.set(sandbox.pod, known);
      if (known.length < MAX_ADDRESSES && !known.some(([first]) => first === ip)) known.push([ip, ...sandbox.additionalIps]);
    }
    const options = at(fields, 'linux', 'namespaces', 'options');
    if (options !== undefined && at(sandbox.config, 'linux') === undefined)
      sandbox.config = { ...sandbox.config, linux: { securityContext: { namespaceOptions: options } } };
  }

  #sawContainer(fields: Fields, sandboxId: string): void {
    const id = textAt(fields, 'id');
    const known = this.containers.get(id);
    if (id === '' || this.#gone.has(id) || (known === undefined && sandboxId === '')) return;
    const container = known ?? this.#container(id, sandboxId, fields);
    if (container.config['metadata'] === undefined)
      container.config = { metadata: at(fields, 'metadata'), labels: at(fields, 'labels'), annotations: at(fields, 'annotations'), image: at(fields, 'image') };
    if (container.config['mounts'] === undefined && at(fields, 'mounts') !== undefined)
      container.config = { ...container.config, mounts: at(fields, 'mounts') };
    container.state = textAt(fields, 'state') || 'CONTAINER_CREATED';
    container.image = {
      tag: textAt(fields, 'image', 'image') || container.image.tag,
      digest: textAt(fields, 'imageRef') || container.image.digest,
      id: textAt(fields, 'imageId') || container.image.id,
    };
    container.logPath = textAt(fields, 'logPath') || container.logPath;
    this.#sawTraits(container, fields);
    if (nsAt(fields, 'startedAt') > 0n) container.startedAtNs = nsAt(fields, 'startedAt');
    if (container.state !== 'CONTAINER_EXITED' || nsAt(fields, 'finishedAt') === 0n) return;
    container.finishedAtNs = nsAt(fields, 'finishedAt');
    container.exitCode = Number(at(fields, 'exitCode') ?? 0);
    container.reason = textAt(fields, 'reason');
    container.message = textAt(fields, 'message');
  }

  /** What only a status tells, and the same for each container of that name. */
  #sawTraits({ pod, name }: PlayedContainer, fields: Fields): void {
    if (at(fields, 'user') === undefined && at(fields, 'stopSignal') === undefined) return;
    const key = `${pod}/${name}`;
    if (this.traits.size < MAX_TRAITS || this.traits.has(key)) this.traits.set(key, { user: at(fields, 'user'), stopSignal: at(fields, 'stopSignal') });
  }

  /** Learns from a call that succeeded, or from one message of a stream. */
  learn(method: string, call: RecordedCall, request: Fields, response: Fields): void {
    switch (method) {
      case 'RunPodSandbox': {
        const sandbox = this.#sandbox(textAt(response, 'podSandboxId'), at(request, 'config', 'metadata'), wallNs(call));
        sandbox.wasThere = false;
        sandbox.config = (at(request, 'config') ?? {}) as Fields;
        sandbox.runtimeHandler = textAt(request, 'runtimeHandler');
        break;
      }
      case 'CreateContainer': {
        const config = (at(request, 'config') ?? {}) as Fields;
        const container = this.#container(textAt(response, 'containerId'), textAt(request, 'podSandboxId'), { ...config, state: 'CONTAINER_CREATED' });
        container.wasThere = false;
        container.config = config;
        if (container.createdAtNs === 0n) container.createdAtNs = wallNs(call);
        break;
      }
      case 'StartContainer': {
        const container = this.containers.get(textAt(request, 'containerId'));
        if (container?.state === 'CONTAINER_CREATED') container.state = 'CONTAINER_RUNNING';
        break;
      }
      case 'StopContainer': {
        const container = this.containers.get(textAt(request, 'containerId'));
        if (container === undefined) break;
        container.stopGraceMs = Number(textAt(request, 'timeout') || 0) * 1000;
        if (container.stopTookMs === null && call.end !== null) container.stopTookMs = call.end.monoMs - call.start.monoMs;
        container.state = 'CONTAINER_EXITED';
        break;
      }
      case 'StopPodSandbox': {
        const sandbox = this.sandboxes.get(textAt(request, 'podSandboxId'));
        if (sandbox !== undefined) sandbox.ready = false;
        for (const container of this.containersOf(sandbox?.id)) if (container.state === 'CONTAINER_RUNNING') container.state = 'CONTAINER_EXITED';
        break;
      }
      case 'RemoveContainer':
        this.#lost(this.containers.get(textAt(request, 'containerId')));
        break;
      case 'RemovePodSandbox': {
        const sandbox = this.sandboxes.get(textAt(request, 'podSandboxId'));
        for (const container of this.containersOf(sandbox?.id)) this.#lost(container);
        if (sandbox !== undefined) this.#forget(this.sandboxes, sandbox);
        break;
      }
      case 'ListPodSandbox':
      case 'StreamPodSandboxes':
        for (const one of listAt(response, method === 'ListPodSandbox' ? 'items' : 'podSandboxes')) this.#sawSandbox(one);
        break;
      case 'ListContainers':
      case 'StreamContainers':
        for (const one of listAt(response, 'containers')) this.#sawContainer(one, textAt(one, 'podSandboxId'));
        break;
      case 'PodSandboxStatus':
        this.#sawSandbox((at(response, 'status') ?? {}) as Fields);
        for (const one of listAt(response, 'containersStatuses')) this.#sawContainer(one, textAt(response, 'status', 'id'));
        break;
      case 'ContainerStatus':
        this.#sawContainer((at(response, 'status') ?? {}) as Fields, '');
        break;
      case 'GetContainerEvents':
        this.#sawSandbox((at(response, 'podSandboxStatus') ?? {}) as Fields);
        for (const one of listAt(response, 'containersStatuses')) this.#sawContainer(one, textAt(response, 'podSandboxStatus', 'id'));
        break;
      default:
    }
  }

  /** A call that ends processes was made, whatever came of it. */
  askedToStop(method: string, request: Fields, wallMs: number): void {
    const ask = (one: { stopAskedMs: number | null } | undefined): void => {
      if (one !== undefined) one.stopAskedMs = Math.min(one.stopAskedMs ?? Infinity, wallMs);
    };
    if (method === 'StopContainer' || method === 'RemoveContainer') ask(this.containers.get(textAt(request, 'containerId')));
    else if (method === 'StopPodSandbox' || method === 'RemovePodSandbox') {
      const sandbox = this.sandboxes.get(textAt(request, 'podSandboxId'));
      ask(sandbox);
      for (const container of this.containersOf(sandbox?.id)) ask(container);
    }
  }

  containersOf(sandboxId: string | undefined): PlayedContainer[] {
    return sandboxId === undefined ? [] : [...this.containers.values()].filter((container) => container.sandboxId === sandboxId);
  }

  #lost(container: PlayedContainer | undefined): void {
    if (container === undefined) return;
    this.#onGone(container);
    this.#forget(this.containers, container);
  }

  /** What was there at the beginning stays known: a served runtime may begin with it. */
  #forget<T extends { readonly id: string; wasThere: boolean }>(all: Map<string, T>, one: T): void {
    if (one.wasThere) this.removed.add(one.id);
    else {
      all.delete(one.id);
      this.#gone.add(one.id);
      if (this.#gone.size > MAX_GONE) for (const oldest of this.#gone) return void this.#gone.delete(oldest);
    }
  }
}

function wallNs(call: RecordedCall): bigint {
  return BigInt(Date.parse(call.start.wall)) * NS_PER_MS;
}
