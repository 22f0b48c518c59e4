import type { Flavour } from './workload.ts';

/** One side: upstream's kubelet, or ours. */
export type Side = 'upstream' | 'ours';

/** One round of one side. */
export interface Sample {
  readonly side: Side;
  readonly flavour: Flavour;
  readonly count: number;
  readonly readyMs: readonly number[];
  readonly goneMs: readonly number[];
  /** CPU seconds from the first create to the last pod gone. */
  readonly agentCpuSeconds: number;
  readonly runtimeCpuSeconds: number;
  /** CRI calls of the agent in that time, and what it waited for them. */
  readonly calls: number;
  readonly callSeconds: number;
  /** The longest delay of the event loop; null where the agent has none. */
  readonly loopMaxMs: number | null;
}

/** A window in which nothing was asked of the node. */
export interface Idle {
  readonly side: Side;
  readonly flavour: Flavour | null;
  readonly pods: number;
  readonly agentCores: number;
  readonly runtimeCores: number;
  readonly anonMiB: number;
  readonly fileMiB: number;
  readonly loopP99Ms: number | null;
}

/** Writes of the agent in the life of one pod (create, run, delete), Events, Leases and token requests apart. */
export interface Writes {
  readonly side: Side;
  readonly flavour: Flavour;
  readonly pods: number;
  readonly perPod: Readonly<Record<string, number>>;
}

export interface Comparison {
  readonly date: string;
  readonly versions: Readonly<Record<string, string>>;
  readonly cpus: number;
  readonly samples: readonly Sample[];
  readonly idle: readonly Idle[];
  readonly writes: readonly Writes[];
}

/** One figure of both sides; `ratio` is ours over upstream's, below 1 is better. */
export interface Row {
  readonly what: string;
  readonly unit: string;
  readonly upstream: number | null;
  readonly ours: number | null;
  readonly ratio: number | null;
}

const PERCENTILES = [50, 90, 99];

/** The value below which `share` of the numbers lie (nearest rank). NaN of an empty list. */
export function quantile(numbers: readonly number[], share: number): number {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(sorted.length * share) - 1))] ?? Number.NaN;
}

export function median(numbers: readonly number[]): number {
  return quantile(numbers, 0.5);
}

function row(what: string, unit: string, upstream: number, ours: number): Row {
  const value = (number: number): number | null => (Number.isFinite(number) ? number : null);
  return { what, unit, upstream: value(upstream), ours: value(ours), ratio: Number.isFinite(ours / upstream) ? ours / upstream : null };
}

/** All figures. Each is the median over the rounds of that round's figure. */
export function rowsOf(comparison: Comparison): Row[] {
  const rows: Row[] = [];
  const groups = [...new Set(comparison.samples.map(({ flavour, count }) => `${flavour} ${count}`))];
  for (const group of groups) {
    const of = (side: Side): Sample[] => comparison.samples.filter((sample) => sample.side === side && `${sample.flavour} ${sample.count}` === group);
    const pair = (what: string, unit: string, figure: (sample: Sample) => number): void =>
      void rows.push(row(`${group}: ${what}`, unit, median(of('upstream').map(figure)), median(of('ours').map(figure))));
    for (const percent of PERCENTILES) pair(`created → Ready p${percent}`, 'ms', (sample) => quantile(sample.readyMs, percent / 100));
    for (const percent of PERCENTILES) pair(`deleted → gone p${percent}`, 'ms', (sample) => quantile(sample.goneMs, percent / 100));
    pair('CPU of the agent per pod', 's', (sample) => sample.agentCpuSeconds / sample.count);
    pair('CPU of containerd and shims per pod', 's', (sample) => sample.runtimeCpuSeconds / sample.count);
    pair('CRI calls per pod', 'calls', (sample) => sample.calls / sample.count);
    pair('waited for CRI calls per pod', 's', (sample) => sample.callSeconds / sample.count);
    pair('longest delay of the event loop', 'ms', (sample) => sample.loopMaxMs ?? Number.NaN);
  }
  const windows = [...new Set(comparison.idle.map(({ flavour, pods }) => `${pods} ${flavour ?? ''}`.trim()))];
  for (const window of windows) {
    const of = (side: Side): Idle[] => comparison.idle.filter((idle) => idle.side === side && `${idle.pods} ${idle.flavour ?? ''}`.trim() === window);
    const pair = (what: string, unit: string, figure: (idle: Idle) => number): void =>
      void rows.push(row(`idle, ${window} pods: ${what}`, unit, median(of('upstream').map(figure)), median(of('ours').map(figure))));
    pair('agent', 'cores', (idle) => idle.agentCores);
    pair('containerd and shims', 'cores', (idle) => idle.runtimeCores);
    pair('memory', 'MiB', (idle) => idle.anonMiB + idle.fileMiB);
    pair('memory, anonymous', 'MiB', (idle) => idle.anonMiB);
    pair('memory, of files', 'MiB', (idle) => idle.fileMiB);
    pair('p99 delay of the event loop', 'ms', (idle) => idle.loopP99Ms ?? Number.NaN);
  }
  for (const flavour of new Set(comparison.writes.map((writes) => writes.flavour))) {
    const of = (side: Side): Readonly<Record<string, number>> =>
      comparison.writes.find((writes) => writes.side === side && writes.flavour === flavour)?.perPod ?? {};
    const kinds = [...new Set([...Object.keys(of('upstream')), ...Object.keys(of('ours'))])].sort();
    for (const kind of kinds) rows.push(row(`${flavour}: API ${kind} per pod life`, 'requests', of('upstream')[kind] ?? 0, of('ours')[kind] ?? 0));
  }
  return rows;
}

function figure(value: number | null): string {
  if (value === null) return '-';
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(3);
}

/** The table for people. */
export function textOf(comparison: Comparison): string[] {
  const rows = rowsOf(comparison);
  const width = Math.max(...rows.map(({ what }) => what.length), 4);
  const line = (what: string, cells: readonly string[]): string => what.padEnd(width) + cells.map((cell) => cell.padStart(11)).join('');
  return [
    line('', ['upstream', 'ours', 'ratio', '']),
    ...rows.map(({ what, unit, upstream, ours, ratio }) =>
      line(what, [figure(upstream), figure(ours), ratio === null ? '-' : `${ratio.toFixed(2)}×`, unit.padEnd(9)]),
    ),
  ];
}
