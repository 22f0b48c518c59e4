import {
  bool,
  boolMap,
  duration,
  durationOrNs,
  group,
  groups,
  int,
  ints,
  optionalBool,
  optionalDuration,
  optionalFloat,
  optionalInt,
  optionalTextMap,
  plainDuration,
  plainInt,
  plainText,
  quantityText,
  readFields,
  record,
  text,
  textMap,
  texts,
  textsMap,
  type ValuesOf,
} from './config-fields.ts';
import { gateEnabled } from '../../base/feature-gates.ts';

const outputOptions = { splitStream: bool(false), infoBufferSize: quantityText('0') };

/** KubeletConfiguration kubelet.config.k8s.io/v1beta1 as of 1.37: every field with its default. */
export const configFields = {
  enableServer: bool(true),
  staticPodPath: text(),
  podLogsDir: text('/var/log/pods'),
  syncFrequency: duration('1m0s'),
  fileCheckFrequency: duration('20s'),
  httpCheckFrequency: duration('20s'),
  staticPodURL: text(),
  staticPodURLHeader: textsMap(),
  address: text('0.0.0.0'),
  port: int(10250),
  readOnlyPort: plainInt(0),
  tlsCertFile: text(),
  tlsPrivateKeyFile: text(),
  tlsCipherSuites: texts(),
  tlsCurvePreferences: ints(),
  tlsMinVersion: text(),
  rotateCertificates: bool(false),
  serverTLSBootstrap: bool(false),
  authentication: group({
    x509: group({ clientCAFile: text() }),
    webhook: group({ enabled: bool(true), cacheTTL: duration('2m0s') }),
    anonymous: group({ enabled: bool(false) }),
  }),
  authorization: group({
    mode: text('Webhook'),
    webhook: group({ cacheAuthorizedTTL: duration('5m0s'), cacheUnauthorizedTTL: duration('30s') }),
  }),
  registryPullQPS: plainInt(5),
  registryBurst: int(10),
  imagePullCredentialsVerificationPolicy: text(),
  preloadedImagesVerificationAllowlist: texts(),
  eventRecordQPS: plainInt(50),
  eventBurst: int(100),
  enableDebuggingHandlers: bool(true),
  enableContentionProfiling: bool(false),
  healthzPort: plainInt(10248),
  healthzBindAddress: text('127.0.0.1'),
  oomScoreAdj: plainInt(-999),
  clusterDomain: text(),
  clusterDNS: texts(),
  streamingConnectionIdleTimeout: duration('4h0m0s'),
  nodeStatusUpdateFrequency: plainDuration('0s'),
  nodeStatusReportFrequency: plainDuration('0s'),
  nodeLeaseDurationSeconds: int(40),
  imageMinimumGCAge: duration('2m0s'),
  imageMaximumGCAge: plainDuration('0s'),
  imageGCHighThresholdPercent: plainInt(85),
  imageGCLowThresholdPercent: plainInt(80),
  volumeStatsAggPeriod: duration('1m0s'),
  kubeletCgroups: text(),
  systemCgroups: text(),
  cgroupRoot: text(),
  cgroupsPerQOS: bool(true),
  cgroupDriver: text('cgroupfs'),
  cpuManagerPolicy: text('none'),
  singleProcessOOMKill: optionalBool(),
  cpuManagerPolicyOptions: textMap(),
  cpuManagerReconcilePeriod: duration('10s'),
  memoryManagerPolicy: text('None'),
  topologyManagerPolicy: text('none'),
  topologyManagerScope: text('container'),
  topologyManagerPolicyOptions: textMap(),
  qosReserved: textMap(),
  runtimeRequestTimeout: duration('2m0s'),
  hairpinMode: text('promiscuous-bridge'),
  maxPods: int(110),
  podCIDR: text(),
  podPidsLimit: plainInt(-1),
  resolvConf: plainText('/etc/resolv.conf'),
  runOnce: bool(false),
  cpuCFSQuota: bool(true),
  cpuCFSQuotaPeriod: plainDuration('100ms'),
  nodeStatusMaxImages: plainInt(50),
  maxOpenFiles: int(1_000_000),
  contentType: text('application/vnd.kubernetes.protobuf'),
  kubeAPIQPS: plainInt(50),
  kubeAPIBurst: int(100),
  serializeImagePulls: optionalBool(),
  maxParallelImagePulls: optionalInt(),
  evictionHard: optionalTextMap(),
  evictionSoft: textMap(),
  evictionSoftGracePeriod: textMap(),
  evictionPressureTransitionPeriod: duration('5m0s'),
  evictionMaxPodGracePeriod: plainInt(0),
  evictionMinimumReclaim: textMap(),
  mergeDefaultEvictionSettings: bool(false),
  podsPerCore: plainInt(0),
  enableControllerAttachDetach: bool(true),
  protectKernelDefaults: bool(false),
  makeIPTablesUtilChains: bool(true),
  iptablesMasqueradeBit: plainInt(14),
  iptablesDropBit: plainInt(15),
  featureGates: boolMap(),
  failSwapOn: bool(true),
  memorySwap: group({ swapBehavior: text() }),
  containerLogMaxSize: text('10Mi'),
  containerLogMaxFiles: plainInt(5),
  containerLogMaxWorkers: plainInt(1),
  containerLogMonitorInterval: plainDuration('10s'),
  configMapAndSecretChangeDetectionStrategy: text('Watch'),
  systemReserved: textMap(),
  kubeReserved: textMap(),
  reservedSystemCPUs: text(),
  showHiddenMetricsForVersion: text(),
  systemReservedCgroup: text(),
  kubeReservedCgroup: text(),
  enforceNodeAllocatable: texts(['pods']),
  allowedUnsafeSysctls: texts(),
  defaultPodSysctls: textMap(),
  volumePluginDir: text('/usr/libexec/kubernetes/kubelet-plugins/volume/exec/'),
  providerID: text(),
  kernelMemcgNotification: bool(false),
  logging: group({
    format: text('text'),
    flushFrequency: durationOrNs('5s'),
    verbosity: plainInt(0),
    vmodule: groups({ filePattern: text(), verbosity: plainInt(0) }),
    options: group({ text: group(outputOptions), json: group(outputOptions) }),
  }),
  enableSystemLogHandler: bool(true),
  enableSystemLogQuery: bool(false),
  shutdownGracePeriod: plainDuration('0s'),
  shutdownGracePeriodCriticalPods: plainDuration('0s'),
  shutdownGracePeriodByPodPriority: groups({ priority: plainInt(0), shutdownGracePeriodSeconds: plainInt(0) }),
  crashLoopBackOff: group({ maxContainerRestartPeriod: optionalDuration() }),
  reservedMemory: groups({ numaNode: plainInt(0), limits: textMap() }),
  enableProfilingHandler: bool(true),
  enableDebugFlagsHandler: bool(true),
  seccompDefault: bool(false),
  memoryThrottlingFactor: optionalFloat(),
  memoryReservationPolicy: text('None'),
  registerWithTaints: groups({ key: text(), value: text(), effect: text() }),
  registerNode: bool(true),
  tracing: record(null),
  localStorageCapacityIsolation: bool(true),
  containerRuntimeEndpoint: text('unix:///run/containerd/containerd.sock'),
  imageServiceEndpoint: text(),
  failCgroupV1: bool(true),
  userNamespaces: record(null),
};

export type KubeletConfiguration = ValuesOf<typeof configFields> & { evictionHard: Record<string, string>; serializeImagePulls: boolean };

export const defaultEvictionHard: Readonly<Record<string, string>> = {
  'memory.available': '100Mi',
  'nodefs.available': '10%',
  'nodefs.inodesFree': '5%',
  'imagefs.available': '15%',
  'imagefs.inodesFree': '5%',
};

const apiVersion = 'kubelet.config.k8s.io/v1beta1';

/** Reads one document strictly and fills in the defaults. The problems are empty exactly when the answer can be used. */
export function readConfiguration(document: unknown): { config: KubeletConfiguration; problems: string[] } {
  const problems: string[] = [];
  let body: Record<string, unknown> = {};
  if (document !== undefined && (typeof document !== 'object' || document === null || Array.isArray(document))) problems.push('it is no map');
  else if (document !== undefined) {
    const { apiVersion: version, kind, ...rest } = document as Record<string, unknown>;
    body = rest;
    if (kind !== 'KubeletConfiguration')
      problems.push(
        kind === undefined ? "Object 'Kind' is missing" : `no kind ${JSON.stringify(kind)} is registered for version ${JSON.stringify(version ?? '')}`,
      );
    else if (version !== apiVersion)
      problems.push(
        version === undefined ? "Object 'apiVersion' is missing" : `no kind "KubeletConfiguration" is registered for version ${JSON.stringify(version)}`,
      );
  }
  return { config: withDefaults(readFields(configFields, body, '', problems) as ValuesOf<typeof configFields>), problems };
}

/** Defaults that depend on other fields. */
function withDefaults(values: ValuesOf<typeof configFields>): KubeletConfiguration {
  const updateMs = values.nodeStatusUpdateFrequency;
  const report = values.nodeStatusReportFrequency;
  const evictionHard =
    values.evictionHard === null || values.mergeDefaultEvictionSettings ? { ...defaultEvictionHard, ...values.evictionHard } : values.evictionHard;
  const isOn = (gate: string): boolean => gateEnabled(values.featureGates, gate);
  const period = values.crashLoopBackOff.maxContainerRestartPeriod ?? (isOn('KubeletCrashLoopBackOffMax') ? '5m0s' : null);
  const verification = isOn('KubeletEnsureSecretPulledImages') ? 'NeverVerifyPreloadedImages' : '';
  return {
    ...values,
    crashLoopBackOff: { maxContainerRestartPeriod: period },
    imagePullCredentialsVerificationPolicy: values.imagePullCredentialsVerificationPolicy || verification,
    nodeStatusUpdateFrequency: updateMs === '0s' ? '10s' : updateMs,
    // Whoever sets how often it is looked at, and nothing else, means how often it is reported too.
    nodeStatusReportFrequency: report !== '0s' ? report : updateMs === '0s' ? '5m0s' : updateMs,
    serializeImagePulls: values.serializeImagePulls ?? (values.maxParallelImagePulls ?? 1) < 2,
    podPidsLimit: values.podPidsLimit < 0 ? -1 : values.podPidsLimit,
    evictionHard,
  };
}

/** Switches and numbers that Go leaves out where they are false or 0; others are pointers there, and stay. */
const leftOutAtZero = new Set(
  `rotateCertificates serverTLSBootstrap enableContentionProfiling runOnce protectKernelDefaults kernelMemcgNotification port readOnlyPort registryBurst
  eventBurst nodeLeaseDurationSeconds maxPods maxOpenFiles kubeAPIBurst evictionMaxPodGracePeriod podsPerCore splitStream`.split(/\s+/),
);

/** The configuration as /configz shows it: without what is empty, as Go leaves it out. */
export function configzOf(config: KubeletConfiguration): Record<string, unknown> {
  return { kind: 'KubeletConfiguration', apiVersion, ...withoutEmpty(config) };
}

function withoutEmpty(fields: object): Record<string, unknown> {
  const isEmpty = ([name, value]: [string, unknown]): boolean => {
    if (value === null || value === '') return true;
    if (value === false || value === 0) return leftOutAtZero.has(name);
    // A structure stays, a list or a map does not.
    return typeof value === 'object' && Object.keys(value).length === 0;
  };
  const shown = Object.entries(fields).filter((field) => !isEmpty(field));
  return Object.fromEntries(shown.map(([name, value]) => [name, structures.has(name) ? withoutEmpty(value as object) : value]));
}

const structures = new Set(['memorySwap', 'logging', 'options', 'text', 'json']);
