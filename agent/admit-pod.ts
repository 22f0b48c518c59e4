import type { Pod } from '../proto/kube/types.ts';
import type { Verdict } from './core/status.ts';
import type { PodFacts } from './core/types.ts';
import type { Grants } from './grants.ts';
import type { Resizes } from './resizes.ts';

export interface AdmitPodDeps {
  /** Whether the node takes this pod; asked before anything is done for it. `later`: the Node is not known yet. */
  readonly admit: (pod: Pod) => Verdict | null | 'later';
  readonly resizes: Resizes;
  /** Sets aside what cannot be shared; absent: nothing is. */
  readonly grants?: Grants;
}

/**
 * Admits a pod and takes it in the same moment: what it gets is no more there for others. One of which the runtime
 * knows something was taken by an earlier process.
 */
export async function admitPod(deps: AdmitPodDeps, pod: Pod, facts: PodFacts, onTaken: () => void, signal: AbortSignal): Promise<Verdict | null | 'later'> {
  const { admit, resizes, grants } = deps;
  const allocated = resizes.allocatedPod(pod);
  const wasTaken = facts.containers.length > 0 || facts.sandboxes.length > 0;
  const take = (): Verdict | null | 'later' => {
    const verdict = wasTaken ? null : admit(allocated);
    if (verdict !== null) return verdict;
    resizes.take(pod);
    onTaken();
    return null;
  };
  if (wasTaken) await grants?.adopt(allocated);
  return wasTaken || grants === undefined ? take() : grants.admit(allocated, take, signal);
}
