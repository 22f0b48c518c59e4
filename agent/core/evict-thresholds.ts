import { durationMs } from '../../base/duration.ts';
import { parseQuantity, quantityOf } from './quantity.ts';
import type { Quantity } from './quantity.ts';

/** Upstream's eviction signals, by the names that the configuration has for them. */
export type EvictionSignal =
  | 'memory.available'
  | 'allocatableMemory.available'
  | 'nodefs.available'
  | 'nodefs.inodesFree'
  | 'imagefs.available'
  | 'imagefs.inodesFree'
  | 'containerfs.available'
  | 'containerfs.inodesFree'
  | 'pid.available';

export type PressureCondition = 'MemoryPressure' | 'DiskPressure' | 'PIDPressure';

/** The resource that is short when a signal's threshold is met, in the words of messages and Events. */
export type StarvedResource = 'memory' | 'ephemeral-storage' | 'inodes' | 'pids';

/** A quantity, or a share of the capacity (single precision, as upstream reads it). */
export type ThresholdValue = { readonly quantity: Quantity } | { readonly share: number };

/** Met while less than `value` is available. `graceMs` 0 is a hard threshold. */
export interface Threshold {
  readonly signal: EvictionSignal;
  readonly value: ThresholdValue;
  readonly graceMs: number;
  readonly minReclaim: ThresholdValue | null;
}

export interface Observation {
  readonly available: Quantity;
  readonly capacity: Quantity;
}

export type Observations = ReadonlyMap<EvictionSignal, Observation>;

/** Where images and writable layers lie: on the node's own disk, both on another, or images alone on another. */
export type DiskLayout = 'one' | 'dedicated' | 'split';

export interface EvictionConfig {
  readonly evictionHard: Readonly<Record<string, string>>;
  readonly evictionSoft: Readonly<Record<string, string>>;
  readonly evictionSoftGracePeriod: Readonly<Record<string, string>>;
  readonly evictionMinimumReclaim: Readonly<Record<string, string>>;
  readonly enforceNodeAllocatable: readonly string[];
}

const signals: Readonly<Record<EvictionSignal, readonly [PressureCondition, StarvedResource]>> = {
  'memory.available': ['MemoryPressure', 'memory'],
  'allocatableMemory.available': ['MemoryPressure', 'memory'],
  'nodefs.available': ['DiskPressure', 'ephemeral-storage'],
  'nodefs.inodesFree': ['DiskPressure', 'inodes'],
  'imagefs.available': ['DiskPressure', 'ephemeral-storage'],
  'imagefs.inodesFree': ['DiskPressure', 'inodes'],
  'containerfs.available': ['DiskPressure', 'ephemeral-storage'],
  'containerfs.inodesFree': ['DiskPressure', 'inodes'],
  'pid.available': ['PIDPressure', 'pids'],
};

export const conditionOf = (signal: EvictionSignal): PressureCondition => signals[signal][0];
export const resourceOf = (signal: EvictionSignal): StarvedResource => signals[signal][1];

/**
 * The thresholds of a checked configuration, hard ones first. 0% and 100% are none. With allocatable enforced the hard
 * memory threshold also holds for what pods together may use.
 */
export function thresholdsOf(config: EvictionConfig): Threshold[] {
  const reclaim = (signal: string): ThresholdValue | null => {
    const text = config.evictionMinimumReclaim[signal];
    return text === undefined ? null : valueOf(text);
  };
  const read = (list: Readonly<Record<string, string>>, graceMs: (signal: string) => number): Threshold[] =>
    Object.entries(list).flatMap(([signal, text]) => {
      if (!isSignal(signal) || text === '0%' || text === '100%') return [];
      return [{ signal, value: valueOf(text), graceMs: graceMs(signal), minReclaim: reclaim(signal) }];
    });
  const all = [...read(config.evictionHard, () => 0), ...read(config.evictionSoft, (signal) => durationMs(config.evictionSoftGracePeriod[signal] ?? '0s'))];
  if (!config.enforceNodeAllocatable.includes('pods')) return all;
  const memory = all.filter(({ signal, graceMs }) => signal === 'memory.available' && graceMs === 0);
  return [...all, ...memory.map((threshold): Threshold => ({ ...threshold, signal: 'allocatableMemory.available' }))];
}

function isSignal(text: string): text is EvictionSignal {
  return Object.hasOwn(signals, text);
}

function valueOf(text: string): ThresholdValue {
  if (!text.endsWith('%')) return { quantity: parseQuantity(text) };
  return { share: Math.fround(Math.fround(Number(text.slice(0, -1))) / 100) };
}

/** What is configured for containerfs does not count: it goes by the thresholds of the file system it is on (KEP-4191). */
export function withContainerFs(thresholds: readonly Threshold[], layout: DiskLayout): Threshold[] {
  const below = layout === 'dedicated' ? 'imagefs' : 'nodefs';
  const own = thresholds.filter(({ signal }) => !signal.startsWith('containerfs.'));
  const derived = own.flatMap((threshold): Threshold[] => {
    if (threshold.signal === `${below}.available`) return [{ ...threshold, signal: 'containerfs.available' }];
    return threshold.signal === `${below}.inodesFree` ? [{ ...threshold, signal: 'containerfs.inodesFree' }] : [];
  });
  return [...own, ...derived];
}

/** A threshold's amount; a share is cut to whole units. */
export function amountOf(value: ThresholdValue, capacity: Quantity): Quantity {
  if ('quantity' in value) return value.quantity;
  return quantityOf(BigInt(Math.trunc(Number(capacity.nano / 1_000_000_000n) * value.share)), 'BinarySI');
}

/** Those that are met now; with `reclaim` also those that were met and have not yet been relieved by as much as was asked for. */
export function thresholdsMet(thresholds: readonly Threshold[], observations: Observations, reclaim: boolean): Threshold[] {
  return thresholds.filter(({ signal, value, minReclaim }) => {
    const observed = observations.get(signal);
    if (observed === undefined) return false;
    const extra = reclaim && minReclaim !== null ? amountOf(minReclaim, observed.capacity).nano : 0n;
    return amountOf(value, observed.capacity).nano + extra > observed.available.nano;
  });
}

/** Whether a threshold is near enough (a quarter more than it) that what is cheap to read is worth reading sooner. */
export function isNear(thresholds: readonly Threshold[], observations: Observations): boolean {
  return thresholds.some(({ signal, value }) => {
    const observed = observations.get(signal);
    return observed !== undefined && amountOf(value, observed.capacity).nano * 5n > observed.available.nano * 4n;
  });
}

/** What is remembered from one look at the node to the next. */
export interface PressureState {
  /** Since when each met threshold is met, by its place among all. */
  readonly sinceMs: ReadonlyMap<Threshold, number>;
  readonly seenAtMs: ReadonlyMap<PressureCondition, number>;
  /** Met for as long as their grace, and not yet relieved. */
  readonly met: readonly Threshold[];
}

export const noPressure: PressureState = { sinceMs: new Map(), seenAtMs: new Map(), met: [] };

export interface PressureStep {
  readonly state: PressureState;
  /** In the order in which they came up. */
  readonly conditions: readonly PressureCondition[];
  /** Thresholds to act on now, memory first. */
  readonly act: readonly Threshold[];
}

/** One look: which conditions hold (each for `transitionMs` after it was last seen), and what is to be reclaimed. Times are monotonic. */
export function lookAtPressure(
  before: PressureState,
  thresholds: readonly Threshold[],
  observations: Observations,
  transitionMs: number,
  nowMs: number,
): PressureStep {
  const met = thresholdsMet(thresholds, observations, false);
  const unrelieved = thresholdsMet(before.met, observations, true).filter((threshold) => !met.includes(threshold));
  const all = [...met, ...unrelieved];
  const sinceMs = new Map(all.map((threshold) => [threshold, before.sinceMs.get(threshold) ?? nowMs]));
  const seenAtMs = new Map(before.seenAtMs);
  for (const { signal } of all) seenAtMs.set(conditionOf(signal), nowMs);
  const conditions = [...seenAtMs].filter(([, atMs]) => nowMs - atMs < transitionMs).map(([condition]) => condition);
  const ripe = all.filter((threshold) => nowMs - (sinceMs.get(threshold) ?? nowMs) >= threshold.graceMs);
  const memoryFirst = [...ripe.filter(({ signal }) => resourceOf(signal) === 'memory'), ...ripe.filter(({ signal }) => resourceOf(signal) !== 'memory')];
  return { state: { sinceMs, seenAtMs, met: ripe }, conditions, act: memoryFirst };
}
