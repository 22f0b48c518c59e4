import { checkFeatureGates, featureGates, gateEnabled } from './feature-gates.ts';

/** Which gates need others, as upstream 1.37 has it: the first of a line needs the rest of it. */
const table = `
  ClusterTrustBundleProjection ClusterTrustBundle
  CompositePodGroup GenericWorkload TopologyAwareWorkloadScheduling
  DRAAdminAccess DynamicResourceAllocation
  DRAConsumableCapacity DynamicResourceAllocation
  DRADerivedAttributes DynamicResourceAllocation
  DRADeviceBindingConditions DynamicResourceAllocation DRAResourceClaimDeviceStatus
  DRADeviceCompatibilityGroups DynamicResourceAllocation DRAPartitionableDevices
  DRADeviceTaintRules DRADeviceTaints
  DRADeviceTaints DynamicResourceAllocation
  DRAExtendedResource DynamicResourceAllocation
  DRAFractionalCapacityRange DRAConsumableCapacity
  DRAListTypeAttributes DynamicResourceAllocation
  DRANodeAllocatableResources DynamicResourceAllocation
  DRAOptionalNodeOperations DynamicResourceAllocation NodeDeclaredFeatures
  DRAPartitionableDevices DynamicResourceAllocation
  DRAPartitionableDevicesType DynamicResourceAllocation DRAPartitionableDevices DRAResourcePoolStatus
  DRAPrioritizedList DynamicResourceAllocation
  DRAResourceClaimGranularStatusAuthorization DynamicResourceAllocation DRAResourceClaimDeviceStatus
  DRAResourcePoolStatus DynamicResourceAllocation
  DRASchedulerFilterTimeout DynamicResourceAllocation
  DRAWorkloadResourceClaims DynamicResourceAllocation GenericWorkload
  DeclarativeValidationBeta DeclarativeValidation
  DeclarativeValidationTakeover DeclarativeValidation
  DisableAllocatorDualWrite MultiCIDRServiceAllocator
  EventedPLEG PLEGOnDemandRelist
  ExtendWebSocketsToKubelet NodeDeclaredFeatures
  GracefulNodeShutdownBasedOnPodPriority GracefulNodeShutdown
  H2CContainerProbe NodeDeclaredFeatures
  ImageVolumeWithDigest ImageVolume
  InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScaling PodLevelResources NodeDeclaredFeatures
  InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScaling
  InPlacePodVerticalScalingExclusiveMemory InPlacePodVerticalScaling
  InPlacePodVerticalScalingInitContainers InPlacePodVerticalScaling NodeDeclaredFeatures
  InPlacePodVerticalScalingMemoryBackedVolumes InPlacePodVerticalScaling NodeDeclaredFeatures
  InPlacePodVerticalScalingSchedulerPreemption InPlacePodVerticalScaling
  KubeletAllocatedPodsEndpoint InPlacePodVerticalScaling
  MatchLabelKeysInPodTopologySpreadSelectorMerge MatchLabelKeysInPodTopologySpread
  NodeControllerLeaseCircuitBreaker AtomicFIFO
  PodGroupPreemptionPolicy GenericWorkload
  PodLevelResourceManagers PodLevelResources
  PodLevelResourcesFixDefaulting PodLevelResources
  PodLevelResourcesFixKubeletQOSClass PodLevelResources
  ProcMountType UserNamespacesSupport
  ResourceHealthStatus DynamicResourceAllocation
  ResourceHealthStatusMessage ResourceHealthStatus
  RestartAllContainersOnContainerExits ContainerRestartRules NodeDeclaredFeatures
  ServiceAccountTokenNodeBinding ServiceAccountTokenNodeBindingValidation
  StaleControllerConsistencyDaemonSet AtomicFIFO
  StaleControllerConsistencyHPA AtomicFIFO
  StaleControllerConsistencyJob AtomicFIFO
  StaleControllerConsistencyReplicaSet AtomicFIFO
  StaleControllerConsistencyStatefulSet AtomicFIFO
  StorageVersionAPI APIServerIdentity
  TopologyAwareWorkloadScheduling GenericWorkload
  UnknownVersionInteroperabilityProxy APIServerIdentity
  UserNamespacesHostNetworkSupport UserNamespacesSupport NodeDeclaredFeatures
  WindowsGracefulNodeShutdown GracefulNodeShutdown
  WorkloadWithJob GenericWorkload
`;

const needs = table
  .trim()
  .split('\n')
  .map((line): { name: string; needed: readonly string[] } => {
    const [name = '', ...needed] = line.trim().split(' ');
    return { name, needed };
  });

/** Gates that are on while one that they need is off, in upstream's words: a program of Kubernetes does not start so. */
function checkGateNeeds(wanted: Readonly<Record<string, boolean>>): string[] {
  return needs.flatMap(({ name, needed }) => {
    const off = gateEnabled(wanted, name) ? needed.filter((each) => !gateEnabled(wanted, each)) : [];
    return off.length === 0 ? [] : [`${name} is enabled, but depends on features that are disabled: [${off.join(' ')}]`];
  });
}

/**
 * Why a program of Kubernetes does not start with a set of gates, in upstream's words. Names and locks first: what depends
 * on what says nothing of a set that cannot be.
 */
export function gateProblems(wanted: Readonly<Record<string, boolean>>): string[] {
  const problems = checkFeatureGates(wanted);
  return problems.length > 0 ? problems : checkGateNeeds(wanted);
}

/** Names in the table that are no gates: none, or the table is wrong. */
export function gateNeedsFaults(): string[] {
  return needs.flatMap(({ name, needed }) => [name, ...needed]).filter((name) => !featureGates.has(name));
}
