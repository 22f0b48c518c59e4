import type { Container, Pod, ResourceRequirements } from '../../../proto/kube/types.ts';
import { maxQuantity, formatQuantity, parseQuantity } from '../quantity.ts';
import { resizable, sameRequirements } from './amounts.ts';

/** What a pod has been given, or what has been put into effect for it. */
export interface PodAllocation {
  /** By container name. */
  readonly containers: ReadonlyMap<string, ResourceRequirements>;
  /** Pod-level resources; null: the pod has none. */
  readonly pod: ResourceRequirements | null;
}

/** What the pod asks for now. */
export function allocationOf(pod: Pod): PodAllocation {
  return {
    containers: new Map(resizable(pod).map((container) => [container.name, container.resources ?? {}])),
    pod: pod.spec.resources ?? null,
  };
}

/** The pod as it was allocated: its spec with the resources it has been given. The same object when that is what it asks for. */
export function withAllocation(pod: Pod, allocation: PodAllocation): Pod {
  const differs = (container: Container): boolean => {
    const given = allocation.containers.get(container.name);
    return given !== undefined && !sameRequirements(container.resources, given);
  };
  const samePod = sameRequirements(pod.spec.resources, allocation.pod) && (pod.spec.resources === undefined) === (allocation.pod === null);
  if (samePod && !resizable(pod).some(differs)) return pod;
  const given = (container: Container): Container => (differs(container) ? { ...container, resources: allocation.containers.get(container.name)! } : container);
  const { resources: _, ...spec } = pod.spec;
  return {
    ...pod,
    spec: {
      ...spec,
      containers: spec.containers.map(given),
      ...(spec.initContainers === undefined ? {} : { initContainers: spec.initContainers.map(given) }),
      ...(allocation.pod === null ? {} : { resources: allocation.pod }),
    },
  };
}

/**
 * The pod as others must reckon with it: while a resize to less is under way its containers still hold what they had.
 * Like upstream's view of a pod by its status.
 */
export function heldPod(allocated: Pod, actuated: PodAllocation | undefined): Pod {
  if (actuated === undefined) return allocated;
  const raise = (own: ResourceRequirements | undefined, other: ResourceRequirements | null | undefined): ResourceRequirements | undefined => {
    const requests = { ...own?.requests };
    let raised = false;
    for (const name of ['cpu', 'memory']) {
      const [asked, held] = [requests[name], other?.requests?.[name]];
      if (asked === undefined || held === undefined || asked === held) continue;
      const most = maxQuantity(parseQuantity(asked), parseQuantity(held));
      if (most.nano === parseQuantity(asked).nano) continue;
      requests[name] = formatQuantity(most);
      raised = true;
    }
    return raised ? { ...own, requests } : own;
  };
  const held = (container: Container): Container => {
    const resources = raise(container.resources, actuated.containers.get(container.name));
    return resources === container.resources ? container : { ...container, resources: resources! };
  };
  const ofPod = raise(allocated.spec.resources, actuated.pod);
  return {
    ...allocated,
    spec: {
      ...allocated.spec,
      containers: allocated.spec.containers.map(held),
      ...(allocated.spec.initContainers === undefined ? {} : { initContainers: allocated.spec.initContainers.map(held) }),
      ...(ofPod === undefined ? {} : { resources: ofPod }),
    },
  };
}
