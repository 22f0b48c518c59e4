/** metav1.Time as text and as milliseconds since 1970, by calendar arithmetic: core reads no clock and needs no Date. */

const dayMs = 86_400_000;
const shape = /^(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(\.\d+)?(Z|[+-]\d{2}:\d{2})$/;

/** RFC 3339 with whole seconds, as metav1.Time is written. */
export function timeText(ms: number): string {
  const seconds = Math.floor(ms / 1000);
  const days = Math.floor(seconds / 86_400);
  const rest = seconds - days * 86_400;
  const { year, month, day } = civilOf(days);
  return `${pad(year, 4)}-${pad(month)}-${pad(day)}T${pad(Math.floor(rest / 3600))}:${pad(Math.floor(rest / 60) % 60)}:${pad(rest % 60)}Z`;
}

/** Milliseconds since 1970; 0 for an absent or unreadable time, which is Kubernetes' zero time. */
export function timeMs(text: string | null | undefined): number {
  const match = text === null || text === undefined ? null : shape.exec(text);
  if (match === null) return 0;
  const [, year, month, day, hour, minute, second, fraction = '', zone = 'Z'] = match;
  const days = daysOf(Number(year), Number(month), Number(day));
  const offsetMs = zone === 'Z' ? 0 : (zone.startsWith('-') ? -1 : 1) * (Number(zone.slice(1, 3)) * 60 + Number(zone.slice(4, 6))) * 60_000;
  const fractionMs = fraction === '' ? 0 : Math.floor(Number(`0${fraction}`) * 1000);
  return days * dayMs + (Number(hour) * 3600 + Number(minute) * 60 + Number(second)) * 1000 + fractionMs - offsetMs;
}

function pad(value: number, width = 2): string {
  return String(value).padStart(width, '0');
}

/** Days since 1970 to a date of the proleptic Gregorian calendar, counted from 1 March so that leap days come last. */
function civilOf(days: number): { year: number; month: number; day: number } {
  const shifted = days + 719_468;
  const era = Math.floor(shifted / 146_097);
  const dayOfEra = shifted - era * 146_097;
  const yearOfEra = Math.floor((dayOfEra - Math.floor(dayOfEra / 1460) + Math.floor(dayOfEra / 36_524) - Math.floor(dayOfEra / 146_096)) / 365);
  const dayOfYear = dayOfEra - (365 * yearOfEra + Math.floor(yearOfEra / 4) - Math.floor(yearOfEra / 100));
  const marchMonth = Math.floor((5 * dayOfYear + 2) / 153);
  const day = dayOfYear - Math.floor((153 * marchMonth + 2) / 5) + 1;
  const month = marchMonth < 10 ? marchMonth + 3 : marchMonth - 9;
  return { year: yearOfEra + era * 400 + (month <= 2 ? 1 : 0), month, day };
}

function daysOf(year: number, month: number, day: number): number {
  const marchYear = month <= 2 ? year - 1 : year;
  const era = Math.floor(marchYear / 400);
  const yearOfEra = marchYear - era * 400;
  const dayOfYear = Math.floor((153 * (month > 2 ? month - 3 : month + 9) + 2) / 5) + day - 1;
  return era * 146_097 + yearOfEra * 365 + Math.floor(yearOfEra / 4) - Math.floor(yearOfEra / 100) + dayOfYear - 719_468;
}
