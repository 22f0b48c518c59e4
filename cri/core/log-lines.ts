import { timeMs } from '../../base/time.ts';

/**
 * The CRI log format: one entry a line, `<RFC 3339 time> <stdout|stderr> <tags> <text>\n`, where the first of the
 * colon-separated tags is F for a whole line and P for a part of one (its newline is not the application's).
 *
 * Logs of a gigabyte go through here, so entries are looked at as bytes and copied once; nothing is made per line.
 */

export interface LogFilter {
  /** Entries before are left out; microseconds since 1970. */
  readonly sinceMicros: number | null;
  readonly timestamps: boolean;
  readonly stream: 'All' | 'Stdout' | 'Stderr';
}

const [space, newline, colon, dot, zero, zuluZ, letterF, letterP, letterT, dash] = [0x20, 0x0a, 0x3a, 0x2e, 0x30, 0x5a, 0x46, 0x50, 0x54, 0x2d] as const;
/** `2016-10-06T00:17:09`. */
const secondsLength = 19;
const fractionDigits = 9;
const streamLength = 'stdout'.length;

/** Bytes that grow; emptied by `take`. */
export class ByteSink {
  #bytes: Uint8Array;
  #length = 0;

  constructor(capacity: number) {
    this.#bytes = new Uint8Array(capacity);
  }

  byte(value: number): void {
    if (this.#length === this.#bytes.length) this.#grow(1);
    this.#bytes[this.#length++] = value;
  }

  copy(source: Uint8Array, start: number, end: number): void {
    const size = end - start;
    if (this.#length + size > this.#bytes.length) this.#grow(size);
    const target = this.#bytes;
    let at = this.#length;
    // Typical lines are short: a plain loop beats making a view for each.
    if (size < 256) for (let from = start; from < end; from++) target[at++] = source[from] ?? 0;
    else target.set(source.subarray(start, end), at);
    this.#length += size;
  }

  /** What was written since the last time; the next writes go to other memory. */
  take(): Uint8Array {
    const taken = this.#bytes.subarray(0, this.#length);
    this.#bytes = new Uint8Array(this.#bytes.length);
    this.#length = 0;
    return taken;
  }

  get length(): number {
    return this.#length;
  }

  #grow(size: number): void {
    const larger = new Uint8Array(Math.max(this.#bytes.length * 2, this.#length + size));
    larger.set(this.#bytes.subarray(0, this.#length));
    this.#bytes = larger;
  }
}

/** Turns lines of the file into what the reader sees. Keeps whether the next entry starts a line of its own. */
export class LogFormatter {
  readonly #filter: LogFilter;
  #atLineStart = true;
  /** The second that was read last, as text and as a number. */
  #second = '';
  #secondMicros = 0;

  constructor(filter: LogFilter) {
    this.#filter = filter;
  }

  /** Appends what one line (without its newline) means to `out`; false when it is not of the format. */
  format(data: Uint8Array, start: number, end: number, out: ByteSink): boolean {
    const first = indexOf(data, space, start, end);
    if (first - start <= secondsLength || data[start + 4] !== dash || data[start + 10] !== letterT) return false;
    const second = first + 1 + streamLength;
    if (second >= end || data[second] !== space || !isStream(data, first + 1)) return false;
    const tag = data[second + 1];
    const after = data[second + 2];
    if ((tag !== letterF && tag !== letterP) || (second + 2 < end && after !== space && after !== colon)) return false;
    // An empty text may have lost the blank before it.
    const third = indexOf(data, space, second + 1, end);
    if (!this.#wanted(data, start, first)) return true;
    if (this.#filter.timestamps && this.#atLineStart) writeTime(data, start, first, out);
    if (third < end) out.copy(data, third + 1, end);
    const isPart = tag === letterP;
    if (!isPart) out.byte(newline);
    this.#atLineStart = !isPart;
    return true;
  }

  #wanted(data: Uint8Array, start: number, first: number): boolean {
    const { stream, sinceMicros } = this.#filter;
    // stdOut or stdErr: the fourth letter tells.
    if (stream !== 'All' && (data[first + 4] === 0x6f) !== (stream === 'Stdout')) return false;
    return sinceMicros === null || this.#micros(data, start, first) >= sinceMicros;
  }

  #micros(data: Uint8Array, start: number, end: number): number {
    const text = ascii(data, start, end);
    const zoneAt = text.search(/[Z+]|(?<=T.*)-/);
    const zone = zoneAt < 0 ? 'Z' : text.slice(zoneAt);
    const second = text.slice(0, secondsLength) + zone;
    if (second !== this.#second) {
      this.#second = second;
      this.#secondMicros = timeMs(second) * 1000;
    }
    const fraction = text.charCodeAt(secondsLength) === dot ? text.slice(secondsLength + 1, zoneAt < 0 ? undefined : zoneAt) : '';
    return this.#secondMicros + Number(fraction.padEnd(6, '0').slice(0, 6));
  }
}

/** One line of the file without its newline, for readers of few lines; null when it is not of the format. */
export function parseLogLine(line: Uint8Array): { partial: boolean; text: Uint8Array } | null {
  const out = new ByteSink(line.length + 1);
  if (!new LogFormatter({ sinceMicros: null, timestamps: false, stream: 'All' }).format(line, 0, line.length, out)) return null;
  const text = out.take();
  // Only a whole line ends in a newline here: the line itself holds none.
  const partial = text.at(-1) !== newline;
  return { partial, text: partial ? text : text.subarray(0, -1) };
}

function indexOf(data: Uint8Array, byte: number, start: number, end: number): number {
  let at = start;
  while (at < end && data[at] !== byte) at++;
  return at;
}

function isStream(data: Uint8Array, at: number): boolean {
  if (data[at] !== 0x73 || data[at + 1] !== 0x74 || data[at + 2] !== 0x64) return false;
  const [a, b, c] = [data[at + 3], data[at + 4], data[at + 5]];
  return (a === 0x6f && b === 0x75 && c === 0x74) || (a === 0x65 && b === 0x72 && c === 0x72);
}

/** The time with nine digits of fraction and a blank, as `kubectl logs --timestamps` prints it. */
function writeTime(data: Uint8Array, start: number, end: number, out: ByteSink): void {
  let at = start + secondsLength;
  out.copy(data, start, at);
  out.byte(dot);
  let digits = 0;
  if (data[at] === dot) {
    for (at++; at < end && isDigit(data[at]); at++) {
      if (digits < fractionDigits) out.byte(data[at] ?? zero);
      digits++;
    }
  }
  for (; digits < fractionDigits; digits++) out.byte(zero);
  if (at < end) out.copy(data, at, end);
  else out.byte(zuluZ);
  out.byte(space);
}

function isDigit(byte: number | undefined): boolean {
  return byte !== undefined && byte >= zero && byte <= zero + 9;
}

function ascii(data: Uint8Array, start: number, end: number): string {
  let text = '';
  for (let at = start; at < end && at < start + 64; at++) text += String.fromCharCode(data[at] ?? 0);
  return text;
}

const timeShape = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.(\d+))?(Z|[+-]\d\d:\d\d)$/;

/** Microseconds since 1970; NaN for what is no RFC 3339 time. */
export function microsOf(time: string): number {
  const match = timeShape.exec(time);
  if (match === null) return Number.NaN;
  const [, fraction = '', zone = 'Z'] = match;
  return timeMs(`${time.slice(0, secondsLength)}${zone}`) * 1000 + Number(fraction.padEnd(6, '0').slice(0, 6));
}
