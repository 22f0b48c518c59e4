import { assert } from '../base/assert.ts';
import type { Clock } from '../base/clock.ts';
import type { ContainerConfig, ContainerEventType, PodSandboxConfig } from '../proto/cri/types.ts';
import { RpcError, type RpcStatus } from './errors.ts';
import { FakeImages } from './fake-images.ts';
import {
  containerStats,
  containerStatus,
  criState,
  podStats,
  sandboxStatus,
  type ContainerScript,
  type ExecScript,
  type FakeContainer,
  type FakeSandbox,
} from './fake-state.ts';
import { fillShape, methodShape } from './shape.ts';
import type { CallOptions, RuntimeCall, Transport } from './transport.ts';

export { normalizeImage, type FakeImage } from './fake-images.ts';
export type { ContainerScript, ExecScript, FakeContainer, FakeSandbox } from './fake-state.ts';

export interface FakeRuntimeOptions {
  clock: Clock;
  /** containerd 2 names stop signals, image ids and events; 1.6 has neither RuntimeConfig nor events. Default 2. */
  version?: '1.6' | '2';
}

interface EventSink {
  push(event: object): void;
  end(error: RpcError): void;
}

/**
 * containerd in memory: sandboxes and containers with its transitions and refusals, and a process life that a test
 * scripts on a clock. Records the calls it got.
 */
export class FakeRuntime implements Transport {
  readonly #clock: Clock;
  readonly #version: '1.6' | '2';
  readonly #scripts: { matches: (container: FakeContainer) => boolean; scripts: ContainerScript[] }[] = [];
  readonly #sinks = new Set<EventSink>();
  #made = 0;
  #away = false;
  readonly images: FakeImages;
  readonly sandboxes = new Map<string, FakeSandbox>();
  readonly containers = new Map<string, FakeContainer>();
  /** Every call, in order, refused ones too. */
  readonly calls: RuntimeCall[] = [];
  /** What ExecSync runs. */
  onExec: (container: FakeContainer, command: readonly string[]) => ExecScript = () => ({});
  runtimeReady = true;
  networkReady = true;

  constructor(options: FakeRuntimeOptions) {
    this.#clock = options.clock;
    this.#version = options.version ?? '2';
    this.images = new FakeImages(options.clock);
  }

  // ---- what tests do -----------------------------------------------------------------------------------------

  /**
   * The life of containers to come, by container name or a test of one: the first script for the first such container
   * that starts, and so on; the last one for all after it.
   */
  script(which: string | ((container: FakeContainer) => boolean), ...scripts: ContainerScript[]): void {
    assert(scripts.length > 0, 'fake runtime: no script');
    const matches = typeof which === 'string' ? ({ config }: FakeContainer) => config.metadata?.name === which : which;
    this.#scripts.unshift({ matches, scripts });
  }

  /** The newest container of that name. */
  container(name: string): FakeContainer | undefined {
    return [...this.containers.values()].findLast(({ config }) => config.metadata?.name === name);
  }

  /** Ends a running container as its own process would. */
  exit(container: FakeContainer, exitCode: number, reason?: string): void {
    this.#exited(container, exitCode, reason);
  }

  /** The sandbox's pause process dies, and its containers with it. */
  killSandbox(sandbox: FakeSandbox): void {
    for (const container of this.#of(sandbox.id)) this.#exited(container, 137);
    sandbox.ready = false;
  }

  /** The runtime is gone: calls are Unavailable, containers live on, as they do without containerd. */
  goAway(): void {
    this.#away = true;
    for (const sink of this.#sinks) sink.end(this.#gone('GetContainerEvents'));
  }

  back(): void {
    this.#away = false;
  }

  // ---- the seam ------------------------------------------------------------------------------------------------

  async call(call: RuntimeCall, options: CallOptions): Promise<object> {
    const { requestType, responseType } = methodShape(call.service, call.method);
    const request = fillShape(requestType, call.request) as object;
    this.calls.push({ ...call, request });
    // An answer is never there at once.
    await Promise.resolve();
    if (options.signal?.aborted === true) throw new RpcError('Canceled', call.method, 'context canceled');
    if (this.#away) throw this.#gone(call.method);
    const method = (this.#methods as Record<string, ((request: never, options: CallOptions) => object | Promise<object>) | undefined>)[call.method];
    if (method === undefined) throw this.#unimplemented(call.method);
    const answer = await method(request as never, options);
    if (this.#away) throw this.#gone(call.method);
    return fillShape(responseType, answer) as object;
  }

  async *stream(call: RuntimeCall, { signal }: CallOptions): AsyncGenerator<object> {
    const { responseType } = methodShape(call.service, call.method);
    this.calls.push(call);
    await Promise.resolve();
    if (this.#away) throw this.#gone(call.method);
    if (call.method !== 'GetContainerEvents' || this.#version === '1.6') throw this.#unimplemented(call.method);
    const queue: object[] = [];
    let ended: RpcError | undefined;
    let wake = (): void => {};
    const sink: EventSink = {
      push: (event) => (queue.push(event), wake()),
      end: (error) => ((ended = error), wake()),
    };
    const stop = (): void => sink.end(new RpcError('Canceled', call.method, 'context canceled'));
    this.#sinks.add(sink);
    signal?.addEventListener('abort', stop, { once: true });
    if (signal?.aborted === true) stop();
    try {
      for (;;) {
        const event = queue.shift();
        if (event !== undefined) yield fillShape(responseType, event) as object;
        else if (ended !== undefined) throw ended;
        else await new Promise<void>((resolve) => (wake = resolve));
      }
    } finally {
      this.#sinks.delete(sink);
      signal?.removeEventListener('abort', stop);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.goAway();
    for (const { status } of this.containers.values()) if (status.state === 'running') status.exit?.[Symbol.dispose]();
  }

  // ---- inside --------------------------------------------------------------------------------------------------

  #gone(method: string): RpcError {
    return new RpcError(
      'Unavailable',
      method,
      'connection error: desc = "transport: Error while dialing: dial unix /run/containerd/containerd.sock: connect: connection refused"',
    );
  }

  #unimplemented(method: string): RpcError {
    return new RpcError('Unimplemented', method, `unknown method ${method} for service runtime.v1.RuntimeService`);
  }

  #nowNs(): bigint {
    return BigInt(Math.round(this.#clock.nowMs() * 1e6));
  }

  /** 64 hex digits; the first twelve count, so that they can be told apart. */
  #newId(): string {
    return `${(++this.#made).toString(16).padStart(12, '0')}${'f'.repeat(52)}`;
  }

  #refuse(method: string, status: RpcStatus, description: string): never {
    throw new RpcError(status, method, description);
  }

  /** By full id or a prefix that only one has. */
  #byId<T>(all: ReadonlyMap<string, T>, id: string): T | undefined {
    const exact = all.get(id);
    if (exact !== undefined || id === '') return exact;
    const matching = [...all.keys()].filter((key) => key.startsWith(id));
    return matching.length === 1 ? all.get(matching[0] as string) : undefined;
  }

  #sandbox(method: string, id: string): FakeSandbox {
    return this.#byId(this.sandboxes, id) ?? this.#refuse(method, 'NotFound', `an error occurred when try to find sandbox: not found`);
  }

  #container(method: string, id: string): FakeContainer {
    return this.#byId(this.containers, id) ?? this.#refuse(method, 'NotFound', `an error occurred when try to find container "${id}": not found`);
  }

  #of(sandboxId: string): FakeContainer[] {
    return [...this.containers.values()].filter((container) => container.sandboxId === sandboxId);
  }

  #announce(containerId: string, sandboxId: string, containerEventType: ContainerEventType): void {
    if (this.#sinks.size === 0) return;
    const sandbox = this.sandboxes.get(sandboxId);
    const event = {
      containerId,
      containerEventType,
      createdAt: String(this.#nowNs()),
      podSandboxStatus: sandbox === undefined ? null : sandboxStatus(sandbox),
      containersStatuses: this.#of(sandboxId).map((container) => containerStatus(container, this.#version !== '1.6')),
    };
    for (const sink of this.#sinks) sink.push(event);
  }

  #exited(container: FakeContainer, exitCode: number, reason?: string): void {
    const { status } = container;
    if (status.state !== 'running') return;
    status.exit?.[Symbol.dispose]();
    container.status = {
      state: 'exited',
      startedAtNs: status.startedAtNs,
      finishedAtNs: this.#nowNs(),
      exitCode,
      reason: reason ?? (exitCode === 0 ? 'Completed' : 'Error'),
      message: '',
    };
    for (const done of container.waiters.splice(0)) done();
    this.#announce(container.id, container.sandboxId, 'CONTAINER_STOPPED_EVENT');
  }

  #scriptFor(container: FakeContainer): ContainerScript {
    const found = this.#scripts.find(({ matches }) => matches(container));
    if (found === undefined) return {};
    return (found.scripts.length > 1 ? found.scripts.shift() : found.scripts[0]) as ContainerScript;
  }

  #start(container: FakeContainer): void {
    const { id, status, sandboxId } = container;
    if (status.state !== 'created') {
      this.#refuse('StartContainer', 'Unknown', `failed to set starting state for container "${id}": container is in ${criState[status.state]} state`);
    }
    container.script = this.#scriptFor(container);
    const { script } = container;
    const sandbox = this.sandboxes.get(sandboxId);
    const failure = sandbox?.ready !== true ? `sandbox container "${sandboxId}" is not running` : script.startError;
    if (failure !== undefined) {
      container.status = { state: 'exited', startedAtNs: 0n, finishedAtNs: this.#nowNs(), exitCode: 128, reason: 'StartError', message: failure };
      this.#refuse('StartContainer', 'Unknown', failure);
    }
    const running: FakeContainer['status'] = { state: 'running', startedAtNs: this.#nowNs(), exit: undefined };
    container.status = running;
    if (script.exitAfterMs !== undefined) {
      running.exit = this.#clock.after(script.exitAfterMs, () =>
        this.#exited(container, script.oomKilled === true ? 137 : (script.exitCode ?? 0), script.oomKilled === true ? 'OOMKilled' : undefined),
      );
    }
    this.#announce(id, sandboxId, 'CONTAINER_STARTED_EVENT');
  }

  /** The stop signal, then SIGKILL after `graceMs`; resolves when the container has ended. */
  async #stop(container: FakeContainer, graceMs: number, signal: AbortSignal | undefined): Promise<void> {
    if (container.status.state === 'unknown') {
      container.status = { state: 'running', startedAtNs: container.status.startedAtNs, exit: undefined };
      this.#exited(container, 255, 'Unknown');
    }
    if (container.status.state !== 'running') return;
    if (graceMs <= 0) return this.#exited(container, 137);
    const { onStop = {} } = container.script;
    const takesMs = onStop === 'ignore' ? Infinity : (onStop.afterMs ?? 0);
    const ended = new Promise<void>((resolve) => container.waiters.push(resolve));
    using _term =
      takesMs < graceMs ? this.#clock.after(takesMs, () => this.#exited(container, onStop === 'ignore' ? 137 : (onStop.exitCode ?? 143))) : undefined;
    using _kill = this.#clock.after(graceMs, () => this.#exited(container, 137));
    if (takesMs === 0) this.#exited(container, onStop === 'ignore' ? 137 : (onStop.exitCode ?? 143));
    let stop = (): void => {};
    const stopped = new Promise<never>((_, reject) => (stop = () => reject(new RpcError('Canceled', 'StopContainer', 'context canceled'))));
    signal?.addEventListener('abort', stop, { once: true });
    try {
      await Promise.race([ended, stopped]);
    } finally {
      signal?.removeEventListener('abort', stop);
    }
  }

  #removeContainer(container: FakeContainer): void {
    this.#exited(container, 137);
    this.containers.delete(container.id);
    this.#announce(container.id, container.sandboxId, 'CONTAINER_DELETED_EVENT');
  }

  async #stopSandbox(sandbox: FakeSandbox): Promise<void> {
    for (const container of this.#of(sandbox.id)) await this.#stop(container, 0, undefined);
    if (!sandbox.ready) return;
    sandbox.ready = false;
    this.#announce(sandbox.id, sandbox.id, 'CONTAINER_STOPPED_EVENT');
  }

  #matches(labels: Record<string, string> | undefined, selector: Record<string, string> | undefined): boolean {
    return Object.entries(selector ?? {}).every(([key, value]) => labels?.[key] === value);
  }

  /** The methods, each with its request filled; what is not here is Unimplemented. */
  readonly #methods = {
    Version: () => ({ version: '0.1.0', runtimeName: 'containerd', runtimeVersion: this.#version === '1.6' ? '1.6.20' : 'v2.4.0', runtimeApiVersion: 'v1' }),

    Status: () => ({
      status: {
        conditions: [
          { type: 'RuntimeReady', status: this.runtimeReady },
          this.networkReady
            ? { type: 'NetworkReady', status: true }
            : { type: 'NetworkReady', status: false, reason: 'NetworkPluginNotReady', message: 'Network plugin returns error: cni plugin not initialized' },
          ...(this.#version === '1.6' ? [] : [{ type: 'ContainerdHasNoDeprecationWarnings', status: true }]),
        ],
      },
      runtimeHandlers:
        this.#version === '1.6'
          ? []
          : [
              { name: '', features: {} },
              { name: 'runc', features: {} },
            ],
    }),

    RuntimeConfig: () => {
      if (this.#version === '1.6') throw this.#unimplemented('RuntimeConfig');
      return { linux: { cgroupDriver: 'CGROUPFS' } };
    },

    UpdateRuntimeConfig: () => ({}),

    RunPodSandbox: ({ config, runtimeHandler = '' }: { config: PodSandboxConfig | null; runtimeHandler?: string }) => {
      const method = 'RunPodSandbox';
      if (config?.metadata == null) this.#refuse(method, 'Unknown', 'sandbox config must include metadata');
      const { name, namespace, uid, attempt } = config.metadata;
      const key = `${name}_${namespace}_${uid}_${attempt}`;
      const holder = [...this.sandboxes.values()].find(
        ({ config: { metadata: other } }) => `${other?.name}_${other?.namespace}_${other?.uid}_${other?.attempt}` === key,
      );
      if (holder !== undefined)
        this.#refuse(
          method,
          this.#version === '1.6' ? 'Unknown' : 'FailedPrecondition',
          `failed to reserve sandbox name "${key}": name "${key}" is reserved for "${holder.id}"`,
        );
      const onHost = config.linux?.securityContext?.namespaceOptions?.network === 'NODE';
      if (onHost && (config.hostname ?? '') !== '')
        this.#refuse(
          method,
          'Unknown',
          'failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to set hostname without a private UTS namespace: unknown',
        );
      const id = this.#newId();
      const sandbox: FakeSandbox = {
        id,
        config,
        runtimeHandler,
        createdAtNs: this.#nowNs(),
        ip: onHost ? '' : `10.88.${this.#made >> 8}.${this.#made & 255}`,
        ready: true,
      };
      if (!this.networkReady && !onHost) this.#refuse(method, 'Unknown', `failed to setup network for sandbox "${id}": cni plugin not initialized`);
      this.sandboxes.set(id, sandbox);
      this.#announce(id, id, 'CONTAINER_CREATED_EVENT');
      this.#announce(id, id, 'CONTAINER_STARTED_EVENT');
      return { podSandboxId: id };
    },

    StopPodSandbox: async ({ podSandboxId }: { podSandboxId: string }) => {
      const sandbox = this.#byId(this.sandboxes, podSandboxId);
      if (sandbox !== undefined) await this.#stopSandbox(sandbox);
      return {};
    },

    RemovePodSandbox: async ({ podSandboxId }: { podSandboxId: string }) => {
      const sandbox = this.#byId(this.sandboxes, podSandboxId);
      if (sandbox === undefined) return {};
      await this.#stopSandbox(sandbox);
      for (const container of this.#of(sandbox.id)) this.#removeContainer(container);
      this.sandboxes.delete(sandbox.id);
      this.#announce(sandbox.id, sandbox.id, 'CONTAINER_DELETED_EVENT');
      return {};
    },

    PodSandboxStatus: ({ podSandboxId, verbose }: { podSandboxId: string; verbose: boolean }) => {
      const sandbox = this.#sandbox('PodSandboxStatus', podSandboxId);
      return {
        status: sandboxStatus(sandbox),
        info: verbose ? { info: JSON.stringify({ pid: sandbox.ready ? 4000 + Number.parseInt(sandbox.id.slice(0, 12), 16) : 0 }) } : {},
      };
    },

    ListPodSandbox: ({ filter }: { filter: { id: string; state: { state: string } | null; labelSelector: Record<string, string> } | null }) => ({
      items: [...this.sandboxes.values()]
        .filter(
          ({ id, config, ready }) =>
            id.startsWith(filter?.id ?? '') &&
            (filter?.state == null || (filter.state.state === 'SANDBOX_READY') === ready) &&
            this.#matches(config.labels, filter?.labelSelector),
        )
        .map((sandbox) => sandboxStatus(sandbox)),
    }),

    CreateContainer: ({
      podSandboxId,
      config,
      sandboxConfig,
    }: {
      podSandboxId: string;
      config: ContainerConfig | null;
      sandboxConfig: PodSandboxConfig | null;
    }) => {
      const method = 'CreateContainer';
      const sandbox = this.#byId(this.sandboxes, podSandboxId) ?? this.#refuse(method, 'NotFound', `failed to find sandbox id "${podSandboxId}": not found`);
      if (!sandbox.ready && this.#version !== '1.6') this.#refuse(method, 'Unknown', `sandbox container "${sandbox.id}" is not running`);
      if (!sandbox.ready)
        this.#refuse(method, 'NotFound', `failed to get sandbox container task: no running task found: task ${sandbox.id} not found: not found`);
      if (config?.metadata == null) this.#refuse(method, 'Unknown', 'container config must include metadata');
      const { name, attempt } = config.metadata;
      const holder = this.#of(sandbox.id).find(({ config: { metadata } }) => metadata?.name === name && metadata?.attempt === attempt);
      const pod = sandbox.config.metadata;
      const key = `${name}_${pod?.name}_${pod?.namespace}_${pod?.uid}_${attempt}`;
      if (holder !== undefined)
        this.#refuse(
          method,
          this.#version === '1.6' ? 'Unknown' : 'FailedPrecondition',
          `failed to reserve container name "${key}": name "${key}" is reserved for "${holder.id}"`,
        );
      const reference = config.image?.image ?? '';
      const image = this.images.find(reference) ?? this.#refuse(method, 'NotFound', `failed to resolve image "${reference}": not found`);
      const folder = sandboxConfig?.logDirectory ?? sandbox.config.logDirectory ?? '';
      const container: FakeContainer = {
        id: this.#newId(),
        sandboxId: sandbox.id,
        config,
        image: this.images.namesOf(image),
        createdAtNs: this.#nowNs(),
        logPath: folder === '' || (config.logPath ?? '') === '' ? '' : `${folder.replace(/\/+$/, '')}/${config.logPath}`,
        script: {},
        status: { state: 'created' },
        waiters: [],
      };
      this.containers.set(container.id, container);
      this.#announce(container.id, sandbox.id, 'CONTAINER_CREATED_EVENT');
      return { containerId: container.id };
    },

    StartContainer: ({ containerId }: { containerId: string }) => {
      this.#start(this.#container('StartContainer', containerId));
      return {};
    },

    StopContainer: async ({ containerId, timeout }: { containerId: string; timeout: string }, { signal }: CallOptions) => {
      const container = this.#byId(this.containers, containerId);
      if (container !== undefined) await this.#stop(container, Number(timeout) * 1000, signal);
      return {};
    },

    RemoveContainer: ({ containerId }: { containerId: string }) => {
      const container = this.#byId(this.containers, containerId);
      if (container !== undefined) this.#removeContainer(container);
      return {};
    },

    ListContainers: ({
      filter,
    }: {
      filter: { id: string; state: { state: string } | null; podSandboxId: string; labelSelector: Record<string, string> } | null;
    }) => ({
      containers: [...this.containers.values()]
        .filter(
          ({ id, sandboxId, config, status }) =>
            id.startsWith(filter?.id ?? '') &&
            sandboxId.startsWith(filter?.podSandboxId ?? '') &&
            (filter?.state == null || filter.state.state === criState[status.state]) &&
            this.#matches(config.labels, filter?.labelSelector),
        )
        .map(({ id, sandboxId, config, status, image, createdAtNs }) => ({
          id,
          podSandboxId: sandboxId,
          metadata: config.metadata,
          image: config.image,
          imageRef: image.id,
          imageId: this.#version === '1.6' ? '' : image.id,
          state: criState[status.state],
          createdAt: String(createdAtNs),
          labels: config.labels,
          annotations: config.annotations,
        })),
    }),

    ContainerStatus: ({ containerId, verbose }: { containerId: string; verbose: boolean }) => {
      const container = this.#container('ContainerStatus', containerId);
      const pid = container.status.state === 'running' ? 4000 + Number.parseInt(container.id.slice(0, 12), 16) : 0;
      return {
        status: containerStatus(container, this.#version !== '1.6'),
        info: verbose ? { info: JSON.stringify({ sandboxID: container.sandboxId, pid }) } : {},
      };
    },

    UpdateContainerResources: ({ containerId, linux }: { containerId: string; linux: object | null }) => {
      const container = this.#container('UpdateContainerResources', containerId);
      if (container.status.state === 'exited')
        this.#refuse('UpdateContainerResources', 'Unknown', `failed to update resources: container "${container.id}" is in CONTAINER_EXITED state`);
      const { config } = container;
      config.linux ??= {};
      if (linux !== null) config.linux.resources = { ...config.linux.resources, ...linux };
      return {};
    },

    ReopenContainerLog: ({ containerId }: { containerId: string }) => {
      const container = this.#container('ReopenContainerLog', containerId);
      if (container.status.state !== 'running') this.#refuse('ReopenContainerLog', 'Unknown', 'container is not running');
      return {};
    },

    ExecSync: async ({ containerId, cmd, timeout }: { containerId: string; cmd: string[]; timeout: string }, { signal }: CallOptions) => {
      const container = this.#running('ExecSync', containerId);
      const { exitCode = 0, stdout = '', stderr = '', takesMs = 0 } = this.onExec(container, cmd);
      const limitMs = Number(timeout) > 0 ? Number(timeout) * 1000 : Infinity;
      try {
        if (takesMs > 0) await this.#clock.sleep(Math.min(takesMs, limitMs), signal);
      } catch (cause) {
        throw new RpcError('Canceled', 'ExecSync', 'context canceled', { cause });
      }
      if (takesMs > limitMs)
        this.#refuse('ExecSync', 'DeadlineExceeded', `failed to exec in container: timeout ${limitMs / 1000}s exceeded: context deadline exceeded`);
      return { exitCode, stdout: Buffer.from(stdout), stderr: Buffer.from(stderr) };
    },

    Exec: ({ containerId }: { containerId: string }) => ({ url: `http://127.0.0.1:1/exec/${this.#running('Exec', containerId).id.slice(0, 12)}` }),
    Attach: ({ containerId }: { containerId: string }) => ({ url: `http://127.0.0.1:1/attach/${this.#running('Attach', containerId).id.slice(0, 12)}` }),
    PortForward: ({ podSandboxId }: { podSandboxId: string }) => ({
      url: `http://127.0.0.1:1/portforward/${this.#sandbox('PortForward', podSandboxId).id.slice(0, 12)}`,
    }),

    ContainerStats: ({ containerId }: { containerId: string }) => ({
      stats: containerStats(this.#container('ContainerStats', containerId), String(this.#nowNs())),
    }),
    ListContainerStats: () => ({
      stats: [...this.containers.values()]
        .filter(({ status }) => status.state === 'running')
        .map((container) => containerStats(container, String(this.#nowNs()))),
    }),
    PodSandboxStats: ({ podSandboxId }: { podSandboxId: string }) => ({ stats: this.#podStats(this.#sandbox('PodSandboxStats', podSandboxId)) }),
    ListPodSandboxStats: () => ({ stats: [...this.sandboxes.values()].filter(({ ready }) => ready).map((sandbox) => this.#podStats(sandbox)) }),

    ListImages: ({ filter }: { filter: null }) => ({ images: this.images.list(filter) }),
    ImageStatus: ({ image }: { image: { image: string } | null }) => {
      const found = this.images.find(image?.image ?? '');
      return { image: found === undefined ? null : this.images.toImage(found) };
    },
    PullImage: async (request: { image: { image: string } | null }, { signal }: CallOptions) => ({ imageRef: await this.images.pull(request, signal) }),
    RemoveImage: ({ image }: { image: { image: string } | null }) => {
      this.images.remove(image);
      return {};
    },
    ImageFsInfo: () => {
      const bytes = this.images.list(null).reduce((sum, { size }) => sum + Number(size ?? 0), 0);
      return {
        imageFilesystems: [
          {
            timestamp: String(this.#nowNs()),
            fsId: { mountpoint: '/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs' },
            usedBytes: { value: String(bytes) },
            inodesUsed: { value: '100' },
          },
        ],
      };
    },
  };

  #podStats(sandbox: FakeSandbox): object {
    return podStats(
      sandbox,
      this.#of(sandbox.id).filter(({ status }) => status.state === 'running'),
      String(this.#nowNs()),
    );
  }

  #running(method: string, id: string): FakeContainer {
    const container = this.#container(method, id);
    if (container.status.state !== 'running')
      this.#refuse(method, 'Unknown', `failed to exec in container: container is in ${criState[container.status.state]} state`);
    return container;
  }
}
