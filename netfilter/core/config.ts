import { tryDurationMs } from '../../base/duration.ts';
import { OpError } from '../../base/errors.ts';
import { typeFaults } from './config-fields.ts';
import { canonicalIp, parseCidr } from './ip.ts';

/** KubeProxyConfiguration v1alpha1 and kube-proxy's flags, as one checked value with upstream's defaults. */

export type DetectLocalMode = 'ClusterCIDR' | 'NodeCIDR' | 'BridgeInterface' | 'InterfaceNamePrefix';

export type ProxyMode = 'iptables' | 'nftables';

export interface ConntrackConfig {
  maxPerCore: number;
  min: number;
  tcpEstablishedMs: number;
  tcpCloseWaitMs: number;
  tcpBeLiberal: boolean;
  udpMs: number;
  udpStreamMs: number;
}

export interface ProxyConfig {
  kubeconfig: string;
  hostnameOverride: string;
  bindAddress: string;
  /** host:port; empty means not served. */
  healthzBindAddress: string;
  metricsBindAddress: string;
  bindAddressHardFail: boolean;
  mode: ProxyMode;
  /** No mode was asked for. */
  modeDefaulted: boolean;
  detectLocalMode: DetectLocalMode;
  clusterCIDRs: readonly string[];
  bridgeInterface: string;
  interfaceNamePrefix: string;
  /** CIDRs and the words primary, localhost, all. */
  nodePortAddresses: readonly string[];
  masqueradeAll: boolean;
  masqueradeBit: number;
  /** Node ports on loopback addresses too; iptables mode only. */
  localhostNodePorts: boolean;
  /** Node ports on loopback addresses are served by listening there, or refused (the gate KubeProxyNFTablesLocalhostNodePorts); nftables mode only. */
  loopbackListeners: boolean;
  /** Whether spec.externalIPs of Services count (the gate AllowServiceExternalIPs). */
  externalIPs: boolean;
  /** Pages of the metrics server (the gates ComponentFlagz and ComponentStatusz). */
  flagz: boolean;
  statusz: boolean;
  /** Profiles and the verbosity on the metrics server. */
  profiling: boolean;
  syncPeriodMs: number;
  minSyncPeriodMs: number;
  oomScoreAdj: number;
  conntrack: ConntrackConfig;
}

type Tree = Record<string, unknown>;

function invalid(detail: string, advice = ''): OpError {
  return new OpError('invalid', 'read the proxy configuration', detail, { advice });
}

/** A part of the configuration, and how its fields are called: `conntrack.` before those of conntrack. */
interface Section {
  at: string;
  fields: Tree;
}

function section(of: Section, name: string): Section {
  return { at: `${of.at}${name}.`, fields: (of.fields[name] ?? {}) as Tree };
}

/** The types have been looked at before. */
function text({ fields }: Section, field: string, otherwise: string): string {
  return (fields[field] as string | null | undefined) || otherwise;
}

function flag({ fields }: Section, field: string, otherwise: boolean): boolean {
  return (fields[field] as boolean | null | undefined) ?? otherwise;
}

function number({ at, fields }: Section, field: string, otherwise: number, least = -Infinity): number {
  const value = (fields[field] as number | null | undefined) ?? otherwise;
  if (value < least) throw invalid(`${at}${field} must not be below ${least}`);
  return value;
}

function duration({ at, fields }: Section, field: string, otherwise: string): number {
  const given = (fields[field] as string | null | undefined) || otherwise;
  const ms = tryDurationMs(given) ?? 0;
  if (ms < 0) throw invalid(`${at}${field} must not be below 0`);
  return ms;
}

function list({ fields }: Section, field: string): string[] {
  return (fields[field] as string[] | null | undefined) ?? [];
}

/** An address that may lack its port, as kube-proxy completes it. */
export function withPort(address: string, port: number): string {
  if (/^\[.*\]:\d+$/.test(address) || /^[^:]+:\d+$/.test(address)) return address;
  const bare = address.replace(/^\[(.*)\]$/, '$1');
  return bare.includes(':') ? `[${bare}]:${port}` : `${bare}:${port}`;
}

/** Without a mode upstream 1.37 means iptables; ipvs is the one that is not there. */
function modeOf(mode: string): ProxyMode {
  const advice = 'Start it with --proxy-mode=nftables or iptables, or set mode in the configuration.';
  if (mode === '' || mode === 'iptables') return 'iptables';
  if (mode === 'nftables') return 'nftables';
  if (mode === 'ipvs')
    throw new OpError('unsupported', 'start the proxy', 'proxy mode ipvs is deprecated upstream and not supported; use --proxy-mode=nftables', { advice });
  throw invalid(`unknown proxy mode "${mode}"`, advice);
}

/** @param object the parsed file, or what flags amount to in the same form */
export function proxyConfig(object: unknown): ProxyConfig {
  if (object !== undefined && object !== null && (typeof object !== 'object' || Array.isArray(object))) throw invalid('the configuration must be a mapping');
  const root: Section = { at: '', fields: (object ?? {}) as Tree };
  const { apiVersion, kind } = root.fields;
  if (apiVersion !== undefined && apiVersion !== 'kubeproxy.config.k8s.io/v1alpha1')
    throw invalid(`apiVersion ${JSON.stringify(apiVersion)} is not kubeproxy.config.k8s.io/v1alpha1`);
  if (kind !== undefined && kind !== 'KubeProxyConfiguration') throw invalid(`kind ${JSON.stringify(kind)} is not KubeProxyConfiguration`);
  const faults = typeFaults(root.fields);
  if (faults.length > 0) throw invalid(faults.join('; '));
  const asked = text(root, 'mode', '');
  const mode = modeOf(asked);
  const bindAddress = text(root, 'bindAddress', '0.0.0.0');
  if (canonicalIp(bindAddress) === null) throw invalid(`bindAddress "${bindAddress}" is no IP address`);
  const v6 = bindAddress.includes(':');
  const detect = section(root, 'detectLocal');
  const rules = section(root, mode);
  const conntrack = section(root, 'conntrack');
  const gates = section(root, 'featureGates');
  const config: ProxyConfig = {
    kubeconfig: text(section(root, 'clientConnection'), 'kubeconfig', ''),
    hostnameOverride: text(root, 'hostnameOverride', ''),
    bindAddress,
    healthzBindAddress: withPort(text(root, 'healthzBindAddress', v6 ? '[::]' : '0.0.0.0'), 10256),
    metricsBindAddress: withPort(text(root, 'metricsBindAddress', v6 ? '[::1]' : '127.0.0.1'), 10249),
    bindAddressHardFail: flag(root, 'bindAddressHardFail', false),
    mode,
    modeDefaulted: asked === '',
    detectLocalMode: text(root, 'detectLocalMode', 'ClusterCIDR') as DetectLocalMode,
    clusterCIDRs: text(root, 'clusterCIDR', '')
      .split(',')
      .map((cidr) => cidr.trim())
      .filter((cidr) => cidr !== ''),
    bridgeInterface: text(detect, 'bridgeInterface', ''),
    interfaceNamePrefix: text(detect, 'interfaceNamePrefix', ''),
    nodePortAddresses: list(root, 'nodePortAddresses'),
    masqueradeAll: flag(rules, 'masqueradeAll', false),
    masqueradeBit: number(rules, 'masqueradeBit', 14),
    localhostNodePorts: mode === 'iptables' && flag(rules, 'localhostNodePorts', true),
    loopbackListeners: mode === 'nftables' && flag(gates, 'KubeProxyNFTablesLocalhostNodePorts', flag(gates, 'AllAlpha', false)),
    externalIPs: flag(gates, 'AllowServiceExternalIPs', true),
    flagz: flag(gates, 'ComponentFlagz', flag(gates, 'AllBeta', true)),
    statusz: flag(gates, 'ComponentStatusz', flag(gates, 'AllBeta', true)),
    profiling: flag(root, 'enableProfiling', false),
    syncPeriodMs: duration(rules, 'syncPeriod', '30s') || 30_000,
    minSyncPeriodMs: duration(rules, 'minSyncPeriod', '1s') || 1000,
    oomScoreAdj: number(root, 'oomScoreAdj', -999),
    conntrack: {
      maxPerCore: number(conntrack, 'maxPerCore', 32 * 1024, 0),
      min: number(conntrack, 'min', 128 * 1024, 0),
      tcpEstablishedMs: duration(conntrack, 'tcpEstablishedTimeout', '24h'),
      tcpCloseWaitMs: duration(conntrack, 'tcpCloseWaitTimeout', '1h'),
      tcpBeLiberal: flag(conntrack, 'tcpBeLiberal', false),
      udpMs: duration(conntrack, 'udpTimeout', '0'),
      udpStreamMs: duration(conntrack, 'udpStreamTimeout', '0'),
    },
  };
  checkValues(config);
  number(section(root, 'clientConnection'), 'burst', 10, 0);
  duration(root, 'configSyncPeriod', '15m');
  return config;
}

function checkValues(config: ProxyConfig): void {
  if (!['ClusterCIDR', 'NodeCIDR', 'BridgeInterface', 'InterfaceNamePrefix'].includes(config.detectLocalMode))
    throw invalid(`detectLocalMode "${config.detectLocalMode}" is unknown`);
  if (config.detectLocalMode === 'BridgeInterface' && config.bridgeInterface === '')
    throw invalid('detectLocalMode BridgeInterface needs detectLocal.bridgeInterface');
  if (config.detectLocalMode === 'InterfaceNamePrefix' && config.interfaceNamePrefix === '')
    throw invalid('detectLocalMode InterfaceNamePrefix needs detectLocal.interfaceNamePrefix');
  checkClusterCIDRs(config.clusterCIDRs);
  const words = new Set<string>();
  for (const entry of config.nodePortAddresses) {
    if (words.has(entry)) throw invalid(`nodePortAddresses has "${entry}" twice`);
    if (['primary', 'localhost', 'all'].includes(entry)) words.add(entry);
    else if (parseCidr(entry) === null) throw invalid(`nodePortAddresses entry "${entry}" is neither a CIDR nor primary, localhost or all`);
  }
  for (const field of ['healthzBindAddress', 'metricsBindAddress'] as const) checkAddress(field, config[field]);
  if (config.masqueradeBit < 0 || config.masqueradeBit > 31) throw invalid(`${config.mode}.masqueradeBit must be 0 to 31`);
  if (config.minSyncPeriodMs > config.syncPeriodMs) throw invalid(`${config.mode}.minSyncPeriod must not be longer than ${config.mode}.syncPeriod`);
  if (config.oomScoreAdj < -1000 || config.oomScoreAdj > 1000) throw invalid('oomScoreAdj must be -1000 to 1000');
}

function checkClusterCIDRs(cidrs: readonly string[]): void {
  for (const cidr of cidrs) if (parseCidr(cidr) === null) throw invalid(`clusterCIDR "${cidr}" is no CIDR`);
  const families = new Set(cidrs.map((cidr) => parseCidr(cidr)!.family));
  if (cidrs.length > families.size) throw invalid(`clusterCIDR "${cidrs.join(',')}" must be one CIDR, or one of each family`);
}

function checkAddress(field: string, address: string): void {
  const [, host = '', port = ''] = /^\[?(.*?)\]?:(\d+)$/.exec(address) ?? [];
  if (canonicalIp(host) === null) throw invalid(`${field} "${address}" must have an IP address`);
  if (Number(port) < 1 || Number(port) > 65_535) throw invalid(`${field} "${address}" must have a port from 1 to 65535`);
}
