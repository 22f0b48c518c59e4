import { networkInterfaces, hostname } from 'node:os';
import { realClock } from '../base/clock.ts';
import { hasCode, messageOf, OpError } from '../base/errors.ts';
import type { Host } from '../base/host.ts';
import { createKubeApi } from '../base/kubeapi/client.ts';
import { readKubeConfig } from '../base/kubeapi/config.ts';
import { isApiError } from '../base/kubeapi/errors.ts';
import * as refs from '../base/kubeapi/refs.ts';
import type { KubeApi, KubeObject, ResourceRef } from '../base/kubeapi/types.ts';
import { silentLog } from '../base/log.ts';
import { realRng } from '../base/rng.ts';
import type { Sys } from '../base/sys/types.ts';
import { version } from '../base/version.ts';
import type { ServiceCIDR } from '../proto/kube/types.ts';
import { compareContents, iptablesContents, nftContents, restoreContents, type Contents, type Difference } from './core/compare.ts';
import type { ProxyConfig, ProxyMode } from './core/config.ts';
import { planReplace } from './core/diff.ts';
import { planWhole, readSaved } from './core/iptables-plan.ts';
import { parseSaved } from './core/iptables-rules.ts';
import { portChains, type IptablesOptions } from './core/iptables-service.ts';
import { fixedRules } from './core/iptables-table.ts';
import { canonicalIp, familyOf, type Family } from './core/ip.ts';
import type { EndpointSliceObject, ServiceObject } from './core/model.ts';
import { portKey, type Protocol } from './core/names.ts';
import { settingsFor, topologyOf, wantsLocalhostNodePorts, type NodeObject } from './core/node.ts';
import { portObjects } from './core/nft-service.ts';
import { transactionText } from './core/render-nft-text.ts';
import type { PortRules } from './core/ruleset.ts';
import type { RuleSettings } from './core/settings.ts';
import { Slots } from './core/slots.ts';
import { fateText, type Packet } from './core/trace.ts';
import { traceSaved } from './core/trace-iptables.ts';
import { parseListing, parseTable, traceTable } from './core/trace-nft.ts';
import type { Traced } from './core/walk.ts';
import { applyService, applySlice, emptyWorld, rulesFor } from './core/world.ts';
import { readCommand } from './io/flags.ts';
import { createIptables, detectVariant } from './io/iptables.ts';

/** `nodelet netfilter trace` and `diff`: what the kernel's rules say, whoever wrote them. Nothing is changed. */

export const TRACE_HELP = `nodelet netfilter trace SRC DST:PORT[/PROTOCOL]: where a packet goes, and which rules say so

The rules are read from the kernel of this network namespace, in nftables or iptables mode, also those that upstream's
kube-proxy wrote. Of a connection it is the first packet; who was sent to an endpoint before (session affinity) is not asked.

  SRC               address of the sender; one of this node's own addresses means that the node itself sends
  PROTOCOL          tcp (default), udp or sctp
  --in INTERFACE    where it comes in; found by the route to SRC otherwise
  --json            the answer as JSON

Examples:
  nodelet netfilter trace 10.244.0.2 10.96.0.10:53/udp
  nodelet netfilter trace 192.0.2.200 192.0.2.10:30080 --json
  nodelet netfilter trace fd00:10:244::2 [fd00:96::8]:80
Exit code: 0, also for a packet that is refused; 1 when there are no rules of a proxy.
`;

export const DIFF_HELP = `nodelet netfilter diff: what is in the kernel's tables beside what should be there

What should be there follows from the API server's Services and EndpointSlices and from the proxy's configuration; the
rules may be ours or upstream's. Takes the flags of nodelet netfilter.

  --config FILE     the proxy's KubeProxyConfiguration
  --kubeconfig FILE how to reach the API server
  --json            the differences as JSON

Examples:
  nodelet netfilter diff --config /var/lib/kube-proxy/config.conf
  nodelet netfilter diff --kubeconfig /etc/kubernetes/proxy.conf --cluster-cidr 10.244.0.0/16 --json
Exit code: 0 equal, 1 different.
`;

const NFT_TIMEOUT_MS = 120_000;
const MAX_LISTING_BYTES = 512 << 20;

/** What a proxy left in the kernel: tables of one mode, or of both while one takes over from the other. */
interface Found {
  nft: string | null;
  iptables: string | null;
}

async function readRules(sys: Sys, family: Family): Promise<Found> {
  const nft = await listing(sys, family);
  let iptables: string | null = null;
  try {
    const text = await createIptables(sys, { variant: await detectVariant(sys) }).save(family, null);
    if (/^:KUBE-(SERVICES|SVC-)/m.test(text)) iptables = text;
  } catch (error) {
    if (!(error instanceof OpError)) throw error;
  }
  return { nft, iptables };
}

async function listing(sys: Sys, family: Family): Promise<string | null> {
  try {
    const result = await sys.run({ argv: ['nft', 'list', 'table', family, 'kube-proxy'], timeoutMs: NFT_TIMEOUT_MS, maxOutputBytes: MAX_LISTING_BYTES });
    return result.code === 0 ? Buffer.from(result.stdout).toString('utf8') : null;
  } catch (error) {
    if (hasCode(error, 'not-found')) return null;
    throw error;
  }
}

function refuse(detail: string, command: string): OpError {
  return new OpError('invalid', 'read the command line', detail, { advice: `nodelet netfilter ${command} --help tells how.` });
}

/** Takes options out of the arguments; what stays are the words. */
function takeOption(args: string[], name: string): string | undefined {
  const at = args.indexOf(name);
  if (at < 0) return undefined;
  const [, value] = args.splice(at, 2);
  if (value === undefined) throw refuse(`${name} needs a value`, 'trace');
  return value;
}

function takeFlag(args: string[], name: string): boolean {
  const at = args.indexOf(name);
  if (at >= 0) args.splice(at, 1);
  return at >= 0;
}

async function packetOf(sys: Sys, args: string[]): Promise<Packet> {
  const given = takeOption(args, '--in');
  const [from = '', to = '', ...more] = args;
  const src = canonicalIp(from);
  const match = /^(?:\[([^\]]+)\]|([^:]+)):(\d+)(?:\/(tcp|udp|sctp))?$/i.exec(to);
  const dst = canonicalIp(match?.[1] ?? match?.[2] ?? '');
  const port = Number(match?.[3] ?? 0);
  if (src === null || more.length > 0) throw refuse(src === null ? `"${from}" is no address` : `"${more[0]}" is one word too many`, 'trace');
  if (dst === null || port < 1 || port > 65_535) throw refuse(`"${to}" is no ADDRESS:PORT[/PROTOCOL]`, 'trace');
  if (familyOf(src) !== familyOf(dst)) throw refuse(`${src} and ${dst} are of different families`, 'trace');
  const nodeAddresses = Object.values(networkInterfaces()).flatMap((addresses) => (addresses ?? []).map(({ address }) => address));
  const fromNode = nodeAddresses.includes(src);
  const inputInterface = fromNode ? '' : (given ?? (await interfaceTo(sys, src)));
  return { protocol: (match?.[4]?.toLowerCase() ?? 'tcp') as Protocol, src, dst, port, fromNode, inputInterface, nodeAddresses };
}

/** Through which interface packets to `address` leave: those from it come in there, too. */
async function interfaceTo(sys: Sys, address: string): Promise<string> {
  try {
    const result = await sys.run({ argv: ['ip', 'route', 'get', address], timeoutMs: 5000 });
    return / dev (\S+)/.exec(Buffer.from(result.stdout).toString('utf8'))?.[1] ?? '';
  } catch (error) {
    if (hasCode(error, 'not-found')) return '';
    throw error;
  }
}

function wayText({ fate, ways }: Traced): string {
  const lines: string[] = [];
  if (fate.kind === 'to') {
    lines.push(fate.choices.length === 1 ? 'goes to' : 'goes to one of');
    for (const { target, masquerade } of fate.choices) {
      const host = target.address.includes(':') ? `[${target.address}]` : target.address;
      lines.push(`  ${host}:${target.port}${masquerade ? ', masqueraded' : ''}`);
    }
  } else {
    const words = { pass: 'is no Service’s: goes on unchanged', reject: 'is refused', drop: 'is dropped' };
    lines.push(words[fate.kind]);
  }
  const seen = new Set<string>();
  for (const { path } of ways) {
    for (const { table, chain, rule } of path) {
      const line = `  ${table} ${chain}: ${rule}`;
      if (seen.size === 0) lines.push('because of');
      if (!seen.has(line)) lines.push(line);
      seen.add(line);
    }
  }
  return lines.join('\n');
}

export async function trace(host: Host, sys: Sys, words: readonly string[]): Promise<number> {
  const args = [...words];
  const json = takeFlag(args, '--json');
  const packet = await packetOf(sys, args);
  const { nft, iptables } = await readRules(sys, familyOf(packet.dst)!);
  const answers: { mode: ProxyMode; traced: Traced }[] = [];
  if (nft !== null) answers.push({ mode: 'nftables', traced: traceTable(parseListing(nft), packet) });
  if (iptables !== null) answers.push({ mode: 'iptables', traced: traceSaved(parseSaved(iptables), packet) });
  if (answers.length === 0)
    throw new OpError('not-found', 'trace a packet', 'there are no rules of a service proxy in this network namespace', {
      advice: 'Run it on the node, in the network namespace of its proxy: nodelet exec -- nodelet netfilter trace …',
    });
  if (json) {
    const shown = answers.map(({ mode, traced }) => ({ mode, fate: traced.fate.kind, ways: traced.ways }));
    host.stdout(`${JSON.stringify({ packet, answers: shown }, null, 2)}\n`);
    return 0;
  }
  const { protocol, src, dst, port } = packet;
  for (const { mode, traced } of answers) {
    host.stdout(`${mode}: ${src} → ${dst.includes(':') ? `[${dst}]` : dst}:${port}/${protocol} ${wayText(traced)}\n`);
  }
  if (answers.length === 2) {
    const [one, other] = answers.map(({ traced }) => fateText(traced.fate));
    if (one !== other) host.stdout('The two modes disagree: what the kernel does depends on the order of their hooks.\n');
  }
  return 0;
}

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
  const services = (await listAll(api, refs.services(), signal)) as ServiceObject[];
  const slices = (await listAll(api, refs.endpointSlices(), signal)) as EndpointSliceObject[];
  const node = (await api.get(refs.nodes(nodeName), {}, signal).catch(absent)) as NodeObject | null;
  const cidrs = (await listAll<ServiceCIDR>(api, refs.serviceCidrs(), signal).catch(absent)) ?? [];
  return { services, slices, node, serviceCIDRs: [...new Set(cidrs.flatMap(({ spec }) => spec.cidrs ?? []))].sort() };
}

/** What the API server's objects come to in one family, in one mode. */
function rulesOf(cluster: Cluster, config: ProxyConfig, nodeName: string, family: Family): { settings: RuleSettings; rules: Map<string, PortRules> } {
  const world = emptyWorld();
  for (const service of cluster.services) applyService(world, service, false);
  for (const slice of cluster.slices) applySlice(world, slice, false);
  const machineAddresses = Object.values(networkInterfaces()).flatMap((addresses) => (addresses ?? []).map(({ address }) => address));
  const settings = settingsFor(family, { config, node: cluster.node, machineAddresses, serviceCIDRs: cluster.serviceCIDRs });
  const topology = topologyOf(cluster.node, nodeName);
  const rules = new Map<string, PortRules>();
  for (const key of world.services.keys()) for (const rule of rulesFor(world, key, family, topology)) rules.set(portKey(rule.id), rule);
  return { settings, rules };
}

function wantedNft({ settings, rules }: ReturnType<typeof rulesOf>): Contents {
  const slots = new Slots();
  const ports = new Map([...rules].map(([port, rule]) => [port, portObjects(rule, settings, slots)]));
  return nftContents(parseTable(transactionText({ family: settings.family, ops: planReplace(settings, ports).ops })));
}

function wantedIptables({ settings, rules }: ReturnType<typeof rulesOf>, options: IptablesOptions): Contents {
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
): Promise<{ mode: ProxyMode; differences: Difference[] }[]> {
  const { nft, iptables } = await readRules(sys, family);
  const results: { mode: ProxyMode; differences: Difference[] }[] = [];
  if (nft !== null) {
    const wanted = wantedNft(rulesOf(cluster, { ...config, mode: 'nftables' }, nodeName, family));
    results.push({ mode: 'nftables', differences: compareContents(wanted, nftContents(parseListing(nft))) });
  }
  if (iptables !== null) {
    const options: IptablesOptions = {
      localhostNodePorts: wantsLocalhostNodePorts(config) && (await isSet(sys, '/proc/sys/net/ipv4/conf/all/route_localnet')),
      dropInvalid: !(await isSet(sys, '/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal')),
      counters: false,
    };
    const wanted = wantedIptables(rulesOf(cluster, { ...config, mode: 'iptables' }, nodeName, family), options);
    results.push({ mode: 'iptables', differences: compareContents(wanted, iptablesContents(parseSaved(iptables))) });
  }
  return results;
}

export async function diff(host: Host, sys: Sys, words: readonly string[]): Promise<number> {
  const args = [...words];
  const json = takeFlag(args, '--json');
  const command = await readCommand(args);
  if (command.kind !== 'run') throw refuse(`--${command.kind} is not for diff`, 'diff');
  const { config, master } = command;
  if (config.kubeconfig === '') throw refuse('no kubeconfig is given', 'diff');
  const nodeName = (config.hostnameOverride === '' ? hostname() : config.hostnameOverride).trim().toLowerCase();
  const kubeConfig = await readKubeConfig(config.kubeconfig);
  await using api = createKubeApi({
    config: master === '' ? kubeConfig : { ...kubeConfig, server: master },
    log: silentLog,
    clock: realClock,
    rng: realRng,
    userAgent: `nodelet-netfilter-diff/${version}`,
  });
  const cluster = await readCluster(api, nodeName, host.signal);
  const results: { family: Family; mode: ProxyMode; differences: Difference[] }[] = [];
  for (const family of ['ip', 'ip6'] as const)
    for (const result of await compareFamily(sys, cluster, config, nodeName, family)) results.push({ family, ...result });
  if (results.length === 0) throw new OpError('not-found', 'compare the rules', 'there are no rules of a service proxy in this network namespace');
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

/** Runs `trace` or `diff`; exit code 2 for a command line that means nothing. */
export async function inspect(host: Host, sys: Sys): Promise<number> {
  const [command = '', ...args] = host.args;
  if (args.includes('--help') || args.includes('-h')) {
    host.stdout(command === 'trace' ? TRACE_HELP : DIFF_HELP);
    return 0;
  }
  try {
    return command === 'trace' ? await trace(host, sys, args) : await diff(host, sys, args);
  } catch (error) {
    if (!(error instanceof OpError)) throw error;
    host.stderr(`nodelet netfilter ${command}: ${messageOf(error)}${error.advice === '' ? '' : `\n  ${error.advice}`}\n`);
    return error.code === 'invalid' ? 2 : 1;
  }
}
