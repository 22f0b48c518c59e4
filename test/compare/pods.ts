import { setTimeout as delay } from 'node:timers/promises';
import { OpError } from '../../base/errors.ts';
import type { KubeApi, ResourceRef } from '../../base/kubeapi/types.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { NAMESPACE, podFor, type Flavour } from './workload.ts';

const POLL_MS = 20;

const ref = (name?: string): ResourceRef => ({ group: '', version: 'v1', resource: 'pods', namespace: NAMESPACE, ...(name === undefined ? {} : { name }) });

/** Milliseconds of each pod of one round, as one watcher saw them. */
export interface Round {
  /** From the answer to the create request's start to the first object that says Ready. */
  readonly readyMs: readonly number[];
  /** From the start of the delete request to the event that says the object is gone. */
  readonly goneMs: readonly number[];
}

/** Sees when pods become ready and when they go, through one watch. */
export class Watcher implements AsyncDisposable {
  readonly #stop = new AbortController();
  readonly #done: Promise<void>;
  readonly #ready = new Map<string, number>();
  readonly #gone = new Map<string, number>();
  readonly #there = new Set<string>();

  constructor(api: KubeApi) {
    this.#done = api.reflect<Pod>(
      ref(),
      {},
      { replaced: (pods) => this.#listed(pods), changed: (type, pod) => (type === 'DELETED' ? this.#went(pod.metadata.uid ?? '') : this.#saw(pod)) },
      this.#stop.signal,
    );
  }

  /** A list after the watch broke: what is not in it went meanwhile. */
  #listed(pods: readonly Pod[]): void {
    const listed = new Set(pods.map((pod) => pod.metadata.uid ?? ''));
    for (const uid of this.#there) if (!listed.has(uid)) this.#went(uid);
    for (const pod of pods) this.#saw(pod);
  }

  #saw(pod: Pod): void {
    const uid = pod.metadata.uid ?? '';
    this.#there.add(uid);
    const isReady = pod.status?.conditions?.some((condition) => condition.type === 'Ready' && condition.status === 'True') === true;
    if (isReady && !this.#ready.has(uid)) this.#ready.set(uid, performance.now());
  }

  #went(uid: string): void {
    this.#there.delete(uid);
    this.#gone.set(uid, performance.now());
  }

  async #all(seen: Map<string, number>, uids: readonly string[], what: string, timeoutMs: number, signal: AbortSignal): Promise<number[]> {
    const deadline = performance.now() + timeoutMs;
    while (!uids.every((uid) => seen.has(uid))) {
      if (performance.now() > deadline) {
        const missing = uids.filter((uid) => !seen.has(uid)).length;
        throw new OpError('deadline', `waiting for ${uids.length} pods`, `${missing} of them not ${what} after ${timeoutMs / 1000} s`);
      }
      await delay(POLL_MS, undefined, { signal });
    }
    return uids.map((uid) => seen.get(uid) ?? Number.NaN);
  }

  ready(uids: readonly string[], timeoutMs: number, signal: AbortSignal): Promise<number[]> {
    return this.#all(this.#ready, uids, 'ready', timeoutMs, signal);
  }

  gone(uids: readonly string[], timeoutMs: number, signal: AbortSignal): Promise<number[]> {
    return this.#all(this.#gone, uids, 'gone', timeoutMs, signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#done;
  }
}

export interface RoundOptions {
  readonly api: KubeApi;
  readonly watcher: Watcher;
  readonly node: string;
  readonly flavour: Flavour;
  readonly count: number;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
  /** Called while all pods are ready. */
  readonly meanwhile?: () => Promise<void>;
}

/** Creates `count` pods at once on one node, waits until all are ready, deletes all at once, waits until all are gone. */
export async function runRound(options: RoundOptions): Promise<Round> {
  const { api, watcher, node, flavour, count, timeoutMs, signal } = options;
  const created = await Promise.all(
    Array.from({ length: count }, async (_, index) => {
      const atMs = performance.now();
      const pod = await api.create<Pod>(ref(), podFor(node, flavour, index), {}, signal);
      return { uid: pod.metadata.uid ?? '', name: pod.metadata.name ?? '', atMs };
    }),
  );
  const uids = created.map(({ uid }) => uid);
  const readyAt = await watcher.ready(uids, timeoutMs, signal);
  await options.meanwhile?.();
  const deletedAt = await Promise.all(
    created.map(async ({ name }) => {
      const atMs = performance.now();
      await api.delete(ref(name), {}, {}, signal);
      return atMs;
    }),
  );
  const goneAt = await watcher.gone(uids, timeoutMs, signal);
  return {
    readyMs: readyAt.map((at, index) => at - (created[index]?.atMs ?? Number.NaN)),
    goneMs: goneAt.map((at, index) => at - (deletedAt[index] ?? Number.NaN)),
  };
}
