/**
 * Equality as the API machinery's semantic comparison sees it: absent, null and an empty list or map are the same,
 * and the order of keys does not matter.
 */
export function semanticEqual(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (isNothing(a) || isNothing(b)) return isNothing(a) && isNothing(b);
  if (Array.isArray(a) || Array.isArray(b)) {
    return Array.isArray(a) && Array.isArray(b) && a.length === b.length && a.every((item, index) => semanticEqual(item, b[index]));
  }
  if (typeof a !== 'object' || typeof b !== 'object') return false;
  const left = a as Record<string, unknown>;
  const right = b as Record<string, unknown>;
  const keys = new Set([...Object.keys(left), ...Object.keys(right)]);
  return [...keys].every((key) => semanticEqual(left[key], right[key]));
}

function isNothing(value: unknown): boolean {
  if (value === undefined || value === null) return true;
  if (Array.isArray(value)) return value.length === 0;
  return typeof value === 'object' && Object.keys(value).length === 0;
}

/** JSON with sorted keys and without what `semanticEqual` takes for absent: equal values give equal text. */
export function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
  if (typeof value === 'object' && value !== null) {
    const fields = Object.entries(value)
      .filter(([, field]) => !isNothing(field))
      .toSorted(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
    return `{${fields.map(([key, field]) => `${JSON.stringify(key)}:${canonicalJson(field)}`).join(',')}}`;
  }
  return JSON.stringify(value) ?? 'null';
}

/** A status as Go writes it: counts of zero that are `omitempty` are left out. */
export function withoutZeros<T extends object>(status: T, counts: readonly (keyof T)[]): T {
  return Object.fromEntries(Object.entries(status).filter(([name, value]) => value !== 0 || !counts.includes(name as keyof T))) as T;
}
