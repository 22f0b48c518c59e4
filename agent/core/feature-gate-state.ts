import { featureGates, gateEnabled } from '../../base/feature-gates.ts';

/**
 * What this node does of each of Kubernetes' feature gates: PLACE TO FLIP ONE. A gate that becomes true moves from
 * `notDone` to `done`; what names neither concerns no node (API server, controllers, scheduler, Windows, Go's client).
 * docs/feature-gates.md is printed from this (`npm run gen`). One gate a line, then, if there is need, why.
 */
const done = `
  AllAlpha switches all alpha gates
  AllBeta switches all beta gates
  AllowDNSOnlyNodeCSR
  AllowServiceExternalIPs of the proxy: while it is off, external addresses of Services make no rules
  AtomicWriteVolumeUserFields
  CPUManagerPolicyAlphaOptions
  CPUManagerPolicyBetaOptions
  CPUManagerPolicyOptions
  CRIListStreaming
  CSIServiceAccountTokenSecrets
  CSIVolumeHealth what the API server would refuse with the whole status is not taken from a driver
  ChangeContainerStatusOnKubeletRestart
  ClusterTrustBundleProjection always, whatever the gate says
  ComponentFlagz
  ComponentStatusz
  ContainerCheckpoint
  ContainerRestartRules the fields are honoured whenever the API server kept them
  ContainerStopSignals the field is passed on whenever the API server kept it; the status says it where on
  CustomCPUCFSQuotaPeriod
  DRAConsumableCapacity the share of a device is passed on as its driver tells it
  DRAExtendedResource
  DRANodeAllocatableResources declared where on; what the scheduler wrote into the pod's status is honoured whenever it is there
  DRAOptionalNodeOperations the field is honoured whenever the API server kept it
  DRAWorkloadResourceClaims
  DefaultPodSysctls
  DisableCPUQuotaWithExclusiveCPUs
  DisableNodeKubeProxyVersion
  DynamicResourceAllocation
  EmptyDirVolumeMode
  EnvFiles always, whatever the gate says
  EventedPLEG the runtime's events are hints to list sooner, whatever the gate says
  ExecProbeTimeout
  ExtendWebSocketsToKubelet
  GRPCContainerProbeTLS
  GitRepoVolumeDriver locked off: such a volume is refused in upstream's words
  GracefulNodeShutdown
  GracefulNodeShutdownBasedOnPodPriority
  H2CContainerProbe
  HostnameOverride
  HugepageAwareEviction always, whatever the gate says
  ImageMaximumGCAge
  ImageVolume
  ImageVolumeWithDigest told by the mount's path; upstream 1.37 looks for a name that no runtime tells
  InPlacePodLevelResourcesVerticalScaling declared where on; a resize is taken whenever the API server let it through
  InPlacePodVerticalScaling
  InPlacePodVerticalScalingExclusiveCPUs a resize is taken, and the CPUs stay those of the start, as with upstream
  InPlacePodVerticalScalingExclusiveMemory a resize is taken, and the memory stays that of the start, as with upstream
  InPlacePodVerticalScalingInitContainers
  InPlacePodVerticalScalingSchedulerPreemption
  KubeProxyNFTablesLocalhostNodePorts of the proxy: TCP is carried by listeners on loopback, the rest is refused and counted
  KubeletAllocatedPodsEndpoint
  KubeletCgroupDriverFromCRI
  KubeletCrashLoopBackOffMax
  KubeletEnsureSecretPulledImages
  KubeletFineGrainedAuthz
  KubeletInUserNamespace parameters of the kernel that may not be set, and oom_score_adj, are told and go on
  KubeletPSI
  KubeletPodResourcesDynamicResources
  KubeletPodResourcesGet
  KubeletPodResourcesListUseActivePods
  KubeletRegistrationGetOnExistsOnly
  KubeletSeparateDiskGC always, whatever the gate says
  KubeletServiceAccountTokenForCredentialProviders
  KubeletTracing
  LoggingAlphaOptions nothing is buffered, so that there is nothing to set
  LoggingBetaOptions nothing is buffered, so that there is nothing to set
  MemoryQoS
  MutableCSINodeAllocatableCount
  NFTablesNetlink where the kernel can be asked so, whatever the gate says; else by the nft tool
  NFTablesProxyMode
  NodeDeclaredFeatures
  NodeLogQuery
  NodeSwap
  PLEGOnDemandRelist
  PodAndContainerStatsFromCRI as far as the runtime has stats and metrics of sandboxes; else cgroups are read
  PodCertificateRequest
  PodLevelResourceManagers
  PodLevelResources
  PodLevelResourcesFixKubeletQOSClass always, whatever the gate says
  PodLogsQuerySplitStreams
  PodObservedGenerationTracking
  PodReadyToStartContainersCondition
  PodsAPI
  PreferSameTrafficDistribution
  ProcMountType
  RecoverVolumeExpansionFailure
  RecursiveReadOnlyMounts
  QOSReserved
  ReduceDefaultCrashLoopBackOffDecay
  RelaxedEnvironmentVariableValidation
  ReloadKubeletClientCAFile always, whatever the gate says
  ReloadKubeletServerCertificateFile always, whatever the gate says
  ResourceHealthStatus
  ResourceHealthStatusMessage always, whatever the gate says
  RestartAllContainersOnContainerExits
  RotateKubeletServerCertificate
  RuntimeClassInImageCriApi
  SELinuxChangePolicy
  SELinuxMount volumes of CSI drivers that say they can; pods that set a level
  SELinuxMountReadWriteOncePod
  SupplementalGroupsPolicy
  SystemdWatchdog
  TaintTolerationComparisonOperators
  TopologyManagerPolicyAlphaOptions 1.37 has no option of this stage
  TopologyManagerPolicyBetaOptions 1.37 has no option of this stage
  TopologyManagerPolicyOptions
  UserNamespacesHostNetworkSupport declared where the runtime can; the pod is made as it asks whenever the API server kept the field
  UserNamespacesSupport
  VolumeBindMountOptions declared where the runtime can; the options are passed on whenever the API server kept them
  WatchListClient lists are streamed wherever the API server can, whatever the gate says
`;

const notDone = `
  InPlacePodVerticalScalingMemoryBackedVolumes not declared, so that an API server refuses such a resize for this node; the size of such a volume is that of its start
  KubeProxyIPVS our proxy has no IPVS mode, which upstream takes away
  LocalStorageCapacityIsolationFSQuotaMonitoring usage is walked; project quotas need an XFS or ext4 with them
`;

export type GateState = 'done' | 'not done' | 'does not concern a node';

/** One row of docs/feature-gates.md. */
export interface GateRow {
  readonly name: string;
  readonly state: GateState;
  readonly note: string;
}

function read(text: string): ReadonlyMap<string, string> {
  const lines = text.trim().split('\n');
  return new Map(
    lines.map((line): [string, string] => {
      const [name = '', ...note] = line.trim().split(' ');
      return [name, note.join(' ')];
    }),
  );
}

const doneGates = read(done);
const notDoneGates = read(notDone);

/** Every gate of upstream with what this node does of it, by name. */
export function gateRows(): GateRow[] {
  return [...featureGates.keys()].toSorted().map((name) => {
    const note = doneGates.get(name) ?? notDoneGates.get(name);
    return { name, state: doneGates.has(name) ? 'done' : note === undefined ? 'does not concern a node' : 'not done', note: note ?? '' };
  });
}

/** Names that stand in both lists, or that are no gate: none, or the table is wrong. */
export function gateTableFaults(): string[] {
  const unknown = [...doneGates.keys(), ...notDoneGates.keys()].filter((name) => !featureGates.has(name));
  return [...unknown, ...[...doneGates.keys()].filter((name) => notDoneGates.has(name))];
}

/** What a Node may declare (KEP-5328); upstream's list, each under the name of its gate. */
const declarable = [
  'DRANodeAllocatableResources',
  'DRAOptionalNodeOperations',
  'ExtendWebSocketsToKubelet',
  'InPlacePodLevelResourcesVerticalScaling',
  'InPlacePodVerticalScalingInitContainers',
  'InPlacePodVerticalScalingMemoryBackedVolumes',
  'RestartAllContainersOnContainerExits',
  'UserNamespacesHostNetworkSupport',
  'VolumeBindMountOptions',
];

/** What may be declared, works here and is not switched off, as far as no runtime was asked. */
export function declaredFeatures(wanted: Readonly<Record<string, boolean>>): string[] {
  return declarable.filter((name) => doneGates.has(name) && gateEnabled(wanted, name));
}

/** What the runtime says of itself in its Status, as far as features of a node depend on it. */
export interface RuntimeAbilities {
  readonly userNamespacesHostNetwork?: boolean;
  readonly mountOptions?: boolean;
}

/** `status.declaredFeatures`: of what this node would declare that which its runtime can do too. */
export function withRuntime(features: readonly string[], runtime: RuntimeAbilities): string[] {
  return features.filter((name) => {
    if (name === 'UserNamespacesHostNetworkSupport') return runtime.userNamespacesHostNetwork === true;
    return name === 'VolumeBindMountOptions' ? runtime.mountOptions === true : true;
  });
}
