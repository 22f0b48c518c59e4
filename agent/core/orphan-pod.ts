import type { Pod } from '../../proto/kube/types.ts';
import type { PodFacts, PodKey } from './types.ts';

/** A pod of which only the runtime knows: enough of an object to stop its containers. */
export function orphanPod(key: PodKey, facts: PodFacts): Pod {
  const names = [...new Set(facts.containers.map((container) => container.name))];
  return {
    metadata: { uid: key.uid, namespace: facts.namespace || key.namespace, name: facts.name || key.name },
    spec: { containers: names.map((name) => ({ name })), terminationGracePeriodSeconds: 1 },
  };
}
