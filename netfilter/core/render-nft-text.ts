import { cidrText, parseCidr, type Family } from './ip.ts';
import {
  TABLE,
  type BaseChain,
  type Element,
  type FieldType,
  type Op,
  type PacketField,
  type Rule,
  type SetSpec,
  type Statement,
  type Transaction,
  type Verdict,
} from './ops.ts';

/** The readable form of operations; `nft -f` takes it. */

function quoted(text: string): string {
  return `"${text.replaceAll('"', "'")}"`;
}

function fieldTypeText(type: FieldType, family: Family): string {
  if (type === 'address') return family === 'ip' ? 'ipv4_addr' : 'ipv6_addr';
  if (type === 'random') return 'integer';
  return type === 'protocol' ? 'inet_proto' : 'inet_service';
}

function fieldText(field: PacketField, family: Family): string {
  if (field === 'saddr' || field === 'daddr') return `${family} ${field}`;
  return field === 'l4proto' ? 'meta l4proto' : 'th dport';
}

function fieldsText(fields: readonly PacketField[], family: Family): string {
  return fields.map((field) => fieldText(field, family)).join(' . ');
}

export function verdictText(verdict: Verdict): string {
  return verdict.kind === 'drop' ? 'drop' : `${verdict.kind} ${verdict.chain}`;
}

export function markText(bits: number): string {
  return `0x${(bits >>> 0).toString(16).padStart(6, '0')}`;
}

function addressText(cidr: string, family: Family): string {
  const parsed = parseCidr(cidr);
  if (parsed === null) return cidr;
  return parsed.prefix === (family === 'ip' ? 32 : 128) ? parsed.address : cidrText(parsed);
}

function targetText(address: string, port: number): string {
  return address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;
}

function statementText(statement: Statement, family: Family): string {
  const not = 'not' in statement && statement.not === true ? '!= ' : '';
  switch (statement.kind) {
    case 'address':
      return `${family} ${statement.field} ${not}${addressText(statement.cidr, family)}`;
    case 'address-in':
      return `${family} ${statement.field} ${not}{ ${statement.cidrs.map((cidr) => addressText(cidr, family)).join(', ')} }`;
    case 'in-set':
      return `${fieldsText(statement.fields, family)} @${statement.set}`;
    case 'protocol':
      return `meta l4proto ${statement.protocol}`;
    case 'input-interface':
      return `iifname ${not}${quoted(statement.name + (statement.prefix ? '*' : ''))}`;
    case 'connection-new':
      return 'ct state new';
    case 'connection-dnated':
      return 'ct status dnat';
    case 'address-local':
      return `fib ${statement.field} type local`;
    case 'marked':
      return `mark and ${markText(statement.bits)} != 0`;
    case 'set-mark':
      return `mark set mark or ${markText(statement.bits)}`;
    case 'toggle-mark':
      return `mark set mark xor ${markText(statement.bits)}`;
    case 'verdict-map':
      return `${fieldsText(statement.fields, family)} vmap @${statement.map}`;
    case 'verdict':
      return verdictText(statement.verdict);
    case 'count':
      return `counter name ${quoted(statement.counter)}`;
    case 'reject':
      return 'reject';
    case 'masquerade':
      return 'masquerade fully-random';
    case 'dnat':
      return `dnat to ${targetText(statement.target.address, statement.target.port)}`;
    case 'dnat-random': {
      const offset = statement.first === 0 ? '' : ` offset ${statement.first}`;
      return `dnat ${family} addr . port to numgen random mod ${statement.count}${offset} map @${statement.map}`;
    }
    case 'goto-random': {
      const choices = statement.chains.map((chain, index) => `${index} : goto ${chain}`).join(', ');
      return `numgen random mod ${statement.chains.length} vmap { ${choices} }`;
    }
    case 'remember':
      return `update @${statement.set} { ${family} ${statement.field} }`;
  }
}

export function ruleText(rule: Rule, family: Family): string {
  const text = rule.statements.map((statement) => statementText(statement, family)).join(' ');
  return rule.comment === undefined ? text : `${text} comment ${quoted(rule.comment)}`;
}

function chainText(base: BaseChain | undefined, comment: string | undefined): string {
  const parts: string[] = [];
  if (base !== undefined) parts.push(`type ${base.type} hook ${base.hook} priority ${base.priority} ;`);
  if (comment !== undefined) parts.push(`comment ${quoted(comment)} ;`);
  return parts.length === 0 ? '' : ` { ${parts.join(' ')} }`;
}

function setText(set: SetSpec, family: Family): string {
  const key = set.key.map((type) => fieldTypeText(type, family)).join(' . ');
  const types =
    set.targets === undefined
      ? `type ${key}${set.verdicts === true ? ' : verdict' : ''}`
      : `typeof numgen random mod 2 : ${family} daddr . ${set.targets} dport`;
  const parts = [`${types} ;`];
  if (set.timeoutSeconds !== undefined) parts.push('flags dynamic,timeout ;', `timeout ${set.timeoutSeconds}s ;`);
  if (set.comment !== undefined) parts.push(`comment ${quoted(set.comment)} ;`);
  return `{ ${parts.join(' ')} }`;
}

function elementText(element: Element, deleting: boolean): string {
  const comment = element.comment === undefined || deleting ? '' : ` comment ${quoted(element.comment)}`;
  const verdict = element.verdict === undefined ? '' : ` : ${verdictText(element.verdict)}`;
  const target = element.target === undefined ? '' : ` : ${element.target.address} . ${element.target.port}`;
  return `{ ${element.key.join(' . ')}${comment}${verdict}${target} }`;
}

function kindOf(set: SetSpec): string {
  return set.verdicts === true || set.targets !== undefined ? 'map' : 'set';
}

export function opText(op: Op, family: Family): string {
  const table = `${family} ${TABLE}`;
  switch (op.op) {
    case 'add-table':
      return `add table ${table} { comment ${quoted(op.comment)} ; }`;
    case 'delete-table':
      return `delete table ${table}`;
    case 'add-chain':
      return `add chain ${table} ${op.chain}${chainText(op.base, op.comment)}`;
    case 'flush-chain':
      return `flush chain ${table} ${op.chain}`;
    case 'delete-chain':
      return `delete chain ${table} ${op.chain}`;
    case 'add-rule':
      return `add rule ${table} ${op.chain} ${ruleText(op.rule, family)}`;
    case 'add-set':
      return `add ${kindOf(op.set)} ${table} ${op.set.name} ${setText(op.set, family)}`;
    case 'flush-set':
      return `flush ${kindOf(op.set)} ${table} ${op.set.name}`;
    case 'delete-set':
      return `delete ${kindOf(op.set)} ${table} ${op.set.name}`;
    case 'add-element':
      return `add element ${table} ${op.set.name} ${elementText(op.element, false)}`;
    case 'add-targets':
      return `add element ${table} ${op.set.name} { ${op.targets.map(({ address, port }, index) => `${op.first + index} : ${address} . ${port}`).join(', ')} }`;
    case 'delete-element':
      return `delete element ${table} ${op.set.name} ${elementText(op.element, true)}`;
    case 'add-counter':
      return `add counter ${table} ${op.counter}`;
    case 'delete-counter':
      return `delete counter ${table} ${op.counter}`;
  }
}

/** One line per operation. */
export function transactionText(transaction: Transaction): string {
  return transaction.ops.map((op) => `${opText(op, transaction.family)}\n`).join('');
}
