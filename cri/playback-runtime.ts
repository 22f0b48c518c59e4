import type { Clock } from '../base/clock.ts';
import type { ContainerConfig, PodSandboxConfig } from '../proto/cri/types.ts';
import { isStream, listFields } from './core/methods.ts';
import { commandText, type Playback, type PlayedOutcome, type PlayedSubject } from './core/playback.ts';
import { at, podOf, textAt, type Fields, type PlayedContainer } from './core/playback-world.ts';
import type { PlayedLife } from './core/playback-lives.ts';
import { RpcError, type RpcStatus } from './errors.ts';
import { FakeRuntime, type ContainerScript } from './fake.ts';
import type { FakeContainer } from './fake-state.ts';
import { fillShape, methodShape } from './shape.ts';
import type { CallOptions, RuntimeCall, Transport } from './transport.ts';

export interface PlaybackOptions {
  readonly clock: Clock;
  /** Recorded durations and lives are divided by this; Infinity: everything at once. */
  readonly speed: number;
  /** Refuses what the recording does not have. */
  readonly strict: boolean;
  /** What the runtime holds at first: what the recorded one held at the recording's start or end, or nothing. */
  readonly begin: 'start' | 'end' | 'empty';
  /** Every image can be pulled, not only those that the recording names. */
  readonly anyImage: boolean;
  /** 52 hex digits. */
  readonly idEnd: string;
  /** The file system of images here, in place of a recorded one that this machine does not have. */
  readonly imageFolder: (recorded: string) => string;
}

/** Where an answer came from. */
export type Source = 'recording' | 'world' | 'fake' | 'refused';

const NS_PER_MS = 1_000_000n;
/** What only reads what is held now. */
const WORLD = /^(List|Stream|PodSandboxStatus|ContainerStatus|ContainerStats|PodSandboxStats|ImageStatus|GetContainerEvents)/;
const URLS = new Set(['Exec', 'Attach', 'PortForward']);
const STREAM_CHUNK = 100;

/**
 * A runtime made of a recording. Sandboxes, containers and images are those of a fake runtime, so that lists and statuses
 * are true and callers converge; how calls end, how long they take and how containers live is as it was recorded.
 */
export class PlaybackRuntime implements Transport {
  readonly world: FakeRuntime;
  readonly #playback: Playback;
  readonly #options: PlaybackOptions;
  /** Lives of containers that existed at first, by id. */
  readonly #lives = new Map<string, ContainerScript>();
  readonly #reserved: ReadonlySet<string>;
  #addressesMade = 0;
  /** Told of each call when it has ended. */
  onCall: (call: RuntimeCall, source: Source, outcome: { answer: object } | { error: unknown }, startedMs: number) => void = () => {};

  constructor(playback: Playback, options: PlaybackOptions) {
    this.#playback = playback;
    this.#options = options;
    this.#reserved = playback.allAddresses();
    const version = playback.constant('Version');
    const isOld = version !== undefined && 'fields' in version && /^v?1\./.test(textAt(version.fields, 'runtimeVersion'));
    this.world = new FakeRuntime({ clock: options.clock, version: isOld ? '1.6' : '2', idEnd: options.idEnd, remembers: false });
    this.world.images.pullsAnything = options.anyImage;
    this.world.onStart = ({ id }) => {
      const life = this.#lives.get(id) ?? {};
      this.#lives.delete(id);
      return life;
    };
    this.world.onAddress = (config) => this.#addresses(podOf(config.metadata));
    for (const { fields, wasThere, atEnd } of playback.images.values()) {
      const [tag = textAt(fields, 'id')] = (fields['repoTags'] ?? []) as string[];
      this.world.images.add({ name: tag, known: fields, present: options.begin === 'end' ? atEnd : wasThere });
    }
    if (options.begin !== 'empty') this.#adopt(options.begin);
  }

  #scaled(ms: number): number {
    return ms / this.#options.speed;
  }

  /** A recorded address of that pod that nobody has now; else one that is in no recording. */
  #addresses(pod: string): readonly string[] {
    const taken = new Set([...this.world.sandboxes.values()].filter(({ ready }) => ready).map(({ ip }) => ip));
    const own = this.#playback.addresses(pod).find(([ip = '']) => !taken.has(ip));
    if (own !== undefined) return own;
    for (;;) {
      const next = ++this.#addressesMade;
      const ip = `10.88.${(next >> 8) & 255}.${next & 255}`;
      if (!this.#reserved.has(ip) && !taken.has(ip)) return [ip];
    }
  }

  /** Puts what the recorded runtime held into the world. */
  #adopt(when: 'start' | 'end'): void {
    const { sandboxes, containers, removed, beganMs } = this.#playback.world;
    const isIn = (one: { id: string; wasThere: boolean }): boolean => (when === 'start' ? one.wasThere : !removed.has(one.id));
    for (const sandbox of sandboxes.values()) {
      if (!isIn(sandbox)) continue;
      const { id, ip, additionalIps, createdAtNs, runtimeHandler } = sandbox;
      const config = fillShape('PodSandboxConfig', sandbox.config) as PodSandboxConfig;
      const ready = when === 'start' ? sandbox.readyAtFirst : sandbox.ready;
      this.world.sandboxes.set(id, { id, config, runtimeHandler, createdAtNs, ip, additionalIps, ready });
    }
    for (const container of containers.values()) {
      if (!isIn(container) || !this.world.sandboxes.has(container.sandboxId)) continue;
      this.#adoptContainer(container, when === 'start' ? container.stateAtFirst : container.state, when === 'start' ? beganMs : null);
    }
  }

  #adoptContainer(played: PlayedContainer, state: string, beganMs: number | null): void {
    const { id, sandboxId, createdAtNs, startedAtNs, finishedAtNs, exitCode, reason, message, logPath } = played;
    const config = fillShape('ContainerConfig', played.config) as ContainerConfig;
    const entry = this.world.images.find(played.image.id || played.image.tag);
    const image = entry === undefined ? played.image : this.world.images.namesOf(entry);
    const container: FakeContainer = { id, sandboxId, config, image, createdAtNs, logPath, script: {}, status: { state: 'created' }, waiters: [] };
    this.world.containers.set(id, container);
    if (state === 'CONTAINER_EXITED')
      container.status = { state: 'exited', startedAtNs, finishedAtNs: finishedAtNs || createdAtNs, exitCode, reason: reason || 'Error', message };
    else if (state === 'CONTAINER_RUNNING') {
      const running: Extract<FakeContainer['status'], { state: 'running' }> = { state: 'running', startedAtNs: startedAtNs || createdAtNs, exit: undefined };
      container.status = running;
      const life = this.#playback.lifeOf(played);
      container.script = this.#script(life);
      if (beganMs === null || life.exit === null) return;
      const afterMs = Math.max(0, Number(finishedAtNs / NS_PER_MS) - beganMs);
      running.exit = this.#options.clock.after(this.#scaled(afterMs), () => this.world.exit(container, exitCode, reason));
    }
  }

  #script({ exit, stop }: PlayedLife): ContainerScript {
    return {
      ...(exit === null ? {} : { exitAfterMs: this.#scaled(exit.afterMs), exitCode: exit.exitCode, oomKilled: exit.oomKilled }),
      ...(stop === null ? {} : { onStop: stop === 'ignore' ? stop : { afterMs: this.#scaled(stop.afterMs), exitCode: stop.exitCode } }),
    };
  }

  /** What a call is about; null when it names something that is not here. */
  #subjectOf({ method, request }: RuntimeCall): PlayedSubject | null {
    const nothing = { pod: '', container: '', other: '' };
    if (method === 'RunPodSandbox')
      return { ...nothing, pod: podOf((request as Fields)['config'] === null ? {} : (request as { config: PodSandboxConfig }).config.metadata) };
    const image = textAt(request, 'image', 'image');
    if (image !== '') return { ...nothing, other: image };
    const sandboxId = textAt(request, 'podSandboxId');
    const containerId = textAt(request, 'containerId');
    if (sandboxId === '' && containerId === '') return nothing;
    const container = this.world.byId(this.world.containers, containerId);
    const sandbox = this.world.byId(this.world.sandboxes, container?.sandboxId ?? sandboxId);
    if (sandbox === undefined) return null;
    const name = method === 'CreateContainer' ? textAt(request, 'config', 'metadata', 'name') : (container?.config.metadata?.name ?? '');
    return { pod: podOf(sandbox.config.metadata), container: name, other: method === 'ExecSync' ? commandText((request as Fields)['cmd']) : '' };
  }

  async #wait(method: string, ms: number, { signal, timeoutMs }: CallOptions): Promise<void> {
    const waitMs = this.#scaled(ms);
    if (waitMs < 1) return;
    try {
      await this.#options.clock.sleep(Math.min(waitMs, timeoutMs), signal);
    } catch (cause) {
      throw new RpcError('Canceled', method, 'context canceled', { cause });
    }
    if (waitMs >= timeoutMs) throw new RpcError('DeadlineExceeded', method, 'context deadline exceeded');
  }

  #refuseUnknown(call: RuntimeCall, subject: PlayedSubject): void {
    if (!this.#options.strict || this.#playback.knows(call.method, subject)) return;
    const about = [subject.pod, subject.container, subject.other].filter((part) => part !== '').join(' ');
    throw new RpcError('FailedPrecondition', call.method, `the recording has no ${call.method}${about === '' ? '' : ` of ${about}`}`);
  }

  async call(given: RuntimeCall, options: CallOptions): Promise<object> {
    const { requestType } = methodShape(given.service, given.method);
    const call = { ...given, request: fillShape(requestType, given.request) as object };
    const startedMs = this.#options.clock.monoMs();
    const told: { source: Source } = { source: 'world' };
    try {
      const answer = await this.#answer(call, options, told);
      this.onCall(call, told.source, { answer }, startedMs);
      return answer;
    } catch (error) {
      this.onCall(call, told.source, { error }, startedMs);
      throw error;
    }
  }

  async #answer(call: RuntimeCall, options: CallOptions, told: { source: Source }): Promise<object> {
    const { method } = call;
    const subject = this.#subjectOf(call);
    // What is not here is not found, as it is with every runtime.
    if (subject === null) return this.world.call(call, options);
    told.source = 'refused';
    this.#refuseUnknown(call, subject);
    if (URLS.has(method)) throw new RpcError('Unimplemented', method, 'this runtime is a recording: there are no processes to talk to');
    const constant = this.#playback.constant(method);
    if (constant !== undefined) {
      told.source = 'recording';
      await this.#wait(method, this.#playback.typicalMs(method), options);
      if ('status' in constant) throw new RpcError(constant.status.name as RpcStatus, method, constant.status.message);
      return fillShape(methodShape(call.service, method).responseType, this.#upToDate(constant.fields)) as object;
    }
    const outcome = this.#playback.next(method, subject);
    told.source = outcome !== undefined ? 'recording' : WORLD.test(method) ? 'world' : 'fake';
    // How long a stop takes is the life of what is stopped.
    if (outcome === undefined || method !== 'StopContainer' || outcome.status !== null)
      await this.#wait(method, outcome?.durationMs ?? this.#playback.typicalMs(method), options);
    return this.#repeat(call, outcome, options);
  }

  #repeat(call: RuntimeCall, outcome: PlayedOutcome | undefined, options: CallOptions): Promise<object> {
    const { method } = call;
    const failure = outcome?.status ?? null;
    if (method === 'StartContainer') {
      const life = outcome?.life === undefined ? {} : this.#script(outcome.life);
      // A start that a runtime refuses leaves a container that has ended: the fake one knows how.
      const startError = failure?.name === 'Unknown' ? { startError: failure.message } : {};
      const container = this.world.byId(this.world.containers, textAt(call.request, 'containerId'));
      if (container !== undefined) this.#lives.set(container.id, { ...life, ...startError });
      if (failure?.name === 'Unknown') return this.world.call(call, options).finally(() => this.#lives.delete(container?.id ?? ''));
    }
    if (failure !== null) throw new RpcError(failure.name as RpcStatus, method, failure.message);
    if (method === 'ExecSync' && outcome?.response !== undefined) {
      this.world.runningById(method, textAt(call.request, 'containerId'));
      const { exitCode, stdout, stderr } = outcome.response;
      const bytes = (text: unknown): Buffer => Buffer.from(typeof text === 'string' ? text : '', 'base64');
      return Promise.resolve({ exitCode: Number(exitCode ?? 0), stdout: bytes(stdout), stderr: bytes(stderr) });
    }
    // The fake has no such method, and the recorded runtime took it.
    if (method === 'UpdatePodSandboxResources' && outcome !== undefined) return Promise.resolve({});
    if (method === 'ContainerStatus') return this.#withTraits(call, options);
    return this.world.call(call, options);
  }

  /** A status with what the recorded runtime told of the container's user, stop signal and limits. */
  async #withTraits(call: RuntimeCall, options: CallOptions): Promise<object> {
    const answer = (await this.world.call(call, options)) as { status: Fields | null };
    const container = this.world.byId(this.world.containers, textAt(call.request, 'containerId'));
    const pod = this.world.sandboxes.get(container?.sandboxId ?? '')?.config.metadata;
    const traits = this.#playback.world.traits.get(`${podOf(pod)}/${container?.config.metadata?.name ?? ''}`);
    if (traits === undefined) return answer;
    const linux = at(answer, 'status', 'resources', 'linux') as Fields | null | undefined;
    const status = {
      ...answer.status,
      ...(traits.user === undefined ? {} : { user: traits.user }),
      ...(traits.stopSignal === undefined ? {} : { stopSignal: traits.stopSignal }),
      // No runtime tells them back.
      ...(linux == null ? {} : { resources: { linux: { ...linux, hugepageLimits: [] } } }),
    };
    return fillShape('ContainerStatusResponse', { ...answer, status }) as object;
  }

  /** Times of measurement are now, and the image folder is one that is here. */
  #upToDate(fields: Fields): Fields {
    const now = String(BigInt(Math.round(this.#options.clock.nowMs())) * NS_PER_MS);
    const walk = (value: unknown, key: string): unknown => {
      if (key === 'timestamp') return now;
      if (key === 'mountpoint' && typeof value === 'string') return this.#options.imageFolder(value);
      if (Array.isArray(value)) return value.map((one) => walk(one, ''));
      if (value === null || typeof value !== 'object') return value;
      return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, walk(inner, name)]));
    };
    return walk(fields, '') as Fields;
  }

  async *stream(call: RuntimeCall, options: CallOptions): AsyncGenerator<object> {
    const { method } = call;
    const startedMs = this.#options.clock.monoMs();
    const told: { source: Source } = { source: 'refused' };
    try {
      this.#refuseUnknown(call, { pod: '', container: '', other: '' });
      told.source = 'world';
      yield* method === 'GetContainerEvents' ? this.world.stream(call, options) : this.#list(call, options);
      this.onCall(call, told.source, { answer: {} }, startedMs);
    } catch (error) {
      this.onCall(call, told.source, { error }, startedMs);
      throw error;
    }
  }

  /** A list in pieces, where the recorded runtime gave them so. */
  async *#list(call: RuntimeCall, options: CallOptions): AsyncGenerator<object> {
    const list = listOf(call.method);
    const field = listFields[call.method];
    if (list === undefined || field === undefined || !this.#playback.streams(call.method)) throw this.world.unimplemented(call.method);
    const whole = (await this.call({ ...call, method: list }, options)) as Fields;
    const items = (whole[listFields[list] ?? ''] ?? []) as object[];
    for (let from = 0; from === 0 || from < items.length; from += STREAM_CHUNK) yield { [field]: items.slice(from, from + STREAM_CHUNK) };
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.world[Symbol.asyncDispose]();
  }
}

/** `StreamContainers` → `ListContainers`. */
function listOf(stream: string): string | undefined {
  const nouns = stream.replace(/^Stream/, '');
  return ['List' + nouns, 'List' + nouns.replace(/es$/, ''), 'List' + nouns.replace(/s$/, '')].find(
    (name) => listFields[name] !== undefined && !isStream(name),
  );
}
