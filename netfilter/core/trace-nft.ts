import { cidrContains, parseCidr } from './ip.ts';
import type { Fate, Packet } from './trace.ts';
import { tracePacket, type Hook, type Outcome, type Traced, type Walk } from './walk.ts';

/** Walks a packet through rules in nft's text form, as the kernel would: the same question as `trace.ts`, asked of the rendering. */

export interface TextTable {
  chains: Map<string, string[]>;
  base: Map<string, { hook: string; priority: number; type: string }>;
  /** Key text to value text. */
  sets: Map<string, Map<string, string>>;
}

/** Reads what `nft list table` prints of one table. */
export function parseListing(text: string): TextTable {
  const table: TextTable = { chains: new Map(), base: new Map(), sets: new Map() };
  for (const [, kind, name, body] of text.matchAll(/^\t(chain|set|map) (\S+) \{\n(.*?)^\t\}$/gms)) {
    if (kind === 'chain') {
      const lines = body!.split('\n').map((line) => line.trim());
      const base = lines.map((line) => /^type (\w+) hook (\w+) priority ([^;]+);/.exec(line)).find((match) => match !== null);
      if (base !== undefined) table.base.set(name!, { type: base[1]!, hook: base[2]!, priority: priorityOf(base[3]!) });
      const isRule = (line: string): boolean => line !== '' && !line.startsWith('type ') && !/^comment "[^"]*"$/.test(line);
      table.chains.set(
        name!,
        lines.filter(isRule).map((line) => line.replace(/ comment "[^"]*"$/, '')),
      );
    } else {
      const elements = new Map<string, string>();
      const inside = /elements = \{(.*?)\}/s.exec(body!)?.[1] ?? '';
      for (const item of inside.split(',')) {
        const [key = '', value = ''] = item
          .trim()
          .replace(/ comment "[^"]*"/, '')
          .split(' : ');
        if (key !== '') elements.set(key.split(/ (?:timeout|expires) /)[0]!.replaceAll(/\s+/g, ' '), value.replaceAll(/\s+/g, ' '));
      }
      table.sets.set(name!, elements);
    }
  }
  return table;
}

/** nft prints well-known priorities by name. */
function priorityOf(text: string): number {
  const [, name = '', more = '0'] = /^(\w*)((?: ?[+-] ?)?\d+)?$/.exec(text.trim().replace(/^-/, ' -')) ?? [];
  const named: Record<string, number> = { raw: -300, mangle: -150, dstnat: -100, filter: 0, security: 50, srcnat: 100 };
  return (named[name] ?? 0) + Number(more.replaceAll(' ', ''));
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
    const change = /^(add|delete) element \S+ \S+ (\S+) \{ (.*) \}$/.exec(line);
    if (change === null) continue;
    const [, action, name = '', list = ''] = change;
    for (const element of list.split(', ')) {
      const [key = '', value = ''] = element.replace(/ comment "[^"]*"/, '').split(' : ');
      if (action === 'add') table.sets.get(name)!.set(key, value);
      else table.sets.get(name)!.delete(key);
    }
  }
  return table;
}

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
  { pattern: /^counter name "?[\w-]+"?/, run: () => yes },
  { pattern: /^ct status dnat\b/, run: (_match, walk) => ({ matched: walk.dnated }) },
  { pattern: /^(?:mark and|meta mark &) \S+ != 0(?:x0+)?/, run: (_match, walk) => ({ matched: walk.marked }) },
  { pattern: /^(?:mark set mark or|meta mark set meta mark \|) \S+/, run: (_match, walk) => ({ goes: [{ ...walk, marked: true }] }) },
  // The bit is cleared on the way out; what counts is that the packet had it.
  { pattern: /^(?:mark set mark xor|meta mark set meta mark \^) \S+/, run: () => yes },
  { pattern: /^masquerade fully-random/, run: (_match, walk) => ({ goes: [{ ...walk, masqueraded: true }] }) },
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
    pattern: /^dnat (?:ip6?)(?: addr \. port)? to numgen random mod (\d+)(?: offset (\d+))? map @(\S+)/,
    run: (match, walk, table) => ({
      goes: Array.from({ length: Number(match[1]) }, (_, index) => {
        const [dst = '', port = ''] = (table.sets.get(match[3]!)?.get(String(Number(match[2] ?? 0) + index)) ?? '').split(' . ');
        return { ...walk, dst, port: Number(port), dnated: true };
      }),
    }),
  },
  {
    // As upstream writes it: a map of the rule's own.
    pattern: /^dnat ip6?(?: addr \. port)? to numgen random mod \d+ map \{ (.*?) \}/,
    run: (match, walk) => ({
      goes: match[1]!.split(', ').map((choice) => {
        const [dst = '', port = ''] = choice.split(' : ')[1]!.split(' . ');
        return { ...walk, dst, port: Number(port), dnated: true };
      }),
    }),
  },
  { pattern: /^dnat(?: ip6?)? to \[?(.*?)\]?:(\d+)$/, run: (match, walk) => ({ goes: [{ ...walk, dst: match[1]!, port: Number(match[2]), dnated: true }] }) },
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
  { pattern: /^(goto \S+|jump \S+|drop|reject(?: with icmp(?:v6)? \S+)?|accept|return)/, run: (match) => ({ verdict: match[1]! }) },
];

/** Rules as written, of chain `chain`: the path remembers those that decided something. */
function runRule(rule: string, chain: string, start: Walk, table: TextTable): Outcome[] {
  const hop = { table: 'kube-proxy', chain, rule };
  let rest = rule;
  let walk = start;
  let changed = false;
  while (rest !== '') {
    const step = stepOf(rest, walk, table);
    rest = step.rest;
    if ('matched' in step.step) {
      if (!step.step.matched) return [{ kind: 'continue', walk: changed ? walk : start }];
    } else if ('verdict' in step.step) {
      return runVerdict(step.step.verdict, { ...walk, path: [...walk.path, hop] }, table);
    } else if ('choices' in step.step) {
      const next = { ...walk, path: [...walk.path, hop] };
      return step.step.choices.flatMap((verdict) => runVerdict(verdict, next, table));
    } else if (step.step.goes.some((next) => next.dnated && !walk.dnated)) {
      return step.step.goes.map((next) => ({ kind: 'accept', walk: { ...next, path: [...next.path, hop] } }));
    } else {
      walk = step.step.goes[0]!;
      if (!changed) walk = { ...walk, path: [...walk.path, hop] };
      changed = true;
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
  throw new Error(`cannot read the rule part "${rest}"`);
}

function runVerdict(verdict: string, walk: Walk, table: TextTable): Outcome[] {
  if (verdict === 'drop' || verdict.startsWith('reject')) return [{ kind: verdict === 'drop' ? 'drop' : 'reject', walk }];
  if (verdict === 'accept') return [{ kind: 'accept', walk }];
  const [how, chain = ''] = verdict.split(' ');
  if (how !== 'goto' && how !== 'jump') throw new Error(`cannot read the rule part "${verdict}"`);
  const outcomes = runChain(chain, walk, table);
  // A goto does not come back: the end of that chain is the end of the base chain.
  if (how === 'jump') {
    // Where nothing happened, the way in is no part of the answer.
    const before = walk.path.slice(0, -1);
    return outcomes.map((outcome) => (outcome.kind === 'continue' && outcome.walk === walk ? { ...outcome, walk: { ...walk, path: before } } : outcome));
  }
  return outcomes.map((outcome) => (outcome.kind === 'continue' ? { ...outcome, kind: 'accept' } : outcome));
}

function runChain(chain: string, start: Walk, table: TextTable): Outcome[] {
  let open: Walk[] = [start];
  const done: Outcome[] = [];
  for (const rule of table.chains.get(chain) ?? []) {
    const next: Walk[] = [];
    for (const walk of open) {
      for (const outcome of runRule(rule, chain, walk, table)) {
        if (outcome.kind === 'continue') next.push(outcome.walk);
        else done.push(outcome);
      }
    }
    open = next;
  }
  return [...done, ...open.map((walk): Outcome => ({ kind: 'continue', walk }))];
}

/** What the base chains of a hook make of a packet, in the order of their priorities. */
function runHook(table: TextTable, hook: Hook, start: Walk): Outcome[] {
  const chains = [...table.base].filter(([, base]) => base.hook === hook).sort(([, a], [, b]) => a.priority - b.priority);
  let walks = [start];
  const refused: Outcome[] = [];
  for (const [chain] of chains) {
    const outcomes = walks.flatMap((walk) => runChain(chain, walk, table));
    refused.push(...outcomes.filter(({ kind }) => kind === 'drop' || kind === 'reject'));
    walks = outcomes.filter(({ kind }) => kind === 'continue' || kind === 'accept').map(({ walk }) => walk);
  }
  return [...refused, ...walks.map((walk): Outcome => ({ kind: 'continue', walk }))];
}

/** Where the packet goes by the rules of a table, and which rules say so. */
export function traceTable(table: TextTable, packet: Packet): Traced {
  return tracePacket(packet, (hook, walk) => runHook(table, hook, walk));
}

/** Where the packet may end up by rules in the form in which we write them. */
export function traceText(text: string, packet: Packet): Fate {
  return traceTable(parseTable(text), packet).fate;
}
