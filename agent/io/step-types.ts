import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { PodSandboxConfig } from '../../proto/cri/types.ts';
import type { Container, Pod } from '../../proto/kube/types.ts';
import type { ConfigContext } from '../core/config-context.ts';
import type { Sizes } from '../core/resize/amounts.ts';
import type { EventText, PodFacts, SandboxFacts } from '../core/types.ts';
import type { Grants } from '../grants.ts';
import type { Cgroups, Dns, Hooks, NodeInfo, Volumes } from '../seams.ts';
import type { Cri } from './cri.ts';
import type { DraClaims } from './dra/claims.ts';
import type { Environment } from './environment.ts';
import type { PodFiles } from './files.ts';
import type { ImagePuller } from './images.ts';
import type { PodLines } from './pod-lines.ts';
import type { PodMetrics } from './pod-metrics.ts';
import type { UserNamespaces } from './user-namespaces.ts';

/** Which runtime handler a RuntimeClass means; throws OpError `not-found` when there is none of that name. */
export interface RuntimeClasses {
  handlerOf(name: string | undefined, signal: AbortSignal): Promise<string>;
}

/** Keeps what is in effect: each promise resolves when it is on disk. */
export interface Actuation {
  /** A container is about to be made at the size it was allocated. */
  make(pod: Pod, container: Container): Promise<void>;
  /** A running container has these sizes now. */
  actuate(pod: Pod, name: string, sizes: Sizes): Promise<void>;
  /** The pod as a whole has what it was allocated of this. */
  actuatePod(pod: Pod, only?: 'cpu' | 'memory'): Promise<void>;
}

export interface StepDeps {
  readonly cri: Cri;
  readonly clock: Clock;
  readonly log: Log;
  readonly context: ConfigContext;
  readonly clusterDomain: string;
  /** Where log collectors look for links to container logs. */
  readonly containersLogDir: string;
  readonly timeoutMs: number;
  readonly volumes: Volumes;
  readonly environment: Environment;
  readonly dns: Dns;
  readonly cgroups: Cgroups;
  readonly hooks: Hooks;
  readonly images: ImagePuller;
  /** `RuntimeClassInImageCriApi` (KEP-4216): which runtime handler an image is for is part of what it is. */
  readonly imagesByHandler?: boolean;
  readonly files: PodFiles;
  readonly node: NodeInfo;
  readonly runtimeClasses: RuntimeClasses;
  readonly resizes: Actuation;
  /** Devices, CPUs and memory of its own; absent: no container has any. */
  readonly grants?: Pick<Grants, 'forContainer' | 'made'>;
  /** What is counted; absent: nothing is. */
  readonly resizeDone?: (tookMs: number, failed: boolean) => void;
  readonly metrics?: Pick<PodMetrics, 'podStarts' | 'podFailed' | 'roundFailed' | 'containerStarts' | 'containerFailed' | 'imageVolumes'>;
  /** User namespaces of pods; absent: none has one of its own. */
  readonly userNamespaces?: Pick<UserNamespaces, 'of' | 'release'>;
  /** Dynamic resources; absent: no container has any. */
  readonly claims?: Pick<DraClaims, 'cdiDevices'>;
  readonly lines: PodLines;
}

/** Why a container does not run, for its waiting state. */
export interface StartFailure {
  readonly name: string;
  readonly reason: string;
  readonly message: string;
}

export interface StepsOutcome {
  /** Steps that changed something in the runtime. */
  readonly done: number;
  readonly started: readonly string[];
  readonly failures: readonly StartFailure[];
  /** Why a resize could not be put into effect, in upstream's words; null: it was, or there was none. */
  readonly resizeFailure: string | null;
  /** What ended the plan early; the rest is planned anew. */
  readonly error: unknown;
}

export interface RunContext {
  readonly pod: Pod;
  /** The pod's place in the order in which pods came. */
  readonly place: number;
  readonly facts: PodFacts;
  readonly tell: (event: EventText) => void;
  readonly preStopBegun: Set<string>;
  /** A new sandbox is up, with its addresses: told before images are asked for. */
  readonly onSandbox: (sandbox: SandboxFacts) => void;
}

/** The sandbox that containers of this plan go into. */
export interface OpenSandbox {
  readonly id: string;
  readonly config: PodSandboxConfig;
  readonly ips: readonly string[];
  readonly runtimeHandler: string;
}
