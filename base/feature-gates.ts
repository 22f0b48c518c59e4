/** Kubernetes' feature gates as of 1.37: stage, default, and whether the default may be changed. */
export interface FeatureGate {
  readonly stage: 'Alpha' | 'Beta' | 'GA' | 'Deprecated';
  readonly default: boolean;
  readonly locked: boolean;
}

/** One word a gate: `+` on or `-` off by default, `!` locked. From upstream's own tables; names are the contract. */
const table: Readonly<Record<FeatureGate['stage'], string>> = {
  Alpha: `
    APIServerWebhookAuthenticationToken- APIServingWithRoutine- AllAlpha- AtomicWriteVolumeUserFields- CBORServingAndStorage-
    CPUManagerPolicyAlphaOptions- CRIListStreaming- CSIVolumeHealth- ClientsAllowCBOR- ClientsPreferCBOR-
    CloudControllerManagerWatchBasedRoutesReconciliation- CloudControllerManagerWebhook- CompositePodGroup- ConsistentListFromCacheSkipTimeoutFallback-
    ContainerStopSignals- ControllerManagerReleaseLeaderElectionLockOnExit- CrossNamespaceVolumeDataSource- DRADerivedAttributes-
    DRADeviceCompatibilityGroups- DRAListTypeAttributes- DRANodeAllocatableResources- DRAOptionalNodeOperations- DRAPartitionableDevicesType-
    DRAResourcePoolStatus- DefaultPodSysctls- EmptyDirVolumeMode- EventedPLEG- EvictionRequestAPI- GRPCContainerProbeTLS- H2CContainerProbe-
    ImageVolumeWithDigest- InPlacePodVerticalScalingExclusiveCPUs- InPlacePodVerticalScalingExclusiveMemory- InPlacePodVerticalScalingMemoryBackedVolumes-
    InPlacePodVerticalScalingSchedulerPreemption- InterPodAffinityHostnameFastPath- KubeProxyNFTablesLocalhostNodePorts- KubeletAllocatedPodsEndpoint-
    LoggingAlphaOptions- MutablePVNodeAffinity- NodeLifecycleConditions- PodGroupPreemptionPolicy- PodLogsQuerySplitStreams- QOSReserved-
    ReduceDefaultCrashLoopBackOffDecay- RuntimeClassInImageCriApi- SchedulerPreQueueingHints- ShardedListAndWatch- StatefulSetRecreateStrategy-
    StorageVersionAPI- TaintTolerationComparisonOperators- TopologyAwareWorkloadScheduling- TopologyManagerPolicyAlphaOptions-
    UserNamespacesHostNetworkSupport- VolumeBindMountOptions- WindowsCPUAndMemoryAffinity- WorkloadWithJob-
  `,
  Beta: `
    APIResponseCompression+ APIServerIdentity+ AllBeta- AllowParsingUserUIDFromCertAuth+ AllowUnsafeMalformedObjectDeletion+ AtomicFIFO+
    AuthorizePodWebsocketUpgradeCreatePermission+ CPUManagerPolicyBetaOptions+ CRDObservedGenerationTracking+ ClearingNominatedNodeNameAfterBinding+
    ClientsAllowCARotation+ ClientsAllowTLSCacheGC+ ComponentFlagz+ ComponentStatusz+ ConcurrentWatchObjectDecode+ ConstrainedImpersonation+
    ContainerCheckpoint+ ContainerRestartRules+ ContextualLogging+ CoordinatedLeaderElection- DRAConsumableCapacity+ DRADeviceBindingConditions+
    DRAFractionalCapacityRange- DRAPartitionableDevices+ DRAResourceClaimGranularStatusAuthorization+ DRASchedulerFilterTimeout+
    DRAWorkloadResourceClaims- DeclarativeValidationBeta+ DeploymentReplicaSetTerminatingReplicas+ DetectCacheInconsistency+ EnvFiles+ EtcdRangeStream+
    ExcludeAdmissionWebhookVirtualResources+ ExtendWebSocketsToKubelet+ GenericWorkload- GracefulNodeShutdown+ GracefulNodeShutdownBasedOnPodPriority+
    HPAGeneration+ HPAOptimizedSelectorStore+ HPAScaleToZero+ HugepageAwareEviction+ InOrderInformersBatchProcess+
    InPlacePodLevelResourcesVerticalScaling+ KubeletCrashLoopBackOffMax+ KubeletEnsureSecretPulledImages+ KubeletInUserNamespace+ KubeletSeparateDiskGC+
    KubeletServiceAccountTokenForCredentialProviders+ ListFromCacheSnapshot+ LocalStorageCapacityIsolationFSQuotaMonitoring- LoggingBetaOptions+
    ManifestBasedAdmissionControlConfig+ MatchLabelKeysInPodTopologySpread+ MatchLabelKeysInPodTopologySpreadSelectorMerge+ MaxUnavailableStatefulSet+
    MemoryQoS+ MutablePodResourcesForSuspendedJobs+ MutableSchedulingDirectivesForSuspendedJobs+ NFTablesNetlink+ NativeHistograms+
    NodeControllerLeaseCircuitBreaker+ NominatedNodeNameForExpectation+ OpenAPIEnums+ OpportunisticBatching+ PersistentVolumeClaimUnusedSinceTime+
    PodAndContainerStatsFromCRI- PodDeletionCost+ PodLevelResourceManagers- PodLevelResources+ PodLevelResourcesFixDefaulting+
    PodLevelResourcesFixKubeletQOSClass+ PodTopologyLabelsAdmission+ PodsAPI+ PortForwardWebsockets+ ReloadKubeletClientCAFile+
    ReloadKubeletServerCertificateFile+ RemoteRequestHeaderUID+ ResourceHealthStatus+ ResourceHealthStatusMessage+ RestartAllContainersOnContainerExits+
    RotateKubeletServerCertificate+ SchedulerAsyncAPICalls- SchedulerAsyncPreemption+ SchedulerPopFromBackoffQ+ ServiceAccountNodeAudienceRestriction+
    SizeBasedListCostEstimate+ StaleControllerConsistencyDaemonSet+ StaleControllerConsistencyHPA+ StaleControllerConsistencyJob+
    StaleControllerConsistencyReplicaSet+ StaleControllerConsistencyStatefulSet+ StatefulSetSemanticRevisionComparison+ StorageCapacityScoring+
    StorageVersionHash+ StrictIPCIDRValidation+ StructuredAuthenticationConfigurationEgressSelector+ StructuredAuthenticationConfigurationJWKSMetrics+
    TokenRequestServiceAccountUIDValidation+ TopologyManagerPolicyBetaOptions+ TranslateStreamCloseWebsocketRequests+ UnauthenticatedHTTP2DOSMitigation+
    UnknownVersionInteroperabilityProxy+ UnlockWhileProcessingFIFO+ VolumeLimitScaling+ WatchList+ WatchListClient+ WatchListCompression+
    WebhookRoundTripLoadBalancing+ WindowsGracefulNodeShutdown+
  `,
  Deprecated: `
    AggregatedDiscoveryRemoveBetaType+! AllowDNSOnlyNodeCSR- AllowInsecureKubeletCertificateSigningRequests- AllowOverwriteTerminationGracePeriodSeconds-!
    ChangeContainerStatusOnKubeletRestart- DeclarativeValidationTakeover-! DisableCPUQuotaWithExclusiveCPUs+! DisableNodeKubeProxyVersion+!
    GitRepoVolumeDriver-! KMSv1- KubeProxyIPVS+ KubeletPodResourcesListUseActivePods+ KubeletRegistrationGetOnExistsOnly- SeparateCacheWatchRPC-!
    ServiceCIDRStatusFieldWiping+ StorageNamespaceIndex+ WindowsHostNetwork-
  `,
  GA: `
    AllowServiceExternalIPs+ CPUManagerPolicyOptions+! CRDValidationRatcheting+! CSIServiceAccountTokenSecrets+! ClusterTrustBundle+
    ClusterTrustBundleProjection+ CustomCPUCFSQuotaPeriod+ CustomResourceFieldSelectors+! DRAAdminAccess+! DRADeviceTaintRules+ DRADeviceTaints+
    DRAExtendedResource+! DRAPrioritizedList+! DRAResourceClaimDeviceStatus+! DeclarativeValidation+! DisableAllocatorDualWrite+!
    DynamicResourceAllocation+! ExecProbeTimeout+! ExternalServiceAccountTokenSigner+! HPAConfigurableTolerance+! HostnameOverride+! ImageMaximumGCAge+!
    ImageVolume+! InOrderInformers+! InPlacePodVerticalScaling+! InPlacePodVerticalScalingInitContainers+! InformerResourceVersion+ JobManagedBy+!
    KubeletCgroupDriverFromCRI+! KubeletFineGrainedAuthz+! KubeletPSI+! KubeletPodResourcesDynamicResources+! KubeletPodResourcesGet+! KubeletTracing+!
    MatchLabelKeysInPodAffinity+! MultiCIDRServiceAllocator+! MutableCSINodeAllocatableCount+! MutatingAdmissionPolicy+ NFTablesProxyMode+!
    NodeDeclaredFeatures+! NodeInclusionPolicyInPodTopologySpread+! NodeLogQuery+! NodeSwap+! PLEGOnDemandRelist+! PodCertificateRequest+
    PodObservedGenerationTracking+! PodReadyToStartContainersCondition+! PodSchedulingReadiness+! PreferSameTrafficDistribution+! ProcMountType+!
    RecoverVolumeExpansionFailure+! RecursiveReadOnlyMounts+! RelaxedEnvironmentVariableValidation+! RelaxedServiceNameValidation+! SELinuxChangePolicy+!
    SELinuxMount+ SELinuxMountReadWriteOncePod+! SeparateTaintEvictionController+! ServiceAccountTokenJTI+! ServiceAccountTokenNodeBinding+!
    ServiceAccountTokenNodeBindingValidation+! ServiceAccountTokenPodNodeInfo+! StorageVersionMigrator+ SupplementalGroupsPolicy+! SystemdWatchdog+!
    TopologyManagerPolicyOptions+! UserNamespacesSupport+! VolumeAttributesClass+! WatchCacheInitializationPostStartHook+! WinDSR+! WinOverlay+!
  `,
};

export const featureGates: ReadonlyMap<string, FeatureGate> = new Map(
  (Object.keys(table) as FeatureGate['stage'][]).flatMap((stage) =>
    table[stage]
      .trim()
      .split(/\s+/)
      .map((word): [string, FeatureGate] => {
        const match = /^(\w+)([+-])(!?)$/.exec(word);
        return [match?.[1] ?? word, { stage, default: match?.[2] === '+', locked: match?.[3] === '!' }];
      }),
  ),
);

/** What is wrong with a set of gates, in upstream's words. `AllAlpha` and `AllBeta` are gates like any other here. */
export function checkFeatureGates(wanted: Readonly<Record<string, boolean>>): string[] {
  const problems: string[] = [];
  for (const [name, value] of Object.entries(wanted)) {
    const gate = featureGates.get(name);
    if (gate === undefined) problems.push(`unrecognized feature gate: ${name}`);
    else if (gate.locked && gate.default !== value) problems.push(`cannot set feature gate ${name} to ${value}, feature is locked to ${gate.default}`);
  }
  return problems;
}

/** Whether a gate is on: what was asked for, else by its whole stage, else its default. */
export function gateEnabled(wanted: Readonly<Record<string, boolean>>, name: string): boolean {
  const gate = featureGates.get(name);
  const byStage = gate?.stage === 'Alpha' ? wanted['AllAlpha'] : gate?.stage === 'Beta' ? wanted['AllBeta'] : undefined;
  return wanted[name] ?? byStage ?? gate?.default ?? false;
}
