import type { Pod } from '../../proto/kube/types.ts';
import { requestUnits } from './evict-rank.ts';
import { isCritical } from './evict-storage.ts';
import { qosClassOf } from './qos.ts';
import type { QosClass } from './qos.ts';

/** So much of a resource is missing: CPU in thousandths, else whole units. */
export interface Requirement {
  readonly resource: string;
  readonly amount: bigint;
}

export type Preemption = { readonly victims: readonly Pod[] } | { readonly problem: string };

/**
 * Pods that make room for a critical pod when they end: as few as will do, and of the better classes only what all of the
 * lesser ones cannot give.
 */
export function podsToPreempt(preemptor: Pod, pods: readonly Pod[], requirements: readonly Requirement[]): Preemption {
  const of = (qos: QosClass): Pod[] => pods.filter((pod) => isPreemptable(preemptor, pod) && qosClassOf(pod) === qos);
  const [bestEffort, burstable, guaranteed] = [of('BestEffort'), of('Burstable'), of('Guaranteed')];
  const missing = without(requirements, [...bestEffort, ...burstable, ...guaranteed]);
  if (missing.length > 0) return { problem: `no set of running pods found to reclaim resources: ${textOf(missing)}` };
  // All together suffice, so each of these does.
  const fromGuaranteed = nearest(guaranteed, without(requirements, [...bestEffort, ...burstable]));
  const fromBurstable = nearest(burstable, without(requirements, [...bestEffort, ...fromGuaranteed]));
  const fromBestEffort = nearest(bestEffort, without(requirements, [...fromBurstable, ...fromGuaranteed]));
  return { victims: [...fromBestEffort, ...fromBurstable, ...fromGuaranteed] };
}

function isPreemptable(preemptor: Pod, pod: Pod): boolean {
  if (isCritical(preemptor) && !isCritical(pod)) return true;
  const [own, other] = [preemptor.spec.priority, pod.spec.priority];
  return own !== undefined && other !== undefined && own > other;
}

/** What is still missing when these pods are gone. */
function without(requirements: readonly Requirement[], pods: readonly Pod[]): Requirement[] {
  return requirements
    .map(({ resource, amount }) => ({ resource, amount: pods.reduce((left, pod) => left - requestUnits(pod, resource), amount) }))
    .filter(({ amount }) => amount > 0n);
}

/** Again and again the pod that leaves the least open; of equals the one that asks for less. */
function nearest(pods: readonly Pod[], requirements: readonly Requirement[]): Pod[] {
  const left = [...pods];
  const chosen: Pod[] = [];
  let open = [...requirements];
  while (open.length > 0 && left.length > 0) {
    const best = left.reduce((so, pod) => {
      const [before, now] = [distance(so, open), distance(pod, open)];
      return now < before || (now === before && pod !== so && asksLess(pod, so)) ? pod : so;
    });
    open = without(open, [best]);
    chosen.push(best);
    left.splice(left.indexOf(best), 1);
  }
  return chosen;
}

/** Shares of what stays open, squared and summed, so that each resource weighs the same. */
function distance(pod: Pod, requirements: readonly Requirement[]): number {
  return requirements.reduce((sum, { resource, amount }) => {
    const open = Number(amount - requestUnits(pod, resource));
    return open > 0 ? sum + (open / Number(amount)) ** 2 : sum;
  }, 0);
}

function asksLess(left: Pod, right: Pod): boolean {
  for (const resource of ['memory', 'cpu']) {
    const [one, other] = [requestUnits(left, resource), requestUnits(right, resource)];
    if (one !== other) return one < other;
  }
  return true;
}

function textOf(requirements: readonly Requirement[]): string {
  return `[${requirements.map(({ resource, amount }) => `(res: ${resource}, q: ${amount}), `).join('')}]`;
}
