import { readFile } from 'node:fs/promises';
import { messageOf, OpError } from '../../base/errors.ts';
import { readYamlAll } from '../../base/yaml.ts';
import type { FaultRule } from '../core/fault-rules.ts';
import { parseLines, ruleFrom } from '../core/fault-text.ts';

function isList(value: unknown): value is readonly unknown[] {
  return Array.isArray(value);
}

/**
 * Rules of a text: one a line, with `#` comments; or YAML or JSON, a list of lines and objects, alone or as `rules`.
 * Throws OpError `invalid` that names `where`.
 */
export async function rulesOfText(text: string, where: string): Promise<FaultRule[]> {
  const first = text.split('\n').find((line) => line.trim() !== '' && !line.trim().startsWith('#')) ?? '';
  if (!/^\s*(-\s|\[|\{|rules:|---)/.test(first)) return parseLines(text);
  const [document] = await readYamlAll(text, where);
  const rules = isList(document) ? document : (document as { rules?: unknown } | null)?.rules;
  if (!isList(rules)) throw new OpError('invalid', `read ${where}`, 'it is no list of rules', { advice: 'write one rule a line, or a YAML list of them' });
  return rules.map(ruleFrom);
}

/** As `rulesOfText`, of a file. Throws OpError `not-found` and `failed` too. */
export async function readRules(path: string): Promise<FaultRule[]> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (cause) {
    const isAway = (cause as NodeJS.ErrnoException).code === 'ENOENT';
    throw new OpError(isAway ? 'not-found' : 'failed', `read ${path}`, messageOf(cause), { cause });
  }
  return rulesOfText(text, path);
}
