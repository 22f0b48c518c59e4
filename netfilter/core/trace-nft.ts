import { cidrContains, parseCidr } from './ip.ts';
import type { Packet, Choice, Fate } from './trace.ts';

/** Walks a packet through rules in nft's text form, as the kernel would: the same question as `trace.ts`, asked of the rendering. */

interface TextTable {
  chains: Map<string, string[]>;
  base: Map<string, { hook: string; priority: number; type: string }>;
  /** Key text to value text. */
  sets: Map<string, Map<string, string>>;
}

/** Reads lines as `render-nft-text.ts` writes them; everything belongs to one table. */
export function parseTable(text: string): TextTable {
  const table: TextTable = { chains: new Map(), base: new Map(), sets: new Map() };
  for (const line of text.split('\n')) {
    const chain = /^add chain \S+ \S+ (\S+)(?: \{ type (\w+) hook (\w+) priority (-?\d+))?/.exec(line);
    if (chain !== null) {
      const [, name = '', type = '', hook = '', priority = ''] = chain;
      if (!table.chains.has(name)) table.chains.set(name, []);
      if (hook !== '') table.base.set(name, { type, hook, priority: Number(priority) });
      continue;
    }
    const rule = /^add rule \S+ \S+ (\S+) (.*?)(?: comment "[^"]*")?$/.exec(line);
    if (rule !== null) table.chains.get(rule[1]!)!.push(rule[2]!);
    const flush = /^flush chain \S+ \S+ (\S+)$/.exec(line);
    if (flush !== null) table.chains.set(flush[1]!, []);
    const set = /^add (?:set|map) \S+ \S+ (\S+) /.exec(line);
    if (set !== null && !table.sets.has(set[1]!)) table.sets.set(set[1]!, new Map());
    const element = /^(add|delete) element \S+ \S+ (\S+) \{ (.*?)(?: comment "[^"]*")?(?: : (.*?))? \}$/.exec(line);
    if (element === null) continue;
    const [, action, name = '', key = '', value = ''] = element;
    if (action === 'add') table.sets.get(name)!.set(key, value);
    else table.sets.get(name)!.delete(key);
  }
  return table;
}

interface Walk {
  packet: Packet;
  dst: string;
  port: number;
  marked: boolean;
  dnated: boolean;
}

/** A verdict ends the walk of a base chain; several walks come out where chance decides. */
type Outcome = { kind: 'continue' | 'accept' | 'reject' | 'drop'; walk: Walk };

function fieldValue(field: string, walk: Walk): string {
  if (field.endsWith('saddr')) return walk.packet.src;
  if (field.endsWith('daddr')) return walk.dst;
  return field === 'meta l4proto' ? walk.packet.protocol : String(walk.port);
}

function keyOf(fields: string, walk: Walk): string {
  return fields
    .split(' . ')
    .map((field) => fieldValue(field.trim(), walk))
    .join(' . ');
}

function within(cidr: string, address: string): boolean {
  const parsed = parseCidr(cidr.includes('/') ? cidr : `${cidr}/${cidr.includes(':') ? 128 : 32}`);
  return parsed !== null && cidrContains(parsed, address);
}

type Step = { matched: boolean } | { verdict: string } | { goes: readonly Walk[] } | { choices: readonly string[] };

interface Pattern {
  pattern: RegExp;
  run: (match: RegExpExecArray, walk: Walk, table: TextTable) => Step;
}

const yes: Step = { matched: true };

/** In the order in which they are tried at the front of what is left of a rule. */
const PATTERNS: readonly Pattern[] = [
  { pattern: /^ct state new\b/, run: () => yes },
  { pattern: /^ct status dnat\b/, run: (_match, walk) => ({ matched: walk.dnated }) },
  { pattern: /^mark and \S+ != 0/, run: (_match, walk) => ({ matched: walk.marked }) },
  { pattern: /^mark set mark or \S+/, run: (_match, walk) => ({ goes: [{ ...walk, marked: true }] }) },
  // The bit is cleared on the way out; what counts is that the packet had it.
  { pattern: /^mark set mark xor \S+/, run: () => yes },
  { pattern: /^masquerade fully-random/, run: (_match, walk) => ({ goes: [{ ...walk, marked: true }] }) },
  {
    pattern: /^fib (saddr|daddr) type local/,
    run: (match, walk) => ({ matched: walk.packet.nodeAddresses.includes(match[1] === 'saddr' ? walk.packet.src : walk.dst) }),
  },
  {
    pattern: /^iifname (!= )?"([^"*]*)(\*?)"/,
    run: (match, walk) => {
      const name = walk.packet.inputInterface;
      return { matched: (match[3] === '*' ? name.startsWith(match[2]!) : name === match[2]) === (match[1] === undefined) };
    },
  },
  { pattern: /^meta l4proto (tcp|udp|sctp)\b/, run: (match, walk) => ({ matched: walk.packet.protocol === match[1] }) },
  { pattern: /^numgen random mod \d+ vmap \{ (.*?) \}/, run: (match) => ({ choices: match[1]!.split(', ').map((choice) => choice.split(' : ')[1]!) }) },
  {
    pattern: /^dnat (?:ip6?) addr \. port to numgen random mod (\d+)(?: offset (\d+))? map @(\S+)/,
    run: (match, walk, table) => ({
      goes: Array.from({ length: Number(match[1]) }, (_, index) => {
        const [dst = '', port = ''] = (table.sets.get(match[3]!)?.get(String(Number(match[2] ?? 0) + index)) ?? '').split(' . ');
        return { ...walk, dst, port: Number(port), dnated: true };
      }),
    }),
  },
  { pattern: /^dnat to \[?(.*?)\]?:(\d+)$/, run: (match, walk) => ({ goes: [{ ...walk, dst: match[1]!, port: Number(match[2]), dnated: true }] }) },
  { pattern: /^update @\S+ \{ \S+ \S+ \}/, run: () => yes },
  {
    pattern: /^((?:ip6? [sd]addr|meta l4proto|th dport)(?: \. (?:ip6? [sd]addr|meta l4proto|th dport))*) vmap @(\S+)/,
    run: (match, walk, table) => {
      const verdict = table.sets.get(match[2]!)?.get(keyOf(match[1]!, walk));
      return verdict === undefined ? { matched: false } : { verdict };
    },
  },
  {
    pattern: /^((?:ip6? [sd]addr|meta l4proto|th dport)(?: \. (?:ip6? [sd]addr|meta l4proto|th dport))*) @(\S+)/,
    run: (match, walk, table) => ({ matched: table.sets.get(match[2]!)?.has(keyOf(match[1]!, walk)) === true }),
  },
  {
    pattern: /^(ip6? [sd]addr) (!= )?\{ (.*?) \}/,
    run: (match, walk) => ({ matched: match[3]!.split(', ').some((cidr) => within(cidr, fieldValue(match[1]!, walk))) === (match[2] === undefined) }),
  },
  { pattern: /^(ip6? [sd]addr) (!= )?(\S+)/, run: (match, walk) => ({ matched: within(match[3]!, fieldValue(match[1]!, walk)) === (match[2] === undefined) }) },
  { pattern: /^(goto \S+|jump \S+|drop|reject)/, run: (match) => ({ verdict: match[1]! }) },
];

function runRule(rule: string, start: Walk, table: TextTable): Outcome[] {
  let rest = rule;
  let walk = start;
  while (rest !== '') {
    const step = stepOf(rest, walk, table);
    rest = step.rest;
    if ('matched' in step.step) {
      if (!step.step.matched) return [{ kind: 'continue', walk }];
    } else if ('verdict' in step.step) {
      return runVerdict(step.step.verdict, walk, table);
    } else if ('choices' in step.step) {
      return step.step.choices.flatMap((verdict) => runVerdict(verdict, walk, table));
    } else if (step.step.goes.some((next) => next.dnated && !walk.dnated)) {
      return step.step.goes.map((next) => ({ kind: 'accept', walk: next }));
    } else {
      walk = step.step.goes[0]!;
    }
  }
  return [{ kind: 'continue', walk }];
}

function stepOf(rest: string, walk: Walk, table: TextTable): { step: Step; rest: string } {
  for (const { pattern, run } of PATTERNS) {
    const match = pattern.exec(rest);
    if (match !== null) return { step: run(match, walk, table), rest: rest.slice(match[0].length).trimStart() };
  }
  // An unknown statement must not look like a pass.
  return { step: { verdict: `unknown ${rest}` }, rest: '' };
}

function runVerdict(verdict: string, walk: Walk, table: TextTable): Outcome[] {
  if (verdict === 'drop' || verdict === 'reject') return [{ kind: verdict, walk }];
  const [how, chain = ''] = verdict.split(' ');
  if (how !== 'goto' && how !== 'jump') throw new Error(`cannot read the rule part "${verdict}"`);
  const outcomes = runChain(chain, walk, table);
  // A goto does not come back: the end of that chain is the end of the base chain.
  return how === 'jump' ? outcomes : outcomes.map((outcome) => (outcome.kind === 'continue' ? { ...outcome, kind: 'accept' } : outcome));
}

function runChain(chain: string, start: Walk, table: TextTable): Outcome[] {
  let open: Walk[] = [start];
  const done: Outcome[] = [];
  for (const rule of table.chains.get(chain) ?? []) {
    const next: Walk[] = [];
    for (const walk of open) {
      for (const outcome of runRule(rule, walk, table)) {
        if (outcome.kind === 'continue') next.push(outcome.walk);
        else done.push(outcome);
      }
    }
    open = next;
  }
  return [...done, ...open.map((walk): Outcome => ({ kind: 'continue', walk }))];
}

function hooksOf(walk: Walk): string[] {
  if (walk.packet.fromNode) return ['output', 'postrouting'];
  return ['prerouting', walk.packet.nodeAddresses.includes(walk.dst) ? 'input' : 'forward', 'postrouting'];
}

/** Where the packet may end up. The answer has one entry per possible target, in the order of the rules. */
export function traceText(text: string, packet: Packet): Fate {
  const table = parseTable(text);
  let walks: Walk[] = [{ packet, dst: packet.dst, port: packet.port, marked: false, dnated: false }];
  for (let stage = 0; stage < hooksOf(walks[0]!).length; stage++) {
    const hook = hooksOf(walks[0]!)[stage]!;
    const chains = [...table.base].filter(([, base]) => base.hook === hook).sort(([, a], [, b]) => a.priority - b.priority);
    for (const [chain] of chains) {
      const outcomes = walks.flatMap((walk) => runChain(chain, walk, table));
      const refused = outcomes.find((outcome) => outcome.kind === 'drop' || outcome.kind === 'reject');
      if (refused !== undefined) return { kind: refused.kind as 'drop' | 'reject' };
      walks = outcomes.map((outcome) => outcome.walk);
    }
  }
  if (!walks[0]!.dnated) return { kind: 'pass' };
  const choices = new Map<string, Choice>();
  for (const walk of walks) choices.set(`${walk.dst} ${walk.port}`, { target: { address: walk.dst, port: walk.port }, masquerade: walk.marked });
  return { kind: 'to', choices: [...choices.values()] };
}
