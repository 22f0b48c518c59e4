import type { ContainerStatus, Pod, PodCondition, PodStatus } from '../../proto/kube/types.ts';
import { isSidecar, sandboxNeed } from './containers.ts';
import { allRemoved, canRestartAll, restartsAll } from './restart-all.ts';
import { timeText } from '../../base/time.ts';
import type { PodFacts } from './types.ts';

/** Conditions that a kubelet owns; what else stands in the list belongs to others and is never written. */
export const ownConditions: ReadonlySet<string> = new Set([
  'PodReadyToStartContainers',
  'Initialized',
  'Ready',
  'ContainersReady',
  'PodScheduled',
  'PodResizePending',
  'PodResizeInProgress',
  'AllContainersRestarting',
]);

export interface ConditionInput {
  readonly pod: Pod;
  readonly old: PodStatus;
  readonly facts: PodFacts;
  readonly init: readonly ContainerStatus[];
  readonly apps: readonly ContainerStatus[];
  readonly phase: string;
  readonly nowMs: number;
}

type Verdict = Pick<PodCondition, 'status' | 'reason' | 'message'>;

const yes: Verdict = { status: 'True' };

export function conditionsOf(input: ConditionInput): PodCondition[] {
  const containersReady = containersReadyVerdict(input);
  return [
    stamp(input, 'PodReadyToStartContainers', sandboxVerdict(input)),
    stamp(input, 'Initialized', initializedVerdict(input)),
    stamp(input, 'Ready', containersReady.status === 'True' ? gatesVerdict(input.pod) : containersReady),
    stamp(input, 'ContainersReady', containersReady),
    stamp(input, 'PodScheduled', yes),
    ...(canRestartAll(input.pod) ? [stamp(input, 'AllContainersRestarting', restartingVerdict(input))] : []),
  ];
}

/** Keeps the time of the last change of `status`. */
export function stamp(input: Pick<ConditionInput, 'pod' | 'old' | 'nowMs'>, type: string, verdict: Verdict): PodCondition {
  const before = input.old.conditions?.find((condition) => condition.type === type);
  const same = before !== undefined && before.status === verdict.status && before.lastTransitionTime !== undefined;
  const generation = input.pod.metadata.generation;
  return {
    type,
    ...verdict,
    ...(generation === undefined ? {} : { observedGeneration: generation }),
    lastTransitionTime: same ? before.lastTransitionTime : timeText(input.nowMs),
  };
}

function sandboxVerdict(input: ConditionInput): Verdict {
  const need = sandboxNeed(input.pod, input.facts);
  return need === undefined ? yes : { status: 'False', reason: 'PodSandboxNotReady', message: need.message };
}

function initializedVerdict(input: ConditionInput): Verdict {
  const { pod, init, apps, phase } = input;
  const unknown: string[] = [];
  const incomplete: string[] = [];
  for (const container of pod.spec.initContainers ?? []) {
    const status = init.find((each) => each.name === container.name);
    if (status === undefined) unknown.push(container.name);
    else if (isSidecar(container) ? status.started !== true : !status.ready) incomplete.push(container.name);
  }
  if (phase === 'Succeeded' && unknown.length === 0) return { status: 'True', reason: 'PodCompleted' };
  // A pod that was initialized stays so while a sidecar of it restarts.
  if (apps.some((status) => status.state?.running !== undefined || status.state?.terminated !== undefined)) return yes;
  const message = listed(unknown, incomplete, 'incomplete');
  if (message === '') return yes;
  // Once initialized a pod stays so: its init containers may be at work again after it was started over.
  if (input.old.conditions?.some((condition) => condition.type === 'Initialized' && condition.status === 'True') === true) return yes;
  return { status: 'False', reason: 'ContainersNotInitialized', message };
}

function restartingVerdict(input: ConditionInput): Verdict {
  const { pod, facts, old, phase } = input;
  if (phase === 'Succeeded') return { status: 'False', reason: 'PodCompleted' };
  if (phase === 'Failed') return { status: 'False', reason: 'PodFailed' };
  if (!restartsAll(pod, facts, old) || allRemoved(pod, facts)) return { status: 'False' };
  return { status: 'True', reason: 'RestartAllContainersStarted', message: 'container exited with restart policy rule' };
}

function containersReadyVerdict(input: ConditionInput): Verdict {
  const { pod, init, apps, phase } = input;
  const unknown: string[] = [];
  const unready: string[] = [];
  const look = (name: string, statuses: readonly ContainerStatus[]): void => {
    const status = statuses.find((each) => each.name === name);
    if (status === undefined) unknown.push(name);
    else if (!status.ready) unready.push(name);
  };
  for (const container of pod.spec.initContainers ?? []) if (isSidecar(container)) look(container.name, init);
  for (const container of pod.spec.containers) look(container.name, apps);
  if (phase === 'Succeeded' && unknown.length === 0) return { status: 'False', reason: 'PodCompleted' };
  if (phase === 'Failed') return { status: 'False', reason: 'PodFailed' };
  const message = listed(unknown, unready, 'unready');
  return message === '' ? yes : { status: 'False', reason: 'ContainersNotReady', message };
}

/** Readiness gates are conditions of others, read from the object as the API server holds it: KEP-580. */
function gatesVerdict(pod: Pod): Verdict {
  const problems: string[] = [];
  for (const gate of pod.spec.readinessGates ?? []) {
    const condition = pod.status?.conditions?.find((each) => each.type === gate.conditionType);
    if (condition === undefined) problems.push(`corresponding condition of pod readiness gate "${gate.conditionType}" does not exist.`);
    else if (condition.status !== 'True') problems.push(`the status of pod readiness gate "${gate.conditionType}" is not "True", but ${condition.status}`);
  }
  return problems.length === 0 ? yes : { status: 'False', reason: 'ReadinessGatesNotReady', message: problems.join(', ') };
}

function listed(unknown: readonly string[], others: readonly string[], word: string): string {
  const parts: string[] = [];
  if (unknown.length > 0) parts.push(`containers with unknown status: [${unknown.join(' ')}]`);
  if (others.length > 0) parts.push(`containers with ${word} status: [${others.join(' ')}]`);
  return parts.join(', ');
}
