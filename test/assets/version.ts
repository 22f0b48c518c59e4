import type { Row } from './catalogue.ts';

const numbers = (version: string): number[] => version.split(/[-+]/)[0]?.split('.').map(Number) ?? [];

function compare(a: readonly number[], b: readonly number[]): number {
  for (let at = 0; at < Math.max(a.length, b.length); at++) {
    const difference = (a[at] ?? 0) - (b[at] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

/** Why a version will not do, in words; null when it will. Versions are without their `v`. */
export function misfit({ version, fits }: Pick<Row, 'version' | 'fits'>, found: string): string | null {
  if (found === version) return null;
  if (fits === 'exact') return `it must be ${version}`;
  if (fits === 'minor') {
    const minor = version.split('.').slice(0, 2).join('.');
    return found.startsWith(`${minor}.`) ? null : `it must be ${minor}`;
  }
  return compare(numbers(found), numbers(fits.least)) >= 0 ? null : `it must be ${fits.least} or later`;
}
