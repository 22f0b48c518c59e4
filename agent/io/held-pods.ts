import type { PodKey, PodView } from '../core/types.ts';
import type { PodSourceReader } from '../seams.ts';

/** Pods of a source that is read as a whole, each time anew; who listens is told of those that came, went or changed. */
export interface HeldPods extends PodSourceReader {
  /** Takes over what was read. A pod whose view is the same object has not changed. */
  replace(next: ReadonlyMap<string, PodView>): void;
}

export function createHeldPods(): HeldPods {
  let pods: ReadonlyMap<string, PodView> = new Map();
  let synced = false;
  const callbacks: ((key: PodKey, change: 'wish' | 'status') => void)[] = [];
  return {
    source: 'static',
    list: () => [...pods.values()],
    get: (uid) => pods.get(uid),
    synced: () => synced,
    onUpdate: (callback) => void callbacks.push(callback),
    replace(next) {
      const before = pods;
      pods = new Map(next);
      synced = true;
      const changed = new Map([...before, ...next].filter(([uid]) => before.get(uid) !== next.get(uid)).map(([uid, { key }]) => [uid, key]));
      for (const key of changed.values()) for (const callback of callbacks) callback(key, 'wish');
    },
  };
}
