import type { Pod } from '../../proto/kube/types.ts';
import type { EventText } from './types.ts';

/** resolv.conf as data: the CRI's DNSConfig. */
export interface DnsConfig {
  readonly servers: readonly string[];
  readonly searches: readonly string[];
  readonly options: readonly string[];
}

export interface DnsInput {
  /** The file that --resolv-conf names, read; null when the flag is empty. */
  readonly host: DnsConfig | null;
  readonly clusterDNS: readonly string[];
  readonly clusterDomain: string;
  readonly nodeIPs: readonly string[];
}

const missingClusterDns = 'kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. Falling back to "Default" policy.';

/** What the node itself is told when pods want a cluster DNS that it was not told of. */
export const missingClusterDnsEvent: EventText = { type: 'Warning', reason: 'MissingClusterDNS', message: missingClusterDns };

const maxServers = 3;
const maxSearches = 32;
const maxSearchChars = 2048;
const maxDomainChars = 253;
const clusterOptions = ['ndots:5'];

/** Reads resolv.conf(5): servers add up, the last search line counts, later options replace earlier ones of the same name. */
export function parseResolvConf(text: string): DnsConfig {
  const servers: string[] = [];
  let searches: string[] = [];
  let options: string[] = [];
  for (const line of text.split('\n')) {
    const [keyword, ...fields] = line.trim().split(/\s+/);
    const [first] = fields;
    if (keyword === 'nameserver' && first !== undefined) servers.push(first);
    if (keyword === 'search') searches = fields.filter((field) => field !== '.').map((field) => field.replace(/\.$/, ''));
    if (keyword === 'options') options = mergeOptions(options, fields);
  }
  return { servers, searches, options };
}

/** What of the machine's own search line pods could not be given whole, as the node is told at the start; null: nothing. */
export function resolvConfProblem(path: string, { searches }: DnsConfig, clusterDomain: string): string | null {
  const domains = maxSearches - (clusterDomain === '' ? 0 : 3);
  if (searches.length > domains) return `Resolv.conf file '${path}' contains search line consisting of more than ${domains} domains!`;
  if (searches.some((search) => search.length > maxDomainChars))
    return `Resolv.conf file "${path}" contains a search path which length is more than allowed ${maxDomainChars} chars!`;
  if (searches.join(' ').length > maxSearchChars)
    return `Resolv.conf file '${path}' contains search line which length is more than allowed ${maxSearchChars} chars!`;
  return null;
}

/** The DNS settings of a pod by its dnsPolicy and dnsConfig, cut to what resolvers take; what was cut is told. */
export function podDns(pod: Pod, input: DnsInput): DnsConfig & { events: EventText[] } {
  const events: EventText[] = [];
  let config = base(pod, input, events);
  const own = pod.spec.dnsConfig;
  if (own !== undefined) {
    const options = (own.options ?? []).map((option) =>
      option.value === undefined || option.value === '' ? (option.name ?? '') : `${option.name ?? ''}:${option.value}`,
    );
    config = {
      servers: unique([...config.servers, ...(own.nameservers ?? [])]),
      searches: unique([...config.searches, ...(own.searches ?? [])]),
      options: mergeOptions(config.options, options),
    };
  }
  return { servers: fitServers(config.servers, events), searches: fitSearches(config.searches, events), options: config.options, events };
}

function base(pod: Pod, input: DnsInput, events: EventText[]): DnsConfig {
  const policy = policyOf(pod);
  const host = input.host ?? { servers: [], searches: [], options: [] };
  if (policy === 'None') return { servers: [], searches: [], options: [] };
  if (policy === 'Cluster' && input.clusterDNS.length > 0) {
    const domain = input.clusterDomain;
    const own = domain === '' ? [] : [`${pod.metadata.namespace ?? ''}.svc.${domain}`, `svc.${domain}`, domain];
    return { servers: input.clusterDNS, searches: domain === '' ? host.searches : unique([...own, ...host.searches]), options: clusterOptions };
  }
  if (policy === 'Cluster') {
    const name = `${pod.metadata.name ?? ''}_${pod.metadata.namespace ?? ''}(${pod.metadata.uid ?? ''})`;
    events.push({ ...missingClusterDnsEvent, message: `pod: ${JSON.stringify(name)}. ${missingClusterDns}` });
  }
  if (input.host !== null) return host;
  // No resolv.conf at all: look-ups are to fail at once, on a local server that is not there.
  const local = input.nodeIPs.map((ip) => (ip.includes(':') ? '::1' : '127.0.0.1'));
  return { servers: local.length === 0 ? ['127.0.0.1'] : local, searches: ['.'], options: [] };
}

function policyOf(pod: Pod): 'None' | 'Cluster' | 'Host' {
  switch (pod.spec.dnsPolicy) {
    case 'None':
      return 'None';
    case 'Default':
      return 'Host';
    case 'ClusterFirst':
      return pod.spec.hostNetwork === true ? 'Host' : 'Cluster';
    default:
      // ClusterFirstWithHostNet, and what an API server should have refused.
      return 'Cluster';
  }
}

/** Later options replace earlier ones of the same name in place, so that the order stays the same between syncs. */
function mergeOptions(existing: readonly string[], added: readonly string[]): string[] {
  const byName = new Map<string, string>();
  for (const option of [...existing, ...added]) byName.set(option.split(':')[0] ?? option, option);
  return [...byName.values()];
}

function unique(list: readonly string[]): string[] {
  return [...new Set(list)];
}

function fitServers(servers: readonly string[], events: EventText[]): readonly string[] {
  if (servers.length <= maxServers) return servers;
  const kept = servers.slice(0, maxServers);
  events.push({
    type: 'Warning',
    reason: 'DNSConfigForming',
    message: `Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: ${kept.join(' ')}`,
  });
  return kept;
}

function fitSearches(searches: readonly string[], events: EventText[]): readonly string[] {
  let kept = searches.slice(0, maxSearches).filter((search) => search.length <= maxDomainChars);
  while (kept.join(' ').length > maxSearchChars) kept = kept.slice(0, -1);
  if (kept.length === searches.length) return searches;
  events.push({
    type: 'Warning',
    reason: 'DNSConfigForming',
    message: `Search Line limits were exceeded, some search paths have been omitted, the applied search line is: ${kept.join(' ')}`,
  });
  return kept;
}
