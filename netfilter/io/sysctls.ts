import type { Sys } from '../../base/sys/types.ts';
import type { Log } from '../../base/log.ts';
import type { ConntrackConfig } from '../core/config.ts';

const NETFILTER = '/proc/sys/net/netfilter';
const MAX_ENTRIES = 1_048_576;

/** What nf_conntrack_max should at least be; 0 leaves it alone. */
export function conntrackMax(config: ConntrackConfig, cpus: number): number {
  if (config.maxPerCore <= 0) return 0;
  const scaled = config.maxPerCore * cpus;
  if (scaled > MAX_ENTRIES) return MAX_ENTRIES;
  return Math.max(scaled, config.min);
}

/**
 * Sets connection tracking as configured. In a network namespace some of it belongs to the whole machine and
 * cannot be written; the proxy works all the same, so one line says what was left.
 */
export async function setConntrackSysctls(sys: Sys, config: ConntrackConfig, cpus: number, log: Log): Promise<void> {
  const writes: { path: string; data: string }[] = [];
  const max = conntrackMax(config, cpus);
  const [current] = await sys.readFiles([`${NETFILTER}/nf_conntrack_max`]);
  const now = current === null || current === undefined ? 0 : Number(Buffer.from(current).toString('utf8'));
  if (max > 0 && now < max) writes.push({ path: `${NETFILTER}/nf_conntrack_max`, data: String(max) });
  const seconds: [string, number][] = [
    ['nf_conntrack_tcp_timeout_established', config.tcpEstablishedMs],
    ['nf_conntrack_tcp_timeout_close_wait', config.tcpCloseWaitMs],
    ['nf_conntrack_udp_timeout', config.udpMs],
    ['nf_conntrack_udp_timeout_stream', config.udpStreamMs],
  ];
  for (const [name, ms] of seconds) if (ms > 0) writes.push({ path: `${NETFILTER}/${name}`, data: String(Math.floor(ms / 1000)) });
  if (config.tcpBeLiberal) writes.push({ path: `${NETFILTER}/nf_conntrack_tcp_be_liberal`, data: '1' });
  const results = await sys.writeFiles(writes);
  const failed = results.flatMap((result, index) => (result === null ? [] : [`${writes[index]!.path.slice(NETFILTER.length + 1)} (${result.errno})`]));
  if (failed.length > 0) log.warn('Some conntrack settings cannot be written here and are left as they are', { settings: failed.join(', ') });
}
