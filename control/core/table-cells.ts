import type { Obj } from './json.ts';

export type Cell = string | number | boolean | null;

export interface Column {
  title: string;
  type: 'string' | 'integer' | 'boolean';
  /** `name` marks the column that names the object. */
  format: string;
  /** 1: only with `-o wide`. */
  priority: number;
  cell(object: Obj, nowMs: number): Cell;
}

export const col = (title: string, cell: Column['cell'], type: Column['type'] = 'string'): Column => ({ title, type, format: '', priority: 0, cell });
export const wide = (title: string, cell: Column['cell'], type: Column['type'] = 'string'): Column => ({ title, type, format: '', priority: 1, cell });

export const name: Column = { title: 'Name', type: 'string', format: 'name', priority: 0, cell: (object) => object['metadata'].name ?? '' };

/** A length of time as kubectl writes it: 45s, 3m10s, 5h2m, 2d4h. */
export function durationText(ms: number): string {
  const seconds = Math.floor(ms / 1000);
  if (seconds < -1) return '<invalid>';
  if (seconds < 0) return '0s';
  if (seconds < 120) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  const two = (value: number, unit: string, rest: number, restUnit: string): string => (rest === 0 ? `${value}${unit}` : `${value}${unit}${rest}${restUnit}`);
  if (minutes < 10) return two(minutes, 'm', seconds % 60, 's');
  if (minutes < 180) return `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  if (hours < 8) return two(hours, 'h', minutes % 60, 'm');
  if (hours < 48) return `${hours}h`;
  const days = Math.floor(hours / 24);
  if (hours < 192) return two(days, 'd', hours % 24, 'h');
  if (days < 730) return `${days}d`;
  const years = Math.floor(days / 365);
  if (days < 365 * 8) return two(years, 'y', days % 365, 'd');
  return `${years}y`;
}

export function ageOf(time: string | undefined | null, nowMs: number): string {
  return time === undefined || time === null ? '<unknown>' : durationText(nowMs - Date.parse(time));
}

export const age: Column = col('Age', (object, nowMs) => ageOf(object['metadata'].creationTimestamp, nowMs));

export const orNone = (text: string | undefined): string => (text === undefined || text === '' ? '<none>' : text);

/** A label selector as `a=b,c in (d,e)`. */
export function selectorText(selector: Obj | undefined): string {
  if (selector === undefined) return '<none>';
  const parts = Object.entries(selector['matchLabels'] ?? {}).map(([key, value]) => `${key}=${String(value)}`);
  for (const { key, operator, values = [] } of (selector['matchExpressions'] ?? []) as Obj[]) {
    if (operator === 'In') parts.push(`${key} in (${values.join(',')})`);
    else if (operator === 'NotIn') parts.push(`${key} notin (${values.join(',')})`);
    else parts.push(operator === 'Exists' ? key : `!${key}`);
  }
  return orNone(parts.toSorted().join(','));
}

export const labelsText = (labels: Obj | undefined): string =>
  orNone(
    Object.entries(labels ?? {})
      .map(([key, value]) => `${key}=${String(value)}`)
      .toSorted()
      .join(','),
  );

const containers = (object: Obj): Obj[] => object['spec'].template?.spec?.containers ?? object['spec'].jobTemplate?.spec?.template?.spec?.containers ?? [];

export const containerNames: Column = wide('Containers', (object) =>
  containers(object)
    .map((item) => item['name'])
    .join(','),
);
export const images: Column = wide('Images', (object) =>
  containers(object)
    .map((item) => item['image'])
    .join(','),
);
export const selector: Column = wide('Selector', (object) => selectorText(object['spec'].selector));
