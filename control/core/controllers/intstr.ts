/** A number or a percentage, as the API writes it. */
export type IntOrString = number | string;

/** The number that `value` means of `total`; percentages are rounded up or down. */
export function scaled(value: IntOrString | undefined, total: number, roundUp: boolean): number {
  if (value === undefined) return 0;
  if (typeof value === 'number') return value;
  const percent = /^(\d+)%$/.exec(value);
  if (percent === null) return 0;
  const exact = (Number(percent[1]) * total) / 100;
  return roundUp ? Math.ceil(exact) : Math.floor(exact);
}

/**
 * maxSurge and maxUnavailable as numbers of pods. Both rounding to nothing would stop a rollout for good, so one pod
 * may then be unavailable.
 */
export function fenceposts(
  maxSurge: IntOrString | undefined,
  maxUnavailable: IntOrString | undefined,
  desired: number,
): { surge: number; unavailable: number } {
  const surge = scaled(maxSurge, desired, true);
  const unavailable = scaled(maxUnavailable, desired, false);
  return surge === 0 && unavailable === 0 ? { surge, unavailable: 1 } : { surge, unavailable };
}
