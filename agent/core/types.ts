import type { Container, Pod } from '../../proto/kube/types.ts';

/** What all of the agent calls a pod by: the UID is the identity, namespace and name are for people and paths. */
export interface PodKey {
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
}

/** Where a pod came from. A static pod's API object (mirror) is never a wish of its own. */
export type PodSource = 'api' | 'static';

/** A pod as its source wants it. `pod` is the whole object, with the status that the API server holds. */
export interface PodView {
  readonly key: PodKey;
  readonly source: PodSource;
  readonly pod: Pod;
}

/** A sandbox as the runtime reports it. Times are milliseconds since 1970; 0 is "never". */
export interface SandboxFacts {
  readonly id: string;
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
  readonly attempt: number;
  readonly ready: boolean;
  readonly createdAtMs: number;
  /** Primary first. Empty until the runtime has been asked for its status, and with the host's network. */
  readonly ips: readonly string[];
  readonly hostNetwork: boolean;
  readonly runtimeHandler: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

export type ContainerState = 'created' | 'running' | 'exited' | 'unknown';

/** A container as the runtime reports it, dead ones included. */
export interface ContainerFacts {
  readonly id: string;
  readonly sandboxId: string;
  readonly name: string;
  readonly attempt: number;
  readonly state: ContainerState;
  readonly createdAtMs: number;
  readonly startedAtMs: number;
  readonly finishedAtMs: number;
  readonly exitCode: number;
  readonly reason: string;
  readonly message: string;
  /** As the pod asked for it. */
  readonly image: string;
  /** What it was resolved to, for status.imageID. */
  readonly imageRef: string;
  readonly imageId: string;
  /** For which runtime handler the image was pulled; absent: for none in particular. */
  readonly imageHandler?: string;
  /** Images that are mounted in it. */
  readonly imageMounts?: readonly { readonly containerPath: string; readonly image: string }[];
  /** By what it is asked to end (`SIGTERM`); absent where the runtime does not say. */
  readonly stopSignal?: string;
  /** `io.kubernetes.container.hash`. */
  readonly hash: string;
  readonly logPath: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
  readonly resources: ContainerResourceFacts | null;
  readonly user: { readonly uid: number; readonly gid: number; readonly supplementalGroups: readonly number[] } | null;
}

/** What the runtime says is set; null is "not set" or "not told". */
export interface ContainerResourceFacts {
  readonly cpuShares: number | null;
  readonly cpuQuota: number | null;
  readonly cpuPeriod: number | null;
  readonly memoryLimitBytes: number | null;
  /** cgroup v2 `unified` values. */
  readonly unified: Readonly<Record<string, string>>;
}

/** All that the runtime knows of one pod; the newest sandbox first, containers by name and of one name the newest first. */
export interface PodFacts {
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
  readonly sandboxes: readonly SandboxFacts[];
  readonly containers: readonly ContainerFacts[];
}

export type ProbeKind = 'startup' | 'readiness' | 'liveness';
export type ProbeOutcome = 'success' | 'failure' | 'unknown';

/**
 * What the probes of one container say about the container `containerId`. A kind that is absent has no probe;
 * `unknown` means no result yet (a readiness probe that is `unknown` is not ready, a startup probe not started).
 */
export interface ContainerProbeResults {
  readonly containerId: string;
  readonly startup?: ProbeOutcome;
  readonly readiness?: ProbeOutcome;
  readonly liveness?: ProbeOutcome;
}

/** By container name. */
export type ProbeResults = Readonly<Record<string, ContainerProbeResults>>;

export type ContainerKind = 'init' | 'sidecar' | 'app' | 'ephemeral';

/** A container of a pod's spec with its place. Sidecars are init containers with restartPolicy Always. */
export interface SpecContainer {
  readonly kind: ContainerKind;
  readonly index: number;
  readonly container: Container;
}

/** One Event to be told, without the object it is about. */
export interface EventText {
  readonly type: 'Normal' | 'Warning';
  readonly reason: string;
  readonly message: string;
  /** Container the event is about: its fieldPath is added. */
  readonly container?: string;
}

/** An expected failure of something a pod waits for: `reason` is upstream's CamelCase word, `message` its text. */
export interface Failure {
  readonly ok: false;
  readonly reason: string;
  readonly message: string;
  /** Events to be told once for this failure; empty when the caller has the words for it. */
  readonly events?: readonly EventText[];
}
