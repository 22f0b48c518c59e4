/** Kubernetes quantities: a number with a decimal or binary suffix. Values are exact, in nano-units. */

const BINARY: Record<string, bigint> = { Ki: 1n << 10n, Mi: 1n << 20n, Gi: 1n << 30n, Ti: 1n << 40n, Pi: 1n << 50n, Ei: 1n << 60n };
const DECIMAL: Record<string, number> = { n: -9, u: -6, m: -3, '': 0, k: 3, M: 6, G: 9, T: 12, P: 15, E: 18 };
const NANO = 1_000_000_000n;

interface Parsed {
  nano: bigint;
  form: 'binary' | 'decimal' | 'exponent';
}

/** undefined for what is no quantity. Finer than a nano-unit is rounded up. */
export function parseQuantity(text: string): Parsed | undefined {
  const found = /^([+-]?)(\d*)(?:\.(\d*))?(?:(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]?)|[eE]([+-]?\d+))$/.exec(text.trim());
  if (found === null || ((found[2] ?? '') === '' && (found[3] ?? '') === '')) return undefined;
  const [, sign, whole = '', fraction = '', suffix, exponent] = found;
  const digits = BigInt(`${whole}${fraction}` || '0');
  const scale = fraction.length;
  let nano: bigint;
  const binary = suffix === undefined ? undefined : BINARY[suffix];
  if (binary !== undefined) nano = divideUp(digits * binary * NANO, 10n ** BigInt(scale));
  else {
    const power = (exponent === undefined ? DECIMAL[suffix ?? '']! : Number(exponent)) + 9 - scale;
    if (Math.abs(power) > 200) return undefined;
    nano = power >= 0 ? digits * 10n ** BigInt(power) : divideUp(digits, 10n ** BigInt(-power));
  }
  const form = binary !== undefined ? 'binary' : exponent === undefined ? 'decimal' : 'exponent';
  return { nano: sign === '-' ? -nano : nano, form };
}

function divideUp(value: bigint, by: bigint): bigint {
  return value % by === 0n ? value / by : value / by + 1n;
}

/** The one spelling the API server gives back: `1024Mi` is `1Gi`, `0.5` is `500m`. */
export function canonicalQuantity(text: string): string | undefined {
  const parsed = parseQuantity(text);
  if (parsed === undefined) return undefined;
  const { nano, form } = parsed;
  if (nano === 0n) return '0';
  const sign = nano < 0n ? '-' : '';
  const size = nano < 0n ? -nano : nano;
  // A binary quantity below 1Ki, or one that is no whole number, has no binary spelling.
  if (form === 'binary' && size % NANO === 0n && size >= 1024n * NANO) {
    let value = size / NANO;
    let at = 0;
    const names = ['', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei'];
    while (at < 6 && value % 1024n === 0n) {
      value /= 1024n;
      at++;
    }
    return `${sign}${value}${names[at]}`;
  }
  let value = size;
  let power = -9;
  while (value % 1000n === 0n && power < 18) {
    value /= 1000n;
    power += 3;
  }
  if (form === 'exponent') return power === 0 ? `${sign}${value}` : `${sign}${value}e${power}`;
  const suffix = Object.keys(DECIMAL).find((name) => DECIMAL[name] === power)!;
  return `${sign}${value}${suffix}`;
}

export function compareQuantities(a: string, b: string): number {
  const x = parseQuantity(a)?.nano ?? 0n;
  const y = parseQuantity(b)?.nano ?? 0n;
  return x < y ? -1 : x > y ? 1 : 0;
}
