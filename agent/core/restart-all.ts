import type { Pod, PodStatus } from '../../proto/kube/types.ts';
import { findContainer, latestOf, matchingRule, oldestFirst } from './containers.ts';
import { killOne } from './plan-kill.ts';
import type { Step } from './step.ts';
import type { ContainerFacts, PodFacts } from './types.ts';

/** KEP-5532: a container whose exit matches a rule makes the whole pod start over, in the same sandbox. */

export const restartingAll = 'RestartingAllContainers';

/** Whether any rule of the pod asks for it; only then is there a condition of that name. */
export function canRestartAll(pod: Pod): boolean {
  return [...(pod.spec.initContainers ?? []), ...pod.spec.containers].some((container) =>
    (container.restartPolicyRules ?? []).some((rule) => rule.action === 'RestartAllContainers'),
  );
}

/** Whether the pod is on its way back to the start: told so before, or by the exit of one of its containers. */
export function restartsAll(pod: Pod, facts: PodFacts, old: PodStatus): boolean {
  if (!canRestartAll(pod)) return false;
  if (old.conditions?.some((condition) => condition.type === 'AllContainersRestarting' && condition.status === 'True') === true) return true;
  return [...(pod.spec.initContainers ?? []), ...pod.spec.containers].some((container) => {
    const latest = latestOf(facts, container.name);
    return latest !== undefined && isTrigger(pod, latest);
  });
}

/** Nothing of the old round is left in the runtime. */
export function allRemoved(pod: Pod, facts: PodFacts): boolean {
  return [...(pod.spec.initContainers ?? []), ...pod.spec.containers].every((container) => latestOf(facts, container.name) === undefined);
}

/** Stops and removes every container, the ones that asked for it last: they are what the next look recognizes it by. */
export function planReset(pod: Pod, facts: PodFacts): Step[] {
  const own = oldestFirst(facts).filter((each) => {
    const kind = findContainer(pod.spec, each.name)?.kind;
    return kind !== undefined && kind !== 'ephemeral';
  });
  const alive = own.filter((each) => each.state === 'running' || each.state === 'unknown');
  const kills = alive.map((each) => ({
    ...killOne(pod, findContainer(pod.spec, each.name)!.container, each, 'restart-all', 'killing'),
    graceSeconds: 0,
    preStop: false,
  }));
  const order = [...own.filter((each) => !isTrigger(pod, each)), ...own.filter((each) => isTrigger(pod, each))];
  return [
    ...(kills.length === 0 ? [] : [{ kind: 'kill' as const, kills }]),
    ...order.map((each): Step => ({ kind: 'remove-container', containerId: each.id, name: each.name, keepLogs: true })),
  ];
}

function isTrigger(pod: Pod, facts: ContainerFacts): boolean {
  const container = findContainer(pod.spec, facts.name)?.container;
  return container !== undefined && facts.state === 'exited' && matchingRule(container, facts.exitCode)?.action === 'RestartAllContainers';
}
