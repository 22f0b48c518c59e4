import type {
  Container,
  ContainerState,
  ContainerStateTerminated,
  ContainerStatus,
  ContainerUser,
  Pod,
  PodStatus,
  VolumeMountStatus,
} from '../../proto/kube/types.ts';
import { anyAppCreated, isSidecar, latestOf, shouldStart } from './containers.ts';
import type { PodAllocation } from './resize/allocation.ts';
import { restartingAll, restartsAll } from './restart-all.ts';
import { containerResourcesStatus } from './status-resources.ts';
import { timeMs, timeText } from '../../base/time.ts';
import type { ContainerFacts, PodFacts, ProbeResults } from './types.ts';

/** Why containers could not be started, by name: the words of their waiting state. */
export type Waiting = Readonly<Record<string, { readonly reason: string; readonly message: string } | undefined>>;

export interface ContainerStatusInput {
  readonly pod: Pod;
  readonly old: PodStatus;
  readonly facts: PodFacts;
  readonly probes: ProbeResults;
  readonly waiting: Waiting;
  /** As in `containerd://…`. */
  readonly runtimeName: string;
  /** Whether the runtime can make mounts read-only with everything below them. */
  readonly recursiveReadOnly: boolean;
  /** `ImageVolumeWithDigest`: which image an image volume is (KEP-4639). */
  readonly imageDigests?: boolean;
  /** `ContainerStopSignals`: by what each container is asked to end (KEP-4960). */
  readonly stopSignals?: boolean;
  /** What has been put into effect, for runtimes that do not report it. */
  readonly actuated?: PodAllocation | undefined;
}

const lostMessage = 'The container could not be located when the pod was deleted.  The container used to be Running';
const unlocatedMessage = 'The container could not be located when the pod was terminated';
const removedMessage = 'The container is removed because RestartAllContainers in place';
const initLostMessage = 'Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally';

export type StatusList = 'app' | 'init' | 'ephemeral';

/** The statuses of one of the three lists: init in the order of the spec, the others by name. */
export function containerStatuses(input: ContainerStatusInput, list: StatusList): ContainerStatus[] {
  const { spec } = input.pod;
  const containers: readonly Container[] = (list === 'app' ? spec.containers : list === 'init' ? spec.initContainers : spec.ephemeralContainers) ?? [];
  const before =
    (list === 'app' ? input.old.containerStatuses : list === 'init' ? input.old.initContainerStatuses : input.old.ephemeralContainerStatuses) ?? [];
  const statuses = containers.map((container) =>
    oneStatus(
      input,
      list,
      container,
      before.find((status) => status.name === container.name),
    ),
  );
  return list === 'init' ? statuses : statuses.toSorted((left, right) => (left.name < right.name ? -1 : left.name > right.name ? 1 : 0));
}

function oneStatus(input: ContainerStatusInput, list: StatusList, container: Container, old: ContainerStatus | undefined): ContainerStatus {
  const runs = input.facts.containers.filter((each) => each.name === container.name);
  const newest = runs[0];
  // One that was made and never started is no run before this one.
  const previous = runs.slice(1).find(({ state }) => state !== 'created');
  let status: ContainerStatus;
  if (newest === undefined) status = lostOrWaiting(input, container, old);
  else {
    status = seen(input, container, newest, old);
    const last = previous === undefined ? undefined : seen(input, container, previous, old).state;
    // Of one whose state is not known there may be nothing to tell, and what was told last stays.
    if (last !== undefined && (previous?.state !== 'unknown' || last.terminated !== undefined)) status.lastState = last;
  }
  status = withWaitingReason(input, list, container, status);
  return withProbes(input, list, container, status, old);
}

/** Nothing in the runtime: not yet started, or it was there once and is lost. */
function lostOrWaiting(input: ContainerStatusInput, container: Container, old: ContainerStatus | undefined): ContainerStatus {
  const hasInit = (input.pod.spec.initContainers ?? []).length > 0;
  const base: ContainerStatus = {
    name: container.name,
    image: container.image ?? '',
    imageID: '',
    ready: false,
    restartCount: old?.restartCount ?? 0,
    state: { waiting: { reason: hasInit ? 'PodInitializing' : 'ContainerCreating' } },
    lastState: old?.lastState ?? {},
    ...mounts(input, container),
  };
  if (old?.state !== undefined && old.state.waiting === undefined && restartsAll(input.pod, input.facts, input.old)) {
    const words = { reason: restartingAll, message: removedMessage };
    return { ...base, state: { waiting: words }, lastState: { terminated: { ...words, exitCode: 137 } }, restartCount: base.restartCount + 1 };
  }
  if (old?.state?.terminated !== undefined) return { ...old };
  if (old?.state?.running === undefined || old.lastState?.terminated !== undefined) return base;
  // It ran and vanished: a lost run counts as a failed one, or a run-once pod could run twice.
  return {
    ...base,
    lastState: { terminated: { reason: 'ContainerStatusUnknown', message: lostMessage, exitCode: 137 } },
    restartCount: input.pod.metadata.deletionTimestamp === undefined ? base.restartCount + 1 : base.restartCount,
  };
}

function seen(input: ContainerStatusInput, container: Container, facts: ContainerFacts, old: ContainerStatus | undefined): ContainerStatus {
  const containerID = `${input.runtimeName}://${facts.id}`;
  const status: ContainerStatus = {
    name: container.name,
    image: facts.image,
    imageID: facts.imageRef,
    containerID,
    ready: false,
    restartCount: Math.max(facts.attempt, (old?.restartCount ?? 0) + (follows(facts, containerID, old) ? 1 : 0)),
    state: stateOf(facts, containerID),
    lastState: {},
    ...withDigests(input, facts, old?.volumeMounts === undefined ? mounts(input, container) : { volumeMounts: old.volumeMounts }),
    resources: containerResourcesStatus(container, facts, input.actuated?.containers.get(container.name), old?.containerID === containerID ? old : undefined),
    ...(container.resources?.requests === undefined ? {} : { allocatedResources: container.resources.requests }),
    ...userOf(facts),
    ...(input.stopSignals === true && facts.stopSignal !== undefined ? { stopSignal: facts.stopSignal } : {}),
  };
  if (old !== undefined && old.containerID !== containerID && old.state?.terminated !== undefined && old.restartCount < status.restartCount)
    status.lastState = { terminated: old.state.terminated };
  else if (old?.lastState?.terminated !== undefined) status.lastState = old.lastState;
  if (facts.state === 'unknown') {
    // Which run it is about is told with it, so that the next one counts it, once.
    if (old?.state?.running !== undefined)
      status.state = { terminated: { reason: 'ContainerStatusUnknown', message: unlocatedMessage, exitCode: 137, containerID } };
    // While it cannot be stopped it stays so, or the pod would look like one that has never run.
    else if (old?.containerID === containerID && old.state?.terminated !== undefined) status.state = old.state;
  }
  return status;
}

/**
 * Whether the container came after one whose end was told. Its own number may be too low to show that: numbers of
 * containers that never ran have no log, and are used again when the runtime has lost them.
 */
function follows(facts: ContainerFacts, containerID: string, old: ContainerStatus | undefined): boolean {
  const ended = old?.state?.terminated ?? old?.lastState?.terminated;
  if (ended?.containerID === undefined || ended.containerID === containerID) return false;
  const told = old?.containerID ?? '';
  return (told === '' || told === ended.containerID) && timeMs(ended.finishedAt) <= facts.createdAtMs;
}

function stateOf(facts: ContainerFacts, containerID: string): ContainerState {
  switch (facts.state) {
    case 'running':
      return { running: { startedAt: timeText(facts.startedAtMs) } };
    case 'exited':
      return { terminated: ended(facts, containerID) };
    default:
      return { waiting: {} };
  }
}

function ended(facts: ContainerFacts, containerID: string): ContainerStateTerminated {
  return {
    exitCode: facts.exitCode,
    ...(facts.reason === '' ? {} : { reason: facts.reason }),
    ...(facts.message === '' ? {} : { message: facts.message }),
    // A run that never began started at the beginning of time, as upstream writes it.
    startedAt: timeText(facts.startedAtMs),
    finishedAt: timeText(facts.finishedAtMs),
    containerID,
  };
}

/** A container that is to start and could not says why; its end moves to lastState. */
function withWaitingReason(input: ContainerStatusInput, list: StatusList, container: Container, status: ContainerStatus): ContainerStatus {
  const { pod, facts } = input;
  const latest = latestOf(facts, container.name);
  if (list === 'init') {
    if (latest?.state === 'exited' && latest.exitCode === 0 && !isSidecar(container)) return status;
    if (latest === undefined && !isSidecar(container) && anyAppCreated(pod.spec, facts) && status.state?.waiting !== undefined) {
      return { ...status, state: { terminated: { reason: 'Completed', message: initLostMessage, exitCode: 0 } } };
    }
  }
  const why = input.waiting[container.name];
  if (why === undefined || !shouldStart(container, pod, facts)) return status;
  return {
    ...status,
    lastState: status.state?.terminated === undefined ? (status.lastState ?? {}) : status.state,
    state: { waiting: { reason: why.reason, ...(why.message === '' ? {} : { message: why.message }) } },
  };
}

function withProbes(
  input: ContainerStatusInput,
  list: StatusList,
  container: Container,
  status: ContainerStatus,
  old: ContainerStatus | undefined,
): ContainerStatus {
  if (list === 'ephemeral') return status;
  const running = status.state?.running !== undefined;
  const id = status.containerID?.slice(status.containerID.indexOf('://') + 3);
  const results = input.probes[container.name]?.containerId === id ? input.probes[container.name] : undefined;
  // Until the probers know this container, what was told last of the same run stands.
  const sameRun = old !== undefined && old.containerID === status.containerID;
  const started =
    running && (container.startupProbe === undefined || (results?.startup === undefined ? sameRun && old.started === true : results.startup === 'success'));
  if (list === 'init' && !isSidecar(container)) {
    return { ...status, started, ready: status.state?.terminated?.exitCode === 0 };
  }
  const ready =
    started && (container.readinessProbe === undefined || (results?.readiness === undefined ? sameRun && old.ready : results.readiness === 'success'));
  return { ...status, started, ready };
}

function mounts(input: ContainerStatusInput, container: Container): { volumeMounts?: VolumeMountStatus[] } {
  const list = (container.volumeMounts ?? []).map((mount): VolumeMountStatus => {
    const status: VolumeMountStatus = { name: mount.name, mountPath: mount.mountPath };
    if (mount.readOnly !== true) return status;
    const wanted = mount.recursiveReadOnly === 'Enabled' || (mount.recursiveReadOnly === 'IfPossible' && input.recursiveReadOnly);
    return { ...status, readOnly: true, recursiveReadOnly: wanted ? 'Enabled' : 'Disabled' };
  });
  return list.length === 0 ? {} : { volumeMounts: list };
}

/** Mounts of image volumes with what the runtime mounted there. Upstream 1.37 looks for the mount by a name that runtimes do not tell, and never finds it. */
function withDigests(
  { pod, imageDigests }: ContainerStatusInput,
  facts: ContainerFacts,
  { volumeMounts }: { volumeMounts?: VolumeMountStatus[] },
): { volumeMounts?: VolumeMountStatus[] } {
  if (volumeMounts === undefined) return {};
  if (imageDigests !== true || facts.imageMounts === undefined) return { volumeMounts };
  const images = new Set(pod.spec.volumes?.flatMap(({ name, image }) => (image === undefined ? [] : [name])));
  return {
    volumeMounts: volumeMounts.map((mount) => {
      const mounted = images.has(mount.name) ? facts.imageMounts?.find(({ containerPath }) => containerPath === mount.mountPath) : undefined;
      return mounted === undefined ? mount : { ...mount, volumeStatus: { image: { imageRef: mounted.image } } };
    }),
  };
}

function userOf(facts: ContainerFacts): { user?: ContainerUser } {
  if (facts.user === null) return {};
  const { uid, gid, supplementalGroups } = facts.user;
  return { user: { linux: { uid, gid, ...(supplementalGroups.length === 0 ? {} : { supplementalGroups: [...supplementalGroups] }) } } };
}
