import { BugError } from '../../base/assert.ts';
import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import { isApiError } from '../../base/kubeapi/errors.ts';
import { pods as podsRef } from '../../base/kubeapi/refs.ts';
import type { KubeApi } from '../../base/kubeapi/types.ts';
import type { Log } from '../../base/log.ts';
import type { Pod, PodStatus } from '../../proto/kube/types.ts';
import { isStatic, mirrorOf, mirrorVerdict } from '../core/static-pod.ts';
import type { NodeInfo, PodSourceReader, StatusWriter } from '../seams.ts';

export interface MirrorsOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly api: KubeApi;
  readonly node: NodeInfo;
  readonly statics: PodSourceReader;
  /** The API server's side: its mirror pods, and whether all are known. */
  readonly apiPods: { mirrors(): readonly Pod[]; synced(): boolean; onUpdate: PodSourceReader['onUpdate'] };
  /** Whether something of a pod of that name, of another UID than this one, may still run here: its mirror stays as long. */
  readonly mayRun: (namespace: string, name: string, butUid: string) => boolean;
  /** Writes the status of what is at the API server. */
  readonly statuses: StatusWriter;
  /** What was told of a pod was told without knowing what an earlier process told: it is to be told again. */
  readonly retell?: (uid: string) => void;
}

export interface Mirrors {
  /** For workers: the status of a static pod goes to its mirror, that of others where it always went. */
  readonly statuses: StatusWriter;
  /** The mirror that stands for a static pod now. */
  of(pod: Pod): Pod | undefined;
  run(signal: AbortSignal): Promise<void>;
}

/** How soon what failed is tried again, and how soon the end of a pod without a file is noticed. */
const periodMs = 2_000;

const nameOf = (pod: Pod): string => `${pod.metadata.namespace}/${pod.metadata.name}`;

/** Keeps one mirror pod for each static pod at the API server, and its status in step. */
export function createMirrors(options: MirrorsOptions): Mirrors {
  const { api, apiPods, clock, log, node, statics, statuses } = options;
  /** What was told of static pods, by their own UID: kept while there is no mirror to tell it to. */
  const told = new Map<string, { pod: Pod; status: PodStatus }>();
  /** Static pods of which was told in knowledge of what their mirrors held. */
  const taken = new Set<string>();
  /** Pods that are to tell again, and since when. */
  const askedMs = new Map<string, number>();
  /** Mirrors a status was written to. */
  const written = new Set<string>();
  /** Until when what failed is left alone: every change of any pod brings a look. */
  const pausedUntilMs = new Map<string, number>();
  let wake: () => void = () => undefined;

  const of = (pod: Pod): Pod | undefined => apiPods.mirrors().find((mirror) => nameOf(mirror) === nameOf(pod) && mirrorVerdict(mirror, pod) === 'right');

  const pass = (uid: string): void => {
    const wish = told.get(uid);
    const mirror = wish === undefined ? undefined : of(wish.pod);
    if (wish === undefined || mirror === undefined) return;
    written.add(mirror.metadata.uid ?? '');
    taken.add(uid);
    askedMs.delete(uid);
    statuses.set(mirror, wish.status);
  };

  const earlierOf = (pod: Pod | undefined): PodStatus | undefined => {
    const status = pod === undefined || taken.has(pod.metadata.uid ?? '') ? undefined : of(pod)?.status;
    return status?.startTime === undefined ? undefined : status;
  };

  /** What was told before the mirror of an earlier process was known would take back what that one told: it is told again first. */
  const passNow = (uid: string): void => {
    const pod = told.get(uid)?.pod;
    if (earlierOf(pod) !== undefined) {
      const sinceMs = askedMs.get(uid);
      if (sinceMs === undefined) {
        askedMs.set(uid, clock.monoMs());
        options.retell?.(uid);
      }
      if (clock.monoMs() - (askedMs.get(uid) ?? 0) < periodMs && !taken.has(uid)) return;
    }
    pass(uid);
  };

  const tell = (pod: Pod, status: PodStatus): void => {
    const uid = pod.metadata.uid ?? '';
    told.set(uid, { pod, status });
    pass(uid);
  };

  const remove = async (mirror: Pod, signal: AbortSignal): Promise<void> => {
    const { namespace = '', name = '', uid = '' } = mirror.metadata;
    log.info('Deleting a mirror pod', { pod: nameOf(mirror), podUID: uid });
    try {
      await api.delete(podsRef(namespace, name), { gracePeriodSeconds: 0, preconditions: { uid } }, {}, signal);
    } catch (error) {
      if (!isApiError(error, 404) && !isApiError(error, 409)) throw error;
    }
  };

  const create = async (pod: Pod, signal: AbortSignal): Promise<void> => {
    const uid = node.node()?.metadata.uid;
    if (uid === undefined) return;
    log.info('Creating a mirror pod for static pod', { pod: nameOf(pod) });
    try {
      await api.create(podsRef(pod.metadata.namespace, pod.metadata.name), mirrorOf(pod, { name: node.name, uid }), {}, signal);
    } catch (error) {
      // It came in between; the watch shows whether it is ours.
      if (!isApiError(error, 409)) throw error;
    }
  };

  /** One look at all: nothing is done before both sides are complete. */
  const reconcile = async (signal: AbortSignal): Promise<void> => {
    if (!statics.synced() || !apiPods.synced()) return;
    const wanted = new Map(statics.list().map(({ pod }) => [nameOf(pod), pod]));
    const there = new Set<string>();
    const attempt = async (pod: Pod, work: () => Promise<void>): Promise<void> => {
      const name = nameOf(pod);
      if (clock.monoMs() < (pausedUntilMs.get(name) ?? 0)) return;
      pausedUntilMs.delete(name);
      try {
        await work();
      } catch (error) {
        if (error instanceof BugError) throw error;
        pausedUntilMs.set(name, clock.monoMs() + periodMs);
        if (!signal.aborted) log.error('Failed to keep the mirror pod', { pod: name, err: messageOf(error) });
      }
    };
    for (const mirror of apiPods.mirrors()) {
      there.add(nameOf(mirror));
      const pod = wanted.get(nameOf(mirror));
      if (mirrorVerdict(mirror, pod) === 'right') continue;
      // While its pod is still stopping, the mirror tells of it, also when the next version waits already.
      const isTold = pod === undefined || mirror.metadata.deletionTimestamp === undefined;
      if (isTold && options.mayRun(mirror.metadata.namespace ?? '', mirror.metadata.name ?? '', pod?.metadata.uid ?? '')) continue;
      await attempt(mirror, () => remove(mirror, signal));
    }
    for (const [name, pod] of wanted) if (!there.has(name)) await attempt(pod, () => create(pod, signal));
    for (const name of pausedUntilMs.keys()) if (!wanted.has(name) && !there.has(name)) pausedUntilMs.delete(name);
    const live = new Set(apiPods.mirrors().map(({ metadata }) => metadata.uid ?? ''));
    for (const uid of written) {
      if (live.has(uid)) continue;
      written.delete(uid);
      statuses.forget(uid);
    }
    for (const uid of told.keys()) passNow(uid);
  };

  for (const source of [statics, apiPods]) source.onUpdate(() => wake());

  return {
    of,
    statuses: {
      set(pod, status) {
        if (!isStatic(pod)) return statuses.set(pod, status);
        tell(pod, status);
      },
      current: (uid) => told.get(uid)?.status ?? statuses.current(uid),
      earlier: (uid) => earlierOf(statics.get(uid)?.pod ?? told.get(uid)?.pod),
      async finish(pod, status, signal) {
        if (!isStatic(pod)) return statuses.finish(pod, status, signal);
        tell(pod, status);
        // Nobody is waited for: the pod ends whether or not there is an API server.
      },
      forget(uid) {
        taken.delete(uid);
        askedMs.delete(uid);
        if (!told.delete(uid)) statuses.forget(uid);
      },
    },
    async run(signal) {
      while (!signal.aborted) {
        const woken = new AbortController();
        wake = () => woken.abort();
        await reconcile(signal);
        await clock.sleep(periodMs, AbortSignal.any([signal, woken.signal])).catch(() => undefined);
      }
    },
  };
}
