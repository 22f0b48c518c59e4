import { fieldsOf } from './call-line.ts';
import { IdentityBook } from './identity.ts';
import type { RecordedCall, RecordedEntry, RecordedOpening } from './recording.ts';

type Fields = Readonly<Record<string, unknown>>;

/** A pod as a runtime knows it: one life of it, from its first sandbox to its last. */
export interface PodLife {
  /** `namespace/name`; `namespace/name (2)` for the second pod of that name. */
  readonly key: string;
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  /** What its sandbox says of itself; empty until a call has said it. */
  labels: Readonly<Record<string, string>>;
  annotations: Readonly<Record<string, string>>;
  hostname: string;
  ips: readonly string[];
}

/** A call that has ended, or that was open when recording stopped. */
export interface PodCall {
  /** Null for a call about the node or about a pod that nothing has named. */
  readonly pod: PodLife | null;
  readonly service: string;
  /** With its service's last word where that is not the CRI's: `Containers/Get`. */
  readonly method: string;
  /** Attempt of the sandbox; null when it is unknown. */
  readonly sandboxAttempt: number | null;
  /** `name#attempt`; empty when it is about no container. */
  readonly container: string;
  /** An image, or the beginning of an id that nothing has named. */
  readonly other: string;
  /** Milliseconds since 1970, with fractions, by the clock that never jumps. */
  readonly startMs: number;
  readonly endMs: number | null;
  /** As in `CallSummary`. */
  readonly outcome: string;
  readonly message: string;
  readonly request: Fields;
  /** The last answer. */
  readonly answer: Fields;
  readonly answers: number;
  readonly sizeBytes: number;
}

/** Open streams that are remembered. */
const MAX_OPEN = 1_000;
/** Pods that are remembered; calls about further ones count as the node's. */
const MAX_PODS = 100_000;

function record(value: unknown): Fields {
  return value !== null && typeof value === 'object' ? (value as Fields) : {};
}

/** Which pod each call of a recording is about. Takes entries in the file's order. */
export class PodCalls {
  readonly #book = new IdentityBook();
  readonly #open = new Map<number, { readonly opening: RecordedOpening; answers: number; sizeBytes: number }>();
  readonly #byUid = new Map<string, PodLife>();
  readonly #named = new Map<string, number>();
  #shiftMs = 0;

  take(entry: RecordedEntry): PodCall | null {
    switch (entry.type) {
      case 'recording':
        this.#shiftMs = Date.parse(entry.startedAt.wall) - entry.startedAt.monoMs;
        this.#open.clear();
        return null;
      case 'opening':
        if (this.#open.size < MAX_OPEN) this.#open.set(entry.call, { opening: entry, answers: 0, sizeBytes: 0 });
        return null;
      case 'message': {
        const stream = this.#open.get(entry.call);
        if (stream === undefined) return null;
        stream.answers += 1;
        stream.sizeBytes += entry.message.sizeBytes;
        this.#book.learn(stream.opening.method, fieldsOf(stream.opening.requests[0]), fieldsOf(entry.message));
        return null;
      }
      case 'call': {
        const stream = this.#open.get(entry.call);
        if (stream === undefined) return this.#made(entry, 0, 0);
        this.#open.delete(entry.call);
        return this.#made({ ...entry, requests: stream.opening.requests }, stream.answers, stream.sizeBytes);
      }
      default:
        return null;
    }
  }

  /** Streams that were open when the file ended, as a recorder that was killed leaves them. */
  *rest(): Generator<PodCall> {
    for (const { opening, answers, sizeBytes } of this.#open.values())
      yield this.#made({ ...opening, type: 'call', end: null, responses: [], status: null }, answers, sizeBytes);
    this.#open.clear();
  }

  #made(entry: RecordedCall, answersBefore: number, bytesBefore: number): PodCall {
    const { method } = entry;
    const request = fieldsOf(entry.requests[0]);
    const answer = fieldsOf(entry.responses.at(-1));
    if (entry.status?.code === 0) for (const response of entry.responses) this.#book.learn(method, request, fieldsOf(response));
    const subject = this.#book.subject(method, request);
    const config = record(method === 'RunPodSandbox' ? request['config'] : request['sandboxConfig']);
    // A pull is for a pod, and says for which.
    const metadata = record(config['metadata']) as { name?: string; namespace?: string; uid?: string; attempt?: number };
    const told = metadata.name !== undefined && subject.sandbox === '';
    const sandbox = told ? `${metadata.namespace ?? ''}/${metadata.name}#${metadata.attempt ?? 0}` : subject.sandbox;
    const at = sandbox.lastIndexOf('#');
    const pod = sandbox === '' ? this.#listed(request) : this.#podOf(sandbox.slice(0, at), told ? (metadata.uid ?? '') : subject.uid);
    if (pod !== null) this.#describe(pod, method, config, answer);
    let sizeBytes = bytesBefore;
    for (const message of entry.requests) sizeBytes += message.sizeBytes;
    for (const message of entry.responses) sizeBytes += message.sizeBytes;
    return {
      pod,
      service: entry.service,
      method: entry.service.startsWith('runtime.') ? method : `${entry.service.slice(entry.service.lastIndexOf('.') + 1)}/${method}`,
      sandboxAttempt: sandbox === '' ? null : Number(sandbox.slice(at + 1)),
      container: subject.container,
      other: subject.other,
      startMs: this.#shiftMs + entry.start.monoMs,
      endMs: entry.end === null ? null : this.#shiftMs + entry.end.monoMs,
      outcome: entry.end === null ? 'open' : (entry.status?.name ?? 'cut'),
      message: entry.status === null ? (entry.cut ?? '') : entry.status.code === 0 ? '' : entry.status.message,
      request,
      answer,
      answers: answersBefore + entry.responses.length,
      sizeBytes,
    };
  }

  /** The pod whose sandboxes or containers are asked for by the label that kubelets put on them. */
  #listed(request: Fields): PodLife | null {
    const uid = record(record(request['filter'])['labelSelector'])['io.kubernetes.pod.uid'];
    return typeof uid === 'string' ? (this.#byUid.get(uid) ?? null) : null;
  }

  #podOf(fullName: string, uid: string): PodLife | null {
    const id = uid === '' ? fullName : uid;
    const known = this.#byUid.get(id);
    if (known !== undefined) return known;
    if (this.#byUid.size >= MAX_PODS) return null;
    const times = (this.#named.get(fullName) ?? 0) + 1;
    this.#named.set(fullName, times);
    const slash = fullName.indexOf('/');
    const key = times === 1 ? fullName : `${fullName} (${times})`;
    const pod: PodLife = { key, namespace: fullName.slice(0, slash), name: fullName.slice(slash + 1), uid, labels: {}, annotations: {}, hostname: '', ips: [] };
    this.#byUid.set(id, pod);
    return pod;
  }

  #describe(pod: PodLife, method: string, config: Fields, answer: Fields): void {
    if (method === 'RunPodSandbox' || pod.hostname === '') {
      if (typeof config['hostname'] === 'string') pod.hostname = config['hostname'];
      if (config['labels'] !== undefined) pod.labels = config['labels'] as Record<string, string>;
      if (config['annotations'] !== undefined) pod.annotations = config['annotations'] as Record<string, string>;
    }
    if (method !== 'PodSandboxStatus') return;
    const status = record(answer['status']);
    if (pod.labels['io.kubernetes.pod.name'] === undefined) pod.labels = record(status['labels']) as Record<string, string>;
    const network = record(status['network']) as { ip?: string; additionalIps?: { ip?: string }[] };
    const ips = [network.ip, ...(network.additionalIps ?? []).map(({ ip }) => ip)].filter((ip) => ip !== undefined && ip !== '') as string[];
    if (ips.length > 0) pod.ips = ips;
  }
}
