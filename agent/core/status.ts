import type { ContainerState, ContainerStatus, Pod, PodCondition, PodStatus } from '../../proto/kube/types.ts';
import { anyAppHere, isSidecar } from './containers.ts';
import { deadlineVerdict } from './phase.ts';
import { qosClassOf } from './qos.ts';
import type { PodCgroupValues } from './resize/moves.ts';
import { conditionsOf, stamp } from './status-conditions.ts';
import { containerStatuses } from './status-containers.ts';
import type { ContainerStatusInput } from './status-containers.ts';
import { isTerminalPhase, phaseOf } from './status-phase.ts';
import { podResourcesStatus } from './status-resources.ts';
import { timeText } from '../../base/time.ts';

/** An end that the node itself decides (deadline, eviction, rejection). */
export interface Verdict {
  readonly reason: string;
  readonly message: string;
  readonly condition?: { readonly type: string; readonly reason: string; readonly message: string };
}

export interface StatusInput extends ContainerStatusInput {
  /** Nothing of the pod runs, and nothing will. */
  readonly stopped: boolean;
  readonly verdict: Verdict | null;
  /** The node's addresses, primary first. */
  readonly hostIPs: readonly string[];
  readonly nowMs: number;
  /** What is told of a resize; of a pod that has ended nothing is. */
  readonly resizing?: readonly PodCondition[];
  /** The pod's cgroup as it is; null: not known. */
  readonly cgroup?: PodCgroupValues | null;
}

/** All the text of termination messages in one status together. */
const maxMessageBytes = 12 * 1024;

/**
 * The whole status as the API server should hold it, but for conditions that others own. `old` is what was told last,
 * or what the API server holds: times of conditions, the start time, what is known of lost containers come from there,
 * and no terminal phase is ever left.
 */
export function statusOf(input: StatusInput): PodStatus {
  const { pod, old, facts, nowMs } = input;
  const apps = containerStatuses(input, 'app');
  const init = containerStatuses(input, 'init');
  const ephemeral = containerStatuses(input, 'ephemeral');
  const phase = settledPhase(input, phaseOf(pod, [...apps, ...init], input.stopped, anyAppHere(pod.spec, facts)));
  const words = wordsOf(input, phase);
  const generation = pod.metadata.generation;
  const status: PodStatus = {
    ...(generation === undefined ? {} : { observedGeneration: Math.max(generation, old.observedGeneration ?? 0) }),
    phase,
    ...words,
    conditions: [...(input.stopped || isTerminalPhase(phase) ? [] : (input.resizing ?? [])), ...conditionsOf({ pod, old, facts, init, apps, phase, nowMs })],
    ...addresses(input),
    startTime: old.startTime ?? timeText(nowMs),
    qosClass: old.qosClass ?? pod.status?.qosClass ?? qosClassOf(pod),
    ...podResourcesStatus(pod, input.cgroup ?? null, old),
    ...(init.length === 0 ? {} : { initContainerStatuses: init }),
    containerStatuses: apps,
    ...(ephemeral.length === 0 ? {} : { ephemeralContainerStatuses: ephemeral }),
  };
  const condition = input.verdict?.condition ?? old.conditions?.find((each) => each.type === 'DisruptionTarget' && each.status === 'True');
  if (condition !== undefined && input.stopped) {
    status.conditions!.push(stamp(input, condition.type, { status: 'True', reason: condition.reason, message: condition.message }));
  }
  return bounded(status);
}

/**
 * The last status of a pod of which nothing is left: containers that never told their end are unknown, and the phase
 * is terminal whatever it was.
 */
export function lastStatus(pod: Pod, told: PodStatus): PodStatus {
  const unknown = {
    terminated: { reason: 'ContainerStatusUnknown', message: 'The container could not be located when the pod was terminated', exitCode: 137 },
  };
  const close = (status: ContainerStatus): ContainerStatus =>
    status.state?.terminated === undefined ? { ...status, ready: false, started: false, state: unknown } : status;
  const inits = told.initContainerStatuses ?? [];
  // At least the first one: it would have run next.
  const lastBegun = Math.max(
    0,
    inits.findLastIndex((status) => status.state?.waiting === undefined || status.lastState?.terminated !== undefined),
  );
  const initialized = wasInitialized(pod, told);
  return {
    ...told,
    phase: isTerminalPhase(told.phase) ? told.phase : 'Failed',
    ...(told.containerStatuses === undefined ? {} : { containerStatuses: initialized ? told.containerStatuses.map(close) : told.containerStatuses }),
    ...(told.initContainerStatuses === undefined ? {} : { initContainerStatuses: inits.map((status, index) => (index <= lastBegun ? close(status) : status)) }),
  };
}

/** Whether an app container can have run: one has, or the last init container is through. */
function wasInitialized(pod: Pod, told: PodStatus): boolean {
  const last = pod.spec.initContainers?.at(-1);
  if (last === undefined) return true;
  if (
    (told.containerStatuses ?? []).some(
      (status) => status.lastState?.terminated !== undefined || status.state?.running !== undefined || status.state?.terminated !== undefined,
    )
  )
    return true;
  const status = told.initContainerStatuses?.find((each) => each.name === last.name);
  if (isSidecar(last)) return status?.state?.running !== undefined && status.started === true;
  return status?.state?.terminated?.exitCode === 0 || status?.lastState?.terminated?.exitCode === 0;
}

/** The status of a pod that this node refuses to run. */
export function rejectedStatus(pod: Pod, verdict: Verdict, nowMs: number): PodStatus {
  const generation = pod.metadata.generation;
  return {
    ...(generation === undefined ? {} : { observedGeneration: generation }),
    phase: 'Failed',
    reason: verdict.reason,
    message: `Pod was rejected: ${verdict.message}`,
    startTime: pod.status?.startTime ?? timeText(nowMs),
    qosClass: pod.status?.qosClass ?? qosClassOf(pod),
  };
}

/** Succeeded and Failed are for ever; Pending never follows Running. */
function settledPhase(input: StatusInput, computed: string): string {
  const { pod, old } = input;
  if (isTerminalPhase(pod.status?.phase)) return pod.status!.phase!;
  if (isTerminalPhase(old.phase)) return old.phase!;
  // What the node ends and what ends well has succeeded, but for a deadline that has passed.
  if (input.verdict !== null) return computed === 'Succeeded' && input.verdict.reason !== deadlineVerdict.reason ? 'Succeeded' : 'Failed';
  return computed;
}

function wordsOf(input: StatusInput, phase: string): { reason?: string; message?: string } {
  const { pod, old, verdict } = input;
  if (verdict !== null) return phase === 'Succeeded' ? {} : { reason: verdict.reason, message: verdict.message };
  if (phase !== old.phase) return {};
  const reason = old.reason ?? pod.status?.reason;
  const message = old.message ?? pod.status?.message;
  return { ...(reason === undefined || reason === '' ? {} : { reason }), ...(message === undefined || message === '' ? {} : { message }) };
}

function addresses(input: StatusInput): Pick<PodStatus, 'hostIP' | 'hostIPs' | 'podIP' | 'podIPs'> {
  const { pod, old, facts, hostIPs } = input;
  const result: Pick<PodStatus, 'hostIP' | 'hostIPs' | 'podIP' | 'podIPs'> = {};
  const [primary] = hostIPs;
  if (primary !== undefined) {
    result.hostIP = primary;
    result.hostIPs = hostIPs.slice(0, 2).map((ip) => ({ ip }));
  }
  const sandbox = facts.sandboxes[0];
  let ips = sandbox?.ready === true ? orderLike(hostIPs, sandbox.ips) : [];
  // An ended pod keeps the addresses it had: what is told of it after its end is where it was.
  if ((input.stopped || isTerminalPhase(old.phase)) && ips.length === 0) ips = (old.podIPs ?? []).map((each) => each.ip ?? '').filter((ip) => ip !== '');
  if (pod.spec.hostNetwork === true) ips = (old.podIPs ?? []).length > 0 ? old.podIPs!.map((each) => each.ip ?? '') : [...hostIPs].slice(0, 2);
  if (ips.length > 0) {
    result.podIP = ips[0]!;
    result.podIPs = ips.map((ip) => ({ ip }));
  }
  return result;
}

/** The addresses a pod is reached at: the sandbox's, or the node's for a pod on the host's network. */
export function podIPsOf(pod: Pod, sandboxIPs: readonly string[], hostIPs: readonly string[]): string[] {
  return pod.spec.hostNetwork === true ? hostIPs.slice(0, 2) : orderLike(hostIPs, sandboxIPs);
}

/** At most one address of each family; the family of the node's primary address goes first. */
export function orderLike(hostIPs: readonly string[], ips: readonly string[]): string[] {
  const isSix = (ip: string): boolean => ip.includes(':');
  const four = ips.find((ip) => !isSix(ip));
  const six = ips.find(isSix);
  const sixFirst = hostIPs[0] !== undefined && isSix(hostIPs[0]);
  return (sixFirst ? [six, four] : [four, six]).filter((ip) => ip !== undefined);
}

function bounded(status: PodStatus): PodStatus {
  const lists = [status.initContainerStatuses, status.containerStatuses, status.ephemeralContainerStatuses];
  const count = lists.reduce((sum, list) => sum + (list?.length ?? 0), 0);
  const limit = Math.floor(maxMessageBytes / Math.max(1, count));
  const cut = (state: ContainerState | undefined): ContainerState | undefined => {
    const message = state?.terminated?.message;
    return state?.terminated === undefined || message === undefined || message.length <= limit
      ? state
      : { ...state, terminated: { ...state.terminated, message: message.slice(0, limit) } };
  };
  const shorter = (list: ContainerStatus[]): ContainerStatus[] => list.map((each) => ({ ...each, state: cut(each.state), lastState: cut(each.lastState) }));
  const [init, apps, ephemeral] = lists;
  return {
    ...status,
    ...(init === undefined ? {} : { initContainerStatuses: shorter(init) }),
    ...(apps === undefined ? {} : { containerStatuses: shorter(apps) }),
    ...(ephemeral === undefined ? {} : { ephemeralContainerStatuses: shorter(ephemeral) }),
  };
}
