import { allowedSysctlsProblems, defaultSysctlsProblems } from './admit-sysctls.ts';
import type { KubeletConfiguration } from './config.ts';
import { durationMs } from '../../base/duration.ts';
import { gatedProblems, loggingProblems, podLogsDirProblems, reservationProblems } from './config-check-gated.ts';
import { gateProblems } from '../../base/feature-gate-needs.ts';
import { gateEnabled } from '../../base/feature-gates.ts';
import { isLabelValue, isQualifiedName } from './labels.ts';
import { allowlistProblem } from './pull-records.ts';
import { readQosReserved } from './qos-reserved.ts';
import { tryParseQuantity } from './quantity.ts';
import { tracingProblems } from './tracing.ts';
import { idsPerPodProblem } from './user-namespaces.ts';

/** What of the machine decides whether a configuration can be used on it. */
export interface MachineLimits {
  readonly cgroupVersion: 1 | 2;
  readonly swapBytes: number;
}

/** All that is wrong with a configuration, in upstream's words; empty when it can be used. */
export function checkConfiguration(config: KubeletConfiguration): string[] {
  return [
    ...gateProblems(config.featureGates),
    ...tracingProblems(config.tracing),
    ...loggingProblems(config),
    ...[numbers, periods, choices, allocatable, amounts, pulls, gatedProblems, reservationProblems]
      .flatMap((check) => check(config))
      .concat(podLogsDirProblems(config.podLogsDir))
      .map((problem) => `invalid configuration: ${problem}`),
  ];
}

/** What the machine rules out. */
export function checkMachine(config: KubeletConfiguration, machine: MachineLimits): string[] {
  const problems: string[] = [];
  if (config.failCgroupV1 && machine.cgroupVersion === 1)
    problems.push('kubelet is configured to not run on a host using cgroup v1. cgroup v1 support is unsupported and will be removed in a future release');
  if (config.singleProcessOOMKill === false && machine.cgroupVersion === 1)
    problems.push('invalid configuration: singleProcessOOMKill must not be explicitly set to false when using cgroup v1');
  if (config.memorySwap.swapBehavior === 'LimitedSwap' && machine.cgroupVersion === 1)
    problems.push('memorySwap.swapBehavior: swap feature is enabled and LimitedSwap but it is only supported with cgroupv2');
  if (config.failSwapOn && machine.swapBytes > 0)
    problems.push('running with swap on is not supported, please disable swap or set --fail-swap-on flag to false');
  return problems;
}

function between(value: number, low: number, high: number): boolean {
  return value >= low && value <= high;
}

function numbers(config: KubeletConfiguration): string[] {
  const problems: string[] = [];
  const range = (value: number, low: number, high: number, name: string): void => {
    if (!between(value, low, high)) problems.push(`${name} ${value} must be between ${low} and ${high}, inclusive`);
  };
  const notNegative = (value: number, name: string): void => {
    if (value < 0) problems.push(`${name} ${value} must not be a negative number`);
  };
  if (config.nodeLeaseDurationSeconds <= 0) problems.push('nodeLeaseDurationSeconds must be greater than 0');
  notNegative(config.eventBurst, 'eventBurst (--event-burst)');
  notNegative(config.eventRecordQPS, 'eventRecordQPS (--event-qps)');
  if (config.healthzPort !== 0) range(config.healthzPort, 1, 65_535, 'healthzPort (--healthz-port)');
  range(config.imageGCHighThresholdPercent, 0, 100, 'imageGCHighThresholdPercent (--image-gc-high-threshold)');
  range(config.imageGCLowThresholdPercent, 0, 100, 'imageGCLowThresholdPercent (--image-gc-low-threshold)');
  if (config.imageGCLowThresholdPercent >= config.imageGCHighThresholdPercent) {
    problems.push(
      `imageGCLowThresholdPercent (--image-gc-low-threshold) ${config.imageGCLowThresholdPercent} must be less than imageGCHighThresholdPercent (--image-gc-high-threshold) ${config.imageGCHighThresholdPercent}`,
    );
  }
  range(config.iptablesDropBit, 0, 31, 'iptablesDropBit (--iptables-drop-bit)');
  range(config.iptablesMasqueradeBit, 0, 31, 'iptablesMasqueradeBit (--iptables-masquerade-bit)');
  notNegative(config.kubeAPIBurst, 'kubeAPIBurst (--kube-api-burst)');
  notNegative(config.kubeAPIQPS, 'kubeAPIQPS (--kube-api-qps)');
  if (config.nodeStatusMaxImages < -1) problems.push(`nodeStatusMaxImages (--node-status-max-images) ${config.nodeStatusMaxImages} must be -1 or greater`);
  notNegative(config.maxOpenFiles, 'maxOpenFiles (--max-open-files)');
  notNegative(config.maxPods, 'maxPods (--max-pods)');
  range(config.oomScoreAdj, -1_000, 1_000, 'oomScoreAdj (--oom-score-adj)');
  notNegative(config.podsPerCore, 'podsPerCore (--pods-per-core)');
  range(config.port, 1, 65_535, 'port (--port)');
  if (config.readOnlyPort !== 0) range(config.readOnlyPort, 0, 65_535, 'readOnlyPort (--read-only-port)');
  notNegative(config.registryBurst, 'registryBurst (--registry-burst)');
  notNegative(config.registryPullQPS, 'registryPullQPS (--registry-qps)');
  const { idsPerPod, ...unknown } = config.userNamespaces ?? {};
  for (const name of Object.keys(unknown)) problems.push(`userNamespaces: unknown field "${name}"`);
  const ids = idsPerPod === undefined || idsPerPod === null ? null : idsPerPodProblem(idsPerPod);
  if (ids !== null) problems.push(ids.replace('invalid configuration: ', ''));
  problems.push(...allowedSysctlsProblems(config.allowedUnsafeSysctls));
  problems.push(...defaultSysctlsProblems(config.defaultPodSysctls, gateEnabled(config.featureGates, 'DefaultPodSysctls')));
  const qosReserved = readQosReserved(config.qosReserved);
  if (typeof qosReserved === 'string') problems.push(qosReserved);
  if (config.containerLogMaxWorkers < 1) problems.push('containerLogMaxWorkers must be greater than or equal to 1');
  if (config.containerLogMaxFiles <= 1) problems.push('containerLogMaxFiles must be greater than 1');
  const factor = config.memoryThrottlingFactor;
  if (factor !== null && (factor <= 0 || factor > 1)) problems.push(`memoryThrottlingFactor ${factor} must be greater than 0 and less than or equal to 1.0`);
  return problems;
}

function periods(config: KubeletConfiguration): string[] {
  const problems: string[] = [];
  const quotaMs = durationMs(config.cpuCFSQuotaPeriod);
  if (!gateEnabled(config.featureGates, 'CustomCPUCFSQuotaPeriod')) {
    if (quotaMs !== 100)
      problems.push(`cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {${config.cpuCFSQuotaPeriod}} requires feature gate CustomCPUCFSQuotaPeriod`);
  } else if (!between(quotaMs, 1, 1_000))
    problems.push(`cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {${config.cpuCFSQuotaPeriod}} must be between 1ms and 1sec, inclusive`);
  if (durationMs(config.syncFrequency) <= 0) problems.push(`syncFrequency (--sync-frequency) ${config.syncFrequency} must be greater than 0`);
  const [minAgeMs, maxAgeMs] = [durationMs(config.imageMinimumGCAge), durationMs(config.imageMaximumGCAge)];
  if (minAgeMs < 0) problems.push(`imageMinimumGCAge ${config.imageMinimumGCAge} must not be negative`);
  if (maxAgeMs < 0) problems.push(`imageMaximumGCAge ${config.imageMaximumGCAge} must not be negative`);
  if (maxAgeMs > 0 && maxAgeMs <= minAgeMs)
    problems.push(`imageMaximumGCAge ${config.imageMaximumGCAge} must be greater than imageMinimumGCAge ${config.imageMinimumGCAge}`);
  const [graceMs, criticalMs] = [durationMs(config.shutdownGracePeriod), durationMs(config.shutdownGracePeriodCriticalPods)];
  if (criticalMs > graceMs)
    problems.push(`shutdownGracePeriodCriticalPods {${config.shutdownGracePeriodCriticalPods}} must be <= shutdownGracePeriod {${config.shutdownGracePeriod}}`);
  if (graceMs !== 0 && graceMs < 1_000) problems.push(`shutdownGracePeriod {${config.shutdownGracePeriod}} must be either zero or otherwise >= 1 sec`);
  if (criticalMs !== 0 && criticalMs < 1_000)
    problems.push(`shutdownGracePeriodCriticalPods {${config.shutdownGracePeriodCriticalPods}} must be either zero or otherwise >= 1 sec`);
  if (config.shutdownGracePeriodByPodPriority.length > 0 && (graceMs > 0 || criticalMs > 0))
    problems.push('Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time');
  const restart = config.crashLoopBackOff.maxContainerRestartPeriod;
  const restartMs = durationMs(restart ?? '');
  if (restart !== null && gateEnabled(config.featureGates, 'KubeletCrashLoopBackOffMax') && !between(restartMs, 1_000, 300_000))
    problems.push(`CrashLoopBackOff.MaxContainerRestartPeriod (got: ${restartMs / 1_000} seconds) must be set between 1s and 300s`);
  if (durationMs(config.containerLogMonitorInterval) < 3_000)
    problems.push('containerLogMonitorInterval must be a positive time duration greater than or equal to 3s');
  return problems;
}

function optionProblem(value: string, allowed: readonly string[], name: string): string {
  return `option ${JSON.stringify(value)} specified for ${name}. Valid options are ${quoted(allowed.slice(0, -1))} or ${JSON.stringify(allowed.at(-1))}`;
}

const quoted = (values: readonly string[]): string => values.map((value) => JSON.stringify(value)).join(', ');

function choices(config: KubeletConfiguration): string[] {
  const problems: string[] = [];
  const oneOf = (value: string, allowed: readonly string[], name: string): void => {
    if (!allowed.includes(value)) problems.push(`${name} ${JSON.stringify(value)} must be one of: ${quoted(allowed)}`);
  };
  oneOf(config.topologyManagerPolicy, ['none', 'best-effort', 'restricted', 'single-numa-node'], 'topologyManagerPolicy (--topology-manager-policy)');
  oneOf(config.topologyManagerScope, ['container', 'pod'], 'topologyManagerScope (--topology-manager-scope)');
  const option = (value: string, allowed: readonly string[], name: string): void => {
    if (!allowed.includes(value)) problems.push(optionProblem(value, allowed, name));
  };
  option(config.hairpinMode, ['none', 'hairpin-veth', 'promiscuous-bridge'], 'hairpinMode (--hairpin-mode)');
  oneOf(config.memorySwap.swapBehavior, ['', 'LimitedSwap', 'NoSwap'], 'memorySwap.swapBehavior');
  oneOf(config.cgroupDriver, ['cgroupfs', 'systemd'], 'cgroupDriver (--cgroup-driver)');
  oneOf(config.authorization.mode, ['AlwaysAllow', 'Webhook'], 'authorization.mode (--authorization-mode)');
  option(config.memoryReservationPolicy, ['None', 'TieredReservation'], 'memoryReservationPolicy');
  oneOf(config.configMapAndSecretChangeDetectionStrategy, ['Get', 'Cache', 'Watch'], 'configMapAndSecretChangeDetectionStrategy');
  if (config.systemCgroups !== '' && config.cgroupRoot === '')
    problems.push('systemCgroups (--system-cgroups) was specified and cgroupRoot (--cgroup-root) was not specified');
  if (config.serverTLSBootstrap && !gateEnabled(config.featureGates, 'RotateKubeletServerCertificate'))
    problems.push('serverTLSBootstrap true requires feature gate RotateKubeletServerCertificate');
  if (config.runOnce) problems.push('runOnce (--runOnce) true, Runonce mode has been deprecated and should not be set');
  if (config.enableSystemLogQuery && !config.enableSystemLogHandler) problems.push('enableSystemLogHandler is required for enableSystemLogQuery');
  for (const { key, value, effect } of config.registerWithTaints) {
    if (!isQualifiedName(key) || !isLabelValue(value) || !['NoSchedule', 'PreferNoSchedule', 'NoExecute'].includes(effect))
      problems.push(`registerWithTaints: invalid taint ${JSON.stringify(key)} with effect ${JSON.stringify(effect)}`);
  }
  return problems;
}

const enforcements = ['pods', 'system-reserved', 'system-reserved-compressible', 'kube-reserved', 'kube-reserved-compressible', 'none'];

function allocatable(config: KubeletConfiguration): string[] {
  const problems: string[] = [];
  const wanted = config.enforceNodeAllocatable;
  const name = 'enforceNodeAllocatable (--enforce-node-allocatable)';
  for (const side of ['system-reserved', 'kube-reserved']) {
    if (wanted.includes(side) && wanted.includes(`${side}-compressible`))
      problems.push(`both "${side}" and "${side}-compressible" cannot be specified together in ${name}`);
  }
  for (const [index, each] of wanted.entries()) {
    if (wanted.indexOf(each) < index) problems.push(`duplicated enforcements ${JSON.stringify(each)} in ${name}`);
    else if (!enforcements.includes(each)) problems.push(optionProblem(each, enforcements, name));
    else if (each === 'none') {
      if (wanted.length > 1) problems.push(`${name} may not contain additional enforcements when "none" is specified`);
    } else {
      if (each.startsWith('system-reserved') && config.systemReservedCgroup === '')
        problems.push(`systemReservedCgroup (--system-reserved-cgroup) must be specified when ${JSON.stringify(each)} included in ${name}`);
      if (each.startsWith('kube-reserved') && config.kubeReservedCgroup === '')
        problems.push(`kubeReservedCgroup (--kube-reserved-cgroup) must be specified when ${JSON.stringify(each)} included in ${name}`);
      if (!config.cgroupsPerQOS) problems.push(`cgroupsPerQOS (--cgroups-per-qos) must be set to true when ${JSON.stringify(each)} contained in ${name}`);
    }
  }
  return problems;
}

const evictionSignals = [
  'memory.available',
  'nodefs.available',
  'nodefs.inodesFree',
  'imagefs.available',
  'imagefs.inodesFree',
  'containerfs.available',
  'containerfs.inodesFree',
  'allocatableMemory.available',
  'pid.available',
];

function amounts(config: KubeletConfiguration): string[] {
  const problems: string[] = [];
  for (const field of ['systemReserved', 'kubeReserved'] as const) {
    for (const [resource, value] of Object.entries(config[field])) {
      if (!['cpu', 'memory', 'ephemeral-storage', 'pid'].includes(resource)) problems.push(`${field}: cannot reserve ${JSON.stringify(resource)} resource`);
      else if ((tryParseQuantity(value)?.nano ?? -1n) < 0n)
        problems.push(`${field}: ${JSON.stringify(value)} is no quantity for ${resource} that is 0 or more`);
    }
  }
  for (const field of ['evictionHard', 'evictionSoft', 'evictionMinimumReclaim'] as const) {
    for (const [signal, value] of Object.entries(config[field])) {
      if (!evictionSignals.includes(signal)) problems.push(`${field}: unknown eviction signal ${JSON.stringify(signal)}`);
      else if (!isThreshold(value)) problems.push(`${field}: ${JSON.stringify(value)} is neither a quantity nor a percentage for ${signal}`);
    }
  }
  for (const signal of Object.keys(config.evictionSoft)) {
    if (!(signal in config.evictionSoftGracePeriod)) problems.push(`evictionSoft: ${signal} has no grace period in evictionSoftGracePeriod`);
  }
  if ((tryParseQuantity(config.containerLogMaxSize)?.nano ?? 0n) <= 0n)
    problems.push(`containerLogMaxSize ${JSON.stringify(config.containerLogMaxSize)} must be a quantity greater than 0`);
  return problems;
}

function isThreshold(value: string): boolean {
  const percent = /^(\d+(?:\.\d+)?)%$/.exec(value);
  return percent === null ? (tryParseQuantity(value)?.nano ?? -1n) >= 0n : between(Number(percent[1]), 0, 100);
}

const pullPolicies = ['NeverVerify', 'NeverVerifyPreloadedImages', 'NeverVerifyAllowlistedImages', 'AlwaysVerify'];

function pulls(config: KubeletConfiguration): string[] {
  const problems: string[] = [];
  const parallel = config.maxParallelImagePulls;
  if (parallel !== null && parallel < 1) problems.push(`maxParallelImagePulls ${parallel} must be a positive number`);
  const isVerified = gateEnabled(config.featureGates, 'KubeletEnsureSecretPulledImages');
  if (config.serializeImagePulls && parallel !== null && parallel > 1)
    problems.push('maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls (--serialize-image-pulls) is set to false');
  if (isVerified && !pullPolicies.includes(config.imagePullCredentialsVerificationPolicy))
    problems.push(optionProblem(config.imagePullCredentialsVerificationPolicy, pullPolicies, 'imagePullCredentialsVerificationPolicy'));
  const { preloadedImagesVerificationAllowlist: allowlist } = config;
  if (allowlist.length > 0 && config.imagePullCredentialsVerificationPolicy !== 'NeverVerifyAllowlistedImages')
    problems.push('can\'t set `preloadedImagesVerificationAllowlist` if `imagePullCredentialsVertificationPolicy` is not "NeverVerifyAllowlistedImages"');
  problems.push(
    ...allowlist
      .flatMap((pattern) => allowlistProblem(pattern) ?? [])
      .map((problem) => `invalid image pattern in \`preloadedImagesVerificationAllowlist\`: ${problem}`),
  );
  return problems;
}
