import type { Clock } from '../../base/clock.ts';
import type { KubeApi, KubeObject } from '../../base/kubeapi/types.ts';
import type { Log } from '../../base/log.ts';
import { messageOf } from '../../base/errors.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { keyOf } from '../core/containers.ts';
import { mirrorAnnotation, seenAnnotation, sourceAnnotation } from '../core/static-pod.ts';
import { ownConditions } from '../core/status-conditions.ts';
import type { PodKey, PodView } from '../core/types.ts';
import type { PodSourceReader } from '../seams.ts';

export interface ApiPods extends PodSourceReader {
  /** Follows the pods that are bound to this node until `signal` is aborted. */
  run(signal: AbortSignal): Promise<void>;
  /** Mirror objects of static pods: the API server's side of pods that come from elsewhere. */
  mirrors(): readonly Pod[];
}

/** The pods that the API server binds to this node. */
export function createApiPods(deps: { api: KubeApi; nodeName: string; log: Log; clock: Clock }): ApiPods {
  const pods = new Map<string, PodView>();
  const mirrors = new Map<string, Pod>();
  const firstSeen = new Map<string, string>();
  const callbacks: ((key: PodKey, change: 'wish' | 'status') => void)[] = [];
  let synced = false;
  const tell = (key: PodKey, change: 'wish' | 'status' = 'wish'): void => {
    for (const callback of callbacks) callback(key, change);
  };
  const put = (pod: Pod): 'wish' | 'status' => {
    const key = keyOf(pod);
    if (pod.metadata.annotations?.[mirrorAnnotation] !== undefined) {
      mirrors.set(key.uid, pod);
      return 'wish';
    }
    // Whatever an author wrote there: where a pod comes from, and since when, is known here. The runtime and the pod's own
    // files are told both.
    const seen = firstSeen.get(key.uid) ?? new Date(deps.clock.nowMs()).toISOString();
    firstSeen.set(key.uid, seen);
    pod.metadata.annotations = { ...pod.metadata.annotations, [sourceAnnotation]: 'api', [seenAnnotation]: seen };
    const before = pods.get(key.uid)?.pod;
    pods.set(key.uid, { key, source: 'api', pod });
    return before !== undefined && sameWish(before, pod) ? 'status' : 'wish';
  };
  const drop = (key: PodKey): void => {
    pods.delete(key.uid);
    mirrors.delete(key.uid);
    firstSeen.delete(key.uid);
  };
  return {
    source: 'api',
    list: () => [...pods.values()],
    get: (uid) => pods.get(uid),
    mirrors: () => [...mirrors.values()],
    synced: () => synced,
    onUpdate: (callback) => void callbacks.push(callback),
    run: (signal) =>
      deps.api.reflect<Pod & KubeObject>(
        { group: '', version: 'v1', resource: 'pods' },
        { fieldSelector: `spec.nodeName=${deps.nodeName}` },
        {
          replaced(items) {
            const before = [...pods.values()].map((view) => view.key);
            pods.clear();
            mirrors.clear();
            for (const pod of items) put(pod);
            for (const uid of firstSeen.keys()) if (!pods.has(uid)) firstSeen.delete(uid);
            synced = true;
            const keys = new Map([...before, ...items.map(keyOf)].map((key) => [key.uid, key]));
            for (const key of keys.values()) tell(key);
          },
          changed(type, pod) {
            const key = keyOf(pod);
            if (type !== 'DELETED') return tell(key, put(pod));
            drop(key);
            tell(key);
          },
          trouble: (error) => deps.log.warn('Watching pods', { err: messageOf(error) }),
          trim(pod) {
            delete pod.metadata.managedFields;
            return pod;
          },
        },
        signal,
      ),
  };
}

/** Whether two versions differ in nothing but what a kubelet writes into the status. */
function sameWish(before: Pod, after: Pod): boolean {
  return wishText(before) === wishText(after);
}

function wishText({ metadata, spec, status }: Pod): string {
  const { resourceVersion: _, managedFields: __, ...own } = metadata;
  const foreign = (status?.conditions ?? []).filter((condition) => !ownConditions.has(condition.type)).map(({ type, status: value }) => [type, value]);
  return JSON.stringify([own, spec, foreign]);
}
