import type { Verdict } from '../status.ts';

/** Why a pod does not get what it asks for. */
export interface Refusal {
  readonly kind: 'topology' | 'smt' | 'shared-pool' | 'unexpected';
  readonly message: string;
}

export const topologyRefusal: Refusal = { kind: 'topology', message: 'Resources cannot be allocated with Topology locality' };

/** The same for a pod that has resources as a whole. */
export function podTopologyRefusal(scope: 'container' | 'pod'): Refusal {
  const how = scope === 'pod' ? 'under pod-scope topology manager' : 'with a container-level topology manager';
  return { kind: 'topology', message: `Pod Scope pod with pod-level resources failed admission ${how}` };
}

/** Reason and message of the pod's status, as upstream words them. */
export function refusalVerdict({ kind, message }: Refusal): Verdict {
  switch (kind) {
    case 'topology':
      return { reason: 'TopologyAffinityError', message };
    case 'smt':
      return { reason: 'SMTAlignmentError', message };
    case 'shared-pool':
      return { reason: 'EmptyPodSharedPoolError', message };
    case 'unexpected':
      return { reason: 'UnexpectedAdmissionError', message: `Allocate failed due to ${message}, which is unexpected` };
  }
}
