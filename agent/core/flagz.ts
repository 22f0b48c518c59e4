import { flags } from './config-flags.ts';

/** Every flag with the value that counts, for /flagz: the configuration's where a flag stands for a field, else as given. */
export function flagzOf(config: object, given: ReadonlyMap<string, unknown>): Record<string, string> {
  const entries = Object.entries(flags).map(([name, { field }]): [string, string] => [
    name,
    printed(field === null ? given.get(name) : valueAt(config, field.split('.'))),
  ]);
  return Object.fromEntries(entries);
}

function valueAt(value: unknown, path: readonly string[]): unknown {
  return path.reduce((at: unknown, key) => (typeof at === 'object' && at !== null ? (at as Record<string, unknown>)[key] : undefined), value);
}

function printed(value: unknown): string {
  if (value === undefined || value === null) return '';
  if (Array.isArray(value)) return `[${value.map((each) => (typeof each === 'object' ? JSON.stringify(each) : String(each))).join(',')}]`;
  if (typeof value === 'object')
    return Object.entries(value)
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, each]) => `${key}=${String(each)}`)
      .join(',');
  return typeof value === 'string' ? value : JSON.stringify(value);
}
