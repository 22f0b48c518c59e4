import { hostname, networkInterfaces } from 'node:os';
import { realClock } from '../base/clock.ts';
import { OpError } from '../base/errors.ts';
import type { Host } from '../base/host.ts';
import { createPlainKubeApi } from '../base/kubeapi/plain.ts';
import { isApiError } from '../base/kubeapi/errors.ts';
import * as refs from '../base/kubeapi/refs.ts';
import type { KubeApi, KubeObject, ResourceRef } from '../base/kubeapi/types.ts';
import { silentLog } from '../base/log.ts';
import { realRng } from '../base/rng.ts';
import type { Sys } from '../base/sys/types.ts';
import { version } from '../base/version.ts';
import type { EndpointSlice, Node, Service, ServiceCIDR } from '../proto/kube/types.ts';
import { compareContents, iptablesContents, nftContents, restoreContents, type Contents, type Difference } from './core/compare.ts';
import type { ProxyConfig, ProxyMode } from './core/config.ts';
import { planReplace } from './core/diff.ts';
import { planWhole, readSaved } from './core/iptables-plan.ts';
import { parseSaved } from './core/iptables-rules.ts';
import { portChains, type IptablesOptions } from './core/iptables-service.ts';
import { fixedRules } from './core/iptables-table.ts';
import type { Family } from './core/ip.ts';
import type { EndpointSliceObject, ServiceObject } from './core/model.ts';
import { portKey } from './core/names.ts';
import { settingsFor, topologyOf, wantsLocalhostNodePorts, type NodeObject } from './core/node.ts';
import { portObjects } from './core/nft-service.ts';
import { transactionText } from './core/render-nft-text.ts';
import type { PortRules } from './core/ruleset.ts';
import type { RuleSettings } from './core/settings.ts';
import { Slots } from './core/slots.ts';
import { parseListing, parseTable } from './core/trace-nft.ts';
import { applyService, applySlice, emptyWorld, rulesFor } from './core/world.ts';
import { readCommand } from './io/flags.ts';
import { reachApi } from './io/reach.ts';
import { nothingThere, readRules, refuseWords, takeFlag } from './kernel-rules.ts';

export const DIFF_HELP = `nodelet netfilter diff: what is in the kernel's tables beside what should be there

What should be there follows from the API server's Services and EndpointSlices and from the proxy's configuration; the
rules may be ours or upstream's. Takes the flags of nodelet netfilter.

  --config FILE     the proxy's KubeProxyConfiguration
  --kubeconfig FILE how to reach the API server
  --json            the differences as JSON

Examples:
  nodelet netfilter diff --config /var/lib/kube-proxy/config.conf
  nodelet netfilter diff --kubeconfig /etc/kubernetes/proxy.conf --cluster-cidr 10.244.0.0/16 --json
Exit code: 0 equal, 1 different, 2 when that cannot be told.
`;

interface Cluster {
  services: ServiceObject[];
  slices: EndpointSliceObject[];
  node: NodeObject | null;
  serviceCIDRs: string[];
}

const PAGE = 500;

async function listAll<T extends KubeObject>(api: KubeApi, ref: ResourceRef, signal: AbortSignal): Promise<T[]> {
  const items: T[] = [];
  let from: string | undefined;
  do {
    const page = await api.list<T>(ref, { limit: PAGE, ...(from === undefined ? {} : { continue: from }) }, {}, signal);
    items.push(...page.items);
    from = page.metadata.continue === '' ? undefined : page.metadata.continue;
  } while (from !== undefined);
  return items;
}

async function readCluster(api: KubeApi, nodeName: string, signal: AbortSignal): Promise<Cluster> {
  const absent = (error: unknown): null => {
    if (isApiError(error, 404) || isApiError(error, 403)) return null;
    throw error;
  };
  const services = await listAll<Service>(api, refs.services(), signal);
  const slices = await listAll<EndpointSlice>(api, refs.endpointSlices(), signal);
  const node = await api.get<Node>(refs.nodes(nodeName), {}, signal).catch(absent);
  const cidrs = (await listAll<ServiceCIDR>(api, refs.serviceCidrs(), signal).catch(absent)) ?? [];
  return { services, slices, node, serviceCIDRs: [...new Set(cidrs.flatMap(({ spec }) => spec.cidrs ?? []))].sort() };
}

/** What a family's rules follow from. */
export interface FamilyRules {
  settings: RuleSettings;
  rules: Map<string, PortRules>;
}

/** What the API server's objects come to in one family, in one mode. */
function rulesOf(cluster: Cluster, config: ProxyConfig, nodeName: string, family: Family): FamilyRules {
  const world = emptyWorld(config);
  for (const service of cluster.services) applyService(world, service, false);
  for (const slice of cluster.slices) applySlice(world, slice, false);
  const machineAddresses = Object.values(networkInterfaces()).flatMap((addresses) => (addresses ?? []).map(({ address }) => address));
  const settings = settingsFor(family, { config, node: cluster.node, machineAddresses, serviceCIDRs: cluster.serviceCIDRs });
  const topology = topologyOf(cluster.node, nodeName);
  const rules = new Map<string, PortRules>();
  for (const key of world.services.keys()) for (const rule of rulesFor(world, key, family, topology)) rules.set(portKey(rule.id), rule);
  return { settings, rules };
}

/** What a first write of nftables mode would make. */
export function wantedNft({ settings, rules }: FamilyRules): Contents {
  const slots = new Slots();
  const ports = new Map([...rules].map(([port, rule]) => [port, portObjects(rule, settings, slots)]));
  return nftContents(parseTable(transactionText({ family: settings.family, ops: planReplace(settings, ports).ops })));
}

/** What a first write of iptables mode would make. */
export function wantedIptables({ settings, rules }: FamilyRules, options: IptablesOptions): Contents {
  const nothing = readSaved('');
  const ports = new Map([...rules].map(([port, rule]) => [port, portChains(rule, settings, options, false)]));
  return restoreContents(planWhole(ports, fixedRules(settings, options), { filter: nothing, nat: nothing }).input().text);
}

async function isSet(sys: Sys, path: string): Promise<boolean> {
  const [text] = await sys.readFiles([path]);
  return text !== null && text !== undefined && Number(Buffer.from(text).toString('utf8')) === 1;
}

async function compareFamily(
  sys: Sys,
  cluster: Cluster,
  config: ProxyConfig,
  nodeName: string,
  family: Family,
): Promise<{ trouble: OpError | null; compared: { mode: ProxyMode; differences: Difference[] }[] }> {
  const { nft, iptables, trouble } = await readRules(sys, family);
  const results: { mode: ProxyMode; differences: Difference[] }[] = [];
  if (nft !== null) {
    const wanted = wantedNft(rulesOf(cluster, { ...config, mode: 'nftables' }, nodeName, family));
    results.push({ mode: 'nftables', differences: compareContents(wanted, nftContents(parseListing(nft))) });
  }
  if (iptables !== null) {
    const options: IptablesOptions = {
      localhostNodePorts: wantsLocalhostNodePorts(config) && (await isSet(sys, '/proc/sys/net/ipv4/conf/all/route_localnet')),
      dropInvalid: !(await isSet(sys, '/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal')),
      counters: iptables.includes('--nfacct-name'),
    };
    const wanted = wantedIptables(rulesOf(cluster, { ...config, mode: 'iptables' }, nodeName, family), options);
    results.push({ mode: 'iptables', differences: compareContents(wanted, iptablesContents(parseSaved(iptables))) });
  }
  return { trouble, compared: results };
}

/** All is missing of a family that Services have, where the other family has rules. */
function compareAbsent(cluster: Cluster, config: ProxyConfig, nodeName: string, family: Family, mode: ProxyMode): Difference[] {
  const { rules } = rulesOf(cluster, { ...config, mode }, nodeName, family);
  return rules.size === 0 ? [] : [{ where: mode === 'nftables' ? 'table kube-proxy' : 'the chains of kube-proxy', missing: ['all of it'], extra: [] }];
}

export async function diff(host: Host, sys: Sys, words: readonly string[]): Promise<number> {
  const args = [...words];
  const json = takeFlag(args, '--json');
  const command = await readCommand(args);
  if (command.kind !== 'run') throw refuseWords(`--${command.kind} is not for diff`, 'diff');
  const { config, master } = command;
  const nodeName = (config.hostnameOverride === '' ? hostname() : config.hostnameOverride).trim().toLowerCase();
  await using api = createPlainKubeApi({
    config: await reachApi(config.kubeconfig, master, host.env),
    log: silentLog,
    clock: realClock,
    rng: realRng,
    userAgent: `nodelet-netfilter-diff/${version}`,
  });
  const cluster = await readCluster(api, nodeName, host.signal);
  const results: { family: Family; mode: ProxyMode; differences: Difference[] }[] = [];
  const [ip, ip6] = [await compareFamily(sys, cluster, config, nodeName, 'ip'), await compareFamily(sys, cluster, config, nodeName, 'ip6')];
  for (const [family, { compared }, other] of [['ip', ip, ip6] as const, ['ip6', ip6, ip] as const]) {
    for (const result of compared) results.push({ family, ...result });
    for (const { mode } of compared.length === 0 ? other.compared : []) {
      const differences = compareAbsent(cluster, config, nodeName, family, mode);
      if (differences.length > 0) results.push({ family, mode, differences });
    }
  }
  if (results.length === 0) throw nothingThere([ip.trouble, ip6.trouble], 'compare the rules');
  const count = results.reduce((sum, { differences }) => sum + differences.length, 0);
  if (json) host.stdout(`${JSON.stringify(results, null, 2)}\n`);
  else {
    for (const { family, mode, differences } of results) {
      host.stdout(
        `${mode}, ${family === 'ip' ? 'IPv4' : 'IPv6'}: ${differences.length === 0 ? 'as it should be' : `${differences.length} differences (- missing, + too much)`}\n`,
      );
      for (const { where, missing, extra } of differences) {
        host.stdout(`  ${where}\n${missing.map((line) => `  - ${line}\n`).join('')}${extra.map((line) => `  + ${line}\n`).join('')}`);
      }
    }
  }
  return count === 0 ? 0 : 1;
}
