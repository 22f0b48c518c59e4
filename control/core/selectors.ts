import { badRequest } from './failure.ts';

export type LabelRequirement = { key: string; op: 'in' | 'notin' | 'exists' | 'absent' | 'gt' | 'lt'; values: readonly string[] };

/** Reads the query form of a label selector (`a=b,c in (d,e),!f`). Throws a 400 for what is none. */
export function parseLabelSelector(text: string): LabelRequirement[] {
  const out: LabelRequirement[] = [];
  let at = 0;
  const skip = (): void => {
    while (at < text.length && /\s/.test(text[at]!)) at++;
  };
  const word = (): string => {
    skip();
    const from = at;
    while (at < text.length && !/[\s,()=!<>]/.test(text[at]!)) at++;
    return text.slice(from, at);
  };
  const bad = (why: string): never => {
    throw badRequest(`unable to parse requirement: ${why}`);
  };
  const values = (): string[] => {
    skip();
    if (text[at] !== '(') bad(`found '${text.slice(at)}', expected: '('`);
    at++;
    const list: string[] = [];
    for (;;) {
      list.push(word());
      skip();
      if (text[at] === ',') at++;
      else if (text[at] === ')') {
        at++;
        return list;
      } else bad(`found '${text.slice(at)}', expected: ',' or ')'`);
    }
  };
  skip();
  while (at < text.length) {
    skip();
    if (text[at] === '!') {
      at++;
      out.push({ key: named(word(), bad), op: 'absent', values: [] });
    } else {
      const key = named(word(), bad);
      skip();
      const rest = text.slice(at);
      const sign = /^(==|=|!=|>|<)/.exec(rest)?.[0];
      if (rest === '' || rest[0] === ',') out.push({ key, op: 'exists', values: [] });
      else if (sign !== undefined) {
        at += sign.length;
        const value = word();
        out.push({ key, op: sign === '!=' ? 'notin' : sign === '>' ? 'gt' : sign === '<' ? 'lt' : 'in', values: [value] });
      } else {
        const op = word();
        if (op !== 'in' && op !== 'notin') bad(`found '${op}', expected: in, notin, =, ==, !=, gt, lt`);
        out.push({ key, op: op as 'in' | 'notin', values: values() });
      }
    }
    skip();
    if (at < text.length) {
      if (text[at] !== ',') bad(`found '${text.slice(at)}', expected: ',' or 'end of string'`);
      at++;
    }
  }
  return out;
}

function named(key: string, bad: (why: string) => never): string {
  if (key === '') bad("found '', expected: identifier");
  return key;
}

export function matchesLabels(requirements: readonly LabelRequirement[], labels: Readonly<Record<string, string>> | undefined): boolean {
  return requirements.every(({ key, op, values }) => {
    const value = labels?.[key];
    switch (op) {
      case 'in':
        return value !== undefined && values.includes(value);
      case 'notin':
        return value === undefined || !values.includes(value);
      case 'exists':
        return value !== undefined;
      case 'absent':
        return value === undefined;
      case 'gt':
        return value !== undefined && Number.parseInt(value, 10) > Number.parseInt(values[0] ?? '', 10);
      case 'lt':
        return value !== undefined && Number.parseInt(value, 10) < Number.parseInt(values[0] ?? '', 10);
    }
  });
}

export interface FieldRequirement {
  path: string;
  equal: boolean;
  value: string;
}

/** Reads `metadata.name=x,spec.nodeName!=y`, with `\` before `,`, `=` and `\` in values. */
export function parseFieldSelector(text: string): FieldRequirement[] {
  const out: FieldRequirement[] = [];
  for (const term of text.match(/(?:\\.|[^,\\])+/gs) ?? []) {
    const found = /^((?:\\.|[^=!\\])+)(==|!=|=)((?:\\.|[^\\])*)$/s.exec(term);
    if (found === null) throw badRequest(`invalid selector: '${text}'; can't understand '${term}'`);
    out.push({ path: found[1]!.trim(), equal: found[2] !== '!=', value: found[3]!.replaceAll(/\\(.)/g, '$1') });
  }
  return out;
}
