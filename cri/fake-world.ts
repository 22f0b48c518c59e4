import { assert } from '../base/assert.ts';
import type { Clock } from '../base/clock.ts';
import type { ContainerEventType, PodSandboxConfig } from '../proto/cri/types.ts';
import { RpcError, type RpcStatus } from './errors.ts';
import { FakeImages } from './fake-images.ts';
import {
  containerStatus,
  criState,
  podStats,
  sandboxStatus,
  type ContainerScript,
  type ExecScript,
  type FakeContainer,
  type FakeSandbox,
} from './fake-state.ts';
import type { RuntimeCall } from './transport.ts';

export interface FakeRuntimeOptions {
  clock: Clock;
  /** containerd 2 names stop signals, image ids and events; 1.6 has neither RuntimeConfig nor events. Default 2. */
  version?: '1.6' | '2';
  /** 52 hex digits that end every id, where ids of two runtimes must differ. */
  idEnd?: string;
  /** Whether `calls` is kept; a runtime that serves for days does without. Default true. */
  remembers?: boolean;
}

export interface EventSink {
  push(event: object): void;
  end(error: RpcError): void;
}

/** What the fake runtime holds, and how it changes: by calls, by the clock, and by the test. */
export class FakeWorld {
  readonly clock: Clock;
  readonly version: '1.6' | '2';
  readonly #scripts: { matches: (container: FakeContainer) => boolean; scripts: ContainerScript[] }[] = [];
  readonly sinks = new Set<EventSink>();
  made = 0;
  away = false;
  readonly images: FakeImages;
  readonly sandboxes = new Map<string, FakeSandbox>();
  readonly containers = new Map<string, FakeContainer>();
  /** Every call, in order, refused ones too. */
  readonly calls: RuntimeCall[] = [];
  readonly #idEnd: string;
  readonly remembers: boolean;
  /** The life of a container for which there is no script. */
  onStart: (container: FakeContainer) => ContainerScript = () => ({});
  /** The addresses of a sandbox that is made; null for the next free one. */
  onAddress: (config: PodSandboxConfig) => readonly string[] | null = () => null;
  /** What ExecSync runs. */
  onExec: (container: FakeContainer, command: readonly string[]) => ExecScript = () => ({});
  runtimeReady = true;
  networkReady = true;

  constructor(options: FakeRuntimeOptions) {
    this.clock = options.clock;
    this.version = options.version ?? '2';
    this.#idEnd = options.idEnd ?? 'f'.repeat(52);
    this.remembers = options.remembers ?? true;
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
    this.exited(container, exitCode, reason);
  }

  /** The sandbox's pause process dies, and its containers with it. */
  killSandbox(sandbox: FakeSandbox): void {
    for (const container of this.containersOf(sandbox.id)) this.exited(container, 137);
    sandbox.ready = false;
  }

  /** The runtime is gone: calls are Unavailable, containers live on, as they do without containerd. */
  goAway(): void {
    this.away = true;
    for (const sink of this.sinks) sink.end(this.gone('GetContainerEvents'));
  }

  back(): void {
    this.away = false;
  }

  gone(method: string): RpcError {
    return new RpcError(
      'Unavailable',
      method,
      'connection error: desc = "transport: Error while dialing: dial unix /run/containerd/containerd.sock: connect: connection refused"',
    );
  }

  unimplemented(method: string): RpcError {
    return new RpcError('Unimplemented', method, `unknown method ${method} for service runtime.v1.RuntimeService`);
  }

  nowNs(): bigint {
    return BigInt(Math.round(this.clock.nowMs() * 1e6));
  }

  /** 64 hex digits; the first twelve count, so that they can be told apart. */
  newId(): string {
    return `${(++this.made).toString(16).padStart(12, '0')}${this.#idEnd}`;
  }

  refuse(method: string, status: RpcStatus, description: string): never {
    throw new RpcError(status, method, description);
  }

  /** By full id or a prefix that only one has. */
  byId<T>(all: ReadonlyMap<string, T>, id: string): T | undefined {
    const exact = all.get(id);
    if (exact !== undefined || id === '') return exact;
    const matching = [...all.keys()].filter((key) => key.startsWith(id));
    return matching.length === 1 ? all.get(matching[0] as string) : undefined;
  }

  sandboxById(method: string, id: string): FakeSandbox {
    return this.byId(this.sandboxes, id) ?? this.refuse(method, 'NotFound', `an error occurred when try to find sandbox: not found`);
  }

  containerById(method: string, id: string): FakeContainer {
    return this.byId(this.containers, id) ?? this.refuse(method, 'NotFound', `an error occurred when try to find container "${id}": not found`);
  }

  containersOf(sandboxId: string): FakeContainer[] {
    return [...this.containers.values()].filter((container) => container.sandboxId === sandboxId);
  }

  announce(containerId: string, sandboxId: string, containerEventType: ContainerEventType): void {
    if (this.sinks.size === 0) return;
    const sandbox = this.sandboxes.get(sandboxId);
    const event = {
      containerId,
      containerEventType,
      createdAt: String(this.nowNs()),
      podSandboxStatus: sandbox === undefined ? null : sandboxStatus(sandbox),
      containersStatuses: this.containersOf(sandboxId).map((container) => containerStatus(container, this.version !== '1.6')),
    };
    for (const sink of this.sinks) sink.push(event);
  }

  exited(container: FakeContainer, exitCode: number, reason?: string): void {
    const { status } = container;
    if (status.state !== 'running') return;
    status.exit?.[Symbol.dispose]();
    container.status = {
      state: 'exited',
      startedAtNs: status.startedAtNs,
      finishedAtNs: this.nowNs(),
      exitCode,
      reason: reason ?? (exitCode === 0 ? 'Completed' : 'Error'),
      message: '',
    };
    for (const done of container.waiters.splice(0)) done();
    this.announce(container.id, container.sandboxId, 'CONTAINER_STOPPED_EVENT');
  }

  scriptFor(container: FakeContainer): ContainerScript {
    const found = this.#scripts.find(({ matches }) => matches(container));
    if (found === undefined) return this.onStart(container);
    return (found.scripts.length > 1 ? found.scripts.shift() : found.scripts[0]) as ContainerScript;
  }

  start(container: FakeContainer): void {
    const { id, status, sandboxId } = container;
    if (status.state !== 'created') {
      this.refuse('StartContainer', 'Unknown', `failed to set starting state for container "${id}": container is in ${criState[status.state]} state`);
    }
    container.script = this.scriptFor(container);
    const { script } = container;
    const sandbox = this.sandboxes.get(sandboxId);
    const failure = sandbox?.ready !== true ? `sandbox container "${sandboxId}" is not running` : script.startError;
    if (failure !== undefined) {
      container.status = { state: 'exited', startedAtNs: 0n, finishedAtNs: this.nowNs(), exitCode: 128, reason: 'StartError', message: failure };
      this.refuse('StartContainer', 'Unknown', failure);
    }
    const running: FakeContainer['status'] = { state: 'running', startedAtNs: this.nowNs(), exit: undefined };
    container.status = running;
    if (script.exitAfterMs !== undefined) {
      running.exit = this.clock.after(script.exitAfterMs, () =>
        this.exited(container, script.oomKilled === true ? 137 : (script.exitCode ?? 0), script.oomKilled === true ? 'OOMKilled' : undefined),
      );
    }
    this.announce(id, sandboxId, 'CONTAINER_STARTED_EVENT');
  }

  /** The stop signal, then SIGKILL after `graceMs`; resolves when the container has ended. */
  async stop(container: FakeContainer, graceMs: number, signal: AbortSignal | undefined): Promise<void> {
    if (container.status.state === 'unknown') {
      container.status = { state: 'running', startedAtNs: container.status.startedAtNs, exit: undefined };
      this.exited(container, 255, 'Unknown');
    }
    if (container.status.state !== 'running') return;
    if (graceMs <= 0) return this.exited(container, 137);
    const { onStop = {} } = container.script;
    const takesMs = onStop === 'ignore' ? Infinity : (onStop.afterMs ?? 0);
    const ended = new Promise<void>((resolve) => container.waiters.push(resolve));
    using _term = takesMs < graceMs ? this.clock.after(takesMs, () => this.exited(container, onStop === 'ignore' ? 137 : (onStop.exitCode ?? 143))) : undefined;
    using _kill = this.clock.after(graceMs, () => this.exited(container, 137));
    if (takesMs === 0) this.exited(container, onStop === 'ignore' ? 137 : (onStop.exitCode ?? 143));
    let stop = (): void => {};
    const stopped = new Promise<never>((_, reject) => (stop = () => reject(new RpcError('Canceled', 'StopContainer', 'context canceled'))));
    signal?.addEventListener('abort', stop, { once: true });
    try {
      await Promise.race([ended, stopped]);
    } finally {
      signal?.removeEventListener('abort', stop);
    }
  }

  removeContainerNow(container: FakeContainer): void {
    this.exited(container, 137);
    this.containers.delete(container.id);
    this.announce(container.id, container.sandboxId, 'CONTAINER_DELETED_EVENT');
  }

  async stopSandbox(sandbox: FakeSandbox): Promise<void> {
    for (const container of this.containersOf(sandbox.id)) await this.stop(container, 0, undefined);
    if (!sandbox.ready) return;
    sandbox.ready = false;
    this.announce(sandbox.id, sandbox.id, 'CONTAINER_STOPPED_EVENT');
  }

  matches(labels: Record<string, string> | undefined, selector: Record<string, string> | undefined): boolean {
    return Object.entries(selector ?? {}).every(([key, value]) => labels?.[key] === value);
  }

  podStatsOf(sandbox: FakeSandbox): object {
    return podStats(
      sandbox,
      this.containersOf(sandbox.id).filter(({ status }) => status.state === 'running'),
      String(this.nowNs()),
    );
  }

  runningById(method: string, id: string): FakeContainer {
    const container = this.containerById(method, id);
    if (container.status.state !== 'running')
      this.refuse(method, 'Unknown', `failed to exec in container: container is in ${criState[container.status.state]} state`);
    return container;
  }
}
