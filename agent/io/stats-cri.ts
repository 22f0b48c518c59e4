import { hasCode, messageOf } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import type { ContainerStats, MetricDescriptor, PodSandboxStats } from '../../proto/cri/types.ts';
import { criMetrics } from '../core/cri-metrics.ts';
import type { Cri } from './cri.ts';

/** What the runtime measures, as it tells it. `strict`: of containers nobody else was asked (PodAndContainerStatsFromCRI). */
export interface CriStats {
  readonly containers: readonly ContainerStats[];
  readonly sandboxes: readonly PodSandboxStats[];
  readonly strict: boolean;
}

type StatsCalls = Pick<Cri['runtime'], 'listPodSandboxStats' | 'listContainerStats'>;

/**
 * Usage of sandboxes and containers: with the gate from the runtime's stats of sandboxes alone, as long as it knows
 * them; else from its stats of containers, with those of sandboxes where it has any. Throws what the calls throw.
 */
export async function readCriStats(runtime: StatsCalls, wantsStrict: boolean, timeoutMs: number): Promise<CriStats> {
  const call = { timeoutMs };
  if (wantsStrict) {
    try {
      const { stats: sandboxes } = await runtime.listPodSandboxStats({}, call);
      return { sandboxes, containers: sandboxes.flatMap(({ linux }) => linux?.containers ?? []), strict: true };
    } catch (error) {
      if (!hasCode(error, 'unsupported')) throw error;
    }
  }
  const { stats: containers } = await runtime.listContainerStats({}, call);
  // A runtime that does not know the call tells of containers only; pods are then their sums.
  const sandboxes = await runtime.listPodSandboxStats({}, call).then(
    ({ stats }) => stats,
    () => [] as PodSandboxStats[],
  );
  return { sandboxes, containers, strict: false };
}

export interface CriPageOptions {
  readonly runtime: Partial<Pick<Cri['runtime'], 'listMetricDescriptors' | 'listPodSandboxMetrics'>>;
  readonly log: Log;
  readonly timeoutMs: number;
}

/** The runtime's own metrics; null: it has none, and somebody else must measure. What it describes is asked for once. */
export function createCriPage({ runtime, log, timeoutMs }: CriPageOptions): () => Promise<string | null> {
  let descriptors: readonly MetricDescriptor[] | null = null;
  return async () => {
    if (runtime.listMetricDescriptors === undefined || runtime.listPodSandboxMetrics === undefined) return null;
    try {
      descriptors ??= (await runtime.listMetricDescriptors({}, { timeoutMs })).descriptors;
      const { podMetrics } = await runtime.listPodSandboxMetrics({}, { timeoutMs });
      return criMetrics(descriptors, podMetrics);
    } catch (error) {
      if (hasCode(error, 'unsupported')) return null;
      log.error('Failed to get pod metrics', { err: messageOf(error) });
      return '';
    }
  };
}
