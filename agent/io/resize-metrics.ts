import { alpha, alphaHistogram } from '../../base/metrics-text.ts';
import type { ResizeConditions } from '../core/resize/conditions.ts';
import { priorityBucket, resizeOperations } from '../core/resize/operations.ts';
import type { Pod } from '../../proto/kube/types.ts';

const buckets =
  "Label 'priority_bucket' classifies the pod priority (system-critical: >=2000000000, high: 100000..1999999999, medium: 1..99999, normal: 0/default, low: -999..-1, very-low: <=-1000, unknown: nil pod).";

/** Why waiting resizes are tried again. */
export type ResizeTrigger = 'periodic_retry' | 'pod_resized' | 'pod_updated' | 'pod_terminated';

/** Metrics of pods whose size is changed while they run, under upstream's names. */
export class ResizeMetrics {
  readonly #requested = alpha(
    'kubelet_container_requested_resizes_total',
    "Number of requested resizes, counted at the container level. Different resources on the same container are counted separately. The 'requirement' label refers to 'memory' or 'limits'; the 'operation' label can be one of 'add', 'remove', 'increase' or 'decrease'.",
  );
  readonly #duration = alphaHistogram(
    'kubelet_pod_resize_duration_milliseconds',
    'Duration in milliseconds to actuate a pod resize',
    [10, 50, 100, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000],
  );
  readonly #infeasible = alpha('kubelet_pod_infeasible_resizes_total', 'Number of infeasible resizes for pods.');
  readonly #accepted = alpha('kubelet_pod_deferred_accepted_resizes_total', 'Cumulative number of resizes that were accepted after being deferred.');
  readonly #deferred = alphaHistogram(
    'kubelet_pod_deferred_resize_duration_seconds',
    `Duration in seconds that a pod resize remains deferred before completion. ${buckets} Label 'resolution' describes how the deferred resize was resolved (accepted, reverted, terminated).`,
    [5, 10, 15, 20, 30, 45, 60, 90, 120, 150, 180, 300, 600, 1_200, 1_800, 3_600],
  );

  /** The spec of a pod has changed. */
  requested(old: Pod, next: Pod): void {
    for (const { resource, requirement, operation } of resizeOperations(old, next)) this.#requested.add({ operation, requirement, resource });
  }

  actuated(tookMs: number, failed: boolean): void {
    this.#duration.observe({ success: String(!failed) }, tookMs);
  }

  /** `detail`: one of few. */
  infeasible(detail: string): void {
    this.#infeasible.add({ reason_detail: detail });
  }

  accepted(trigger: ResizeTrigger): void {
    this.#accepted.add({ retry_trigger: trigger });
  }

  /** A resize was deferred for so long; undefined: the pod is gone. */
  resolved(pod: Pod | undefined, resolution: 'accepted' | 'reverted' | 'terminated', afterMs: number): void {
    this.#deferred.observe({ priority_bucket: priorityBucket(pod), resolution }, afterMs / 1000);
  }

  text(conditions: Iterable<readonly [Pod | undefined, ResizeConditions]>): string {
    const pending = alpha(
      'kubelet_pod_pending_resizes',
      `Number of pending resizes for pods. ${buckets} Label 'reason' describes the state (deferred, infeasible).`,
      'gauge',
    );
    const inProgress = alpha('kubelet_pod_in_progress_resizes', 'Number of in-progress resizes for pods.', 'gauge').zero();
    for (const [pod, { pending: waits, inProgress: runs }] of conditions) {
      if (waits !== null) pending.add({ priority_bucket: priorityBucket(pod), reason: waits.reason.toLowerCase() });
      if (runs !== null) inProgress.add({});
    }
    return [this.#requested, this.#duration, this.#infeasible, this.#accepted, this.#deferred, pending, inProgress].map((metric) => metric.text()).join('');
  }
}
