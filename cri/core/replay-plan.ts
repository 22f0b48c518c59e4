import { fieldsOf } from './call-line.ts';
import { CHANGES } from './changes.ts';
import { isStream, methodNames } from './methods.ts';
import { at, podOf, textAt, type Fields } from './playback-world.ts';
import type { RecordedCall, RecordedEntry, RecordedStatus } from './recording.ts';

/** A recorded call as it is to be made again. */
export interface ReplayStep {
  readonly call: number;
  readonly service: 'RuntimeService' | 'ImageService';
  readonly method: string;
  /** What must keep its order: a pod (`namespace/name uid`), an image, or '' for what is about the whole runtime. */
  readonly lane: string;
  /** `default/web` or `default/web/app` or the image, for people. */
  readonly subject: string;
  readonly changes: boolean;
  /** With ids of that time. */
  readonly request: Fields;
  /** Milliseconds from the first call's start. */
  readonly startMs: number;
  readonly endMs: number;
  readonly response: Fields;
  /** Null: its caller gave it up. */
  readonly status: RecordedStatus | null;
}

/** A recorded call that is not made again. */
interface NotReplayed {
  readonly call: number;
  readonly method: string;
  readonly why: string;
}

/** What would change more than what is replayed, or cannot be told from a file. */
const LEFT_OUT: Readonly<Record<string, string>> = {
  UpdateRuntimeConfig: 'it would change the runtime itself',
  RemoveImage: 'it would take away images that were there before',
  CheckpointContainer: 'checkpoints are files of that machine',
  CheckpointPod: 'checkpoints are files of that machine',
  RestorePod: 'checkpoints are files of that machine',
};
const MAX_IDS = 100_000;
const MAX_IMAGES = 10_000;

/** Turns a recording's entries, in their order, into the calls to make. */
export class ReplayPlan {
  /** Id of that time → lane and name. */
  readonly #ids = new Map<string, { lane: string; subject: string }>();
  /** What the recorded runtime called its images, by id. */
  readonly imageNames = new Map<string, readonly string[]>();
  #firstMs: number | null = null;

  take(entry: RecordedEntry): ReplayStep | NotReplayed | null {
    if (entry.type === 'opening') return { call: entry.call, method: entry.method, why: 'it is a stream' };
    if (entry.type !== 'call' || entry.responsesBefore !== undefined) return null;
    const { call, method } = entry;
    const service = entry.service.replace(/^runtime\.v1\./, '') as ReplayStep['service'];
    const no = (why: string): NotReplayed => ({ call, method, why });
    if (!methodNames.includes(method) || !entry.service.startsWith('runtime.v1.')) return no('it is not of CRI v1');
    if (isStream(method)) return no('it is a stream');
    if (entry.end === null) return no('it had no end');
    if (LEFT_OUT[method] !== undefined) return no(LEFT_OUT[method]);
    const [sent] = entry.requests;
    if (sent === undefined || !('fields' in sent)) return no('its message is not in the recording');
    if (entry.status === null && !/^the caller/.test(entry.cut ?? '')) return no('it was cut off');
    const request = fieldsOf(sent);
    for (const response of entry.responses) this.#learnImages(fieldsOf(response));
    const where = this.#place(entry, request);
    if (where === null) return no('it is about something that was there before the recording');
    this.#firstMs ??= entry.start.monoMs;
    return {
      call,
      service,
      method,
      ...where,
      changes: CHANGES.has(method),
      request,
      startMs: entry.start.monoMs - this.#firstMs,
      endMs: entry.end.monoMs - this.#firstMs,
      response: isList(method) ? {} : fieldsOf(entry.responses[0]),
      status: entry.status,
    };
  }

  #learnImages(response: Fields): void {
    const images = [...((response['images'] ?? []) as Fields[]), ...(response['image'] === undefined ? [] : [response['image'] as Fields])];
    for (const image of images)
      if (this.imageNames.size < MAX_IMAGES)
        this.imageNames.set(textAt(image, 'id'), [...((image['repoTags'] ?? []) as string[]), ...((image['repoDigests'] ?? []) as string[])]);
  }

  #learn(id: unknown, lane: string, subject: string): void {
    if (typeof id !== 'string' || id === '') return;
    this.#ids.set(id, { lane, subject });
    if (this.#ids.size > MAX_IDS) for (const oldest of this.#ids.keys()) return void this.#ids.delete(oldest);
  }

  #place(call: RecordedCall, request: Fields): { lane: string; subject: string } | null {
    const response = fieldsOf(call.responses[0]);
    if (call.method === 'RunPodSandbox') {
      const metadata = at(request, 'config', 'metadata');
      const subject = podOf(metadata);
      const lane = `${subject} ${textAt(metadata, 'uid')}`;
      this.#learn(response['podSandboxId'], lane, subject);
      return { lane, subject };
    }
    const image = textAt(request, 'image', 'image');
    if (image !== '') return { lane: `image ${image}`, subject: image };
    const ids = ['containerId', 'podSandboxId']
      .map((name) => textAt(request, name))
      .concat(textAt(request, 'filter', 'id'), textAt(request, 'filter', 'podSandboxId'));
    const id = ids.find((text) => text !== '');
    if (id === undefined) return { lane: '', subject: '' };
    const known = this.#ids.get(id);
    if (known === undefined) return null;
    if (call.method !== 'CreateContainer') return known;
    const subject = `${known.subject}/${textAt(request, 'config', 'metadata', 'name')}`;
    this.#learn(response['containerId'], known.lane, subject);
    return { lane: known.lane, subject };
  }
}

export function isList(method: string): boolean {
  return /^List/.test(method);
}
