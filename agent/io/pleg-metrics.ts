import type { Clock } from '../../base/clock.ts';
import { alpha, alphaHistogram, metricText } from '../../base/metrics-text.ts';

/** Metrics of looking at the runtime, under the names of upstream's pod lifecycle event generator. */
export class PlegMetrics {
  readonly #clock: Clock;
  readonly #relist = alphaHistogram('kubelet_pleg_relist_duration_seconds', 'Duration in seconds for relisting pods in PLEG.').zero();
  readonly #interval = alphaHistogram('kubelet_pleg_relist_interval_seconds', 'Interval in seconds between relisting in PLEG.').zero();
  readonly #pod = alphaHistogram('kubelet_pleg_pod_relist_duration_seconds', 'Duration in seconds for relisting a single pod in PLEG.').zero();
  readonly #lastSeen = alpha('kubelet_pleg_last_seen_seconds', 'Timestamp in seconds when PLEG was last seen active.', 'gauge').zero();
  readonly #discarded = alpha('kubelet_pleg_discard_events', 'The number of discard events in PLEG.').zero();
  readonly #connections = alpha(
    'kubelet_evented_pleg_connection_success_count',
    'The number of times a streaming client was obtained to receive CRI Events.',
  ).zero();
  readonly #connectionErrors = alpha(
    'kubelet_evented_pleg_connection_error_count',
    'The number of errors encountered during the establishment of streaming connection with the CRI runtime.',
  ).zero();
  readonly #latency = alphaHistogram(
    'kubelet_evented_pleg_connection_latency_seconds',
    'The latency of streaming connection with the CRI runtime, measured in seconds.',
  ).zero();
  #beganMs: number | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** A relist ended now and took so long. */
  relisted(tookMs: number): void {
    const beganMs = this.#clock.monoMs() - tookMs;
    if (this.#beganMs !== undefined) this.#interval.observe({}, (beganMs - this.#beganMs) / 1000);
    this.#beganMs = beganMs;
    this.#relist.observe({}, tookMs / 1000);
    this.#lastSeen.set({}, this.#clock.nowMs() / 1000);
  }

  /** One pod was looked at. */
  looked(tookMs: number): void {
    this.#pod.observe({}, tookMs / 1000);
  }

  /** The runtime was asked for its events; `failed`: it gives none. */
  connected(failed: boolean): void {
    (failed ? this.#connectionErrors : this.#connections).add({});
  }

  /** An event came so long after it was made. */
  heard(afterMs: number): void {
    this.#latency.observe({}, afterMs / 1000);
  }

  text(counts: { readonly runningPods: number; readonly containers: Readonly<Record<string, number>> }): string {
    const gauge = (name: string, help: string, samples: Parameters<typeof metricText>[3]): string => metricText(name, 'gauge', `[ALPHA] ${help}`, samples);
    return [
      ...[this.#relist, this.#interval, this.#pod, this.#lastSeen, this.#discarded, this.#connections, this.#connectionErrors, this.#latency].map((each) =>
        each.text(),
      ),
      gauge('kubelet_running_pods', 'Number of pods that have a running pod sandbox', [{ labels: {}, value: counts.runningPods }]),
      gauge(
        'kubelet_running_containers',
        'Number of containers currently running',
        Object.entries(counts.containers).map(([state, value]) => ({ labels: { container_state: state }, value })),
      ),
    ].join('');
  }
}
