/** Go's time.Duration as text: `1h2m3.5s`, `100ms`. */

const unitMs: Readonly<Record<string, number>> = { ns: 1e-6, us: 1e-3, µs: 1e-3, μs: 1e-3, ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };

/** Milliseconds; null when the text is no duration. */
export function tryDurationMs(text: string): number | null {
  if (text === '0') return 0;
  const match = /^([-+]?)((?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+$/.exec(text);
  if (match === null) return null;
  let totalMs = 0;
  for (const [, number, unit] of text.matchAll(/(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)/g)) totalMs += Number(number) * (unitMs[unit ?? ''] ?? 0);
  return match[1] === '-' ? -totalMs : totalMs;
}

/** Milliseconds of a text that was checked before; 0 for what is none. */
export function durationMs(text: string): number {
  return tryDurationMs(text) ?? 0;
}

/** As Go prints it: `1m0s`, `2h0m0s`, `1.5s`, `100ms`. */
export function goDuration(ms: number): string {
  if (ms === 0) return '0s';
  const sign = ms < 0 ? '-' : '';
  const size = Math.abs(ms);
  if (size < 1e-3) return `${sign}${trim(size * 1e6)}ns`;
  if (size < 1) return `${sign}${trim(size * 1e3)}µs`;
  if (size < 1_000) return `${sign}${trim(size)}ms`;
  const hours = Math.floor(size / 3_600_000);
  const minutes = Math.floor(size / 60_000) % 60;
  const seconds = `${trim((size % 60_000) / 1_000)}s`;
  if (hours > 0) return `${sign}${hours}h${minutes}m${seconds}`;
  return minutes > 0 ? `${sign}${minutes}m${seconds}` : `${sign}${seconds}`;
}

/** As Go prints it, cut to the millisecond, nothing below zero: for messages. */
export function durationText(ms: number): string {
  return goDuration(Math.max(0, Math.floor(ms)));
}

const trim = (value: number): string => String(Number(value.toFixed(9)));
