import { contains, parseAddress, parseCidr } from './address.ts';
import type { PolicyRules } from './policy-rules.ts';

/** The table's chains read as the kernel reads them: the oracle of tests. */

export interface Packet {
  readonly from: string;
  readonly to: string;
  readonly protocol: string;
  readonly port: number;
}

const STEPS_MAX = 8;

/** What becomes of a packet that begins a connection and passes the node, or ends at it. */
export function passes(rules: PolicyRules, packet: Packet, hook: 'forward' | 'input' = 'forward'): boolean {
  const family = packet.from.includes(':') ? 6 : 4;
  if (hook === 'input') return passesChain(rules, packet, rules.maps[`node-egress${family}`].get(packet.from));
  return (
    passesChain(rules, packet, rules.maps[`egress${family}`].get(packet.from)) && passesChain(rules, packet, rules.maps[`ingress${family}`].get(packet.to))
  );
}

function passesChain(rules: PolicyRules, packet: Packet, first: string | undefined): boolean {
  let chain = first;
  for (let step = 0; chain !== undefined && step < STEPS_MAX; step++) {
    const lines = rules.chains.get(chain);
    if (lines === undefined) throw new Error(`no chain ${chain}`);
    const line = lines.find((one) => matches(rules, packet, one));
    const verdict = line === undefined ? 'return' : verdictOf(line);
    if (verdict === 'drop') return false;
    chain = /^goto (\S+)$/.exec(verdict)?.[1];
  }
  return true;
}

const VERDICT = /(?:^| )(return|drop|goto \S+)(?: comment "[^"]*")?$/;

function verdictOf(line: string): string {
  const verdict = VERDICT.exec(line)?.[1];
  if (verdict === undefined) throw new Error(`no verdict: ${line}`);
  return verdict;
}

/** Whether all parts of a rule hold; a part that is not read here is an error. */
function matches(rules: PolicyRules, packet: Packet, rule: string): boolean {
  const family = packet.from.includes(':') ? 'ip6' : 'ip';
  let rest = rule.replace(VERDICT, '');
  const take = (pattern: RegExp, holds: (...found: string[]) => boolean): boolean => {
    const found = pattern.exec(rest);
    if (found === null) return true;
    rest = rest.replace(found[0], '').trim();
    return holds(...found.slice(1));
  };
  const isIn = (end: string, list: string): boolean =>
    list.split(', ').some((cidr) => contains(parseCidr(cidr)!, parseAddress(end === 'saddr' ? packet.from : packet.to)!));
  const elements = (set: string): ReadonlySet<string> => {
    const found = rules.sets.get(set);
    if (found === undefined) throw new Error(`no set ${set}`);
    return found.elements;
  };
  const isMatch =
    take(/(ip6?) saddr \. ip6? daddr @(\S+)/, (ip, set) => ip === family && elements(set).has(`${packet.from} . ${packet.to}`)) &&
    take(
      /(ip6?) daddr \. meta l4proto \. th dport @(\S+)/,
      (ip, set) => ip === family && elements(set).has(`${packet.to} . ${packet.protocol} . ${packet.port}`),
    ) &&
    take(/(ip6?) (saddr|daddr) @(\S+)/, (ip, end, set) => ip === family && elements(set).has(end === 'saddr' ? packet.from : packet.to)) &&
    take(/(ip6?) (saddr|daddr) != \{ ([^}]*) \}/, (ip, end, list) => ip === family && !isIn(end, list)) &&
    take(/(ip6?) (saddr|daddr) \{ ([^}]*) \}/, (ip, end, list) => ip === family && isIn(end, list)) &&
    take(/(ip6?) (saddr|daddr) ([0-9a-f.:]+\/\d+)/, (ip, end, cidr) => ip === family && isIn(end, cidr)) &&
    take(/meta nfproto ipv([46])/, (version) => (version === '6') === (family === 'ip6')) &&
    take(/meta l4proto (\S+)/, (protocol) => protocol === packet.protocol) &&
    take(
      /(tcp|udp|sctp) dport \{ ([^}]*) \}/,
      (protocol, list) =>
        protocol === packet.protocol &&
        list.split(', ').some((range) => packet.port >= Number(range.split('-')[0]) && packet.port <= Number(range.split('-')[1] ?? range)),
    );
  if (isMatch && rest !== '') throw new Error(`not read: ${rest}`);
  return isMatch;
}
