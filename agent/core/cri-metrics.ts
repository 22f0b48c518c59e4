import { labelText, metricText, type Sample } from '../../base/metrics-text.ts';
import type { Metric, MetricDescriptor, PodSandboxMetrics, PsiStats } from '../../proto/cri/types.ts';
import type { Pressure, PressureData, PressureOf } from './cgroup-usage.ts';

/**
 * What a runtime measures of sandboxes and containers (ListPodSandboxMetrics, KEP-2371) as a page of Prometheus' text:
 * each metric that it has described, with the labels that it named then. What fits no description is left out.
 */
export function criMetrics(descriptors: readonly MetricDescriptor[], sandboxes: readonly PodSandboxMetrics[]): string {
  const measured = Map.groupBy(
    sandboxes.flatMap(({ metrics, containerMetrics }) => [...metrics, ...containerMetrics.flatMap((container) => container.metrics)]),
    ({ name }) => name,
  );
  return [...new Map(descriptors.map((each) => [each.name, each])).values()]
    .toSorted((left, right) => (left.name < right.name ? -1 : 1))
    .map(({ name, help, labelKeys }) => {
      const own = (measured.get(name) ?? []).filter(({ labelValues }) => labelValues.length === labelKeys.length);
      const kind = own[0]?.metricType === 'GAUGE' ? 'gauge' : 'counter';
      // The same series twice would make the whole page unreadable.
      const samples = new Map(own.map((metric): [string, Sample] => sampleOf(metric, labelKeys)));
      return metricText(name, kind, `[INTERNAL] ${help}`, [...samples.values()]);
    })
    .join('');
}

function sampleOf({ labelValues, timestamp, value }: Metric, keys: readonly string[]): [string, Sample] {
  const pairs = keys.map((key, at): [string, string] => [key, labelValues[at] ?? '']);
  const labels = Object.fromEntries(pairs.toSorted(([left], [right]) => (left < right ? -1 : 1)));
  // Without a time it was measured for this very question.
  const atMs = Number(timestamp) / 1e6;
  return [labelText(labels), { labels, value: Number(value?.value ?? 0), ...(atMs > 0 ? { atMs } : {}) }];
}

/** The pressure that a runtime tells of; undefined where it tells of none. */
export function criPressure(cpu: PsiStats | null | undefined, memory: PsiStats | null | undefined, io: PsiStats | null | undefined): Pressure | undefined {
  const pressure = { cpu: pressureOf(cpu), memory: pressureOf(memory), io: pressureOf(io) };
  return pressure.cpu === null && pressure.memory === null && pressure.io === null ? undefined : pressure;
}

function pressureOf(psi: PsiStats | null | undefined): PressureOf | null {
  if (psi === null || psi === undefined) return null;
  const data = (each: PsiStats['Full']): PressureData => ({
    total: Number(each?.Total ?? 0),
    avg10: each?.Avg10 ?? 0,
    avg60: each?.Avg60 ?? 0,
    avg300: each?.Avg300 ?? 0,
  });
  return { full: data(psi.Full), some: data(psi.Some) };
}
