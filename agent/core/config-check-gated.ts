import { durationMs } from '../../base/duration.ts';
import type { KubeletConfiguration } from './config.ts';
import { gateEnabled } from '../../base/feature-gates.ts';
import { tryParseQuantity } from './quantity.ts';
import { parseCpuSet } from './resources/cpuset.ts';

/** Fields that may only be set while their gate is on, in upstream's words. */
export function gatedProblems(config: KubeletConfiguration): string[] {
  const problems: string[] = [];
  const isOff = (gate: string): boolean => !gateEnabled(config.featureGates, gate);
  const hasGrace = durationMs(config.shutdownGracePeriod) > 0 || durationMs(config.shutdownGracePeriodCriticalPods) > 0;
  if (isOff('GracefulNodeShutdown') && hasGrace)
    problems.push('specifying shutdownGracePeriod or shutdownGracePeriodCriticalPods requires feature gate GracefulNodeShutdown');
  if (isOff('GracefulNodeShutdownBasedOnPodPriority') && config.shutdownGracePeriodByPodPriority.length > 0)
    problems.push('Specifying shutdownGracePeriodByPodPriority requires feature gate GracefulNodeShutdownBasedOnPodPriority');
  if (isOff('KubeletCrashLoopBackOffMax') && config.crashLoopBackOff.maxContainerRestartPeriod !== null)
    problems.push('FeatureGate KubeletCrashLoopBackOffMax not enabled, CrashLoopBackOff.MaxContainerRestartPeriod must not be set');
  if (isOff('KubeletEnsureSecretPulledImages')) {
    for (const field of ['imagePullCredentialsVerificationPolicy', 'preloadedImagesVerificationAllowlist'] as const)
      if (config[field].length > 0) problems.push(`\`${field}\` must not be set if KubeletEnsureSecretPulledImages feature gate is not enabled`);
  }
  if (isOff('MemoryQoS')) {
    // The value that versions before had as their default is let through.
    if (config.memoryThrottlingFactor !== null && config.memoryThrottlingFactor !== 0.9)
      problems.push('memoryThrottlingFactor must not be set when MemoryQoS feature gate is disabled');
    if (config.memoryReservationPolicy === 'TieredReservation')
      problems.push('memoryReservationPolicy "TieredReservation" requires MemoryQoS feature gate to be enabled');
  }
  return problems;
}

/** What `reservedSystemCPUs` and `reservedMemory` say that cannot be, in upstream's words. */
export function reservationProblems(config: KubeletConfiguration): string[] {
  const problems: string[] = [];
  if (config.reservedSystemCPUs !== '') {
    if (config.systemReservedCgroup !== '' || config.kubeReservedCgroup !== '') {
      problems.push(
        "can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup (--system-reserved-cgroup) or kubeReservedCgroup (--kube-reserved-cgroup)",
      );
    }
    if (parseCpuSet(config.reservedSystemCPUs) === null)
      problems.push(`unable to parse reservedSystemCPUs (--reserved-cpus) ${config.reservedSystemCPUs}, error: it is no list of CPUs such as 0-3,7`);
  }
  const seen = new Set<string>();
  for (const { numaNode, limits } of config.reservedMemory) {
    for (const [name, text] of Object.entries(limits)) {
      const nano = tryParseQuantity(text)?.nano;
      if (name !== 'memory' && !name.startsWith('hugepages-'))
        problems.push(`the limit type ${JSON.stringify(name)} for NUMA node ${numaNode} is not supported, only [memory hugepages-<HugePageSize>] is accepted`);
      if (nano === undefined)
        problems.push(`reservedMemory: ${JSON.stringify(text)} is no quantity for NUMA node ${numaNode} and resource ${JSON.stringify(name)}`);
      else if (nano === 0n) problems.push(`reserved memory may not be zero for NUMA node ${numaNode} and resource ${JSON.stringify(name)}`);
      if (seen.has(`${numaNode} ${name}`))
        problems.push(`the reserved memory has a duplicate value for NUMA node ${numaNode} and resource ${JSON.stringify(name)}`);
      seen.add(`${numaNode} ${name}`);
    }
  }
  return problems;
}

/** `podLogsDir` becomes part of paths and of metrics: whole, plain, and ASCII only. */
export function podLogsDirProblems(directory: string): string[] {
  const problems: string[] = [];
  const named = `pod logs path ${JSON.stringify(directory)}`;
  if (!directory.startsWith('/')) problems.push(`${named} must be absolute path`);
  const parts = directory.split('/').slice(directory.startsWith('/') ? 1 : 0);
  if (directory !== '/' && parts.some((part) => part === '' || part === '.' || part === '..')) problems.push(`${named} must be normalized`);
  if (/\P{ASCII}/u.test(directory)) problems.push(`${named} must contain ASCII characters only`);
  return problems;
}

const maxVerbosity = 2 ** 31 - 1;

/** What of `logging` and the metrics' version is refused; upstream says these without `invalid configuration`. */
export function loggingProblems({ logging, showHiddenMetricsForVersion: shown, featureGates }: KubeletConfiguration): string[] {
  const problems: string[] = [];
  // The one minor version before this one.
  if (shown !== '' && shown !== '1.36') {
    problems.push(
      `invalid showHiddenMetricsForVersion: showHiddenMetricsForVersion: Invalid value: ${JSON.stringify(shown)}: must be omitted or have the value '1.36'; only the previous minor version is allowed`,
    );
  }
  const { format, verbosity, vmodule, options } = logging;
  if (format !== 'text' && format !== 'json') problems.push(`logging.format: Invalid value: ${JSON.stringify(format)}: Unsupported log format`);
  if (format === 'json' && !gateEnabled(featureGates, 'LoggingBetaOptions'))
    problems.push('logging.format: Forbidden: Log format json is disabled, see LoggingBetaOptions feature');
  if (verbosity < 0 || verbosity > maxVerbosity) problems.push(`logging.verbosity: Invalid value: ${verbosity}: Must be <= ${maxVerbosity}`);
  if (vmodule.length > 0 && format !== 'text') problems.push('logging.vmodule: Forbidden: Only supported for text log format');
  for (const [index, { filePattern }] of vmodule.entries()) {
    if (filePattern === '') problems.push(`logging.vmodule[${index}]: Required value: File pattern must not be empty`);
    if (/[=,]/.test(filePattern))
      problems.push(`logging.vmodule[${index}]: Invalid value: ${JSON.stringify(filePattern)}: File pattern must not contain equal sign or comma`);
  }
  for (const name of ['text', 'json'] as const) {
    const { splitStream, infoBufferSize } = options[name];
    const size = tryParseQuantity(infoBufferSize)?.nano;
    if (size === undefined) problems.push(`logging.options.${name}.infoBufferSize: Invalid value: ${JSON.stringify(infoBufferSize)}: is no quantity`);
    if (gateEnabled(featureGates, 'LoggingAlphaOptions')) continue;
    if (splitStream) problems.push(`logging.options.${name}.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled`);
    if (size !== undefined && size !== 0n) problems.push(`logging.options.${name}.infoBufferSize: Forbidden: Feature LoggingAlphaOptions is disabled`);
  }
  return problems;
}
