import { OpError } from '../../base/errors.ts';

/**
 * resource.Quantity of apimachinery: a decimal number kept exactly in billionths, the finest step Kubernetes knows.
 * What is finer is rounded away from zero, as Go does.
 */
export interface Quantity {
  readonly nano: bigint;
  readonly format: 'DecimalSI' | 'BinarySI' | 'DecimalExponent';
}

/** What the API carries: text, or a bare number in hand-written manifests. */
export type QuantityText = string | number;

const nanoPerUnit = 1_000_000_000n;
const decimalSuffixes = ['n', 'u', 'm', '', 'k', 'M', 'G', 'T', 'P', 'E'];
const binarySuffixes = ['', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei'];
const shape = /^([+-]?)(\d*)(?:\.(\d*))?(?:([eE])([+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)$/;

/** Reads a quantity; null when the text is none. */
export function tryParseQuantity(text: QuantityText): Quantity | null {
  const match = shape.exec(String(text));
  if (match === null) return null;
  const [, sign, whole = '', fraction = '', exponentMark, exponent, suffix = ''] = match;
  if (whole === '' && fraction === '') return null;
  const mantissa = BigInt(whole + fraction);
  const isBinary = suffix.endsWith('i');
  let power = 9 - fraction.length;
  if (exponentMark !== undefined) power += Number(exponent);
  else if (!isBinary) power += 3 * (decimalSuffixes.indexOf(suffix) - 3);
  if (Math.abs(power) > 400) return null;
  const scaled = isBinary ? mantissa << BigInt(10 * binarySuffixes.indexOf(suffix)) : mantissa;
  const magnitude = power >= 0 ? scaled * 10n ** BigInt(power) : divideUp(scaled, 10n ** BigInt(-power));
  const format = isBinary ? 'BinarySI' : exponentMark === undefined ? 'DecimalSI' : 'DecimalExponent';
  return { nano: sign === '-' ? -magnitude : magnitude, format };
}

/** Reads a quantity. Throws OpError `invalid` when the text is none. */
export function parseQuantity(text: QuantityText): Quantity {
  const quantity = tryParseQuantity(text);
  if (quantity === null) throw new OpError('invalid', 'read a quantity', `${JSON.stringify(text)} is not a resource quantity such as 100m, 1.5 or 64Mi`);
  return quantity;
}

/** The whole number, rounded up: bytes, pods, cores. Absent counts as 0. */
export function valueOf(text: QuantityText | undefined): bigint {
  return text === undefined ? 0n : roundUp(parseQuantity(text).nano, nanoPerUnit);
}

/** Thousandths, rounded up: CPU. Absent counts as 0. */
export function milliValueOf(text: QuantityText | undefined): bigint {
  return text === undefined ? 0n : roundUp(parseQuantity(text).nano, 1_000_000n);
}

/** Sums; the format of the first that is not zero is kept, as Go's Add does. */
export function addQuantities(left: Quantity, right: Quantity): Quantity {
  return { nano: left.nano + right.nano, format: left.nano === 0n ? right.format : left.format };
}

/** Difference; keeps the left format unless it is zero. */
export function subtractQuantities(left: Quantity, right: Quantity): Quantity {
  return { nano: left.nano - right.nano, format: left.nano === 0n ? right.format : left.format };
}

export function compareQuantities(left: Quantity, right: Quantity): number {
  return left.nano < right.nano ? -1 : left.nano > right.nano ? 1 : 0;
}

/** The larger of two. */
export function maxQuantity(left: Quantity, right: Quantity): Quantity {
  return left.nano >= right.nano ? left : right;
}

/** A quantity of whole units: bytes are BinarySI, the rest DecimalSI. */
export function quantityOf(value: bigint | number, format: Quantity['format'] = 'DecimalSI'): Quantity {
  return { nano: BigInt(value) * nanoPerUnit, format };
}

/** A quantity of thousandths. */
export function milliQuantityOf(milli: bigint | number): Quantity {
  return { nano: BigInt(milli) * 1_000_000n, format: 'DecimalSI' };
}

/** The canonical text: the largest suffix that leaves no fraction, as the API server writes it. */
export function formatQuantity(quantity: Quantity): string {
  const { nano, format } = quantity;
  if (nano === 0n) return '0';
  const sign = nano < 0n ? '-' : '';
  const magnitude = nano < 0n ? -nano : nano;
  if (format === 'BinarySI' && magnitude >= 1024n * nanoPerUnit) {
    let value = divideUp(magnitude, nanoPerUnit);
    let step = 0;
    while (step < binarySuffixes.length - 1 && value % 1024n === 0n) {
      value /= 1024n;
      step += 1;
    }
    return `${sign}${value}${binarySuffixes[step]}`;
  }
  let value = magnitude;
  let step = 0;
  while (step < decimalSuffixes.length - 1 && value % 1000n === 0n) {
    value /= 1000n;
    step += 1;
  }
  const suffix = format === 'DecimalExponent' ? (step === 3 ? '' : `e${3 * (step - 3)}`) : decimalSuffixes[step];
  return `${sign}${value}${suffix}`;
}

/** Division of non-negative numbers, rounded up. */
function divideUp(dividend: bigint, divisor: bigint): bigint {
  return (dividend + divisor - 1n) / divisor;
}

/** Go's Value() rounds away from zero. */
function roundUp(nano: bigint, unit: bigint): bigint {
  return nano < 0n ? -divideUp(-nano, unit) : divideUp(nano, unit);
}
