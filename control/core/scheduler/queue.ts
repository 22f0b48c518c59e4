import type { Pod } from '../../../proto/kube/types.ts';

const FIRST_BACKOFF_MS = 1000;
const MAX_BACKOFF_MS = 10_000;
/** A pod that nothing woke is tried again after this, in case an event was missed. */
const FLUSH_AFTER_MS = 5 * 60_000;

interface Entry {
  pod: Pod;
  order: number;
  attempts: number;
  /** Not before this. */
  readyAtMs: number;
  /** Set while only a change of the cluster can help. */
  waitingSinceMs: number | undefined;
}

/** Pods that want a node: by priority, then by age; failed ones wait for a change and for their back-off. */
export class SchedulingQueue {
  readonly #entries = new Map<string, Entry>();
  #order = 0;

  get size(): number {
    return this.#entries.size;
  }

  /** Adds the pod, or takes in its newer version; a changed spec or label may make it fit. */
  put(pod: Pod, nowMs: number): void {
    const uid = pod.metadata.uid ?? '';
    const entry = this.#entries.get(uid);
    if (entry === undefined) {
      this.#entries.set(uid, { pod, order: this.#order++, attempts: 0, readyAtMs: nowMs, waitingSinceMs: undefined });
      return;
    }
    const changed =
      pod.metadata.generation !== entry.pod.metadata.generation || JSON.stringify(pod.metadata.labels) !== JSON.stringify(entry.pod.metadata.labels);
    entry.pod = pod;
    if (changed) entry.waitingSinceMs = undefined;
  }

  remove(uid: string): void {
    this.#entries.delete(uid);
  }

  /** Takes the next pod to be tried out of the queue. */
  next(nowMs: number): { pod: Pod; attempts: number } | undefined {
    let best: Entry | undefined;
    for (const entry of this.#entries.values()) {
      if (entry.waitingSinceMs !== undefined && nowMs - entry.waitingSinceMs >= FLUSH_AFTER_MS) entry.waitingSinceMs = undefined;
      if (entry.waitingSinceMs !== undefined || entry.readyAtMs > nowMs) continue;
      if (best === undefined || isBefore(entry, best)) best = entry;
    }
    if (best === undefined) return undefined;
    this.#entries.delete(best.pod.metadata.uid ?? '');
    return { pod: best.pod, attempts: best.attempts };
  }

  /** Puts a tried pod back. `needsChange`: only a change of the cluster can help, else time alone does. */
  failed(pod: Pod, attempts: number, needsChange: boolean, nowMs: number): void {
    const delayMs = Math.min(FIRST_BACKOFF_MS * 2 ** attempts, MAX_BACKOFF_MS);
    this.#entries.set(pod.metadata.uid ?? '', {
      pod,
      order: this.#order++,
      attempts: attempts + 1,
      readyAtMs: nowMs + delayMs,
      waitingSinceMs: needsChange ? nowMs : undefined,
    });
  }

  /** Something of the cluster changed: those it `concerns` may try again once their back-off is over. */
  wake(concerns: (pod: Pod) => boolean = () => true): void {
    for (const entry of this.#entries.values()) {
      if (entry.waitingSinceMs !== undefined && concerns(entry.pod)) entry.waitingSinceMs = undefined;
    }
  }

  /** When `next` will have something, if nothing happens before. */
  dueAtMs(): number | undefined {
    let due: number | undefined;
    for (const entry of this.#entries.values()) {
      const atMs = entry.waitingSinceMs === undefined ? entry.readyAtMs : entry.waitingSinceMs + FLUSH_AFTER_MS;
      due = due === undefined ? atMs : Math.min(due, atMs);
    }
    return due;
  }
}

function isBefore(a: Entry, b: Entry): boolean {
  const priority = (b.pod.spec.priority ?? 0) - (a.pod.spec.priority ?? 0);
  return priority !== 0 ? priority < 0 : a.order < b.order;
}
