import type { Verdict } from '../status.ts';

/** Why a pod does not get what it asks for. */
export interface Refusal {
  readonly kind: 'topology' | 'smt' | 'unexpected';
  readonly message: string;
}

export const topologyRefusal: Refusal = { kind: 'topology', message: 'Resources cannot be allocated with Topology locality' };

/** Reason and message of the pod's status, as upstream words them. */
export function refusalVerdict({ kind, message }: Refusal): Verdict {
  switch (kind) {
    case 'topology':
      return { reason: 'TopologyAffinityError', message };
    case 'smt':
      return { reason: 'SMTAlignmentError', message };
    case 'unexpected':
      return { reason: 'UnexpectedAdmissionError', message: `Allocate failed due to ${message}, which is unexpected` };
  }
}
