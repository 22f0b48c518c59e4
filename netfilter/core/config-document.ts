import { goDuration, tryDurationMs } from '../../base/duration.ts';
import type { ProxyConfig } from './config.ts';

/** KubeProxyConfiguration v1alpha1 with every field that upstream 1.37 writes, in its order. */
export type ConfigDocument = Readonly<Record<string, unknown>>;

/** What upstream has where nothing is said and the mode does not decide. A text that ends in `s` and is a duration is one. */
const defaults = {
  kind: 'KubeProxyConfiguration',
  apiVersion: 'kubeproxy.config.k8s.io/v1alpha1',
  featureGates: {},
  clientConnection: { kubeconfig: '', acceptContentTypes: '', contentType: 'application/vnd.kubernetes.protobuf', qps: 5, burst: 10 },
  logging: { format: 'text', flushFrequency: '5s', verbosity: 0, options: { text: { infoBufferSize: '0' }, json: { infoBufferSize: '0' } } },
  hostnameOverride: '',
  bindAddress: '',
  healthzBindAddress: '',
  metricsBindAddress: '',
  bindAddressHardFail: false,
  enableProfiling: false,
  showHiddenMetricsForVersion: '',
  mode: '',
  iptables: { masqueradeBit: 14, masqueradeAll: false, localhostNodePorts: true, syncPeriod: '0s', minSyncPeriod: '0s' },
  ipvs: {
    syncPeriod: '0s',
    minSyncPeriod: '0s',
    scheduler: '',
    excludeCIDRs: null,
    strictARP: false,
    tcpTimeout: '0s',
    tcpFinTimeout: '0s',
    udpTimeout: '0s',
  },
  nftables: { masqueradeBit: 14, masqueradeAll: false, syncPeriod: '0s', minSyncPeriod: '0s' },
  winkernel: { networkName: '', sourceVip: '', enableDSR: false, rootHnsEndpointName: '', forwardHealthCheckVip: false },
  detectLocalMode: 'ClusterCIDR',
  detectLocal: { bridgeInterface: '', interfaceNamePrefix: '' },
  clusterCIDR: '',
  nodePortAddresses: null,
  oomScoreAdj: 0,
  conntrack: {
    maxPerCore: 0,
    min: 0,
    tcpEstablishedTimeout: '0s',
    tcpCloseWaitTimeout: '0s',
    tcpBeLiberal: false,
    udpTimeout: '0s',
    udpStreamTimeout: '0s',
  },
  configSyncPeriod: '15m0s',
  portRange: '',
} as const;

/**
 * The configuration as upstream tells it (`/configz`, `--write-config-to`): what is in force, and what was given of the
 * rest. What only another mode has stays as given, without the periods, which are the mode's in force alone.
 */
export function configDocument(given: object, config: ProxyConfig): ConfigDocument {
  const document = filled(defaults, given) as Record<string, unknown> & Record<'iptables' | 'nftables' | 'ipvs' | 'clientConnection', object>;
  const { conntrack } = config;
  const idle = { masqueradeAll: false, syncPeriod: '0s', minSyncPeriod: '0s' };
  const active = {
    masqueradeBit: config.masqueradeBit,
    masqueradeAll: config.masqueradeAll,
    ...(config.mode === 'iptables' && { localhostNodePorts: config.localhostNodePorts }),
    syncPeriod: goDuration(config.syncPeriodMs),
    minSyncPeriod: goDuration(config.minSyncPeriodMs),
  };
  const addresses = config.nodePortAddresses.length > 0 ? config.nodePortAddresses : config.mode === 'nftables' ? ['primary'] : null;
  const whole = {
    ...document,
    clientConnection: { ...document.clientConnection, kubeconfig: config.kubeconfig },
    hostnameOverride: config.hostnameOverride,
    bindAddress: config.bindAddress,
    healthzBindAddress: config.healthzBindAddress,
    metricsBindAddress: config.metricsBindAddress,
    bindAddressHardFail: config.bindAddressHardFail,
    mode: config.mode,
    iptables: { ...document.iptables, ...(config.mode === 'iptables' ? active : idle) },
    ipvs: { ...document.ipvs, syncPeriod: '0s', minSyncPeriod: '0s' },
    nftables: { ...document.nftables, ...(config.mode === 'nftables' ? active : idle) },
    detectLocalMode: config.detectLocalMode,
    detectLocal: { bridgeInterface: config.bridgeInterface, interfaceNamePrefix: config.interfaceNamePrefix },
    clusterCIDR: config.clusterCIDRs.join(','),
    nodePortAddresses: addresses,
    oomScoreAdj: config.oomScoreAdj,
    conntrack: {
      maxPerCore: conntrack.maxPerCore,
      min: conntrack.min,
      tcpEstablishedTimeout: goDuration(conntrack.tcpEstablishedMs),
      tcpCloseWaitTimeout: goDuration(conntrack.tcpCloseWaitMs),
      tcpBeLiberal: conntrack.tcpBeLiberal,
      udpTimeout: goDuration(conntrack.udpMs),
      udpStreamTimeout: goDuration(conntrack.udpStreamMs),
    },
  };
  const { featureGates, ...rest } = whole as Record<string, unknown>;
  const { kind, apiVersion, ...others } = rest;
  const gates = Object.keys(featureGates ?? {}).length === 0 ? {} : { featureGates };
  return { kind, apiVersion, ...gates, ...others };
}

/** The known fields, with what was given where something was. */
function filled(known: object, given: unknown): Record<string, unknown> {
  const from = isTree(given) ? given : {};
  return Object.fromEntries(
    Object.entries(known).map(([field, usual]: [string, unknown]) => {
      const value = from[field];
      if (field === 'featureGates') return [field, isTree(value) ? value : usual];
      if (isTree(usual)) return [field, filled(usual, value)];
      if (value === undefined || value === null) return [field, usual];
      const isDuration = typeof usual === 'string' && /^\d.*s$/.test(usual);
      const durationMs = isDuration && typeof value === 'string' ? tryDurationMs(value) : null;
      return [field, durationMs === null ? value : goDuration(durationMs)];
    }),
  );
}

function isTree(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
