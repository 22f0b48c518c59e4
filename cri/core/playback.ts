import { CHANGES } from './changes.ts';
import { fieldsOf } from './call-line.ts';
import { isStream } from './methods.ts';
import { lifeOf, type PlayedLife } from './playback-lives.ts';
import { at, podOf, PlayedWorld, textAt, type Fields, type PlayedContainer } from './playback-world.ts';
import type { RecordedCall, RecordedEntry, RecordedOpening, RecordedStatus } from './recording.ts';

/** What came of a recorded call. */
export interface PlayedOutcome {
  /** Wall clock, milliseconds: when it was made. */
  readonly startMs: number;
  readonly durationMs: number;
  /** Null: it succeeded. */
  readonly status: RecordedStatus | null;
  /** Of ExecSync. */
  readonly response?: Fields;
  /** Of StartContainer. */
  life?: PlayedLife;
}

interface PlayedImage {
  /** An Image message. */
  readonly fields: Fields;
  /** Whether the runtime had it when recording began. */
  readonly wasThere: boolean;
  atEnd: boolean;
}

/** What a call is about when ids are taken away: a pod, a container of it with a command, an image, or nothing. */
export interface PlayedSubject {
  /** `namespace/name`, or ''. */
  readonly pod: string;
  readonly container: string;
  /** The command of ExecSync, or the name of an image. */
  readonly other: string;
}

const NOTHING: PlayedSubject = { pod: '', container: '', other: '' };
/** Answered from the recording whatever is asked. */
const CONSTANT = new Set(['Version', 'Status', 'RuntimeConfig', 'ImageFsInfo', 'ListMetricDescriptors', 'ListPodSandboxMetrics']);
/** Whose outcomes are given again, in order. */
const REPEATED = new Set([...CHANGES, 'ReopenContainerLog', 'RemoveImage']);
const MAX_OUTCOMES_OF_ONE = 1_000;
const MAX_OUTCOMES = 200_000;
const MAX_SAMPLES = 99;
const MAX_STREAMS = 1_000;
const MAX_IMAGES = 10_000;
const DEADLINE: RecordedStatus = { code: 4, name: 'DeadlineExceeded', message: 'context deadline exceeded' };

function subjectKey(method: string, { pod, container, other }: PlayedSubject): string {
  return `${method} ${pod} ${container} ${other}`;
}

/**
 * Learns from a recording how its runtime answered, entry by entry, and then says it: `take` all, then ask. Ids, uids and
 * attempts are not compared: the n-th call of a method about a pod, a container or an image is answered as the n-th was.
 * Holds what the runtime held, and of calls their outcomes; no lists.
 */
export class Playback {
  readonly world: PlayedWorld;
  readonly images = new Map<string, PlayedImage>();
  readonly #constants = new Map<string, { fields: Fields } | { status: RecordedStatus }>();
  readonly #known = new Set<string>();
  readonly #streamed = new Set<string>();
  readonly #outcomes = new Map<string, PlayedOutcome[]>();
  readonly #given = new Map<string, number>();
  readonly #samples = new Map<string, number[]>();
  readonly #starts = new Map<string, PlayedOutcome>();
  readonly #streams = new Map<number, RecordedOpening>();
  /** Names of images that a pull of the recording brought. */
  readonly #pulled = new Set<string>();
  /** What containers were made of: id and name. */
  readonly #used = new Map<string, string>();
  #kept = 0;
  #calls = 0;

  constructor() {
    this.world = new PlayedWorld((container) => this.#settle(container));
  }

  /** How many calls there are. */
  get calls(): number {
    return this.#calls;
  }

  take(entry: RecordedEntry): void {
    switch (entry.type) {
      case 'recording':
        this.world.began(Date.parse(entry.startedAt.wall));
        break;
      case 'opening':
        if (this.#streams.size < MAX_STREAMS) this.#streams.set(entry.call, entry);
        break;
      case 'message': {
        const opening = this.#streams.get(entry.call);
        if (opening === undefined) break;
        const call: RecordedCall = { ...opening, type: 'call', end: null, responses: [], status: null };
        this.#learn(call, fieldsOf(opening.requests[0]), fieldsOf(entry.message));
        this.#known.add(subjectKey(opening.method, NOTHING));
        this.#streamed.add(opening.method);
        break;
      }
      case 'call':
        this.#streams.delete(entry.call);
        if (entry.service.startsWith('runtime.v1.')) this.#call(entry);
        break;
      default:
    }
  }

  #call(call: RecordedCall): void {
    this.#calls += 1;
    const { method, status } = call;
    const request = fieldsOf(call.requests[0]);
    const response = fieldsOf(call.responses[0]);
    const subject = this.#subjectOf(method, request);
    if (subject === null) return;
    if (call.end !== null) this.#known.add(subjectKey(method, subject));
    this.world.askedToStop(method, request, Date.parse(call.start.wall));
    if (status?.code === 0) this.#learn(call, request, response);
    if (status?.code === 0 && isStream(method)) this.#streamed.add(method);
    this.#sample(call);
    if (CONSTANT.has(method)) this.#constant(method, response, status);
    if (REPEATED.has(method)) this.#outcome(call, subject, request, response);
  }

  /** Null for a call about something that the recording does not name. */
  #subjectOf(method: string, request: Fields): PlayedSubject | null {
    if (method === 'RunPodSandbox') return { ...NOTHING, pod: podOf(at(request, 'config', 'metadata')) };
    const image = textAt(request, 'image', 'image');
    if (image !== '') return { ...NOTHING, other: image };
    const sandboxId = textAt(request, 'podSandboxId');
    const containerId = textAt(request, 'containerId');
    if (sandboxId === '' && containerId === '') return NOTHING;
    const container = this.world.containers.get(containerId);
    const pod = container?.pod ?? this.world.sandboxes.get(sandboxId)?.pod;
    if (pod === undefined) return null;
    const name = method === 'CreateContainer' ? textAt(request, 'config', 'metadata', 'name') : (container?.name ?? '');
    return { pod, container: name, other: method === 'ExecSync' ? commandText(at(request, 'cmd')) : '' };
  }

  #learn(call: RecordedCall, request: Fields, response: Fields): void {
    this.world.learn(call.method, call, request, response);
    const { method } = call;
    if (method === 'ListImages' || method === 'StreamImages') for (const one of (response['images'] ?? []) as Fields[]) this.#sawImage(one);
    else if (method === 'ImageStatus' && at(response, 'image') !== undefined) this.#sawImage(at(response, 'image') as Fields);
    else if (method === 'CreateContainer') this.#usedImage(at(request, 'config', 'image'));
    else if (method === 'PullImage') this.#pulled.add(textAt(response, 'imageRef')).add(textAt(request, 'image', 'image'));
    else if (method === 'RemoveImage') {
      const gone = this.image(textAt(request, 'image', 'image'));
      if (gone !== undefined) gone.atEnd = false;
    }
  }

  #sawImage(fields: Fields): void {
    const id = textAt(fields, 'id');
    const known = this.images.get(id);
    const names = [id, ...((fields['repoTags'] ?? []) as string[]), ...((fields['repoDigests'] ?? []) as string[])];
    if (known === undefined) this.images.set(id, { fields, wasThere: !names.some((name) => this.#pulled.has(name)), atEnd: true });
    else known.atEnd = true;
  }

  #usedImage(spec: unknown): void {
    const name = textAt(spec, 'image');
    if (name !== '' && this.#used.size < MAX_IMAGES) this.#used.set(name, textAt(spec, 'userSpecifiedImage') || name);
  }

  /** An image that a container was made of was there, also when nobody asked about it while this was recorded. */
  #addUsed(): void {
    for (const { image } of this.world.containers.values()) if (image.tag !== '') this.#used.set(image.id || image.digest || image.tag, image.tag);
    for (const [reference, name] of this.#used) {
      if (this.image(reference) !== undefined || this.image(name) !== undefined) continue;
      const fields = { id: reference, repoTags: name.includes('@') ? [] : [name], repoDigests: name.includes('@') ? [name] : [], size: '1000000' };
      this.images.set(reference, { fields, wasThere: !this.#pulled.has(reference) && !this.#pulled.has(name), atEnd: true });
    }
  }

  /** By id, tag or digest. */
  image(name: string): PlayedImage | undefined {
    const direct = this.images.get(name);
    if (direct !== undefined) return direct;
    return [...this.images.values()].find(({ fields }) =>
      [...((fields['repoTags'] ?? []) as string[]), ...((fields['repoDigests'] ?? []) as string[])].includes(name),
    );
  }

  #constant(method: string, response: Fields, status: RecordedStatus | null): void {
    const before = this.#constants.get(method);
    if (status?.code === 0) {
      // A runtime that became ready stays so: a recording may end while it was being stopped.
      if (method === 'Status' && before !== undefined && 'fields' in before && isReady(before.fields) && !isReady(response)) return;
      this.#constants.set(method, { fields: response });
    } else if (status !== null && (before === undefined || 'status' in before)) this.#constants.set(method, { status });
  }

  #sample({ method, start, end, status }: RecordedCall): void {
    if (end === null || status?.code !== 0) return;
    const samples = this.#samples.get(method) ?? [];
    if (samples.length < MAX_SAMPLES) samples.push(end.monoMs - start.monoMs);
    this.#samples.set(method, samples);
  }

  #outcome(call: RecordedCall, subject: PlayedSubject, request: Fields, response: Fields): void {
    const { method, start, end } = call;
    if (end === null || this.#kept >= MAX_OUTCOMES) return;
    // A caller that lost patience left no status: the runtime was silent for at least as long.
    const status = call.status ?? (/^the caller/.test(call.cut ?? '') ? DEADLINE : null);
    if (status === null) return;
    // About an id of that time, not about the pod.
    if (status.name === 'NotFound' && /^(Stop|Remove)/.test(method)) return;
    const key = subjectKey(method, subject);
    const all = this.#outcomes.get(key) ?? [];
    this.#outcomes.set(key, all);
    if (all.length >= MAX_OUTCOMES_OF_ONE) return;
    const outcome: PlayedOutcome = {
      startMs: Date.parse(start.wall),
      durationMs: end.monoMs - start.monoMs,
      status: status.code === 0 ? null : status,
      ...(method === 'ExecSync' && status.code === 0 ? { response } : {}),
    };
    all.push(outcome);
    this.#kept += 1;
    if (method === 'StartContainer' && outcome.status === null) this.#starts.set(textAt(request, 'containerId'), outcome);
  }

  /** Nothing more is learned of this container. */
  #settle(container: PlayedContainer): void {
    const start = this.#starts.get(container.id);
    if (start !== undefined) start.life = lifeOf(container);
    this.#starts.delete(container.id);
  }

  /** Call once after the last entry. */
  finish(): void {
    for (const container of this.world.containers.values()) this.#settle(container);
    this.#addUsed();
    for (const all of this.#outcomes.values()) all.sort((a, b) => a.startMs - b.startMs);
  }

  // ---- what it answers ------------------------------------------------------------------------------------------

  /** Whether the recording has such a call. */
  knows(method: string, subject: PlayedSubject): boolean {
    return this.#known.has(subjectKey(method, subject));
  }

  /** Whether the runtime had that stream. */
  streams(method: string): boolean {
    return this.#streamed.has(method);
  }

  constant(method: string): { readonly fields: Fields } | { readonly status: RecordedStatus } | undefined {
    return this.#constants.get(method);
  }

  /**
   * What came of the next call of this kind. After the recorded ones it is the last that went well, so that callers get
   * to their end; undefined when there was none at all.
   */
  next(method: string, subject: PlayedSubject): PlayedOutcome | undefined {
    const key = subjectKey(method, subject);
    const all = this.#outcomes.get(key);
    if (all === undefined) return undefined;
    const given = this.#given.get(key) ?? 0;
    this.#given.set(key, given + 1);
    return all[given] ?? all.findLast(({ status }) => status === null) ?? all.at(-1);
  }

  /** The addresses that sandboxes of that pod had, each with further ones. */
  addresses(pod: string): readonly (readonly string[])[] {
    return this.world.addresses.get(pod) ?? [];
  }

  allAddresses(): ReadonlySet<string> {
    return new Set([...this.world.addresses.values()].flat(2));
  }

  lifeOf(container: PlayedContainer): PlayedLife {
    return lifeOf(container);
  }

  /** The median of that method's durations, milliseconds; 0 when it is not in the recording. */
  typicalMs(method: string): number {
    const samples = this.#samples.get(method)?.toSorted((a, b) => a - b) ?? [];
    return samples[samples.length >> 1] ?? 0;
  }
}

export function commandText(command: unknown): string {
  return Array.isArray(command) ? JSON.stringify(command) : '';
}

function isReady(status: Fields): boolean {
  const conditions = (at(status, 'status', 'conditions') ?? []) as Fields[];
  return conditions.filter((one) => textAt(one, 'type').endsWith('Ready')).every((one) => one['status'] === true);
}
