/** Prometheus' text form (version 0.0.4), and the few kinds of metric that are kept in memory. */

export type Labels = Readonly<Record<string, string>>;

export interface Sample {
  readonly labels: Labels;
  readonly value: number;
  /** Milliseconds since 1970; absent: the time of the scrape. */
  readonly atMs?: number;
}

export function labelText(labels: Labels): string {
  const parts = Object.entries(labels).map(([name, value]) => `${name}="${value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')}"`);
  return parts.length === 0 ? '' : `{${parts.join(',')}}`;
}

function numberText(value: number): string {
  if (value === Number.POSITIVE_INFINITY) return '+Inf';
  if (value === Number.NEGATIVE_INFINITY) return '-Inf';
  return Number.isNaN(value) ? 'NaN' : String(value);
}

function line(name: string, { labels, value, atMs }: Sample): string {
  return `${name}${labelText(labels)} ${numberText(value)}${atMs === undefined ? '' : ` ${Math.round(atMs)}`}\n`;
}

/** One metric with all its samples; nothing when there are none. */
export function metricText(name: string, kind: 'counter' | 'gauge', help: string, samples: readonly Sample[]): string {
  if (samples.length === 0) return '';
  return `# HELP ${name} ${help}\n# TYPE ${name} ${kind}\n${samples.map((sample) => line(name, sample)).join('')}`;
}

/** Series of one metric are bounded: what a cluster can name (pods, containers) must not fill the memory. */
const seriesMax = 4_096;

export class Counter {
  readonly name: string;
  readonly help: string;
  readonly kind: 'counter' | 'gauge';
  readonly #series = new Map<string, { labels: Labels; value: number }>();

  constructor(name: string, help: string, kind: 'counter' | 'gauge' = 'counter') {
    this.name = name;
    this.help = help;
    this.kind = kind;
  }

  /** Shown from the start: what has no labels is there before it was ever counted. */
  zero(labels: Labels = {}): this {
    this.add(labels, 0);
    return this;
  }

  add(labels: Labels, amount = 1): void {
    const entry = this.#entry(labels);
    if (entry !== undefined) entry.value += amount;
  }

  set(labels: Labels, value: number): void {
    const entry = this.#entry(labels);
    if (entry !== undefined) entry.value = value;
  }

  clear(): void {
    this.#series.clear();
  }

  remove(labels: Labels): void {
    this.#series.delete(labelText(labels));
  }

  text(): string {
    return metricText(this.name, this.kind, this.help, [...this.#series.values()]);
  }

  #entry(labels: Labels): { labels: Labels; value: number } | undefined {
    const key = labelText(labels);
    const known = this.#series.get(key);
    if (known !== undefined) return known;
    if (this.#series.size >= seriesMax) return undefined;
    const entry = { labels, value: 0 };
    this.#series.set(key, entry);
    return entry;
  }
}

/** A counter of upstream's that may still change (its word for it stands before the help). */
export function alpha(name: string, help: string, kind: 'counter' | 'gauge' = 'counter'): Counter {
  return new Counter(name, `[ALPHA] ${help}`, kind);
}

export function alphaHistogram(name: string, help: string, buckets?: readonly number[]): Histogram {
  return new Histogram(name, `[ALPHA] ${help}`, buckets);
}

/** prometheus' default buckets, seconds. */
export const defaultBuckets: readonly number[] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

interface Series {
  readonly labels: Labels;
  readonly counts: number[];
  sum: number;
  count: number;
}

export class Histogram {
  readonly name: string;
  readonly help: string;
  readonly #buckets: readonly number[];
  readonly #series = new Map<string, Series>();

  constructor(name: string, help: string, buckets: readonly number[] = defaultBuckets) {
    this.name = name;
    this.help = help;
    this.#buckets = buckets;
  }

  /** Shown from the start, as what has no labels is. */
  zero(): this {
    this.#entry({});
    return this;
  }

  observe(labels: Labels, value: number): void {
    const entry = this.#entry(labels);
    if (entry === undefined) return;
    const at = this.#buckets.findIndex((bound) => value <= bound);
    if (at >= 0) entry.counts[at] = (entry.counts[at] ?? 0) + 1;
    entry.sum += value;
    entry.count += 1;
  }

  #entry(labels: Labels): Series | undefined {
    const key = labelText(labels);
    const known = this.#series.get(key);
    if (known !== undefined) return known;
    if (this.#series.size >= seriesMax) return undefined;
    const entry = { labels, counts: this.#buckets.map(() => 0), sum: 0, count: 0 };
    this.#series.set(key, entry);
    return entry;
  }

  remove(labels: Labels): void {
    this.#series.delete(labelText(labels));
  }

  text(): string {
    return [...this.parts()].join('');
  }

  /** The same, series by series: a page of thousands is written with pauses. */
  *parts(): Generator<string> {
    if (this.#series.size === 0) return;
    yield `# HELP ${this.name} ${this.help}\n# TYPE ${this.name} histogram\n`;
    const bounds = this.#buckets.map(numberText);
    for (const { labels, ...values } of this.#series.values()) yield histogramLines(this.name, labels, bounds, values);
  }
}

/** Labels are written once for all lines of a series: a node has thousands of such lines. */
function histogramLines(name: string, labels: Labels, buckets: readonly string[], { counts, sum, count }: Omit<Series, 'labels'>): string {
  const plain = labelText(labels);
  const open = plain === '' ? '{' : `${plain.slice(0, -1)},`;
  let below = 0;
  let lines = '';
  for (let at = 0; at < buckets.length; at += 1) {
    below += counts[at] ?? 0;
    lines += `${name}_bucket${open}le="${buckets[at]}"} ${below}\n`;
  }
  return `${lines}${name}_bucket${open}le="+Inf"} ${count}\n${name}_sum${plain} ${numberText(sum)}\n${name}_count${plain} ${count}\n`;
}
