/** A watchdog that would have to be told more often than this is a mistake in the unit. */
const leastUs = 1_000_000n;

/**
 * How often a service manager is to be told that all is well: half of what it waits (sd_watchdog_enabled(3)). Null: it does not
 * wait, or for another process; a text: why what it was told cannot be used.
 */
export function watchdogPeriodMs(env: Readonly<Record<string, string | undefined>>, pid: number): number | null | string {
  const { WATCHDOG_USEC: usec, WATCHDOG_PID: watched } = env;
  if (usec === undefined || usec === '') return null;
  if (!/^\d+$/.test(usec) || BigInt(usec) === 0n) return `configure watchdog: error converting WATCHDOG_USEC: ${JSON.stringify(usec)} is no number above 0`;
  if (watched !== undefined && watched !== '' && Number(watched) !== pid) return null;
  if (BigInt(usec) <= leastUs) return `configure watchdog timeout too small: ${Number(usec) / 1_000_000}s`;
  return Number(usec) / 2000;
}
