import { guardsNode, isEmpty, MAPS, NODE_MAPS, type MapName, type PolicyRules } from './policy-rules.ts';

/** Policies' rules as text for `nft -f -`: whole, or what changed; each is one transaction. */

export const POLICY_TABLE = 'nodelet-policy';
const TABLE = `inet ${POLICY_TABLE}`;

/**
 * Packets that pass the node, after the service proxy chose an endpoint (a destination is translated in prerouting). What
 * the node itself sends or receives passes neither: it is always allowed. An answer is let through with what it answers.
 */
const FORWARD = [
  'ct state established,related accept',
  'ip saddr vmap @egress4',
  'ip6 saddr vmap @egress6',
  'ip daddr vmap @ingress4',
  'ip6 daddr vmap @ingress6',
];
/** Packets to the node itself, where a ClusterNetworkPolicy speaks of what some pod sends. */
const INPUT = ['ct state established,related accept', 'ip saddr vmap @node-egress4', 'ip6 saddr vmap @node-egress6'];

const SELF_TYPE = { 'self-4': 'ipv4_addr . ipv4_addr', 'self-6': 'ipv6_addr . ipv6_addr' } as const;
const mapType = (name: string): string => (name.endsWith('4') ? 'ipv4_addr' : 'ipv6_addr');
const mapsOf = (rules: PolicyRules): readonly MapName[] => (guardsNode(rules) ? [...MAPS, ...NODE_MAPS] : MAPS);
const baseChains = (rules: PolicyRules): { name: string; lines: readonly string[] }[] => [
  { name: 'forward', lines: FORWARD },
  ...(guardsNode(rules) ? [{ name: 'input', lines: INPUT }] : []),
];

/** Sets that always are there, and those of the rules. */
function allSets(rules: PolicyRules): Map<string, { type: string; elements: ReadonlySet<string> }> {
  const sets = new Map<string, { type: string; elements: ReadonlySet<string> }>(rules.sets);
  for (const [name, type] of Object.entries(SELF_TYPE)) if (!sets.has(name)) sets.set(name, { type, elements: new Set() });
  return sets;
}

/** Chains that others lead to first: those of the tiers behind. */
function chainsInOrder(chains: PolicyRules['chains']): [string, readonly string[]][] {
  return [...chains].sort(([a], [b]) => Number(a.startsWith('admin-')) - Number(b.startsWith('admin-')));
}

const target = (key: string, chain: string): string => `${key} : jump ${chain}`;
const elements = (items: readonly string[]): string => (items.length === 0 ? '' : ` elements = { ${items.join(', ')} };`);

/** Takes the table away, where it is and where it is not. */
export function removalText(): string {
  // Deleting needs something that is there, on kernels and tools that do not know "destroy" yet.
  return `table ${TABLE} { }\ndelete table ${TABLE}\n`;
}

/** The whole table in place of what is there; nothing but its removal when nobody is isolated. */
export function wholeText(rules: PolicyRules): string {
  if (isEmpty(rules)) return removalText();
  const sets = [...allSets(rules)].map(([name, { type, elements: items }]) => `  set ${name} { type ${type};${elements([...items])} }`);
  const body = (list: readonly string[]): string => list.map((rule) => `    ${rule}\n`).join('');
  const chains = chainsInOrder(rules.chains).map(([name, list]) => `  chain ${name} {\n${body(list)}  }`);
  const maps = mapsOf(rules).map(
    (name) => `  map ${name} { type ${mapType(name)} : verdict;${elements([...rules.maps[name]].map(([key, chain]) => target(key, chain)))} }`,
  );
  const bases = baseChains(rules).map(
    ({ name, lines }) => `  chain ${name} {\n    type filter hook ${name} priority filter; policy accept;\n${body(lines)}  }`,
  );
  return `${removalText()}table ${TABLE} {\n${[...sets, ...chains, ...maps, ...bases].join('\n')}\n}\n`;
}

/** What makes the table `after` of `before`; '' when nothing does. */
export function changeText(before: PolicyRules, after: PolicyRules): string {
  if (isEmpty(after)) return isEmpty(before) ? '' : removalText();
  if (isEmpty(before) || guardsNode(before) !== guardsNode(after)) return wholeText(after);
  const early: string[] = [];
  const late: string[] = [];
  const [had, wants] = [allSets(before), allSets(after)];
  for (const [name, { type, elements: items }] of wants) {
    const old = had.get(name);
    if (old === undefined) early.push(`add set ${TABLE} ${name} { type ${type}; }`);
    const gone = old === undefined ? [] : [...old.elements].filter((item) => !items.has(item));
    const fresh = [...items].filter((item) => old?.elements.has(item) !== true);
    if (gone.length > 0) early.push(`delete element ${TABLE} ${name} { ${gone.join(', ')} }`);
    if (fresh.length > 0) early.push(`add element ${TABLE} ${name} { ${fresh.join(', ')} }`);
  }
  for (const [name, rules] of chainsInOrder(after.chains)) {
    const old = before.chains.get(name);
    if (old === undefined) early.push(`add chain ${TABLE} ${name}`);
    else if (old.join('\n') === rules.join('\n')) continue;
    else early.push(`flush chain ${TABLE} ${name}`);
    for (const rule of rules) early.push(`add rule ${TABLE} ${name} ${rule}`);
  }
  for (const name of mapsOf(after)) {
    const [from, to] = [before.maps[name], after.maps[name]];
    const gone = [...from].filter(([key, chain]) => to.get(key) !== chain);
    const fresh = [...to].filter(([key, chain]) => from.get(key) !== chain);
    if (gone.length > 0) late.push(`delete element ${TABLE} ${name} { ${gone.map(([key, chain]) => target(key, chain)).join(', ')} }`);
    if (fresh.length > 0) late.push(`add element ${TABLE} ${name} { ${fresh.map(([key, chain]) => target(key, chain)).join(', ')} }`);
  }
  const gone = [...before.chains.keys()].filter((name) => !after.chains.has(name));
  // A chain that another one leads to is deleted once nothing does.
  for (const name of gone) late.push(`flush chain ${TABLE} ${name}`);
  for (const name of gone) late.push(`delete chain ${TABLE} ${name}`);
  for (const name of had.keys()) if (!wants.has(name)) late.push(`delete set ${TABLE} ${name}`);
  const lines = [...early, ...late];
  return lines.length === 0 ? '' : `${lines.join('\n')}\n`;
}

/** Whether a listing of the table has everything by name and number: sets and maps with their elements, chains with their rules. */
export function isAsWritten(listing: string, rules: PolicyRules): boolean {
  const found = new Map<string, number>();
  for (const [, kind, name, body] of listing.matchAll(/^\t(set|map|chain) (\S+) \{\n([\s\S]*?)^\t\}/gm)) found.set(`${kind} ${name}`, countOf(kind!, body!));
  const wanted = new Map<string, number>(baseChains(rules).map(({ name, lines }) => [`chain ${name}`, lines.length]));
  for (const [name, { elements: items }] of allSets(rules)) wanted.set(`set ${name}`, items.size);
  for (const name of mapsOf(rules)) wanted.set(`map ${name}`, rules.maps[name].size);
  for (const [name, list] of rules.chains) wanted.set(`chain ${name}`, list.length);
  return found.size === wanted.size && [...wanted].every(([name, count]) => found.get(name) === count);
}

function countOf(kind: string, body: string): number {
  if (kind === 'chain') return body.split('\n').filter((line) => line.trim() !== '' && !line.trim().startsWith('type ')).length;
  const list = /elements = \{([^}]*)\}/.exec(body)?.[1];
  return list === undefined ? 0 : list.split(',').length;
}
