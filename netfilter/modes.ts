import { messageOf, OpError } from '../base/errors.ts';
import type { Log } from '../base/log.ts';
import type { Sys } from '../base/sys/types.ts';
import { removeChains, removeTables } from './cleanup.ts';
import type { ProxyConfig } from './core/config.ts';
import type { Family } from './core/ip.ts';
import { INVALID_COUNTER, LOCALHOST_COUNTER, type IptablesOptions } from './core/iptables-service.ts';
import { localhostRejectCounter } from './core/nft-table.ts';
import { wantsLocalhostNodePorts } from './core/node.ts';
import { IptablesTable } from './iptables-table.ts';
import { createConntrack, type Conntrack } from './io/conntrack.ts';
import { createIptables, detectVariant, isLegacyKind, usableFamilies } from './io/iptables.ts';
import { checkKernelVersion, findMeans, kernelFamilies } from './io/machine.ts';
import { ACCEPTED_LOCALHOST, DROPPED_INVALID, REJECTED_LOCALHOST, type Metrics } from './io/metrics.ts';
import { createPacketCounters, type PacketCounters } from './io/nfacct.ts';
import { createNetlinkKernel, readCounterPackets } from './io/nft-netlink.ts';
import type { ServiceTable } from './sync.ts';
import { Table } from './table.ts';

/** What the two modes need of the machine, and how each takes over from the other. */

export interface Mode {
  families: readonly Family[];
  conntrack: Conntrack;
  createTable: (family: Family) => ServiceTable;
  /** Removes what the other mode left. */
  afterFirstSync: () => Promise<void>;
  /** Brings those metrics up to date that the kernel keeps. */
  readCounters: () => Promise<void>;
}

export interface ModeFacts {
  config: ProxyConfig;
  metrics: Metrics;
  log: Log;
  /** Default: ours. */
  netns?: string;
}

export async function openMode(sys: Sys, facts: ModeFacts): Promise<Mode> {
  return facts.config.mode === 'nftables' ? await openNftables(sys, facts) : await openIptables(sys, facts);
}

async function openNftables(sys: Sys, { config, metrics, log, netns }: ModeFacts): Promise<Mode> {
  checkKernelVersion();
  const { kernel, fallbackKernel, conntrack, families } = await findMeans(sys, log);
  return {
    families,
    conntrack,
    createTable: () => new Table({ kernel, fallback: fallbackKernel, log }),
    afterFirstSync: async () => void (await removeAllChains(sys, log, netns)),
    readCounters: async () => {
      if (config.loopbackListeners) await readRejected(sys, families, metrics, netns);
    },
  };
}

async function openIptables(sys: Sys, facts: ModeFacts): Promise<Mode> {
  const { log, metrics } = facts;
  const where = facts.netns === undefined ? {} : { netns: facts.netns };
  // What the installed programs are is asked for in any case: it is known by the time it is needed.
  const [variant, isLegacyInstalled] = await Promise.all([detectVariant(sys, where), isLegacyKind(sys, '', where)]);
  const isLegacy = variant === '' ? isLegacyInstalled : variant === '-legacy';
  const iptables = createIptables(sys, { ...where, variant, isLegacy });
  const [usable, inKernel, options] = await Promise.all([usableFamilies(iptables), kernelFamilies(log), iptablesOptions(sys, facts)]);
  const families = inKernel.filter((family) => usable.includes(family));
  if (families.length === 0) throw new OpError('unsupported', 'start the proxy', 'iptables works for no address family of this host');
  log.info('Rules are written through iptables', { variant: variant === '' ? 'as installed' : variant.slice(1), families: families.join(' '), ...options });
  return {
    families,
    conntrack: createConntrack(sys, where),
    createTable: () => new IptablesTable({ ...options, iptables, metrics, log }),
    afterFirstSync: async () => {
      try {
        await removeTables(createNetlinkKernel(sys, where), families, log);
      } catch (error) {
        log.debug(1, 'nftables cannot be asked for tables of the other mode', { error: messageOf(error) });
      }
    },
    readCounters: async () => {
      if (options.counters) await readCounters(createPacketCounters(sys, where), metrics);
    },
  };
}

/** Copies what the kernel counted of packets to node ports on loopback addresses. */
async function readRejected(sys: Sys, families: readonly Family[], metrics: Metrics, netns: string | undefined): Promise<void> {
  for (const family of families) {
    const packets = await readCounterPackets(sys, family, netns === undefined ? {} : { netns });
    for (const protocol of ['tcp', 'udp', 'sctp'] as const) {
      const counted = packets.get(localhostRejectCounter(protocol));
      if (counted !== undefined) metrics.set(REJECTED_LOCALHOST, counted, { ip_family: family === 'ip' ? 'IPv4' : 'IPv6', protocol: protocol.toUpperCase() });
    }
  }
}

const ROUTE_LOCALNET = '/proc/sys/net/ipv4/conf/all/route_localnet';
const BE_LIBERAL = '/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal';

/** Settles what stays as it is while the proxy runs. In another namespace nothing of /proc can be seen, so there the defaults count. */
async function iptablesOptions(sys: Sys, { config, log, netns }: ModeFacts): Promise<IptablesOptions> {
  let localhostNodePorts = wantsLocalhostNodePorts(config);
  let dropInvalid = true;
  if (netns === undefined) {
    localhostNodePorts &&= await allowLocalhostNodePorts(sys, log);
    const [liberal] = await sys.readFiles([BE_LIBERAL]);
    dropInvalid = liberal === null || liberal === undefined || Number(Buffer.from(liberal).toString('utf8')) === 0;
  }
  return { localhostNodePorts, dropInvalid, counters: await hasCounters(sys, log, netns) };
}

/** Sets the sysctl that lets packets to 127.0.0.1 be sent elsewhere. */
export async function allowLocalhostNodePorts(sys: Sys, log: Log): Promise<boolean> {
  const [now] = await sys.readFiles([ROUTE_LOCALNET]);
  if (now !== null && now !== undefined && Buffer.from(now).toString('utf8').trim() === '1') return true;
  const [failed] = await sys.writeFiles([{ path: ROUTE_LOCALNET, data: '1' }]);
  if (failed === null || failed === undefined) {
    log.info('Set route_localnet=1 for node ports on localhost; iptables.localhostNodePorts=false or nodePortAddresses without loopback leaves it alone');
    return true;
  }
  log.warn('route_localnet cannot be set, there are no node ports on localhost', { errno: failed.errno });
  return false;
}

async function hasCounters(sys: Sys, log: Log, netns: string | undefined): Promise<boolean> {
  try {
    return await createPacketCounters(sys, netns === undefined ? {} : { netns }).ensure([INVALID_COUNTER, LOCALHOST_COUNTER]);
  } catch (error) {
    log.debug(1, 'The kernel has no named packet counters', { error: messageOf(error) });
    return false;
  }
}

/** Copies what the kernel counted under our names to the metrics. */
async function readCounters(counters: PacketCounters, metrics: Metrics): Promise<void> {
  for (const [name, metric] of [
    [INVALID_COUNTER, DROPPED_INVALID],
    [LOCALHOST_COUNTER, ACCEPTED_LOCALHOST],
  ] as const) {
    const packets = await counters.packets(name);
    if (packets !== null) metrics.set(metric, packets);
  }
}

/** Both kinds of iptables, and what the distribution chose where they have no names of their own. */
export async function removeAllChains(sys: Sys, log: Log, netns?: string): Promise<number> {
  let code = 0;
  for (const variant of ['-nft', '-legacy', ''] as const)
    code |= await removeChains(createIptables(sys, { variant, ...(netns === undefined ? {} : { netns }) }), log);
  return code;
}

/** `--cleanup`: the rules of both modes, whoever wrote them; returns the exit code. */
export async function removeAll(sys: Sys, log: Log): Promise<number> {
  let code = await removeAllChains(sys, log);
  try {
    const { kernel, families } = await findMeans(sys, log);
    code |= await removeTables(kernel, families, log);
  } catch (error) {
    // Where nftables cannot be written there is nothing of it to remove.
    log.debug(1, 'nftables is left out', { error: messageOf(error) });
  }
  return code;
}
