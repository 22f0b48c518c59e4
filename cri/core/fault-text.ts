import { OpError } from '../../base/errors.ts';
import { methodFits, type EventType, type FaultRule } from './fault-rules.ts';
import { isStream, listFields, methodNames } from './methods.ts';
import { nearest } from './nearest.ts';
import { rpcStatuses, statusNamed, type RpcStatus } from './status.ts';

/*
 *   METHOD[,METHOD…]  [pod=GLOB] [container=GLOB] [image=GLOB] [agent=GLOB]  [nth=N | every=N | first=N] [chance=P]
 *     [after] [delay D]  [error CODE ["words"] | drop [connection] | hang | truncate N [end | error CODE ["words"]]
 *                         | hide WHAT… | events drop|duplicate|delay D WHAT…]
 *
 * What stands before the action chooses calls; what stands after `hide` or `events` chooses items and events.
 */

const EXAMPLE = 'write for instance: RunPodSandbox pod=default/web nth=1 after error deadline';
const EVENT_TYPES: readonly EventType[] = ['created', 'started', 'stopped', 'deleted'];
const UNIT_MS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 } as const;
const ABOUT = ['pod', 'container', 'image'] as const;
const COUNTS = ['nth', 'every', 'first'] as const;

function refuse(rule: string, what: string, advice = EXAMPLE): never {
  throw new OpError('invalid', `reading the fault rule "${rule}"`, what, { advice });
}

/** How many letters must change between two words. */
class Words {
  readonly text: string;
  readonly #words: readonly string[];
  #at = 0;

  constructor(text: string) {
    this.text = text;
    this.#words = text.match(/(?:[^\s"]|"(?:[^"\\]|\\.)*"|"[^"]*$)+/g) ?? [];
  }

  peek(): string | undefined {
    return this.#words[this.#at];
  }

  next(): string | undefined {
    return this.#words[this.#at++];
  }

  /** The next word if it is that one. */
  take(word: string): boolean {
    if (this.peek() !== word) return false;
    this.#at += 1;
    return true;
  }

  plain(word: string): string {
    if (!word.startsWith('"')) return word;
    try {
      return JSON.parse(word) as string;
    } catch {
      return refuse(this.text, `the quotation ${word} has no end, or a wrong \\`);
    }
  }

  whole(what: string, text: string | undefined): number {
    const value = text === undefined || text === '' ? NaN : Number(text);
    return Number.isSafeInteger(value) && value >= 1 ? value : refuse(this.text, `${what} is a whole number from 1, not ${text ?? 'nothing'}`);
  }

  durationMs(after: string): number {
    const text = this.next();
    const [, number, unit] = /^(\d+(?:\.\d+)?)(ms|s|m|h)$/.exec(text ?? '') ?? [];
    if (number === undefined) return refuse(this.text, `${after} takes a time as 300ms, 2s or 4m, not ${text ?? 'nothing'}`);
    return Number(number) * UNIT_MS[unit as keyof typeof UNIT_MS];
  }

  status(): RpcStatus {
    const name = this.next() ?? refuse(this.text, 'error takes a gRPC status, as unavailable');
    const numbered = /^\d+$/.test(name) ? rpcStatuses[Number(name)] : undefined;
    const plain = name.toLowerCase() === 'cancelled' ? 'canceled' : name.toLowerCase().replaceAll(/[^a-z]/g, '');
    const begins = plain === '' ? [] : rpcStatuses.filter((status) => status.toLowerCase().startsWith(plain));
    const found = numbered ?? statusNamed(plain) ?? (begins.length === 1 ? begins[0] : undefined);
    if (found === undefined)
      refuse(
        this.text,
        begins.length > 1 ? `error ${name} may be ${begins.join(' or ')}` : `there is no gRPC status ${name}; the nearest is ${nearest(name, rpcStatuses)[0]}`,
      );
    if (found === 'OK') refuse(this.text, 'OK is no error', 'write truncate N end for a stream that ends early and well');
    return found;
  }

  /** Reads `key=value` words as far as they go. */
  settings(keys: readonly string[]): Record<string, string | number> {
    const found: Record<string, string | number> = {};
    for (let word = this.peek(); word !== undefined && /^[a-z]+=/.test(word); word = this.peek()) {
      this.#at += 1;
      const key = word.slice(0, word.indexOf('='));
      const value = this.plain(word.slice(key.length + 1));
      if (!keys.includes(key)) refuse(this.text, `${key}= has no place here; there can be ${keys.map((name) => `${name}=`).join(', ')}`);
      if (key in found) refuse(this.text, `${key}= stands there twice`);
      if (value === '') refuse(this.text, `${key}= says nothing`);
      if (COUNTS.some((name) => name === key)) found[key] = this.whole(key, value);
      else if (key === 'chance') found[key] = this.#chance(value);
      else if (key === 'type' && !EVENT_TYPES.some((type) => type === value)) refuse(this.text, `type= is one of ${EVENT_TYPES.join(', ')}`);
      else found[key] = value;
    }
    if (COUNTS.filter((name) => name in found).length > 1) refuse(this.text, 'of nth=, every= and first= there can be one');
    return found;
  }

  #chance(text: string): number {
    const value = text.endsWith('%') ? Number(text.slice(0, -1)) / 100 : Number(text);
    return value > 0 && value <= 1 ? value : refuse(this.text, `chance is above 0 and at most 1 (or 100%), not ${text}`);
  }
}

type Writable<T> = { -readonly [K in keyof T]: T[K] };

function readError(words: Words, rule: Writable<FaultRule>): void {
  rule.error = words.status();
  if (words.peek()?.startsWith('"') === true) rule.words = words.plain(words.next() ?? '');
}

function readAction(word: string, words: Words, rule: Writable<FaultRule>): void {
  switch (word) {
    case 'after':
      rule.after = true;
      break;
    case 'delay':
      rule.delayMs = words.durationMs('delay');
      break;
    case 'error':
      readError(words, rule);
      break;
    case 'drop':
      rule.drop = words.take('connection') ? 'connection' : 'call';
      break;
    case 'hang':
      rule.hang = true;
      break;
    case 'truncate': {
      const count = words.next();
      rule.truncate = count === '0' ? 0 : words.whole('what stands after truncate', count);
      if (words.take('end')) rule.end = true;
      else if (words.take('error')) readError(words, rule);
      break;
    }
    case 'hide':
      rule.hide = words.settings([...ABOUT, 'chance']);
      break;
    case 'events': {
      const what = words.next();
      if (what !== 'drop' && what !== 'duplicate' && what !== 'delay')
        return refuse(words.text, `events takes drop, duplicate or delay, not ${what ?? 'nothing'}`);
      const delayMs = what === 'delay' ? words.durationMs('events delay') : undefined;
      rule.events = { do: what, ...(delayMs === undefined ? {} : { delayMs }), ...words.settings([...ABOUT, 'type', ...COUNTS, 'chance']) };
      break;
    }
    default: {
      const known = ['after', 'delay', 'error', 'drop', 'hang', 'truncate', 'hide', 'events'];
      refuse(
        words.text,
        word.includes('=')
          ? `${word} stands too late: what chooses calls comes before the action`
          : `${word} is no action; the nearest is ${nearest(word, known)[0]}`,
      );
    }
  }
}

/** What of a rule contradicts itself, or could never be. */
function check(text: string, rule: FaultRule): void {
  for (const glob of rule.method.split(','))
    if (!methodNames.some((name) => methodFits(glob, name)))
      refuse(text, `the runtime has no method ${glob === '' ? 'without a name' : glob}; the nearest is ${nearest(glob, methodNames)[0]}`);
  const fits = methodNames.filter((name) => methodFits(rule.method, name));
  const ends = [
    rule.truncate === undefined && rule.error !== undefined ? 'error' : '',
    rule.drop === undefined ? '' : 'drop',
    rule.hang === undefined ? '' : 'hang',
    rule.truncate === undefined ? '' : 'truncate',
    rule.hide === undefined ? '' : 'hide',
    rule.events === undefined ? '' : 'events',
  ].filter((name) => name !== '');
  if (ends.length === 0 && rule.delayMs === undefined) refuse(text, 'it does not say what to do: delay, error, drop, hang, truncate, hide or events');
  if (ends.length > 1) refuse(text, `of ${ends.join(' and ')} there can be one in a rule`);
  if (rule.after === true && ['truncate', 'hide', 'events'].includes(ends[0] ?? ''))
    refuse(text, `after says nothing new of ${ends[0]}: the runtime does the call anyway`);
  if (rule.truncate !== undefined && !fits.some(isStream)) refuse(text, `truncate is for streams, and ${rule.method} is none`);
  if (rule.events !== undefined && !fits.includes('GetContainerEvents')) refuse(text, 'events is for GetContainerEvents');
  if (rule.hide !== undefined) {
    if (ABOUT.every((name) => rule.hide?.[name] === undefined)) refuse(text, 'hide takes pod=, container= or image=');
    if (!fits.some((name) => name in listFields)) refuse(text, `hide is for lists, and ${rule.method} is none`);
  }
}

/** One rule of one line. Throws OpError `invalid` that says what is wrong and how to write it. */
export function parseRule(line: string): FaultRule {
  const text = line.trim();
  const words = new Words(text);
  const method = words.next() ?? refuse(text, 'it is empty');
  const rule: Writable<FaultRule> = { method, ...words.settings([...ABOUT, 'agent', ...COUNTS, 'chance']) };
  const seen = new Set<string>();
  for (let word = words.next(); word !== undefined; word = words.next()) {
    if (seen.has(word)) refuse(text, `${word} stands there twice`);
    seen.add(word);
    readAction(word, words, rule);
  }
  check(text, rule);
  return rule;
}

function settings(of: object, keys: readonly string[]): string[] {
  return keys.flatMap((key) => {
    const value = (of as Readonly<Record<string, unknown>>)[key];
    if (value === undefined) return [];
    return [`${key}=${typeof value === 'string' && /^[^\s"]+$/.test(value) ? value : JSON.stringify(value)}`];
  });
}

function duration(ms: number): string {
  return ms >= 1000 && ms % 100 === 0 ? `${ms / 1000}s` : `${ms}ms`;
}

/** The rule as a line that `parseRule` reads as the same rule. */
export function printRule(rule: FaultRule): string {
  const { events } = rule;
  const error = rule.error === undefined ? [] : ['error', rule.error, ...(rule.words === undefined ? [] : [JSON.stringify(rule.words)])];
  return [
    rule.method,
    ...settings(rule, [...ABOUT, 'agent', ...COUNTS, 'chance']),
    ...(rule.after === true ? ['after'] : []),
    ...(rule.delayMs === undefined ? [] : ['delay', duration(rule.delayMs)]),
    ...(rule.truncate === undefined ? [] : ['truncate', String(rule.truncate), ...(rule.end === true ? ['end'] : [])]),
    ...error,
    ...(rule.drop === undefined ? [] : rule.drop === 'connection' ? ['drop', 'connection'] : ['drop']),
    ...(rule.hang === true ? ['hang'] : []),
    ...(rule.hide === undefined ? [] : ['hide', ...settings(rule.hide, [...ABOUT, 'chance'])]),
    ...(events === undefined
      ? []
      : [
          'events',
          events.do,
          ...(events.delayMs === undefined ? [] : [duration(events.delayMs)]),
          ...settings(events, [...ABOUT, 'type', ...COUNTS, 'chance']),
        ]),
  ].join(' ');
}

/** The names of an object's fields, and of theirs. */
function shape(value: object): string {
  return Object.entries(value)
    .map(([key, inner]: [string, unknown]) => (inner !== null && typeof inner === 'object' ? `${key}(${shape(inner)})` : key))
    .sort()
    .join();
}

/** A rule as JSON has it: a line, or an object like `FaultRule`. Throws OpError `invalid`. */
export function ruleFrom(value: unknown): FaultRule {
  if (typeof value === 'string') return parseRule(value);
  if (value === null || typeof value !== 'object' || !('method' in value) || typeof value.method !== 'string')
    return refuse(JSON.stringify(value) ?? 'undefined', 'a rule is a line, or an object with a method');
  // The line is the language; what of an object does not come back from it is not of the language.
  const line = printRule(value as FaultRule);
  const rule = parseRule(line);
  if (shape(rule) !== shape(value)) refuse(JSON.stringify(value), `it has something that a rule cannot say; what was understood is "${line}"`);
  return rule;
}

/** Rules of a text, one a line; empty lines and what follows a `#` at the start of a word are left out. Throws OpError `invalid`. */
export function parseLines(text: string): FaultRule[] {
  return text
    .split('\n')
    .map((line) => line.replace(/^((?:[^"]|"(?:[^"\\]|\\.)*")*?)(?:^|\s)#.*$/, '$1').trim())
    .filter((line) => line !== '')
    .map(parseRule);
}
