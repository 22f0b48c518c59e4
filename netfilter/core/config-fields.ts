import { tryDurationMs } from '../../base/duration.ts';

/** The fields of KubeProxyConfiguration v1alpha1: which there are, and what kind of value each takes. */

/** What upstream has where nothing is said and the mode does not decide. A text that ends in `s` and is a duration is one. */
export const DEFAULTS = {
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

/** Fields that upstream reads and does not tell of where nothing was given. */
const UNTOLD = {
  windowsRunAsService: false,
  logging: { vmodule: null, options: { text: { splitStream: false }, json: { splitStream: false } } },
} as const;

/** Numbers with a fraction; all others are whole. */
const FRACTIONS = new Set(['clientConnection.qps']);
/** Go's duration, or nanoseconds. */
const DURATION_OR_NUMBER = new Set(['logging.flushFrequency']);
/** A quantity: text or number. */
const QUANTITIES = /^logging\.options\.(text|json)\.infoBufferSize$/;

export function isTree(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function isDurationText(usual: unknown): boolean {
  return typeof usual === 'string' && /^\d.*s$/.test(usual);
}

interface Findings {
  unknown: string[];
  faults: string[];
}

function look(known: Record<string, unknown>, more: Record<string, unknown>, given: Record<string, unknown>, at: string, found: Findings): void {
  for (const [field, value] of Object.entries(given)) {
    const path = `${at}${field}`;
    const isKnown = Object.hasOwn(known, field);
    if (!isKnown && !Object.hasOwn(more, field)) {
      found.unknown.push(path);
      continue;
    }
    if (value === null || value === undefined) continue;
    const usual = isKnown ? known[field] : more[field];
    const fault = path === 'featureGates' ? gatesFault(value) : faultOf(path, usual, value);
    if (fault !== null) found.faults.push(`${path} ${fault}`);
    else if (path !== 'featureGates' && isTree(usual) && isTree(value)) {
      const rest = more[field];
      look(usual, isTree(rest) ? rest : {}, value, `${path}.`, found);
    }
  }
}

/** Why a value does not fit into a field whose usual value is `usual`; null when it does. */
function faultOf(path: string, usual: unknown, value: unknown): string | null {
  if (isTree(usual)) return isTree(value) ? null : 'must be a mapping';
  if (path === 'logging.vmodule') return Array.isArray(value) ? null : 'must be a list';
  if (usual === null) return Array.isArray(value) && value.every((item) => typeof item === 'string') ? null : 'must be a list of strings';
  if (typeof usual === 'boolean') return typeof value === 'boolean' ? null : 'must be true or false';
  if (typeof usual === 'number') {
    if (FRACTIONS.has(path)) return typeof value === 'number' && Number.isFinite(value) ? null : 'must be a number';
    return Number.isInteger(value) && Math.abs(value as number) < 2 ** 31 ? null : 'must be a whole number';
  }
  if (typeof value === 'number' && (DURATION_OR_NUMBER.has(path) || QUANTITIES.test(path))) return null;
  if (typeof value !== 'string') return 'must be a string';
  if (isDurationText(usual) && value !== '' && tryDurationMs(value) === null)
    return `${JSON.stringify(value)} is no duration (write it like 30s, 1m30s or 250ms)`;
  return null;
}

function gatesFault(value: unknown): string | null {
  if (!isTree(value)) return 'must be a mapping';
  const wrong = Object.entries(value).find(([, on]) => typeof on !== 'boolean');
  return wrong === undefined ? null : `must have true or false for ${wrong[0]}`;
}

function findings(given: Record<string, unknown>): Findings {
  const found: Findings = { unknown: [], faults: [] };
  look(DEFAULTS, UNTOLD, given, '', found);
  return found;
}

/** One phrase for each value that is none of its field's kind, with the field's path. */
export function typeFaults(given: Record<string, unknown>): string[] {
  return findings(given).faults;
}

/** Paths of fields that KubeProxyConfiguration does not have. */
export function unknownFields(given: Record<string, unknown>): string[] {
  return findings(given).unknown;
}
