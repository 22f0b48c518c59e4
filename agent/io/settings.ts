import { isIP } from 'node:net';
import { version } from '../../base/version.ts';
import type { KubeletConfiguration } from '../core/config.ts';
import { durationMs } from '../../base/duration.ts';
import { crashLoopMaxMs } from '../core/backoff.ts';
import { declaredFeatures } from '../core/feature-gate-state.ts';
import { gateEnabled } from '../../base/feature-gates.ts';
import type { NodeSettings } from '../core/node-status.ts';
import type { AgentSettings } from '../seams.ts';
import type { AgentFlags } from './config-file.ts';

/** The settings of the pod side, from file and flags. */
export function agentSettings(config: KubeletConfiguration, flags: AgentFlags, hostname: string): AgentSettings {
  return {
    nodeName: nodeNameOf(flags, hostname),
    hostname: nodeNameOf(flags, hostname),
    rootDir: flags.rootDir,
    podLogsDir: config.podLogsDir,
    maxPods: config.maxPods,
    podPidsLimit: config.podPidsLimit,
    serializeImagePulls: config.serializeImagePulls,
    maxParallelImagePulls: config.maxParallelImagePulls ?? 0,
    wishes: flags.wishes,
    credentialProviderConfig: flags.credentialProviderConfig,
    credentialProviderBinDir: flags.credentialProviderBinDir,
    registryPullQps: config.registryPullQPS,
    registryBurst: config.registryBurst,
    cpuCFSQuota: config.cpuCFSQuota,
    cpuCFSQuotaPeriodMs: durationMs(config.cpuCFSQuotaPeriod),
    crashLoopMaxMs: crashLoopMaxMs(config),
    seccompDefault: config.seccompDefault,
    runtimeRequestTimeoutMs: durationMs(config.runtimeRequestTimeout),
    syncFrequencyMs: durationMs(config.syncFrequency),
    clusterDomain: config.clusterDomain,
    clusterDNS: config.clusterDNS.filter((address) => isIP(address) !== 0),
    resolvConf: config.resolvConf,
    allowedUnsafeSysctls: config.allowedUnsafeSysctls,
    memorySwapBehavior: config.memorySwap.swapBehavior === 'LimitedSwap' ? 'LimitedSwap' : 'NoSwap',
    singleProcessOOMKill: config.singleProcessOOMKill,
    runtimeCgroups: flags.runtimeCgroups,
    enableServer: config.enableServer,
    registerNode: config.registerNode,
  };
}

/** `--hostname-override`, else the machine's own name; lower case, as Kubernetes' names are. */
export function nodeNameOf(flags: AgentFlags, hostname: string): string {
  return flags.hostnameOverride === '' ? hostname.trim().toLowerCase() : flags.hostnameOverride;
}

export function nodeSettings(config: KubeletConfiguration, flags: AgentFlags, hostname: string): NodeSettings {
  return {
    nodeName: nodeNameOf(flags, hostname),
    kubeletVersion: version,
    tellsUserNamespace: gateEnabled(config.featureGates, 'KubeletInUserNamespace'),
    port: config.enableServer ? config.port : 0,
    maxPods: config.maxPods,
    podsPerCore: config.podsPerCore,
    kubeReserved: config.kubeReserved,
    systemReserved: config.systemReserved,
    evictionHard: flags.allocatableIgnoresEviction ? {} : config.evictionHard,
    labels: flags.nodeLabels,
    taints: config.registerWithTaints.map(({ key, value, effect }) => ({ key, effect, ...(value === '' ? {} : { value }) })),
    providerID: config.providerID,
    ...(flags.externalCloud ? { cloud: { nodeIPs: flags.nodeIPs } } : {}),
    declaredFeatures: declaredFeatures(config.featureGates),
  };
}
