import { monitorEventLoopDelay } from 'node:perf_hooks';

/** How finely it is looked at; a loop with nothing to do shows about this much, which is taken off. */
const resolutionMs = 10;
const bounds: readonly number[] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1];
const name = 'nodelet_event_loop_delay_seconds';

/** How late this process runs what is due: the budget that everything on the main loop shares. */
export interface LoopDelay extends Disposable {
  /**
   * Prometheus text: a histogram since the start, and `nodelet_event_loop_delay_recent_seconds`, quantiles since the
   * last call (one reader is assumed: with two, each sees what came since the other's).
   */
  text(): string;
}

export function watchLoopDelay(): LoopDelay {
  const recent = monitorEventLoopDelay({ resolution: resolutionMs });
  recent.enable();
  // Node's own histogram can only be emptied as a whole: what it holds moves here at each reading.
  const below = bounds.map(() => 0);
  let count = 0;
  let sumSeconds = 0;
  let maxSeconds = 0;
  const seconds = (nanos: number): number => Math.max(0, nanos / 1e6 - resolutionMs) / 1000;

  return {
    text() {
      const seen = recent.count;
      const [p50, p99, max] = seen === 0 ? [0, 0, 0] : [seconds(recent.percentile(50)), seconds(recent.percentile(99)), seconds(recent.max)];
      const percentiles = [...recent.percentiles].map(([percent, nanos]): [number, number] => [percent, seconds(nanos)]);
      for (const [at, bound] of bounds.entries()) {
        const [percent = 0] = percentiles.findLast(([, value]) => value <= bound) ?? [];
        below[at] = (below[at] ?? 0) + Math.round((seen * percent) / 100);
      }
      count += seen;
      sumSeconds += seen === 0 ? 0 : seconds(recent.mean) * seen;
      maxSeconds = Math.max(maxSeconds, max);
      recent.reset();
      return [
        `# HELP ${name} How late the event loop ran what was due.`,
        `# TYPE ${name} histogram`,
        ...bounds.map((bound, at) => `${name}_bucket{le="${bound}"} ${below[at]}`),
        `${name}_bucket{le="+Inf"} ${count}`,
        `${name}_sum ${sumSeconds}`,
        `${name}_count ${count}`,
        '# HELP nodelet_event_loop_delay_max_seconds The longest delay of the event loop since the start.',
        '# TYPE nodelet_event_loop_delay_max_seconds gauge',
        `nodelet_event_loop_delay_max_seconds ${maxSeconds}`,
        '# HELP nodelet_event_loop_delay_recent_seconds Delay of the event loop since the last scrape.',
        '# TYPE nodelet_event_loop_delay_recent_seconds gauge',
        `nodelet_event_loop_delay_recent_seconds{quantile="0.5"} ${p50}`,
        `nodelet_event_loop_delay_recent_seconds{quantile="0.99"} ${p99}`,
        `nodelet_event_loop_delay_recent_seconds{quantile="1"} ${max}`,
        '',
      ].join('\n');
    },
    [Symbol.dispose]: () => recent.disable(),
  };
}
