import type { Pod } from '../../../proto/kube/types.ts';
import { milliValueOf } from '../quantity.ts';
import { resizable } from './amounts.ts';

/** One change of one amount of one container, as upstream counts them. */
export interface ResizeOperation {
  readonly resource: 'cpu' | 'memory';
  readonly requirement: 'requests' | 'limits';
  readonly operation: 'add' | 'remove' | 'increase' | 'decrease';
}

export function resizeOperations(old: Pod, next: Pod): ResizeOperation[] {
  const found: ResizeOperation[] = [];
  for (const container of resizable(next)) {
    const before = resizable(old).find((each) => each.name === container.name);
    if (before === undefined) continue;
    for (const resource of ['memory', 'cpu'] as const) {
      for (const requirement of ['requests', 'limits'] as const) {
        const had = milliValueOf(before.resources?.[requirement]?.[resource]);
        const has = milliValueOf(container.resources?.[requirement]?.[resource]);
        if (had === has) continue;
        found.push({ resource, requirement, operation: had === 0n ? 'add' : has === 0n ? 'remove' : has > had ? 'increase' : 'decrease' });
      }
    }
  }
  return found;
}

const systemCritical = 2_000_000_000;

/** The few classes that priorities are counted by. */
export function priorityBucket(pod: Pod | undefined): string {
  if (pod === undefined) return 'unknown';
  const priority = pod.spec.priority ?? 0;
  if (priority === 0) return 'normal';
  if (priority >= systemCritical) return 'system-critical';
  if (priority >= 100_000) return 'high';
  if (priority > 0) return 'medium';
  return priority > -1_000 ? 'low' : 'very-low';
}
