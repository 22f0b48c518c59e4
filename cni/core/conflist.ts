import { parseCidr } from './address.ts';
import { DATA_DIR } from './config.ts';

/** What the daemon of a node is told. */
export interface DaemonConfig {
  readonly socket: string;
  /** Of the network, in its configuration and in the store. */
  readonly network: string;
  readonly dataDir: string;
  /** The file for the runtime; empty: none is written. */
  readonly confFile: string;
  readonly cniVersion: string;
  /** Ranges known beforehand; those of the Node object when empty. */
  readonly podCIDRs: readonly string[];
  /** Ranges of all nodes: packets to them keep the pod's address. */
  readonly clusterCIDRs: readonly string[];
  readonly nonMasqueradeCIDRs: readonly string[];
  readonly masquerade: boolean;
  /** 0: that of the uplink. */
  readonly mtu: number;
  readonly kubeconfig: string;
  readonly nodeName: string;
  /** `auto`: only to nodes that no link of this one reaches. */
  readonly overlay: 'auto' | 'always' | 'never';
  readonly vni: number;
  readonly vxlanPort: number;
  readonly verbosity: number;
}

const DEFAULTS: DaemonConfig = {
  socket: '/run/nodelet/cni.sock',
  network: 'nodelet',
  dataDir: DATA_DIR,
  confFile: '/etc/cni/net.d/10-nodelet.conflist',
  cniVersion: '1.0.0',
  podCIDRs: [],
  clusterCIDRs: [],
  nonMasqueradeCIDRs: [],
  masquerade: true,
  mtu: 0,
  kubeconfig: '',
  nodeName: '',
  overlay: 'auto',
  vni: 4096,
  vxlanPort: 8472,
  verbosity: 0,
};

/** A configuration file's fields over the defaults; the problems are sentences. */
export function readDaemonConfig(value: unknown): { config: DaemonConfig; problems: string[] } {
  const problems: string[] = [];
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return { config: DEFAULTS, problems: ['the configuration is no object'] };
  const config: Record<string, unknown> = { ...DEFAULTS };
  for (const [key, given] of Object.entries(value)) {
    const usual = (DEFAULTS as unknown as Record<string, unknown>)[key];
    if (usual === undefined) problems.push(`unknown field "${key}"`);
    else if (Array.isArray(usual) ? !Array.isArray(given) : typeof given !== typeof usual) problems.push(`"${key}" is ${JSON.stringify(given)}`);
    else config[key] = given;
  }
  const read = config as unknown as DaemonConfig;
  for (const key of ['podCIDRs', 'clusterCIDRs', 'nonMasqueradeCIDRs'] as const)
    for (const cidr of read[key])
      if (typeof cidr !== 'string' || parseCidr(cidr) === null) problems.push(`"${key}" has ${JSON.stringify(cidr)}, which is no CIDR`);
  if (!['auto', 'always', 'never'].includes(read.overlay)) problems.push(`"overlay" is ${JSON.stringify(read.overlay)}: auto, always or never`);
  if (read.kubeconfig !== '' && read.nodeName === '') problems.push('"nodeName" is missing');
  if (read.kubeconfig === '' && read.podCIDRs.length === 0) problems.push('neither "kubeconfig" nor "podCIDRs" is given');
  return { config: read, problems };
}

/** The network configuration for the runtime: one plugin, one range a family. */
export function conflist(config: DaemonConfig, podCIDRs: readonly string[], mtu: number): string {
  const families = new Set(podCIDRs.map((cidr) => (cidr.includes(':') ? 6 : 4)));
  const plugin = {
    type: 'nodelet',
    capabilities: { portMappings: true, bandwidth: true, mac: true, ips: true },
    ipMasq: config.masquerade,
    ...(config.masquerade ? { nonMasqueradeCIDRs: [...config.clusterCIDRs, ...config.nonMasqueradeCIDRs] } : {}),
    ...(mtu > 0 ? { mtu } : {}),
    ipam: {
      ranges: podCIDRs.map((subnet) => [{ subnet }]),
      routes: [...(families.has(4) ? [{ dst: '0.0.0.0/0' }] : []), ...(families.has(6) ? [{ dst: '::/0' }] : [])],
      ...(config.dataDir === DATA_DIR ? {} : { dataDir: config.dataDir }),
    },
  };
  return `${JSON.stringify({ cniVersion: config.cniVersion, name: config.network, plugins: [plugin] }, null, 2)}\n`;
}
