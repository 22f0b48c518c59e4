import type { Clock } from '../../base/clock.ts';
import { BugError } from '../../base/assert.ts';
import { messageOf } from '../../base/errors.ts';
import { isApiError } from '../../base/kubeapi/errors.ts';
import { pods, subresource } from '../../base/kubeapi/refs.ts';
import type { KubeApi } from '../../base/kubeapi/types.ts';
import type { Log } from '../../base/log.ts';
import { createKeyedQueue } from '../../base/queue.ts';
import { createKeyedBackoff } from '../../base/retry.ts';
import type { Rng } from '../../base/rng.ts';
import type { Pod, PodStatus } from '../../proto/kube/types.ts';
import { podStatusPatch } from '../core/status-patch.ts';
import type { StatusWriter } from '../seams.ts';

export interface StatusApiOptions {
  clock: Clock;
  rng: Rng;
  log: Log;
  api: KubeApi;
  /** How long from a change of wish to its being in, for the metric. */
  onWritten?: (ms: number) => void;
}

interface Entry {
  /** The newest copy of the API's object that we have seen. */
  held: Pod;
  wish: PodStatus;
  wishedMs: number;
  /** After the last write the object is to be deleted, if somebody asked for that. */
  final: boolean;
  /** A write is under way: what it leaves behind is not known yet. */
  writing: boolean;
  waiters: (() => void)[];
}

/** Writes at once: enough not to wait behind one slow answer, few enough not to matter to an API server. */
const concurrency = 8;
const backoff = { baseMs: 500, maxMs: 10_000 };

/**
 * Makes the API server hold the newest status of each pod. A wish that is already there costs no write; several
 * wishes while one write is under way cost one more write.
 */
export function createStatusApi(options: StatusApiOptions): StatusWriter & AsyncDisposable {
  const { api, clock, log } = options;
  const entries = new Map<string, Entry>();
  const failures = createKeyedBackoff(backoff, options.rng);

  const queue = createKeyedQueue({
    clock,
    concurrency,
    work: async (uid, signal) => {
      const entry = entries.get(uid);
      if (entry === undefined) return;
      entry.writing = true;
      try {
        await write(uid, entry, signal);
      } finally {
        entry.writing = false;
      }
      failures.succeeded(uid);
    },
    onError: (uid, error) => {
      if (error instanceof BugError) throw error;
      const { metadata } = entries.get(uid)?.held ?? {};
      log.error('Failed to update status for pod', { pod: `${metadata?.namespace}/${metadata?.name}`, err: messageOf(error) });
      queue.addAfter(uid, failures.failed(uid));
    },
  });

  /** Takes `pod` for the newest copy unless we have seen a newer one. */
  const see = (entry: Entry, pod: Pod): void => {
    if (versionOf(pod) >= versionOf(entry.held)) entry.held = pod;
  };

  const settle = (entry: Entry): void => {
    for (const waiter of entry.waiters.splice(0)) waiter();
  };

  const write = async (uid: string, entry: Entry, signal: AbortSignal): Promise<void> => {
    const { wish, wishedMs, held } = entry;
    const ref = pods(held.metadata.namespace, held.metadata.name);
    const patch = podStatusPatch(uid, held.status ?? {}, wish);
    try {
      if (patch !== null) {
        see(entry, await api.patch<Pod>(subresource(ref, 'status'), 'strategic', patch, {}, signal));
        options.onWritten?.(clock.monoMs() - wishedMs);
      }
      // A newer wish came meanwhile; the queue holds the key already.
      if (entry.wish !== wish || !entry.final) return;
      const { deletionTimestamp } = entry.held.metadata;
      if (deletionTimestamp !== undefined && deletionTimestamp !== null) {
        await api.delete(ref, { gracePeriodSeconds: 0, preconditions: { uid } }, {}, signal);
        log.debug(3, 'Pod fully terminated and removed from the API server', { pod: `${ref.namespace}/${ref.name}` });
      }
    } catch (error) {
      // Gone, or another object of that name: there is nobody left to tell.
      if (!isApiError(error, 404) && !isApiError(error, 409)) throw error;
      if (isApiError(error, 409) && !(await isReplaced(uid, held, signal))) throw error;
      entry.final = true;
    }
    settle(entry);
  };

  /** A conflict is final only when the UID is the reason. */
  const isReplaced = async (uid: string, pod: Pod, signal: AbortSignal): Promise<boolean> => {
    try {
      const current = await api.get<Pod>(pods(pod.metadata.namespace, pod.metadata.name), {}, signal);
      if (current.metadata.uid !== uid) return true;
      const entry = entries.get(uid);
      if (entry !== undefined) see(entry, current);
      return false;
    } catch (error) {
      if (isApiError(error, 404)) return true;
      throw error;
    }
  };

  const want = (pod: Pod, status: PodStatus): Entry => {
    const uid = pod.metadata.uid ?? '';
    const entry = entries.get(uid) ?? { held: pod, wish: status, wishedMs: 0, final: false, writing: false, waiters: [] };
    see(entry, pod);
    entry.wish = status;
    entry.wishedMs = clock.monoMs();
    entries.set(uid, entry);
    return entry;
  };

  return {
    set(pod, status) {
      const entry = want(pod, status);
      const uid = pod.metadata.uid ?? '';
      if (entry.writing || podStatusPatch(uid, entry.held.status ?? {}, status) !== null) queue.add(uid);
    },
    current: (uid) => entries.get(uid)?.wish,
    async finish(pod, status, signal) {
      const entry = want(pod, status);
      entry.final = true;
      await new Promise<void>((resolve, reject) => {
        const stopped = (): void => reject(signal.reason as Error);
        if (signal.aborted) return stopped();
        signal.addEventListener('abort', stopped, { once: true });
        entry.waiters.push(() => {
          signal.removeEventListener('abort', stopped);
          resolve();
        });
        // Last: where there is nothing to write, all is done before this returns.
        queue.add(pod.metadata.uid ?? '');
        return undefined;
      });
    },
    forget(uid) {
      const entry = entries.get(uid);
      entries.delete(uid);
      queue.forget(uid);
      failures.succeeded(uid);
      if (entry !== undefined) settle(entry);
    },
    [Symbol.asyncDispose]: () => queue[Symbol.asyncDispose](),
  };
}

/** Versions of one object grow and may be compared since Kubernetes 1.35 (KEP-5504). What is no number counts as newest. */
function versionOf(pod: Pod): number {
  const version = Number(pod.metadata.resourceVersion ?? Number.NaN);
  return Number.isNaN(version) ? Number.POSITIVE_INFINITY : version;
}
