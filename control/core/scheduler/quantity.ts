const BINARY: Record<string, number> = { Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60 };
const DECIMAL: Record<string, number> = { n: 1e-9, u: 1e-6, m: 1e-3, '': 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18 };

/** The number a resource.Quantity means; 0 for what is none. */
export function quantityValue(quantity: string | number | undefined | null): number {
  if (quantity === undefined || quantity === null) return 0;
  if (typeof quantity === 'number') return quantity;
  const match = /^([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|([KMGTPE]i|[numkMGTPE]))?$/.exec(quantity);
  if (match === null) return 0;
  const number = Number(`${match[1]}${match[2] ?? ''}`);
  const suffix = match[3] ?? '';
  return number * (BINARY[suffix] ?? DECIMAL[suffix] ?? 1);
}

/** Rounded up to a whole unit, as the scheduler counts memory and extended resources. */
export function wholeValue(quantity: string | number | undefined | null): number {
  return Math.ceil(quantityValue(quantity) - 1e-9);
}

/** Thousandths, rounded up, as the scheduler counts CPU. */
export function milliValue(quantity: string | number | undefined | null): number {
  return Math.ceil(quantityValue(quantity) * 1000 - 1e-6);
}
