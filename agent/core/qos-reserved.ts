import type { Pod } from '../../proto/kube/types.ts';
import { memoryOf, podRequests, qosClassOfStatus } from './qos.ts';

/**
 * `qosReserved` (alpha gate QOSReserved): of what better classes of pods ask for, so many percent of memory are kept
 * from the classes below. Null: nothing is; a text is what is wrong with it.
 */
export function readQosReserved(reserved: Readonly<Record<string, string>>): { percent: bigint } | string | null {
  for (const name of Object.keys(reserved)) if (name !== 'memory') return `qosReserved: cannot reserve ${JSON.stringify(name)} resource`;
  const text = reserved['memory'];
  if (text === undefined) return null;
  const found = /^(\d{1,3})%$/.exec(text);
  if (found === null || Number(found[1]) > 100) return `qosReserved: failed to parse percentage ${JSON.stringify(text)} for "memory" resource`;
  return { percent: BigInt(found[1] ?? 0) };
}

/** The most that Burstable and BestEffort pods together may use, and BestEffort pods alone. */
export function qosMemoryLimits(pods: readonly Pod[], allocatableBytes: bigint, percent: bigint): { burstable: bigint; bestEffort: bigint } {
  const asked = (qos: string): bigint => pods.filter((pod) => qosClassOfStatus(pod) === qos).reduce((sum, pod) => sum + (memoryOf(podRequests(pod)) ?? 0n), 0n);
  const burstable = allocatableBytes - (asked('Guaranteed') * percent) / 100n;
  return { burstable, bestEffort: burstable - (asked('Burstable') * percent) / 100n };
}
