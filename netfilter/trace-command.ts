import { networkInterfaces } from 'node:os';
import { hasCode } from '../base/errors.ts';
import type { Host } from '../base/host.ts';
import type { Sys } from '../base/sys/types.ts';
import type { ProxyMode } from './core/config.ts';
import { parseSaved } from './core/iptables-rules.ts';
import { canonicalIp, familyOf } from './core/ip.ts';
import type { Protocol } from './core/names.ts';
import { fateText, type Packet } from './core/trace.ts';
import { traceSaved } from './core/trace-iptables.ts';
import { parseListing, traceTable } from './core/trace-nft.ts';
import type { Traced } from './core/walk.ts';
import { nothingThere, readRules, refuseWords, takeFlag } from './kernel-rules.ts';

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

/** Takes options out of the arguments; what stays are the words. */
function takeOption(args: string[], name: string): string | undefined {
  const at = args.indexOf(name);
  if (at < 0) return undefined;
  const [, value] = args.splice(at, 2);
  if (value === undefined) throw refuseWords(`${name} needs a value`, 'trace');
  return value;
}

async function packetOf(sys: Sys, args: string[]): Promise<Packet> {
  const given = takeOption(args, '--in');
  const [from = '', to = '', ...more] = args;
  const src = canonicalIp(from);
  const match = /^(?:\[([^\]]+)\]|([^:]+)):(\d+)(?:\/(tcp|udp|sctp))?$/i.exec(to);
  const dst = canonicalIp(match?.[1] ?? match?.[2] ?? '');
  const port = Number(match?.[3] ?? 0);
  if (src === null || more.length > 0) throw refuseWords(src === null ? `"${from}" is no address` : `"${more[0]}" is one word too many`, 'trace');
  if (dst === null || port < 1 || port > 65_535) throw refuseWords(`"${to}" is no ADDRESS:PORT[/PROTOCOL]`, 'trace');
  if (familyOf(src) !== familyOf(dst)) throw refuseWords(`${src} and ${dst} are of different families`, 'trace');
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
  const { nft, iptables, trouble } = await readRules(sys, familyOf(packet.dst)!);
  const answers: { mode: ProxyMode; traced: Traced }[] = [];
  if (nft !== null) answers.push({ mode: 'nftables', traced: traceTable(parseListing(nft), packet) });
  if (iptables !== null) answers.push({ mode: 'iptables', traced: traceSaved(parseSaved(iptables), packet) });
  if (answers.length === 0)
    throw nothingThere([trouble], 'trace a packet', 'Run it on the node, in the network namespace of its proxy: nodelet exec -- nodelet netfilter trace …');
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
