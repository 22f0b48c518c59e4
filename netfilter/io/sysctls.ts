import type { Sys } from '../../base/sys/types.ts';
import type { Log } from '../../base/log.ts';
import type { ConntrackConfig } from '../core/config.ts';

const NETFILTER = '/proc/sys/net/netfilter';
const MAX = `${NETFILTER}/nf_conntrack_max`;
const HASHSIZE = '/sys/module/nf_conntrack/parameters/hashsize';
const MAX_ENTRIES = 1_048_576;

/** What nf_conntrack_max should at least be; 0 leaves it alone. */
export function conntrackMax(config: ConntrackConfig, cpus: number): number {
  if (config.maxPerCore <= 0) return 0;
  const scaled = config.maxPerCore * cpus;
  if (scaled > MAX_ENTRIES) return MAX_ENTRIES;
  return Math.max(scaled, config.min);
}

/**
 * Sets connection tracking as configured, with a hash table that is large enough for its entries. In a network namespace
 * some of it belongs to the whole machine and cannot be written; the proxy works all the same, so one line says what was left.
 * @param cpus of the machine: its number of entries is the machine's, too
 */
export async function setConntrackSysctls(sys: Sys, config: ConntrackConfig, cpus: number, log: Log): Promise<void> {
  const seconds: [string, number][] = [
    ['nf_conntrack_tcp_timeout_established', config.tcpEstablishedMs],
    ['nf_conntrack_tcp_timeout_close_wait', config.tcpCloseWaitMs],
    ['nf_conntrack_udp_timeout', config.udpMs],
    ['nf_conntrack_udp_timeout_stream', config.udpStreamMs],
  ];
  const wanted = seconds.filter(([, ms]) => ms > 0).map(([name, ms]) => ({ path: `${NETFILTER}/${name}`, value: Math.floor(ms / 1000) }));
  if (config.tcpBeLiberal) wanted.push({ path: `${NETFILTER}/nf_conntrack_tcp_be_liberal`, value: 1 });
  const max = conntrackMax(config, cpus);
  const paths = [MAX, HASHSIZE, ...wanted.map(({ path }) => path)];
  const now = new Map((await sys.readFiles(paths)).map((bytes, index) => [paths[index]!, bytes === null ? null : Number(Buffer.from(bytes).toString('utf8'))]));
  const writes = wanted.filter(({ path, value }) => now.get(path) !== value);
  if (max > 0 && (now.get(MAX) ?? 0) < max) writes.unshift({ path: MAX, value: max });
  const left = await write(sys, writes);
  const hashsize = now.get(HASHSIZE) ?? null;
  const least = Math.floor(max / 4);
  if (hashsize !== null && hashsize < least && !left.has(MAX))
    for (const [path, errno] of await write(sys, [{ path: HASHSIZE, value: least }])) left.set(path, errno);
  if (left.size === 0) return;
  const settings = [...left].map(([path, errno]) => `${path.slice(path.lastIndexOf('/') + 1)} (${errno})`).join(', ');
  log.warn('Some conntrack settings cannot be written here and are left as they are', { settings });
}

/** Why those failed that did, by path. */
async function write(sys: Sys, writes: readonly { path: string; value: number }[]): Promise<Map<string, string>> {
  if (writes.length === 0) return new Map();
  const results = await sys.writeFiles(writes.map(({ path, value }) => ({ path, data: String(value) })));
  return new Map(results.flatMap((result, index) => (result === null ? [] : [[writes[index]!.path, result.errno] as const])));
}
