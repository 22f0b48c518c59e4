/**
 * The seams inside the agent: what the worker (loop.ts, worker.ts, io/steps.ts) asks of the rooms' other parts, and
 * what it offers them. Each is implemented in io/ and joined in main.ts; each has a stub in fake.ts for tests.
 */
import type { ConfigMap, Container, LifecycleHandler, Node, Pod, PodStatus, Secret, Service } from '../proto/kube/types.ts';
import type { CgroupResources } from './core/cgroups.ts';
import type { PodCgroupValues } from './core/resize/moves.ts';
import type { Wish } from './core/wishes.ts';
import type { ContainerFacts, EventText, Failure, PodFacts, PodKey, PodView, ProbeResults } from './core/types.ts';

/* ---------- asked of volumes, files and cgroups (io/volumes*, io/sources, io/hosts, io/dns, io/cgroups*) ---------- */

/** A mount for the runtime, in CRI's terms (`Mount`). */
export interface ContainerMount {
  readonly name: string;
  readonly hostPath: string;
  readonly containerPath: string;
  readonly readonly: boolean;
  readonly recursiveReadOnly?: boolean;
  readonly selinuxRelabel?: boolean;
  readonly propagation: 'PROPAGATION_PRIVATE' | 'PROPAGATION_HOST_TO_CONTAINER' | 'PROPAGATION_BIDIRECTIONAL';
  /** Image volumes only: pulled before the container is made. */
  readonly image?: { readonly reference: string; readonly pullPolicy?: string };
  readonly imageSubPath?: string;
  readonly mountOptions?: readonly string[];
}

/** A device for the runtime, in CRI's terms (`Device`). */
export interface ContainerDevice {
  readonly hostPath: string;
  readonly containerPath: string;
  readonly permissions: string;
}

export interface Volumes {
  /**
   * Makes the pod's directory and everything its volumes need on this node, mounted and filled. Idempotent and
   * called at every sync of a pod that is to run: when all is in place it must be cheap. Emits no Event itself:
   * what to tell comes back (`FailedMount`, …). Waits a bounded time (a few seconds) at most; the worker calls
   * again with back-off. `events` of a success are told too.
   */
  prepare(pod: Pod, signal: AbortSignal): Promise<{ ok: true; events?: readonly EventText[] } | Failure>;
  /**
   * The mounts of one container, just before it is created: volumes, subPaths, the managed /etc/hosts (written
   * here, unless the container mounts something there). `podIPs` are the sandbox's. Does not include the
   * termination log. Failure reasons: `CreateContainerConfigError`.
   */
  containerMounts(
    pod: Pod,
    container: Container,
    podIPs: readonly string[],
    signal: AbortSignal,
  ): Promise<{ ok: true; mounts: readonly ContainerMount[]; devices?: readonly ContainerDevice[]; env?: readonly { name: string; value: string }[] } | Failure>;
  /** Groups of the pod's volumes (`pv.beta.kubernetes.io/gid`), once they are prepared: its processes are in them too. */
  groupsOf?(uid: string): readonly number[];
  /** Brings configMap, secret, projected and downwardAPI files up to date; called about once a minute and after a change of `pod`. */
  refresh(pod: Pod, signal: AbortSignal): Promise<void>;
  /** Unmounts and removes all of `<root>/pods/<uid>`. Resolves when nothing is left; throws OpError when something would not go yet. */
  teardown(uid: string, signal: AbortSignal): Promise<void>;
  /** UIDs that have a directory, for what is left of pods nobody knows any more. */
  uidsOnDisk(): Promise<readonly string[]>;
  /** Takes off what was mounted for pods together and that none has any more. */
  sweep(): Promise<void>;
}

/**
 * Objects that containers take their environment, files and pull credentials from. Asked for one by one and kept
 * by a watch each while a pod on the node names them. `null`: the API server says it is not there.
 */
export interface EnvSources {
  configMap(namespace: string, name: string, signal: AbortSignal): Promise<ConfigMap | null>;
  secret(namespace: string, name: string, signal: AbortSignal): Promise<Secret | null>;
  /** All Services of a namespace; waits for the first complete copy. */
  services(namespace: string, signal: AbortSignal): Promise<readonly Service[]>;
  /** From now on `pod` is on the node: everything it names is kept. Called again when its spec changes. */
  hold(pod: Pod): void;
  release(uid: string): void;
  /** `callback` gets the UID of each pod that names an object which changed. */
  onChange(callback: (uid: string) => void): void;
}

/** resolv.conf of a pod, for the sandbox config: `null` is "leave it to the runtime". */
export interface Dns {
  forPod(
    pod: Pod,
    signal: AbortSignal,
  ): Promise<{ servers: readonly string[]; searches: readonly string[]; options: readonly string[]; events: readonly EventText[] }>;
}

export interface Cgroups {
  readonly driver: 'cgroupfs' | 'systemd';
  readonly version: 1 | 2;
  /** Root, QoS classes and node allocatable; once at start, before any pod. */
  ensureRoots(signal: AbortSignal): Promise<void>;
  /**
   * Makes the pod's cgroup with its limits and returns the name for the CRI's `cgroupParent`. Idempotent.
   * `isRunning`: containers run in it, and their sizes and its own change in an order that is not decided here.
   */
  ensurePod(pod: Pod, signal: AbortSignal, isRunning?: boolean): Promise<string>;
  /** The limits that the pod's cgroup is to have. */
  limitsOf(pod: Pod): CgroupResources;
  /** The pod's cgroup as it is; null when it is not there. */
  values(pod: Pod, signal: AbortSignal): Promise<PodCgroupValues | null>;
  /** Changes those limits that are not null. */
  setLimits(pod: Pod, resources: CgroupResources, signal: AbortSignal): Promise<void>;
  /** The CRI's `cgroupParent` without touching anything. */
  parentOf(pod: Pod): string;
  /** Kills what is left inside and removes it. Succeeds when it is not there. */
  removePod(uid: string, signal: AbortSignal): Promise<void>;
  /** UIDs that have a cgroup. */
  podUids(signal: AbortSignal): Promise<readonly string[]>;
}

/* ---------- asked of probes, status, events, node (io/probes*, io/status-api, io/events-api, io/node-api) ---------- */

export interface Probes {
  /**
   * Called after each read of the runtime: starts a prober for each probe of each running container it has none
   * for, restarts the counts for a new container id, stops those of containers that are no more. With
   * `terminating` startup and liveness probes stop and readiness goes on, or with `keepsReadiness` stays what it
   * was. First results of an adopted container come from `pod.status` (ready stays ready, unready stays unready until its own probe says otherwise).
   */
  sync(pod: Pod, containers: readonly ContainerFacts[], context: { podIPs: readonly string[]; terminating: boolean; keepsReadiness?: boolean }): void;
  /** The same from a status that was not known before: what no probe has spoken of yet is what it says. */
  adopt?(uid: string, status: PodStatus): void;
  remove(uid: string): void;
  results(uid: string): ProbeResults;
  /** Forgets liveness and startup results of a container that is being killed for them. */
  forget(uid: string, containerId: string): void;
  /** Called with the UID whenever a result changes. Failing probes tell their own `Unhealthy` events. */
  onChange(callback: (uid: string) => void): void;
}

export interface StatusWriter {
  /**
   * Wishes for the API server to hold `status` for this pod. Only the newest wish counts; it is sent as a
   * strategic-merge patch of the status subresource when it differs from what the API is known to hold, with
   * `metadata.uid` in it, and conditions of others are never named. Tried again until it is in or `forget` is called.
   */
  set(pod: Pod, status: PodStatus): void;
  /** The newest wish, or undefined. */
  current(uid: string): PodStatus | undefined;
  /** What an earlier process told of a pod whose own object does not hold it, until this one has told of it in knowledge of that. */
  earlier?(uid: string): PodStatus | undefined;
  /**
   * Writes the last status; then, when the object carries a deletionTimestamp, deletes it with grace 0 and a UID
   * precondition. Resolves when the API server has done so, or when the object is gone or another one.
   */
  finish(pod: Pod, status: PodStatus, signal: AbortSignal): Promise<void>;
  forget(uid: string): void;
}

export interface EventTarget {
  apiVersion: string;
  kind: string;
  namespace?: string;
  name: string;
  uid: string;
  resourceVersion?: string;
  fieldPath?: string;
}

export interface Events {
  /** Never waits and never throws: bounded, correlated (count), dropped when the API server is too slow. */
  event(target: EventTarget, type: 'Normal' | 'Warning', reason: string, message: string, annotations?: Readonly<Record<string, string>>): void;
}

/** What the pod side must know of its Node. */
export interface NodeInfo {
  readonly name: string;
  /** The newest copy; undefined until it is registered. */
  node(): Node | undefined;
  /** InternalIPs, primary first. Empty until known. */
  hostIPs(): readonly string[];
  /** Resolves when the Node is registered or known, with its first copy. */
  ready(signal: AbortSignal): Promise<Node>;
  /** Called after each change of the Node object (labels, taints, addresses). */
  onChange(callback: () => void): void;
}

/* ---------- offered by the worker's side ---------- */

/** Runs lifecycle handlers (io/hooks.ts). */
export interface Hooks {
  /** exec, httpGet and sleep; `timeoutMs` 0 waits as long as it takes. Failure texts are upstream's. */
  run(
    pod: Pod,
    container: Container,
    containerId: string,
    podIPs: readonly string[],
    handler: LifecycleHandler,
    timeoutMs: number,
    signal: AbortSignal,
  ): Promise<{ ok: true } | { ok: false; message: string }>;
}

/** Read side for the HTTPS server, node status, GC and eviction. Answers come from memory. */
export interface Pods {
  /** Every pod the agent is responsible for, with its newest status filled in. */
  list(): readonly Pod[];
  byName(namespace: string, name: string): Pod | undefined;
  byUid(uid: string): Pod | undefined;
  /** What the last relist saw, whether or not anybody wants it. */
  facts(uid: string): PodFacts | undefined;
  allFacts(): readonly PodFacts[];
  /** UIDs whose containers may be running or starting: their files, cgroups and logs are not to be touched. */
  mayRun(uid: string): boolean;
  /** UIDs that the agent still has any duty for, the terminated ones included. */
  isKnown(uid: string): boolean;
  /** False until the first complete list from the API server. */
  synced(): boolean;
  /** Looks at the pod again soon. */
  kick(uid: string): void;
  /** Ends a pod for a reason of the node's own (eviction, shutdown): phase Failed with these words; `graceMs` null is the pod's own grace. Resolves when it is stopped. */
  evict(
    uid: string,
    options: { reason: string; message: string; graceMs: number | null; condition?: { type: string; reason: string; message: string } },
    signal: AbortSignal,
  ): Promise<void>;
}

/** Whether the runtime is looked at often enough; `null` is healthy, else upstream's sentence. */
export interface Pleg {
  unhealthy(): string | null;
  /** Looks at the runtime now instead of at the next second. */
  relistSoon(): void;
}

/** A source of wishes. `onUpdate` is a hint: the new set is read by `get`/`list`. */
export interface PodSourceReader {
  readonly source: 'api' | 'static';
  list(): readonly PodView[];
  get(uid: string): PodView | undefined;
  synced(): boolean;
  /** `status`: only what a kubelet writes itself has changed. */
  onUpdate(callback: (key: PodKey, change: 'wish' | 'status') => void): void;
}

/* ---------- settings: KubeletConfiguration v1beta1, read by io/config.ts, names as there, durations in ms ---------- */

export interface AgentSettings {
  readonly nodeName: string;
  /** `--root-dir`. */
  readonly rootDir: string;
  /** `podLogsDir`, /var/log/pods. */
  readonly podLogsDir: string;
  readonly maxPods: number;
  readonly podPidsLimit: number;
  readonly serializeImagePulls: boolean;
  /** 0: no bound. Only with serializeImagePulls false. */
  readonly maxParallelImagePulls: number;
  /** `--image-credential-provider-config` and `--image-credential-provider-bin-dir`; empty: no programs are asked. */
  readonly credentialProviderConfig: string;
  readonly wishes: ReadonlySet<Wish>;
  readonly credentialProviderBinDir: string;
  readonly registryPullQps: number;
  readonly registryBurst: number;
  readonly cpuCFSQuota: boolean;
  readonly cpuCFSQuotaPeriodMs: number;
  readonly crashLoopMaxMs: number;
  readonly seccompDefault: boolean;
  readonly runtimeRequestTimeoutMs: number;
  readonly syncFrequencyMs: number;
  readonly clusterDomain: string;
  readonly clusterDNS: readonly string[];
  readonly resolvConf: string;
  readonly allowedUnsafeSysctls: readonly string[];
  /** `--runtime-cgroups`. */
  readonly runtimeCgroups?: string;
  readonly memorySwapBehavior: 'NoSwap' | 'LimitedSwap';
  readonly singleProcessOOMKill: boolean | null;
  readonly enableServer: boolean;
  readonly registerNode: boolean;
  /** Hostname of the node, for host-network pods. */
  readonly hostname: string;
}
