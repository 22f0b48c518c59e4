import { timeMs } from './time.ts';

/**
 * The CRI log format: one entry a line, `<RFC 3339 time> <stdout|stderr> <tags> <text>\n`, where the first of the
 * colon-separated tags is F for a whole line and P for a part of one (its newline is not the application's).
 */

export interface LogFilter {
  /** Entries before are left out; microseconds since 1970. */
  readonly sinceMicros: number | null;
  readonly timestamps: boolean;
  readonly stream: 'All' | 'Stdout' | 'Stderr';
}

export interface LogEntry {
  /** The time as it stands in the file. */
  readonly time: string;
  readonly stream: 'stdout' | 'stderr';
  readonly partial: boolean;
  readonly text: Uint8Array;
}

const space = 0x20;
const newline = 0x0a;

/** One line of the file without its newline; null when it is not of the format. */
export function parseLogLine(line: Uint8Array): LogEntry | null {
  const first = line.indexOf(space);
  const second = first < 0 ? -1 : line.indexOf(space, first + 1);
  if (second < 0) return null;
  const third = line.indexOf(space, second + 1);
  const stream = ascii(line.subarray(first + 1, second));
  if (stream !== 'stdout' && stream !== 'stderr') return null;
  // An empty text may have lost the blank before it.
  const tags = ascii(third < 0 ? line.subarray(second + 1) : line.subarray(second + 1, third));
  const [kind] = tags.split(':');
  if (kind !== 'F' && kind !== 'P') return null;
  const time = ascii(line.subarray(0, first));
  if (!timeShape.test(time)) return null;
  return { time, stream, partial: kind === 'P', text: third < 0 ? new Uint8Array(0) : line.subarray(third + 1) };
}

const timeShape = /^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)$/;

function ascii(bytes: Uint8Array): string {
  return String.fromCharCode(...bytes.subarray(0, 64));
}

/** Microseconds since 1970; NaN for what is no RFC 3339 time. */
export function microsOf(time: string): number {
  const match = timeShape.exec(time);
  if (match === null) return Number.NaN;
  const [, , , , , , , fraction = '', zone = 'Z'] = match;
  return timeMs(`${time.slice(0, 19)}${zone}`) * 1000 + Number(fraction.padEnd(6, '0').slice(0, 6));
}

/** Time with nine digits of fraction, as `kubectl logs --timestamps` prints it. */
export function fixedTime(time: string): string {
  const match = timeShape.exec(time);
  if (match === null) return time;
  const zone = match[8] ?? 'Z';
  return `${time.slice(0, 19)}.${(match[7] ?? '').padEnd(9, '0').slice(0, 9)}${zone}`;
}

/** Turns lines of the file into what the reader sees. Keeps whether the next entry starts a line of its own. */
export class LogFormatter {
  readonly #filter: LogFilter;
  #atLineStart = true;
  /** Lines that were not of the format, for the log. */
  skipped = 0;

  constructor(filter: LogFilter) {
    this.#filter = filter;
  }

  /** Appends the pieces of one line to `out`. */
  format(line: Uint8Array, out: Uint8Array[]): void {
    const entry = parseLogLine(line);
    if (entry === null) {
      if (line.length > 0) this.skipped++;
      return;
    }
    const { sinceMicros, timestamps, stream } = this.#filter;
    if (sinceMicros !== null && microsOf(entry.time) < sinceMicros) return;
    if (stream === 'Stdout' && entry.stream !== 'stdout') return;
    if (stream === 'Stderr' && entry.stream !== 'stderr') return;
    if (timestamps && this.#atLineStart) out.push(bytesOf(`${fixedTime(entry.time)} `));
    out.push(entry.text);
    if (!entry.partial) out.push(lineEnd);
    this.#atLineStart = !entry.partial;
  }
}

const lineEnd = Uint8Array.of(newline);

function bytesOf(text: string): Uint8Array {
  return Uint8Array.from(text, (character) => character.charCodeAt(0));
}
