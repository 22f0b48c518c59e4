import { createHash } from 'node:crypto';
import { OpError } from '../../base/errors.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { staticPod } from '../core/static-pod.ts';
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

/** Where a manifest was found: what `origin` says goes into the pod's UID, so that the same text elsewhere is another pod. */
export interface ManifestPlace {
  readonly nodeName: string;
  readonly source: 'file' | 'http';
  readonly origin: string;
  readonly nowMs: number;
}

/** The pod that a manifest is. Throws OpError `invalid` for one that is none; `doing` is what was being done. */
export function podOfManifest(document: unknown, { nodeName, source, origin, nowMs }: ManifestPlace, doing: string): Pod {
  const hash = createHash('md5')
    .update(`${JSON.stringify(document)}${origin}`)
    .digest('hex');
  const made = staticPod(document, { nodeName, source, seen: new Date(nowMs).toISOString(), hash });
  if (!made.ok) throw new OpError('invalid', doing, made.message);
  return made.pod;
}
