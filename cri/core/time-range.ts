/** Milliseconds of `90s`, `1.5m`. */
const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };
const DAY_MS = 86_400_000;

/**
 * The moment that a text means in a recording that began at `startMs`: `12:04:01` is the first such time of day from its
 * start on, `+90s` counts from its start, RFC 3339 stands for itself. Milliseconds since 1970; NaN for what is no time.
 */
export function momentOf(text: string, startMs: number): number {
  const span = /^\+?(\d+(?:\.\d+)?)(ms|s|m|h)$/.exec(text);
  if (span !== null) return startMs + Number(span[1]) * (UNITS[span[2] ?? ''] ?? NaN);
  const day = /^(\d\d):(\d\d)(?::(\d\d(?:\.\d+)?))?$/.exec(text);
  if (day === null) return Date.parse(text);
  const atMs = Math.floor(startMs / DAY_MS) * DAY_MS + Number(day[1]) * 3_600_000 + Number(day[2]) * 60_000 + Number(day[3] ?? 0) * 1_000;
  // A recording may go on past midnight. What lies a little before its start is meant as it stands.
  return atMs < startMs - DAY_MS / 2 ? atMs + DAY_MS : atMs;
}
