import { cidrContains, parseCidr } from './ip.ts';
import { chainKey, type IptablesRule, type Match, type SavedRules } from './iptables-rules.ts';
import type { Packet } from './trace.ts';
import { tracePacket, type Hook, type Outcome, type Traced, type Walk } from './walk.ts';

/** Walks a packet through the rules that `iptables-save` prints, as the kernel would a connection's first packet. */

/** Tables in the order in which a hook asks them; nat's of the hook input changes nothing here. */
const TABLES: Readonly<Record<Hook, readonly string[]>> = {
  prerouting: ['raw', 'mangle', 'nat'],
  input: ['mangle', 'filter'],
  forward: ['mangle', 'filter'],
  output: ['raw', 'mangle', 'nat', 'filter'],
  postrouting: ['mangle', 'nat'],
};

/** `maybe`: chance or the past decides. */
type Answer = boolean | 'maybe';

function within(cidr: string, address: string): boolean {
  const parsed = parseCidr(cidr.includes('/') ? cidr : `${cidr}/${cidr.includes(':') ? 128 : 32}`);
  return parsed !== null && cidrContains(parsed, address);
}

function isLocalAddress(packet: Packet, address: string): boolean {
  return packet.nodeAddresses.includes(address) || within(address.includes(':') ? '::1/128' : '127.0.0.0/8', address);
}

/** Matches whose answer is not theirs to give, or that count and log. */
const ALWAYS = new Set(['name', 'mask', 'rsource', 'seconds', 'reap', 'mode', 'nfacct-name', 'set', 'limit', 'limit-burst']);

function states(walk: Walk): readonly string[] {
  return walk.dnated ? ['NEW', 'DNAT'] : ['NEW'];
}

function answer(match: Match, walk: Walk): Answer {
  const { packet } = walk;
  switch (match.name) {
    case 'source':
      return within(match.value, packet.src);
    case 'destination':
      return within(match.value, walk.dst);
    case 'protocol':
      return match.value === packet.protocol || match.value === 'all';
    case 'dport':
    case 'dports':
      return match.value.split(',').some((range) => {
        const [first = '', last = first] = range.split(':');
        return walk.port >= Number(first) && walk.port <= Number(last);
      });
    case 'in-interface':
      return match.value.endsWith('+') ? packet.inputInterface.startsWith(match.value.slice(0, -1)) : packet.inputInterface === match.value;
    case 'dst-type':
      return (match.value === 'LOCAL') === isLocalAddress(packet, walk.dst);
    case 'src-type':
      return (match.value === 'LOCAL') === isLocalAddress(packet, packet.src);
    case 'ctstate':
    case 'state':
      return match.value.split(',').some((state) => states(walk).includes(state));
    case 'mark': {
      const [value = '0', mask = '0xffffffff'] = match.value.split('/');
      // Of the packet's mark only the proxy's own bit is known: it is the one its rules ask for.
      return Number(mask) === 0 || (Number(value) !== 0 && walk.marked);
    }
    case 'probability':
      return 'maybe';
    case 'rcheck':
    case 'update':
      // Whether this client was here before is not in the rules.
      return false;
    default:
      if (ALWAYS.has(match.name)) return true;
      throw new Error(`cannot tell what "${match.not ? '! ' : ''}--${match.name} ${match.value}" means`);
  }
}

function judged(rule: IptablesRule, walk: Walk): Answer {
  let result: Answer = true;
  for (const match of rule.matches) {
    const said = answer(match, walk);
    if (said === 'maybe') result = 'maybe';
    else if (said === match.not) return false;
  }
  return result;
}

function hostAndPort(text: string): { dst: string; port: number } {
  const at = text.lastIndexOf(':');
  return { dst: text.slice(0, at).replace(/^\[(.*)\]$/, '$1'), port: Number(text.slice(at + 1)) };
}

/** What a target does; `return` leaves the chain. */
function act(saved: SavedRules, table: string, rule: IptablesRule, before: Walk): (Outcome | { kind: 'return'; walk: Walk })[] {
  const hop = { table, chain: rule.chain, rule: rule.text.replace(/^-A \S+ /, '') };
  const walk = { ...before, path: [...before.path, hop] };
  switch (rule.target) {
    case '':
      return [{ kind: 'continue', walk: before }];
    case 'ACCEPT':
      return [{ kind: 'accept', walk }];
    case 'DROP':
      return [{ kind: 'drop', walk }];
    case 'REJECT':
      return [{ kind: 'reject', walk }];
    case 'RETURN':
      return [{ kind: 'return', walk: before }];
    case 'MARK': {
      // 0x4000/0x4000 sets the bit; 0x4000/0x0 turns it over, which only happens where it is set.
      const option = rule.options[0];
      const [value = '0', mask = value] = (option?.value ?? '').split('/');
      const sets = option?.name === 'or-mark' || (option?.name === 'set-xmark' && Number(value) !== 0 && Number(mask) !== 0);
      return [{ kind: 'continue', walk: sets ? { ...walk, marked: true } : walk }];
    }
    case 'DNAT':
      return [{ kind: 'accept', walk: { ...walk, ...hostAndPort(rule.options.find(({ name }) => name === 'to-destination')?.value ?? ''), dnated: true } }];
    case 'MASQUERADE':
      return [{ kind: 'accept', walk: { ...walk, masqueraded: true } }];
    case 'LOG':
    case 'NFLOG':
      return [{ kind: 'continue', walk: before }];
    default: {
      const chain = rule.target.replace(/^goto /, '');
      if (!saved.chains.has(chainKey(table, chain))) throw new Error(`cannot tell what the target ${rule.target} does`);
      return runChain(saved, table, chain, walk).map((outcome) => {
        // Where nothing happened, the way in is no part of the answer.
        if (outcome.kind === 'continue' && outcome.walk === walk) return { kind: 'continue', walk: before };
        return outcome.kind === 'continue' && rule.target.startsWith('goto ') ? { kind: 'return', walk: outcome.walk } : outcome;
      });
    }
  }
}

function runChain(saved: SavedRules, table: string, chain: string, start: Walk): Outcome[] {
  let open: Walk[] = [start];
  const done: Outcome[] = [];
  for (const rule of saved.chains.get(chainKey(table, chain)) ?? []) {
    const next: Walk[] = [];
    for (const walk of open) {
      const said = judged(rule, walk);
      if (said !== true) next.push(walk);
      if (said === false) continue;
      for (const outcome of act(saved, table, rule, walk)) {
        if (outcome.kind === 'continue') next.push(outcome.walk);
        else if (outcome.kind === 'return') done.push({ kind: 'continue', walk: outcome.walk });
        else done.push(outcome);
      }
    }
    open = next;
  }
  return [...done, ...open.map((walk): Outcome => ({ kind: 'continue', walk }))];
}

function runHook(saved: SavedRules, hook: Hook, start: Walk): Outcome[] {
  const chain = hook.toUpperCase();
  let walks = [start];
  const refused: Outcome[] = [];
  for (const table of TABLES[hook]) {
    const outcomes = walks.flatMap((walk) => runChain(saved, table, chain, walk));
    const policy = saved.policies.get(chainKey(table, chain));
    const ended = outcomes.map((outcome): Outcome => {
      if (outcome.kind !== 'continue' || policy !== 'DROP') return outcome;
      const hop = { table, chain, rule: 'policy DROP' };
      return { kind: 'drop', walk: { ...outcome.walk, path: [...outcome.walk.path, hop] } };
    });
    refused.push(...ended.filter(({ kind }) => kind === 'drop' || kind === 'reject'));
    walks = ended.filter(({ kind }) => kind === 'continue' || kind === 'accept').map(({ walk }) => walk);
  }
  return [...refused, ...walks.map((walk): Outcome => ({ kind: 'continue', walk }))];
}

/** Where the packet goes by what `iptables-save` printed, and which rules say so. Throws where a rule means something unknown. */
export function traceSaved(saved: SavedRules, packet: Packet): Traced {
  return tracePacket(packet, (hook, walk) => runHook(saved, hook, walk));
}
