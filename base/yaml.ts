import type { Schema } from 'js-yaml';
import { messageOf, OpError } from './errors.ts';

/**
 * YAML as the API machinery reads it: `yes` and `on` are booleans, `0755` and `0o755` are 493, `1_000` is 1000,
 * `<<` merges, dates and times stay text. The package is loaded at the first use: few processes read YAML twice.
 */

/** A document that means more values than this was made to fill memory (aliases of aliases). */
const maxValues = 1_000_000;

let loaded: Promise<{ yaml: typeof import('js-yaml'); schema: Schema }> | undefined;

function reader(): Promise<{ yaml: typeof import('js-yaml'); schema: Schema }> {
  loaded ??= (async () => {
    const yaml = await import('js-yaml');
    const intTag = yaml.defineScalarTag('tag:yaml.org,2002:int', {
      implicit: true,
      implicitFirstChars: ['-', '+', ...'0123456789'.split('')],
      resolve: (source) => readInteger(source) ?? yaml.NOT_RESOLVED,
      identify: (value) => Number.isInteger(value) && !Object.is(value, -0) && !String(value).includes('e'),
      represent: (value) => String(value),
    });
    const { strTag, seqTag, mapTag, nullYaml11Tag, boolYaml11Tag, floatCoreTag, mergeTag } = yaml;
    return { yaml, schema: new yaml.Schema([strTag, seqTag, mapTag, nullYaml11Tag, boolYaml11Tag, intTag, floatCoreTag, mergeTag]) };
  })();
  return loaded;
}

/** Decimal, `0x`, `0b`, `0o` and old octal, with underscores; no base 60. Undefined: not an integer. */
function readInteger(source: string): number | undefined {
  const match = /^([-+]?)(?:0b([01_]+)|0x([\da-fA-F_]+)|0o([0-7_]+)|0([0-7_]+)|(0|[1-9][\d_]*))$/.exec(source);
  if (match === null) return undefined;
  const [, sign, binary, hex, octal, oldOctal, decimal] = match;
  const digits = (text: string): string => text.replaceAll('_', '');
  let value: number;
  if (binary !== undefined) value = Number.parseInt(digits(binary), 2);
  else if (hex !== undefined) value = Number.parseInt(digits(hex), 16);
  else if (octal !== undefined || oldOctal !== undefined) value = Number.parseInt(digits(octal ?? oldOctal ?? ''), 8);
  else value = Number(digits(decimal ?? ''));
  return sign === '-' ? -value : value;
}

/** What is wrong with a YAML text and where, without the text itself: passwords and keys stand in such files, and messages in logs. */
export function yamlFault(cause: unknown): string {
  const { reason, mark } = cause as { reason?: unknown; mark?: { line: number; column: number } };
  if (typeof reason !== 'string') return messageOf(cause);
  return mark === undefined ? reason : `${reason} (line ${mark.line + 1}, column ${mark.column + 1})`;
}

/**
 * An object as `JSON.stringify` writes it, plain or indented by two, read without the YAML package: so programs write
 * configurations. Undefined for every other text, and for one that YAML would read otherwise (a key twice, a merge).
 */
export function readPlainJson(text: string): unknown {
  const plain = text.trim();
  if (!plain.startsWith('{') || plain.includes('"<<"')) return undefined;
  try {
    const value = JSON.parse(plain) as unknown;
    return plain === JSON.stringify(value) || plain === JSON.stringify(value, null, 2) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Every document of a text; empty ones are left out. Throws OpError `invalid` that names `where` and the place. */
export async function readYamlAll(text: string, where: string): Promise<unknown[]> {
  const json = readPlainJson(text);
  if (json !== undefined) return [json];
  const { yaml, schema } = await reader();
  let documents: unknown[];
  try {
    documents = yaml.loadAll(text, { schema });
  } catch (cause) {
    throw new OpError('invalid', `read ${where}`, yamlFault(cause));
  }
  let left = maxValues;
  const count = (value: unknown): void => {
    if (--left < 0) throw new OpError('invalid', `read ${where}`, `it means more than ${maxValues} values`);
    if (value !== null && typeof value === 'object') for (const each of Object.values(value)) count(each);
  };
  for (const document of documents) count(document);
  return documents.filter((document) => document !== null && document !== undefined);
}

/** The one document of a text; undefined when there is none. Throws OpError `invalid`. */
export async function readYaml(text: string, where: string): Promise<unknown> {
  const documents = await readYamlAll(text, where);
  if (documents.length > 1) throw new OpError('invalid', `read ${where}`, `it has ${documents.length} documents, and one is expected`);
  return documents[0];
}

/** A value as YAML that reads back as the same value here and in Go. */
export async function printYaml(value: unknown): Promise<string> {
  const { yaml, schema } = await reader();
  return yaml.dump(value, { schema, noRefs: true, lineWidth: -1, skipInvalid: true });
}
