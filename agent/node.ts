import type { Clock } from '../base/clock.ts';
import type { KubeApi } from '../base/kubeapi/types.ts';
import type { Log } from '../base/log.ts';
import type { Rng } from '../base/rng.ts';
import { kubepods, rootName } from './core/cgroups.ts';
import type { KubeletConfiguration } from './core/config.ts';
import { durationMs } from '../base/duration.ts';
import type { PressureCondition } from './core/evict-thresholds.ts';
import { gateEnabled } from '../base/feature-gates.ts';
import { pressuresOf } from './core/node-status.ts';
import { mayReachSwap, memoryVolumesWarning } from './core/swap.ts';
import type { MachineFacts, NodeAddress, NodeFacts } from './core/node-status.ts';
import type { PodCgroups } from './io/cgroups.ts';
import type { AgentFlags } from './io/config-file.ts';
import type { Cri } from './io/cri.ts';
import { createImageList } from './io/image-list.ts';
import { fileSystemBytes } from './io/machine.ts';
import { createNodeApi } from './io/node-api.ts';
import type { NodeApi } from './io/node-api.ts';
import { tellPodCidrs } from './io/pod-cidrs.ts';
import { watchRuntime } from './io/node-runtime.ts';
import type { RuntimeWatch } from './io/node-runtime.ts';
import type { StartupMetrics } from './io/startup-metrics.ts';
import { nodeSettings } from './io/settings.ts';
import type { Events, EventTarget } from './seams.ts';

export interface NodeSideOptions {
  readonly clock: Clock;
  readonly rng: Rng;
  readonly log: Log;
  readonly api: KubeApi;
  readonly cri: Cri;
  readonly events: Events;
  readonly config: KubeletConfiguration;
  readonly flags: AgentFlags;
  readonly machine: MachineFacts;
  readonly addresses: readonly NodeAddress[];
  readonly plegUnhealthy: () => string | null;
  /** Attachable volumes that a controller must not take away. */
  readonly volumesInUse: () => readonly string[];
  readonly pressures: () => readonly PressureCondition[];
  /** Whether the machine is about to end. */
  readonly ending: () => { trouble(): string | null };
  /** What device plugins offer. */
  readonly devices: () => NonNullable<NodeFacts['devices']>;
  readonly startup: StartupMetrics;
}

export interface NodeSide {
  readonly node: NodeApi;
  readonly runtime: RuntimeWatch;
  /** Registers, renews and reports until `signal` is aborted. */
  run(signal: AbortSignal): Promise<void>;
}

/** What the API server knows of this machine: the Node, its Lease, the runtime's health, the images. */
export function openNode(options: NodeSideOptions): NodeSide {
  const { clock, rng, log, api, cri, events, config, flags, machine, addresses } = options;
  const images = createImageList({ cri, clock, max: config.nodeStatusMaxImages });
  const runtime = watchRuntime({
    clock,
    log: log.child('runtime'),
    runtime: cri.runtime,
    plegUnhealthy: options.plegUnhealthy,
    onChange: () => node.kick(),
  });
  const node: NodeApi = createNodeApi({
    clock,
    rng,
    api,
    events,
    log: log.child('node'),
    settings: nodeSettings(config, flags, machine.hostname),
    register: config.registerNode,
    registerAgain: flags.wishes.has('RegisterDeletedNode'),
    standalone: flags.kubeconfig === '',
    startup: options.startup,
    getOnExistsOnly: gateEnabled(config.featureGates, 'KubeletRegistrationGetOnExistsOnly'),
    leaseDurationSeconds: config.nodeLeaseDurationSeconds,
    statusUpdateMs: durationMs(config.nodeStatusUpdateFrequency),
    statusReportMs: durationMs(config.nodeStatusReportFrequency),
    facts: async () => ({
      machine,
      addresses,
      runtime: withTrouble(runtime.facts(), options.ending().trouble()),
      pressures: pressuresOf(options.pressures()),
      volumesInUse: options.volumesInUse(),
      ephemeralBytes: config.localStorageCapacityIsolation ? await fileSystemBytes(flags.rootDir) : null,
      images: images.current(),
      devices: options.devices(),
    }),
  });
  const timeoutMs = durationMs(config.runtimeRequestTimeout);
  tellPodCidrs({ node, log, timeoutMs, runtime: cri.runtime, own: flags.kubeconfig === '' ? config.podCIDR : '' });
  return {
    node,
    runtime,
    async run(signal) {
      await Promise.all([node.run(signal), runtime.run(signal), images.run(signal)]);
    },
  };
}

function withTrouble(facts: NodeFacts['runtime'], trouble: string | null): NodeFacts['runtime'] {
  return trouble === null ? facts : { ...facts, troubles: [...facts.troubles, trouble] };
}

const cgroupV1Warning =
  'cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. Please migrate to cgroup v2. More information at https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1';

/** What is told of a node that starts. */
export function tellStart(events: Events, target: EventTarget, cgroups: PodCgroups, config: KubeletConfiguration, machine: MachineFacts): void {
  events.event(target, 'Normal', 'Starting', 'Starting kubelet.');
  if (mayReachSwap(machine)) events.event(target, 'Warning', 'PossibleMemoryBackedVolumesOnDisk', memoryVolumesWarning);
  if (cgroups.version === 1) events.event(target, 'Warning', 'CgroupV1', cgroupV1Warning);
  if (config.cgroupsPerQOS) tellEnforcement(events, target, cgroups, config.cgroupRoot);
  const sides = [['system', config.systemReservedCgroup] as const, ['kube', config.kubeReservedCgroup] as const];
  for (const [side, cgroup] of sides) {
    if (config.enforceNodeAllocatable.some((each) => each.startsWith(`${side}-reserved`)))
      events.event(target, 'Normal', 'NodeAllocatableEnforced', `Updated limits on ${side} reserved cgroup ${cgroup}`);
  }
}

/** That all pods together are bounded, or why not: now, and after each further try. */
export function tellEnforcement(
  events: Pick<Events, 'event'>,
  target: EventTarget,
  cgroups: Pick<PodCgroups, 'enforcementProblem' | 'onEnforcement'>,
  cgroupRoot: string,
): void {
  const name = `[${kubepods(rootName(cgroupRoot))
    .map((part) => JSON.stringify(part))
    .join(' ')}]`;
  const tell = (problem: string | null): void => {
    if (problem === null) events.event(target, 'Normal', 'NodeAllocatableEnforced', 'Updated Node Allocatable limit across pods');
    else events.event(target, 'Warning', 'FailedNodeAllocatableEnforcement', `Failed to update Node Allocatable Limits ${name}: ${problem}`);
  };
  tell(cgroups.enforcementProblem);
  cgroups.onEnforcement = tell;
}
