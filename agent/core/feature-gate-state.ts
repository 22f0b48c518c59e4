import { featureGates, gateEnabled } from './feature-gates.ts';

/**
 * What this node does of each of Kubernetes' feature gates: PLACE TO FLIP ONE. A gate that becomes true moves from
 * `notDone` to `done`; what names neither concerns no node (API server, controllers, scheduler, Windows, Go's client).
 * docs/feature-gates.md is printed from this (`npm run gen`). One gate a line, then, if there is need, why.
 */
const done = `
  AllAlpha switches all alpha gates
  AllBeta switches all beta gates
  AllowDNSOnlyNodeCSR
  CPUManagerPolicyAlphaOptions
  CPUManagerPolicyBetaOptions
  CPUManagerPolicyOptions
  CSIServiceAccountTokenSecrets
  ClusterTrustBundleProjection
  ComponentFlagz
  ComponentStatusz
  ContainerCheckpoint
  ContainerRestartRules
  ContainerStopSignals the field is passed on whenever the API server kept it
  CustomCPUCFSQuotaPeriod
  DRAConsumableCapacity the share of a device is passed on as its driver tells it
  DRAExtendedResource
  DRAOptionalNodeOperations the field is honoured whenever the API server kept it
  DisableCPUQuotaWithExclusiveCPUs
  DisableNodeKubeProxyVersion
  DynamicResourceAllocation
  EnvFiles
  ExecProbeTimeout
  ExtendWebSocketsToKubelet
  GracefulNodeShutdown
  GracefulNodeShutdownBasedOnPodPriority
  HostnameOverride
  HugepageAwareEviction
  ImageMaximumGCAge
  ImageVolume
  InPlacePodLevelResourcesVerticalScaling
  InPlacePodVerticalScaling
  InPlacePodVerticalScalingInitContainers
  KubeletAllocatedPodsEndpoint
  KubeletCgroupDriverFromCRI
  KubeletCrashLoopBackOffMax
  KubeletEnsureSecretPulledImages
  KubeletFineGrainedAuthz
  KubeletPSI
  KubeletPodResourcesDynamicResources
  KubeletPodResourcesGet
  KubeletPodResourcesListUseActivePods
  KubeletSeparateDiskGC
  KubeletServiceAccountTokenForCredentialProviders
  KubeletTracing spans of pods, calls to the runtime, requests and collections; none of calls to the API server
  MemoryQoS
  NFTablesProxyMode
  NodeDeclaredFeatures
  NodeLogQuery
  NodeSwap
  PLEGOnDemandRelist
  PodCertificateRequest
  PodLevelResources
  PodLevelResourcesFixKubeletQOSClass
  PodLogsQuerySplitStreams
  PodObservedGenerationTracking
  PodReadyToStartContainersCondition
  PodsAPI
  PreferSameTrafficDistribution
  ProcMountType
  RecoverVolumeExpansionFailure
  RecursiveReadOnlyMounts
  RelaxedEnvironmentVariableValidation
  ReloadKubeletClientCAFile
  ReloadKubeletServerCertificateFile
  ResourceHealthStatus
  ResourceHealthStatusMessage
  RestartAllContainersOnContainerExits
  RotateKubeletServerCertificate
  SupplementalGroupsPolicy
  SystemdWatchdog
  TopologyManagerPolicyAlphaOptions
  TopologyManagerPolicyBetaOptions
  TopologyManagerPolicyOptions
`;

const notDone = `
  AtomicWriteVolumeUserFields
  CRIListStreaming
  CSIVolumeHealth
  ChangeContainerStatusOnKubeletRestart
  DRADeviceCompatibilityGroups
  DRANodeAllocatableResources
  DRAWorkloadResourceClaims
  DefaultPodSysctls
  EmptyDirVolumeMode
  EventedPLEG the runtime's events are hints to look sooner, whatever the gate says
  GRPCContainerProbeTLS
  GitRepoVolumeDriver
  H2CContainerProbe
  ImageVolumeWithDigest
  InPlacePodVerticalScalingExclusiveCPUs
  InPlacePodVerticalScalingExclusiveMemory
  InPlacePodVerticalScalingMemoryBackedVolumes
  InPlacePodVerticalScalingSchedulerPreemption
  KubeProxyIPVS
  KubeProxyNFTablesLocalhostNodePorts
  KubeletInUserNamespace
  KubeletRegistrationGetOnExistsOnly
  LocalStorageCapacityIsolationFSQuotaMonitoring
  LoggingAlphaOptions
  LoggingBetaOptions
  MutableCSINodeAllocatableCount
  NFTablesNetlink our proxy writes its rules as nft's own text
  PodAndContainerStatsFromCRI
  PodLevelResourceManagers
  QOSReserved
  ReduceDefaultCrashLoopBackOffDecay
  RuntimeClassInImageCriApi
  SELinuxChangePolicy
  SELinuxMount
  SELinuxMountReadWriteOncePod
  TaintTolerationComparisonOperators
  UserNamespacesHostNetworkSupport
  UserNamespacesSupport
  VolumeBindMountOptions
  WatchListClient
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

/** `status.declaredFeatures`: of what may be declared that which works here and is not switched off. */
export function declaredFeatures(wanted: Readonly<Record<string, boolean>>): string[] {
  return declarable.filter((name) => doneGates.has(name) && gateEnabled(wanted, name));
}
