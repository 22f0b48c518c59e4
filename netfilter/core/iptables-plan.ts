import { SHARED_CHAINS, type PortChains, type SharedChain } from './iptables-service.ts';
import { isJump, isServiceChain, JUMPS, jumpText, KUBELET_FIREWALL, TABLES, type FixedRules, type TableName } from './iptables-table.ts';

/** What is there → what we want, as input of `iptables-restore --noflush`: a chain that is named there is emptied first. */

export interface RestoreInput {
  text: string;
  /** For each line, the port that needs it; undefined for the fixed part. */
  owners: readonly (string | undefined)[];
}

interface Part {
  table: TableName;
  chains: Set<string>;
  lines: string[];
  /** For each line, as in a RestoreInput. */
  owners: (string | undefined)[];
}

/** Parts as one input, a transaction each. */
function inputOf(parts: readonly Part[]): RestoreInput {
  const text: string[] = [];
  const owners: (string | undefined)[] = [];
  for (const part of parts) {
    text.push(`*${part.table}`);
    // From the last name to the first: the programs keep a sorted list, into which they look from its start.
    for (const chain of [...part.chains].sort().reverse()) text.push(`:${chain} - [0:0]`);
    owners.length = text.length;
    for (const [index, line] of part.lines.entries()) {
      text.push(line);
      owners.push(part.owners[index]);
    }
    text.push('COMMIT');
    owners.length = text.length;
  }
  return { text: text.length === 0 ? '' : `${text.join('\n')}\n`, owners };
}

/**
 * Collects one restore: of what was said since the last cut, chains before rules, mangle and filter before nat. Each
 * table of each part is a transaction of its own.
 */
export class Restore {
  readonly #closed: Part[] = [];
  #parts = new Map<TableName, Part>();
  readonly #ruleCounts = new Map<TableName, number>();

  #part(table: TableName): Part {
    let part = this.#parts.get(table);
    if (part === undefined) this.#parts.set(table, (part = { table, chains: new Set(), lines: [], owners: [] }));
    return part;
  }

  /** How many lines are there, without the frames of tables. */
  get lineCount(): number {
    let count = 0;
    for (const part of [...this.#closed, ...this.#parts.values()]) count += part.chains.size + part.lines.length;
    return count;
  }

  get isEmpty(): boolean {
    return this.#closed.length === 0 && this.#parts.size === 0;
  }

  /** What follows is a part of its own. */
  cut(): void {
    for (const table of TABLES) {
      const part = this.#parts.get(table);
      if (part !== undefined) this.#closed.push(part);
    }
    this.#parts = new Map();
  }

  /** How many rules it appends to chains of that table, those included that were taken. */
  ruleCount(table: TableName): number {
    return this.#ruleCounts.get(table) ?? 0;
  }

  /** Makes the chain, or empties it. */
  chain(table: TableName, chain: string): void {
    this.#part(table).chains.add(chain);
  }

  /** The chain with these rules and no others. */
  fill(table: TableName, chain: string, rules: readonly string[], owner?: string): void {
    this.chain(table, chain);
    for (const rule of rules) this.line(table, `-A ${chain} ${rule}`, owner);
  }

  line(table: TableName, line: string, owner?: string): void {
    const part = this.#part(table);
    part.lines.push(line);
    part.owners.push(owner);
    if (line.startsWith('-A ')) this.#ruleCounts.set(table, this.ruleCount(table) + 1);
  }

  drop(table: TableName, chain: string, owner?: string): void {
    this.chain(table, chain);
    this.line(table, `-X ${chain}`, owner);
  }

  /** All of it as one input. */
  input(): RestoreInput {
    this.cut();
    return inputOf(this.#closed);
  }

  /** Takes out the transactions that are complete, at most so many; null when none is. */
  take(atMost: number): RestoreInput | null {
    return this.#closed.length === 0 ? null : inputOf(this.#closed.splice(0, atMost));
  }
}

/** The first piece has so many lines and each one twice as many as that before, so that the program need not wait long for one. */
const FIRST_LINES = 250;

/** Cuts a restore whenever so many lines were counted; with Infinity never. */
class Pieces {
  readonly #restore: Restore;
  readonly #linesAtOnce: number;
  #linesNow: number;
  #lines = 0;

  constructor(restore: Restore, linesAtOnce: number, firstLines = linesAtOnce) {
    this.#restore = restore;
    this.#linesAtOnce = linesAtOnce;
    this.#linesNow = Math.min(firstLines, linesAtOnce);
  }

  /** So many lines follow that must not be torn apart. */
  next(lines: number): void {
    if (this.#lines > 0 && this.#lines + lines > this.#linesNow) {
      this.cut();
      this.#linesNow = Math.min(2 * this.#linesNow, this.#linesAtOnce);
    }
    this.#lines += lines;
  }

  /** What follows needs what came before; nothing is cut where nothing ever is. */
  cut(): void {
    if (this.#linesAtOnce === Infinity) return;
    this.#restore.cut();
    this.#lines = 0;
  }
}

function same(a: readonly string[] | undefined, b: readonly string[] | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return a.length === b.length && a.every((rule, index) => rule === b[index]);
}

function sharedParts(chain: SharedChain): [TableName, string] {
  const [table, name] = chain.split(' ');
  return [table as TableName, name!];
}

/** The first port by its key comes first in a shared chain, so that a claim by two is decided as in nftables. */
function fillShared(
  restore: Restore,
  shared: SharedChain,
  ports: ReadonlyMap<string, PortChains>,
  sorted: readonly string[],
  fixed: FixedRules,
  pieces?: Pieces,
): void {
  const [table, chain] = sharedParts(shared);
  restore.chain(table, chain);
  const line = (rule: string, owner?: string): void => {
    pieces?.next(1);
    restore.line(table, `-A ${chain} ${rule}`, owner);
  };
  for (const port of sorted) for (const rule of ports.get(port)!.shared.get(shared) ?? []) line(rule, port);
  for (const rule of fixed.tails.get(shared) ?? []) line(rule);
}

/** Nobody leads to a chain before those that lead to it are gone: a firewall to the way in, that to the endpoints' choice, and so on. */
const DROP_ORDER = ['KUBE-FW-', 'KUBE-EXT-', 'KUBE-SVL-', 'KUBE-SVC-', 'KUBE-SEP-'];

function dropOrder(chains: readonly string[]): string[] {
  return DROP_ORDER.flatMap((prefix) => chains.filter((chain) => chain.startsWith(prefix)));
}

function countLines(chains: PortChains['chains']): number {
  let lines = 0;
  for (const rules of chains.values()) lines += 1 + rules.length;
  return lines;
}

/**
 * Only the chains whose rules differ once `changes` are in (null takes a port out).
 * @param linesAtOnce how many lines a transaction may have, as far as one port's do not belong together
 */
export function planChanges(
  ports: ReadonlyMap<string, PortChains>,
  changes: ReadonlyMap<string, PortChains | null>,
  fixed: FixedRules,
  linesAtOnce = Infinity,
): Restore {
  const restore = new Restore();
  const pieces = new Pieces(restore, linesAtOnce);
  const touched = new Set<SharedChain>();
  const gone = new Map<string, string>();
  let written = 0;
  for (const [port, after] of changes) {
    const before = ports.get(port);
    const filled = [...(after?.chains ?? [])].filter(([chain, rules]) => !same(before?.chains.get(chain), rules));
    const lines = countLines(new Map(filled));
    if (lines > 0) pieces.next(lines);
    written += lines;
    for (const [chain, rules] of filled) restore.fill('nat', chain, rules, port);
    for (const chain of before?.chains.keys() ?? []) if (after?.chains.has(chain) !== true) gone.set(chain, port);
    for (const shared of SHARED_CHAINS) if (!same(before?.shared.get(shared), after?.shared.get(shared))) touched.add(shared);
  }
  if (written > linesAtOnce) pieces.cut();
  if (touched.size > 0) {
    const next = applied(ports, changes);
    const sorted = [...next.keys()].sort();
    for (const shared of SHARED_CHAINS) if (touched.has(shared)) fillShared(restore, shared, next, sorted, fixed);
  }
  const dropped = dropOrder([...gone.keys()]);
  if (dropped.length > linesAtOnce) pieces.cut();
  for (const chain of dropped) {
    pieces.next(1);
    restore.drop('nat', chain, gone.get(chain));
  }
  return restore;
}

export function applied(ports: ReadonlyMap<string, PortChains>, changes: ReadonlyMap<string, PortChains | null>): Map<string, PortChains> {
  const next = new Map(ports);
  for (const [port, chains] of changes) {
    if (chains === null) next.delete(port);
    else next.set(port, chains);
  }
  return next;
}

/** What `iptables-save` says of one table, as far as a whole write needs it. */
export interface SavedTable {
  chains: ReadonlySet<string>;
  /** Rules of chains that are not a Service's own, as printed. */
  rules: readonly string[];
}

export function readSaved(text: string): SavedTable {
  const chains = new Set<string>();
  const rules: string[] = [];
  for (const line of text.split('\n')) {
    if (line.startsWith(':')) chains.add(line.slice(1, line.indexOf(' ')));
    else if (line.startsWith('-A ') && !isServiceChain(line.slice(3))) rules.push(line);
  }
  return { chains, rules };
}

/**
 * Everything: the fixed chains, those of all ports, the shared ones that lead there, and the ways in; what no port wants
 * any more goes last. Whatever is there already stays whole at every moment: a shared chain that exists is written at once.
 * What is complete can be taken out of `restore` and written while the rest is planned.
 */
export class WholePlan {
  readonly restore = new Restore();
  readonly #fixed: FixedRules;
  readonly #pieces: Pieces;
  readonly #wanted = new Set<string>();

  /** @param linesAtOnce how many lines a transaction may have, as far as they do not belong together */
  constructor(fixed: FixedRules, linesAtOnce = Infinity) {
    this.#fixed = fixed;
    this.#pieces = new Pieces(this.restore, linesAtOnce, FIRST_LINES);
    for (const { table, chain, rules } of fixed.chains) this.restore.fill(table, chain, rules);
  }

  /** The own chains of a port. */
  add(port: string, { chains }: PortChains): void {
    this.#pieces.next(countLines(chains));
    for (const [chain, rules] of chains) {
      this.#wanted.add(chain);
      this.restore.fill('nat', chain, rules, port);
    }
  }

  /** The rest, when all ports were added; only this asks what is there already. */
  finish(ports: ReadonlyMap<string, PortChains>, saved: Readonly<Record<'filter' | 'nat', SavedTable>>): void {
    const { restore } = this;
    const isThere = (shared: SharedChain): boolean => {
      const [table, chain] = sharedParts(shared);
      return saved[table as 'filter' | 'nat'].chains.has(chain);
    };
    this.#pieces.cut();
    const isFirewallThere = saved.filter.chains.has(KUBELET_FIREWALL) || this.#fixed.chains.some(({ chain }) => chain === KUBELET_FIREWALL);
    if (!isFirewallThere) restore.chain('filter', KUBELET_FIREWALL);
    const sorted = [...ports.keys()].sort();
    for (const shared of SHARED_CHAINS) if (!isThere(shared)) fillShared(restore, shared, ports, sorted, this.#fixed, this.#pieces);
    this.#pieces.cut();
    for (const shared of SHARED_CHAINS) if (isThere(shared)) fillShared(restore, shared, ports, sorted, this.#fixed);
    for (const way of JUMPS) {
      const there = saved[way.table as 'filter' | 'nat'].rules;
      if (!there.some((line) => isJump(line, way))) restore.line(way.table, `-I ${way.from} 1 ${jumpText(way)}`);
    }
    this.#pieces.cut();
    const gone = [...saved.nat.chains].filter((name) => isServiceChain(name) && !this.#wanted.has(name));
    for (const chain of dropOrder(gone)) {
      this.#pieces.next(1);
      restore.drop('nat', chain);
    }
  }
}

/** A whole plan of ports that are all there. */
export function planWhole(
  ports: ReadonlyMap<string, PortChains>,
  fixed: FixedRules,
  saved: Readonly<Record<'filter' | 'nat', SavedTable>>,
  linesAtOnce = Infinity,
): Restore {
  const plan = new WholePlan(fixed, linesAtOnce);
  for (const [port, chains] of ports) plan.add(port, chains);
  plan.finish(ports, saved);
  return plan.restore;
}

/**
 * Takes out everything of the proxy's, whoever wrote it, of one table as printed by `iptables-save`; empty when there
 * is nothing. A chain that somebody else's rules lead to is emptied and stays.
 */
export function planRemoval(table: TableName, saved: SavedTable, own: readonly string[]): Restore {
  const restore = new Restore();
  const ours = new Set([...saved.chains].filter((chain) => own.includes(chain) || isServiceChain(chain)));
  const held = new Set<string>();
  for (const line of saved.rules) {
    const from = line.split(' ', 2)[1]!;
    const to = / -[jg] (\S+)/.exec(line)?.[1] ?? '';
    if (ours.has(from) || !ours.has(to)) continue;
    if (/^[A-Z]+$/.test(from)) restore.line(table, line.replace(/^-A/, '-D'));
    else held.add(to);
  }
  for (const chain of ours) {
    if (held.has(chain)) restore.chain(table, chain);
    else restore.drop(table, chain);
  }
  return restore;
}

/** How many rules there are in each table, for the metrics. */
export function countRules(ports: ReadonlyMap<string, PortChains>, fixed: FixedRules): Record<'filter' | 'nat', number> {
  const counts = { filter: 0, nat: 0 };
  const add = (table: TableName, rules: number): void => {
    if (table !== 'mangle') counts[table] += rules;
  };
  for (const { table, rules } of fixed.chains) add(table, rules.length);
  for (const [shared, rules] of fixed.tails) add(sharedParts(shared)[0], rules.length);
  for (const { chains, shared } of ports.values()) {
    for (const rules of chains.values()) counts.nat += rules.length;
    for (const [chain, rules] of shared) add(sharedParts(chain)[0], rules.length);
  }
  return counts;
}
