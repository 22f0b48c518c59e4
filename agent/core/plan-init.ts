import type { Container, Pod } from '../../proto/kube/types.ts';
import { activeOf, anyAppHere, initFailed, isSidecar, latestOf, restartsAfter, shouldStart } from './containers.ts';
import { containerHash } from './hash.ts';
import { killOne } from './plan-kill.ts';
import { planContainer } from './resize/plan.ts';
import type { Intent, PlanInput } from './plan-input.ts';
import type { ContainerFacts, PodFacts } from './types.ts';

/**
 * What init containers and sidecars need; true when the app containers may run.
 *
 * Looked at from the last to the first, because the runtime may have lost the finished ones: the newest trace of
 * progress tells how far the pod is. Only containers of the sandbox in use count, or a lost sandbox would let the
 * app start before its init containers have run again.
 */
export function planInit(input: PlanInput, intent: Intent): boolean {
  const { pod, facts } = input;
  const inits = pod.spec.initContainers ?? [];
  if (inits.length === 0) return true;
  const order = new Set<number>();
  let initialized = anyAppHere(pod.spec, facts);
  let laterHasRun = initialized;
  for (let index = inits.length - 1; index >= 0; index -= 1) {
    const container = inits[index]!;
    const active = initTrace(pod, facts, container);
    if (active === undefined) {
      if (laterHasRun && isSidecar(container)) order.add(index);
      continue;
    }
    if (laterHasRun && !isSidecar(container)) continue;
    const step = isSidecar(container) ? sidecarStep(input, intent, container, active) : initStep(input, intent, container, active);
    if (step === 'pod-failed') {
      intent.start.length = 0;
      intent.killPod = true;
      return false;
    }
    if (step.again) order.add(index);
    if (step.done && index === inits.length - 1) initialized = true;
    else if (step.done && !laterHasRun) order.add(index + 1);
    laterHasRun = true;
  }
  if (!laterHasRun) order.add(0);
  for (const index of [...order].toSorted((left, right) => left - right)) intent.start.push(inits[index]!);
  return initialized;
}

/** A pod that runs once does not run a finished init container again in a second sandbox. */
export function initTrace(pod: Pod, facts: PodFacts, container: Container): ContainerFacts | undefined {
  const active = activeOf(facts, container.name);
  if (active !== undefined || isSidecar(container)) return active;
  return finishedOnce(pod, facts, container) ? latestOf(facts, container.name) : undefined;
}

export function finishedOnce(pod: Pod, facts: PodFacts, container: Container): boolean {
  if (pod.spec.restartPolicy !== 'Never' || isSidecar(container)) return false;
  const latest = latestOf(facts, container.name);
  return latest !== undefined && latest.state === 'exited' && !initFailed(latest);
}

/** `again`: start this one (after its kill, if any); `done`: the next may start. */
interface InitStep {
  readonly again: boolean;
  readonly done: boolean;
}

const wait: InitStep = { again: false, done: false };

function initStep(input: PlanInput, intent: Intent, container: Container, active: ContainerFacts): InitStep | 'pod-failed' {
  const { pod, facts } = input;
  switch (active.state) {
    case 'running':
      // The API server lets no init container ask to be restarted for it.
      planContainer(pod, container, active, input.actuated, intent.resize);
      return wait;
    case 'created':
      // Created and started are one step of ours, so a start must have failed or been lost.
      return { again: true, done: false };
    case 'exited':
      if (!initFailed(active)) return { again: false, done: true };
      return shouldStart(container, pod, facts) && initRestarts(pod, container, active) ? { again: true, done: false } : 'pod-failed';
    case 'unknown': {
      if ((container.restartPolicy ?? pod.spec.restartPolicy) === 'Never') return 'pod-failed';
      intent.kill.push({
        container,
        facts: active,
        step: killOne(pod, container, active, 'unknown', 'Init container is in "unknown" state, try killing it before restart'),
      });
      return { again: true, done: false };
    }
  }
}

/** Out of memory with exit code 0 is a failure, which the restart rules for exit codes would not see. */
function initRestarts(pod: Pod, container: Container, active: ContainerFacts): boolean {
  return restartsAfter(container, pod.spec, active.exitCode);
}

function sidecarStep(input: PlanInput, intent: Intent, container: Container, active: ContainerFacts): InitStep {
  const { pod, probes } = input;
  const results = probes[container.name]?.containerId === active.id ? probes[container.name] : undefined;
  const kill = (reason: 'startup' | 'liveness' | 'changed' | 'unknown' | 'resize', message: string): void => {
    intent.kill.push({ container, facts: active, step: killOne(pod, container, active, reason, message) });
  };
  switch (active.state) {
    case 'created':
    case 'exited':
      return { again: true, done: false };
    case 'unknown':
      kill('unknown', 'Init container is in "unknown" state, try killing it before restart');
      return { again: true, done: false };
    case 'running':
      break;
  }
  if (container.startupProbe !== undefined && results?.startup !== 'success') {
    if (results?.startup !== 'failure') return wait;
    kill('startup', `Init container ${container.name} failed startup probe`);
    return { again: true, done: false };
  }
  if (active.hash !== '' && active.hash !== containerHash(container)) {
    kill('changed', `Init container ${container.name} definition changed`);
    return { again: true, done: true };
  }
  // A sidecar that fails its liveness has still started: the next container does not wait for its restart.
  if (results?.liveness === 'failure') {
    kill('liveness', `Init container ${container.name} failed liveness probe`);
    return { again: true, done: true };
  }
  if (planContainer(pod, container, active, input.actuated, intent.resize) === 'restart') {
    kill('resize', `Container ${container.name} resize requires restart`);
    return { again: true, done: true };
  }
  return { again: false, done: true };
}
