import { valueOf } from './quantity.ts';
import type { QuantityText } from './quantity.ts';

type Amounts = Readonly<Record<string, QuantityText>> | undefined;

const units: readonly (readonly [string, bigint])[] = [
  ['GB', 1_073_741_824n],
  ['MB', 1_048_576n],
  ['KB', 1024n],
];

/** How cgroups and runtimes name a page size: `2MB` for the 2Mi of `hugepages-2Mi`; null for what is no huge page resource. */
export function hugePageName(resource: string): string | null {
  if (!resource.startsWith('hugepages-')) return null;
  const bytes = valueOf(resource.slice('hugepages-'.length));
  const unit = units.find(([, size]) => bytes >= size && bytes % size === 0n);
  return unit === undefined ? null : `${bytes / unit[1]}${unit[0]}`;
}

/** Bytes of each page size the kernel has: 0 where none of the lists asks for it; of several lists the last that does counts. */
export function hugePageLimits(sizes: readonly string[], ...lists: readonly Amounts[]): ReadonlyMap<string, bigint> {
  const limits = new Map(sizes.map((size) => [size, 0n]));
  for (const [resource, amount] of lists.flatMap((list) => Object.entries(list ?? {}))) {
    const size = hugePageName(resource);
    if (size !== null && limits.has(size)) limits.set(size, valueOf(amount));
  }
  return limits;
}
