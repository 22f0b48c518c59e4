import { Admission } from '../../agent/admission.ts';
import type { AdmissionOptions } from '../../agent/admission.ts';
import { declaredFeatures } from '../../agent/core/feature-gate-state.ts';
import type { Loop } from '../../agent/loop.ts';
import type { Resizes } from '../../agent/resizes.ts';

export interface AdmissionParts extends Pick<AdmissionOptions, 'clock' | 'log' | 'events' | 'node' | 'signal'> {
  readonly loop: () => Loop;
  readonly resizes: () => Resizes;
}

/** Admission of a node that lacks nothing and allows nothing special. */
export function plainAdmission({ loop, resizes, ...parts }: AdmissionParts): Admission {
  return new Admission({
    ...parts,
    pods: loop,
    others: (pod) =>
      loop()
        .list()
        .filter((other) => other.metadata.uid !== pod.metadata.uid && loop().holdsResources(other.metadata.uid ?? ''))
        .map((other) => resizes().heldPod(other)),
    allowedUnsafeSysctls: [],
    pressures: () => [],
    hasApparmor: false,
    declaredFeatures: () => declaredFeatures({}),
    preempted: () => undefined,
  });
}
