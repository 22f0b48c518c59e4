import type { Clock } from '../../base/clock.ts';
import { hasCode } from '../../base/errors.ts';
import type { Container, ContainerResources, ContainerStatus, ImageSpec, Mount, PodSandbox, PodSandboxStatus } from '../../proto/cri/types.ts';
import type { Listing, PodListing } from '../core/pleg.ts';
import type { ContainerFacts, ContainerResourceFacts, ContainerState, PodFacts, SandboxFacts } from '../core/types.ts';
import { signalName } from '../core/container-config.ts';
import type { Cri } from './cri.ts';
import { isNotFound } from './cri.ts';
import { createLister } from './lister.ts';
import type { Lists } from './lister.ts';

export const uidLabel = 'io.kubernetes.pod.uid';
const nameLabel = 'io.kubernetes.pod.name';
const namespaceLabel = 'io.kubernetes.pod.namespace';
const containerLabel = 'io.kubernetes.container.name';

/** Last words of an ended container, wherever they are kept. */
export interface LastWords {
  of(status: ContainerStatus): Promise<string>;
}

export interface FactsReader {
  /** All that the runtime knows of one pod, right now. Throws OpError when the runtime does not answer. */
  read(uid: string, signal: AbortSignal): Promise<PodFacts>;
  /** All that the runtime has, right now. Throws OpError when the runtime does not answer. */
  list(signal: AbortSignal): Promise<Lists>;
  /** Takes over what a call of our own has just told of a sandbox. */
  saw(uid: string, sandbox: SandboxFacts): void;
  /** Looks again at a container whose answer may have changed without its state changing (resources). */
  forgetContainer(id: string): void;
  forget(uid: string): void;
}

interface Known {
  readonly sandboxes: Map<string, SandboxFacts>;
  readonly containers: Map<string, ContainerFacts>;
}

export interface FactsReaderDeps {
  readonly cri: Cri;
  readonly lastWords: LastWords;
  readonly timeoutMs: number;
  readonly clock?: Clock;
  readonly onRead?: (tookMs: number) => void;
  /** A runtime that is there does not tell of something of a pod that it lists. */
  readonly onUnreadable?: (uid: string, error: unknown) => void;
}

/**
 * Two lists, shared by those who ask at once, then a status for each sandbox and container whose listed state is not the one already known:
 * ended containers never change, and running ones only by what we do to them.
 */
export function createFactsReader(deps: FactsReaderDeps): FactsReader {
  const { cri, lastWords, timeoutMs, clock, onRead, onUnreadable } = deps;
  const lister = createLister({ cri, uidLabel, timeoutMs });
  const known = new Map<string, Known>();

  const sandboxFacts = async (listed: PodSandbox, before: SandboxFacts | undefined, signal: AbortSignal): Promise<SandboxFacts | null> => {
    const ready = listed.state === 'SANDBOX_READY';
    if (before !== undefined && before.ready === ready && (before.hostNetwork || before.ips.length > 0 || !ready)) return before;
    try {
      const { status } = await cri.runtime.podSandboxStatus({ podSandboxId: listed.id }, { timeoutMs, signal });
      return status === null ? null : sandboxOf(status, listed.runtimeHandler);
    } catch (error) {
      if (isNotFound(error)) return null;
      throw error;
    }
  };
  const containerFacts = async (listed: Container, before: ContainerFacts | undefined, signal: AbortSignal): Promise<ContainerFacts | null> => {
    if (before !== undefined && before.state === stateOf(listed.state) && before.state !== 'created') return before;
    try {
      const { status } = await cri.runtime.containerStatus({ containerId: listed.id }, { timeoutMs, signal });
      if (status === null) return null;
      const facts = containerOf(status, listed.podSandboxId);
      if (facts.state !== 'exited') return facts;
      const words = await lastWords.of(status);
      return words === '' ? facts : { ...facts, message: facts.message === '' ? words : `${facts.message}: ${words}` };
    } catch (error) {
      if (isNotFound(error)) return null;
      throw error;
    }
  };

  const factsOf = async (uid: string, listed: Lists, before: Known, signal: AbortSignal): Promise<PodFacts> => {
    const sandboxes = await Promise.all(listed.sandboxes.map((each) => sandboxFacts(each, before.sandboxes.get(each.id), signal)));
    const containers = await Promise.all(listed.containers.map((each) => containerFacts(each, before.containers.get(each.id), signal)));
    return podFacts(
      uid,
      sandboxes.filter((each) => each !== null),
      containers.filter((each) => each !== null),
    );
  };

  return {
    async read(uid, signal) {
      const beganMs = clock?.monoMs() ?? 0;
      const { sandboxes, containers } = await lister.ofPod(uid, signal);
      const before = known.get(uid) ?? { sandboxes: new Map(), containers: new Map() };
      const facts = await factsOf(uid, { sandboxes, containers }, before, signal).catch((error: unknown) => {
        if (!signal.aborted && !hasCode(error, 'unavailable')) onUnreadable?.(uid, error);
        throw error;
      });
      known.set(uid, {
        sandboxes: new Map(facts.sandboxes.map((each) => [each.id, each])),
        containers: new Map(facts.containers.map((each) => [each.id, each])),
      });
      onRead?.((clock?.monoMs() ?? 0) - beganMs);
      return facts;
    },
    list: (signal) => lister.all(signal),
    saw(uid, sandbox) {
      const before = known.get(uid) ?? { sandboxes: new Map<string, SandboxFacts>(), containers: new Map<string, ContainerFacts>() };
      before.sandboxes.set(sandbox.id, sandbox);
      known.set(uid, before);
    },
    forgetContainer(id) {
      for (const each of known.values()) each.containers.delete(id);
    },
    forget: (uid) => void known.delete(uid),
  };
}

/** The runtime's whole list, boiled down: what changed since the last, and a coarse picture of every pod. */
export function listingOf(sandboxes: readonly PodSandbox[], containers: readonly Container[]): { listing: Listing; facts: Map<string, PodFacts> } {
  const listing = new Map<string, PodListing & { states: Map<string, string> }>();
  const entry = (labels: Record<string, string>, metadata?: { uid: string; namespace: string; name: string } | null): Map<string, string> => {
    const uid = labels[uidLabel] ?? '';
    let pod = listing.get(uid);
    if (pod === undefined) {
      pod = { uid, namespace: labels[namespaceLabel] ?? metadata?.namespace ?? '', name: labels[nameLabel] ?? metadata?.name ?? '', states: new Map() };
      listing.set(uid, pod);
    }
    return pod.states;
  };
  // What carries no pod's UID was not made by a kubelet and is none of our business.
  for (const sandbox of sandboxes) {
    if (sandbox.labels[uidLabel] !== undefined) entry(sandbox.labels, sandbox.metadata).set(sandbox.id, sandbox.state);
  }
  for (const container of containers) {
    if (container.labels[uidLabel] !== undefined) entry(container.labels).set(container.id, container.state);
  }
  listing.delete('');
  const sandboxesOf = Map.groupBy(sandboxes, (each) => each.labels[uidLabel] ?? '');
  const containersOf = Map.groupBy(containers, (each) => each.labels[uidLabel] ?? '');
  const facts = new Map<string, PodFacts>();
  for (const uid of listing.keys()) {
    facts.set(uid, podFacts(uid, (sandboxesOf.get(uid) ?? []).map(listedSandbox), (containersOf.get(uid) ?? []).map(listedContainer)));
  }
  return { listing, facts };
}

export function sandboxOf(status: PodSandboxStatus, runtimeHandler = ''): SandboxFacts {
  const ips = [status.network?.ip ?? '', ...(status.network?.additionalIps ?? []).map((each) => each.ip)].filter((ip) => ip !== '');
  return {
    id: status.id,
    ...metadataOf(status),
    ready: status.state === 'SANDBOX_READY',
    createdAtMs: nanosToMs(status.createdAt),
    ips,
    hostNetwork: status.linux?.namespaces?.options?.network === 'NODE',
    runtimeHandler: status.runtimeHandler === '' ? runtimeHandler : status.runtimeHandler,
    labels: status.labels,
    annotations: status.annotations,
  };
}

function listedSandbox(sandbox: PodSandbox): SandboxFacts {
  return {
    id: sandbox.id,
    ...metadataOf(sandbox),
    ready: sandbox.state === 'SANDBOX_READY',
    createdAtMs: nanosToMs(sandbox.createdAt),
    ips: [],
    hostNetwork: false,
    runtimeHandler: sandbox.runtimeHandler,
    labels: sandbox.labels,
    annotations: sandbox.annotations,
  };
}

function metadataOf(sandbox: Pick<PodSandbox, 'metadata'>): { uid: string; namespace: string; name: string; attempt: number } {
  const { metadata } = sandbox;
  return { uid: metadata?.uid ?? '', namespace: metadata?.namespace ?? '', name: metadata?.name ?? '', attempt: metadata?.attempt ?? 0 };
}

export function containerOf(status: ContainerStatus, sandboxId: string): ContainerFacts {
  const state = stateOf(status.state);
  const linux = status.user?.linux ?? null;
  return {
    id: status.id,
    sandboxId,
    name: status.labels[containerLabel] ?? status.metadata?.name ?? '',
    attempt: attemptOf(status.annotations, status.metadata?.attempt ?? 0),
    state,
    createdAtMs: nanosToMs(status.createdAt),
    startedAtMs: state === 'created' ? 0 : nanosToMs(status.startedAt),
    finishedAtMs: state === 'exited' ? nanosToMs(status.finishedAt) : 0,
    exitCode: state === 'exited' ? status.exitCode : 0,
    reason: state === 'exited' ? status.reason : '',
    message: state === 'exited' ? status.message : '',
    image: status.image?.image ?? '',
    imageRef: status.imageRef,
    imageId: status.imageId === '' ? status.imageRef : status.imageId,
    ...handlerOf(status.image),
    ...imageMountsOf(status.mounts),
    ...stopSignalOf(status.stopSignal),
    hash: status.annotations['io.kubernetes.container.hash'] ?? '',
    logPath: status.logPath,
    labels: status.labels,
    annotations: status.annotations,
    resources: resourcesOf(status.resources),
    user: linux === null ? null : { uid: Number(linux.uid), gid: Number(linux.gid), supplementalGroups: linux.supplementalGroups.map(Number) },
  };
}

function handlerOf(image: ImageSpec | null): Pick<ContainerFacts, 'imageHandler'> {
  return image === null || image.runtimeHandler === '' ? {} : { imageHandler: image.runtimeHandler };
}

function imageMountsOf(mounts: readonly Mount[]): Pick<ContainerFacts, 'imageMounts'> {
  const imageMounts = mounts.flatMap(({ containerPath, image }) => (image === null || image.image === '' ? [] : [{ containerPath, image: image.image }]));
  return imageMounts.length === 0 ? {} : { imageMounts };
}

function stopSignalOf(signal: string): Pick<ContainerFacts, 'stopSignal'> {
  const name = signalName(signal);
  return name === null ? {} : { stopSignal: name };
}

function listedContainer(container: Container): ContainerFacts {
  return {
    id: container.id,
    sandboxId: container.podSandboxId,
    name: container.labels[containerLabel] ?? container.metadata?.name ?? '',
    attempt: attemptOf(container.annotations, container.metadata?.attempt ?? 0),
    state: stateOf(container.state),
    createdAtMs: nanosToMs(container.createdAt),
    startedAtMs: 0,
    finishedAtMs: 0,
    exitCode: 0,
    reason: '',
    message: '',
    image: container.image?.image ?? '',
    imageRef: container.imageRef,
    imageId: container.imageId === '' ? container.imageRef : container.imageId,
    ...handlerOf(container.image),
    hash: container.annotations['io.kubernetes.container.hash'] ?? '',
    logPath: '',
    labels: container.labels,
    annotations: container.annotations,
    resources: null,
    user: null,
  };
}

function podFacts(uid: string, sandboxes: SandboxFacts[], containers: ContainerFacts[]): PodFacts {
  // By attempt before age: the wall clock may have been set back between two runs.
  const byAge = (left: { attempt: number; createdAtMs: number; id: string }, right: { attempt: number; createdAtMs: number; id: string }): number =>
    right.attempt - left.attempt || right.createdAtMs - left.createdAtMs || (left.id < right.id ? -1 : 1);
  sandboxes.sort(byAge);
  // One that runs before newer ones that do not: a call of a process that was killed may start it when its successor is made already.
  const rank = ({ state }: ContainerFacts): number => (state === 'running' ? 0 : 1);
  containers.sort((left, right) => (left.name < right.name ? -1 : left.name > right.name ? 1 : rank(left) - rank(right) || byAge(left, right)));
  const first = sandboxes[0];
  const labels = containers[0]?.labels;
  return { uid, namespace: first?.namespace ?? labels?.[namespaceLabel] ?? '', name: first?.name ?? labels?.[nameLabel] ?? '', sandboxes, containers };
}

function attemptOf(annotations: Record<string, string>, fallback: number): number {
  const count = Number(annotations['io.kubernetes.container.restartCount']);
  return Number.isInteger(count) && annotations['io.kubernetes.container.restartCount'] !== undefined ? count : fallback;
}

function stateOf(state: string): ContainerState {
  switch (state) {
    case 'CONTAINER_CREATED':
      return 'created';
    case 'CONTAINER_RUNNING':
      return 'running';
    case 'CONTAINER_EXITED':
      return 'exited';
    default:
      return 'unknown';
  }
}

function resourcesOf(resources: ContainerResources | null): ContainerResourceFacts | null {
  const linux = resources?.linux ?? null;
  if (linux === null) return null;
  const set = (text: string): number | null => (Number(text) > 0 ? Number(text) : null);
  return {
    cpuShares: set(linux.cpuShares),
    cpuQuota: set(linux.cpuQuota),
    cpuPeriod: set(linux.cpuPeriod),
    memoryLimitBytes: set(linux.memoryLimitInBytes),
    unified: linux.unified,
  };
}

function nanosToMs(nanos: string): number {
  return nanos === '' ? 0 : Math.max(0, Number(BigInt(nanos) / 1_000_000n));
}
