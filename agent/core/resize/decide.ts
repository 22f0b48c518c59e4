import type { Pod } from '../../../proto/kube/types.ts';
import { memoryOf, milliCpuOf, podRequests, qosClassOfStatus } from '../qos.ts';
import { milliValueOf, valueOf } from '../quantity.ts';
import type { Verdict } from '../status.ts';
import { maySwap } from '../swap.ts';
import { resizable } from './amounts.ts';
import type { PendingReason } from './conditions.ts';

export interface ResizeInput {
  /** What is asked for. */
  readonly desired: Pod;
  /** What it has. */
  readonly allocated: Pod;
  /** Whether containers of this node may swap; a resize of their memory would need their share reckoned anew. */
  readonly swaps: boolean;
  /** What admission says of the pod at its new size. */
  readonly admission: Verdict | null;
  /** Whether CPU or memory are given for good (static policies): what was given to a Guaranteed pod stays as it is. */
  readonly statics?: { readonly cpu: boolean; readonly memory: boolean };
}

export interface Refusal {
  readonly reason: PendingReason;
  readonly message: string;
  /** The same as one of few words, for metrics. */
  readonly detail: string;
}

/** Null: the node has room, and the resize may be put into effect. */
export function refusal(input: ResizeInput): Refusal | null {
  if (input.swaps && resizesSwappable(input))
    return { reason: 'Infeasible', message: 'In-place resize of containers with swap is not supported.', detail: 'swap_limitation' };
  if (qosClassOfStatus(input.desired) === 'Guaranteed') {
    const held =
      input.statics?.cpu === true && changes(input, 'cpu')
        ? 'CPU Manager policy "static"'
        : input.statics?.memory === true && changes(input, 'memory')
          ? 'Memory Manager policy "Static"'
          : null;
    if (held !== null) {
      const detail = `guaranteed_pod_${held.startsWith('CPU') ? 'cpu' : 'memory'}_manager_static_policy`;
      return { reason: 'Infeasible', message: `Resize is infeasible for Guaranteed Pods alongside ${held}`, detail };
    }
  }
  // Whatever stands against it now may go away; what never can is refused by the API server.
  return input.admission === null ? null : { reason: 'Deferred', message: input.admission.message, detail: '' };
}

function changes({ desired, allocated }: ResizeInput, name: 'cpu' | 'memory'): boolean {
  return resizable(desired).some((container) => {
    const before = resizable(allocated).find((each) => each.name === container.name);
    return milliValueOf(container.resources?.requests?.[name]) !== milliValueOf(before?.resources?.requests?.[name]);
  });
}

function resizesSwappable({ desired, allocated }: ResizeInput): boolean {
  return resizable(desired).some((container) => {
    const before = resizable(allocated).find((each) => each.name === container.name);
    if (before === undefined || !(maySwap(desired, container) || maySwap(allocated, before))) return false;
    const asked = valueOf(container.resources?.requests?.['memory']);
    const had = valueOf(before.resources?.requests?.['memory']);
    const restarts = container.resizePolicy?.find((policy) => policy.resourceName === 'memory')?.restartPolicy === 'RestartContainer';
    return asked !== had && !restarts;
  });
}

/** A resize that waits for its turn. */
export interface Waiting {
  readonly desired: Pod;
  readonly allocated: Pod;
  /** Since when it has waited, wall clock; null: it is new. */
  readonly sinceMs: number | null;
}

/** The order in which waiting resizes are tried: those that free something, then by priority, class and patience. */
export function compareWaiting(left: Waiting, right: Waiting): number {
  return (
    Number(grows(left)) - Number(grows(right)) ||
    (right.desired.spec.priority ?? 0) - (left.desired.spec.priority ?? 0) ||
    Number(isGuaranteed(right)) - Number(isGuaranteed(left)) ||
    (left.sinceMs ?? Number.MAX_SAFE_INTEGER) - (right.sinceMs ?? Number.MAX_SAFE_INTEGER)
  );
}

function grows({ desired, allocated }: Waiting): boolean {
  const [next, had] = [podRequests(desired), podRequests(allocated)];
  return milliCpuOf(next) > milliCpuOf(had) || memoryOf(next) > memoryOf(had);
}

function isGuaranteed({ desired }: Waiting): boolean {
  return qosClassOfStatus(desired) === 'Guaranteed';
}
