import { goDuration, tryDurationMs } from '../../base/duration.ts';
import type { ProxyConfig } from './config.ts';
import { DEFAULTS, isDurationText, isTree } from './config-fields.ts';

/** KubeProxyConfiguration v1alpha1 with every field that upstream 1.37 writes, in its order. */
export type ConfigDocument = Readonly<Record<string, unknown>>;

/**
 * The configuration as upstream tells it (`/configz`, `--write-config-to`): what is in force, and what was given of the
 * rest. What only another mode has stays as given, without the periods, which are the mode's in force alone.
 */
export function configDocument(given: object, config: ProxyConfig): ConfigDocument {
  const document = filled(DEFAULTS, given) as Record<string, unknown> & Record<'iptables' | 'nftables' | 'ipvs' | 'clientConnection', object>;
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
      const durationMs = isDurationText(usual) && typeof value === 'string' ? tryDurationMs(value) : null;
      return [field, durationMs === null ? value : goDuration(durationMs)];
    }),
  );
}
