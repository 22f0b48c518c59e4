import { OpError } from '../../base/errors.ts';
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
  syncPeriodMs: number;
  minSyncPeriodMs: number;
  oomScoreAdj: number;
  conntrack: ConntrackConfig;
}

type Tree = Record<string, unknown>;

function invalid(detail: string, advice = ''): OpError {
  return new OpError('invalid', 'read the proxy configuration', detail, { advice });
}

/** A Go duration ("1m30s", "250ms") in milliseconds. */
export function durationMs(text: string): number {
  if (text === '0') return 0;
  const units: Record<string, number> = { ns: 1e-6, us: 1e-3, µs: 1e-3, ms: 1, s: 1000, m: 60_000, h: 3_600_000 };
  if (!/^(\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+$/.test(text)) throw invalid(`"${text}" is no duration`, 'Write it like 30s, 1m30s or 250ms.');
  let total = 0;
  for (const [, number, , unit] of text.matchAll(/(\d+(\.\d+)?)(ns|us|µs|ms|s|m|h)/g)) total += Number(number) * units[unit!]!;
  return total;
}

function tree(value: unknown, field: string): Tree {
  if (value === undefined || value === null) return {};
  if (typeof value !== 'object' || Array.isArray(value)) throw invalid(`${field} must be a mapping`);
  return value as Tree;
}

function text(from: Tree, field: string, otherwise: string): string {
  const value = from[field];
  if (value === undefined || value === null || value === '') return otherwise;
  if (typeof value !== 'string') throw invalid(`${field} must be a string`);
  return value;
}

function flag(from: Tree, field: string, otherwise: boolean): boolean {
  const value = from[field];
  if (value === undefined || value === null) return otherwise;
  if (typeof value !== 'boolean') throw invalid(`${field} must be true or false`);
  return value;
}

function number(from: Tree, field: string, otherwise: number): number {
  const value = from[field];
  if (value === undefined || value === null) return otherwise;
  if (typeof value !== 'number' || !Number.isInteger(value)) throw invalid(`${field} must be a whole number`);
  return value;
}

function duration(from: Tree, field: string, otherwise: string): number {
  return durationMs(text(from, field, otherwise));
}

function list(from: Tree, field: string): string[] {
  const value = from[field];
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value) || !value.every((item) => typeof item === 'string')) throw invalid(`${field} must be a list of strings`);
  return value;
}

function withPort(address: string, port: number): string {
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
  const root = tree(object, 'the configuration');
  const { apiVersion, kind } = root;
  if (apiVersion !== undefined && apiVersion !== 'kubeproxy.config.k8s.io/v1alpha1')
    throw invalid(`apiVersion ${JSON.stringify(apiVersion)} is not kubeproxy.config.k8s.io/v1alpha1`);
  if (kind !== undefined && kind !== 'KubeProxyConfiguration') throw invalid(`kind ${JSON.stringify(kind)} is not KubeProxyConfiguration`);
  const asked = text(root, 'mode', '');
  const mode = modeOf(asked);
  const bindAddress = text(root, 'bindAddress', '0.0.0.0');
  if (canonicalIp(bindAddress) === null) throw invalid(`bindAddress "${bindAddress}" is no IP address`);
  const v6 = bindAddress.includes(':');
  const detect = tree(root['detectLocal'], 'detectLocal');
  const rules = tree(root[mode], mode);
  const conntrack = tree(root['conntrack'], 'conntrack');
  const config: ProxyConfig = {
    kubeconfig: text(tree(root['clientConnection'], 'clientConnection'), 'kubeconfig', ''),
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
    syncPeriodMs: duration(rules, 'syncPeriod', '30s') || 30_000,
    minSyncPeriodMs: duration(rules, 'minSyncPeriod', '1s') || 1000,
    oomScoreAdj: number(root, 'oomScoreAdj', -999),
    conntrack: {
      maxPerCore: number(conntrack, 'maxPerCore', 32 * 1024),
      min: number(conntrack, 'min', 128 * 1024),
      tcpEstablishedMs: duration(conntrack, 'tcpEstablishedTimeout', '24h'),
      tcpCloseWaitMs: duration(conntrack, 'tcpCloseWaitTimeout', '1h'),
      tcpBeLiberal: flag(conntrack, 'tcpBeLiberal', false),
      udpMs: duration(conntrack, 'udpTimeout', '0'),
      udpStreamMs: duration(conntrack, 'udpStreamTimeout', '0'),
    },
  };
  checkValues(config);
  return config;
}

function checkValues(config: ProxyConfig): void {
  if (!['ClusterCIDR', 'NodeCIDR', 'BridgeInterface', 'InterfaceNamePrefix'].includes(config.detectLocalMode))
    throw invalid(`detectLocalMode "${config.detectLocalMode}" is unknown`);
  if (config.detectLocalMode === 'BridgeInterface' && config.bridgeInterface === '')
    throw invalid('detectLocalMode BridgeInterface needs detectLocal.bridgeInterface');
  if (config.detectLocalMode === 'InterfaceNamePrefix' && config.interfaceNamePrefix === '')
    throw invalid('detectLocalMode InterfaceNamePrefix needs detectLocal.interfaceNamePrefix');
  for (const cidr of config.clusterCIDRs) if (parseCidr(cidr) === null) throw invalid(`clusterCIDR "${cidr}" is no CIDR`);
  for (const entry of config.nodePortAddresses) {
    if (!['primary', 'localhost', 'all'].includes(entry) && parseCidr(entry) === null)
      throw invalid(`nodePortAddresses entry "${entry}" is neither a CIDR nor primary, localhost or all`);
  }
  if (config.masqueradeBit < 0 || config.masqueradeBit > 31) throw invalid(`${config.mode}.masqueradeBit must be 0 to 31`);
  if (config.minSyncPeriodMs > config.syncPeriodMs) throw invalid('minSyncPeriod must not be longer than syncPeriod');
  if (config.oomScoreAdj < -1000 || config.oomScoreAdj > 1000) throw invalid('oomScoreAdj must be -1000 to 1000');
}
