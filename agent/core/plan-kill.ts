import type { Container, Pod } from '../../proto/kube/types.ts';
import { findContainer, isSidecar } from './containers.ts';
import type { Kill, KillReason } from './step.ts';
import type { ContainerFacts, PodFacts } from './types.ts';

/** Smaller graces are raised to this, so that a process always gets a moment to react. */
export const minGraceSeconds = 2;

/** The kill of one container of a pod that goes on. */
export function killOne(pod: Pod, container: Container, facts: ContainerFacts, reason: KillReason, message: string): Kill {
  return {
    containerId: facts.id,
    name: container.name,
    graceSeconds: graceSecondsOf(pod, container, reason),
    after: [],
    preStop: facts.state === 'running' && container.lifecycle?.preStop !== undefined,
    message,
  };
}

/**
 * The kills that end a pod: app and init containers at once, sidecars after all app containers and in reverse order
 * (KEP-753). Containers that never ran have nobody wait for them.
 */
export function killAll(pod: Pod, facts: PodFacts, graceOverrideSeconds?: number): Kill[] {
  const alive = facts.containers.filter((container) => container.state === 'running' || container.state === 'unknown');
  const aliveNames = new Set(alive.map((container) => container.name));
  const apps = pod.spec.containers.map((container) => container.name).filter((name) => aliveNames.has(name));
  const sidecars = (pod.spec.initContainers ?? [])
    .filter((container) => isSidecar(container) && aliveNames.has(container.name))
    .map((container) => container.name);
  return alive.map((container): Kill => {
    const spec = findContainer(pod.spec, container.name)?.container ?? { name: container.name };
    const place = sidecars.indexOf(container.name);
    const next = place >= 0 ? sidecars[place + 1] : undefined;
    return {
      ...killOne(pod, spec, container, 'pod', `Stopping container ${container.name}`),
      graceSeconds: graceOverrideSeconds ?? graceSecondsOf(pod, spec, 'pod'),
      after: place < 0 ? [] : [...apps, ...(next === undefined ? [] : [next])],
    };
  });
}

/** A delete's own grace wins, then that of the probe that kills, then the pod's. */
export function graceSecondsOf(pod: Pod, container: Container, reason: KillReason): number {
  if (pod.metadata.deletionGracePeriodSeconds !== undefined) return pod.metadata.deletionGracePeriodSeconds;
  const ofPod = pod.spec.terminationGracePeriodSeconds;
  if (ofPod === undefined) return minGraceSeconds;
  const probe = reason === 'startup' ? container.startupProbe : reason === 'liveness' ? container.livenessProbe : undefined;
  return probe?.terminationGracePeriodSeconds ?? ofPod;
}
