import { callDetail } from './call-detail.ts';
import { CHANGES } from './changes.ts';
import { Histogram } from './histogram.ts';
import type { PodCall, PodLife } from './pod-calls.ts';
import { hasFailed, type CallKind, kindOf } from './timeline.ts';

/** A call as a report tells it. */
export interface ReportCall {
  readonly method: string;
  readonly service: string;
  /** `name#attempt`; empty when it is about no container. */
  readonly container: string;
  /** Of the sandbox; null when it is unknown. */
  readonly attempt: number | null;
  readonly other: string;
  readonly startMs: number;
  readonly endMs: number | null;
  readonly outcome: string;
  readonly message: string;
  /** What it is for: an image, a command. */
  readonly detail: string;
}

export interface ReportPod {
  /** Null for calls about the node as a whole. */
  readonly pod: PodLife | null;
  /** In the order in which they began. */
  readonly calls: ReportCall[];
  readonly failed: number;
}

export interface MethodRow {
  readonly method: string;
  readonly kind: CallKind;
  readonly calls: number;
  readonly failed: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly longestMs: number;
  readonly totalMs: number;
}

/** Failures that say the same, but for ids. */
export interface FailureRow {
  readonly method: string;
  readonly outcome: string;
  /** Of the first, whole. */
  readonly message: string;
  readonly count: number;
  /** Of the first. */
  readonly pod: string;
  readonly container: string;
  readonly startMs: number;
}

/** More calls are counted, and not told one by one. */
const MAX_CALLS = 1_000_000;
const MAX_FAILURES = 10_000;

const IDS = /\b[0-9a-f]{12,64}\b/g;

/** Streams last until somebody ends them: how long says nothing. */
export function isWatch(method: string): boolean {
  return kindOf(method) === 'watch';
}

/** Whether it only looks, so that many of it are told as one. */
export function isLook(method: string): boolean {
  return !CHANGES.has(method);
}

/** Gathers what a report tells of a recording. */
export class ReportCalls {
  readonly #pods = new Map<PodLife | null, { pod: PodLife | null; calls: ReportCall[]; failed: number }>();
  readonly #methods = new Map<string, { calls: number; failed: number; durations: Histogram }>();
  readonly #failures = new Map<string, FailureRow & { count: number }>();
  calls = 0;
  failed = 0;
  firstMs = Infinity;
  lastMs = -Infinity;
  /** Calls that are counted but not told one by one. */
  left = 0;

  take(call: PodCall): void {
    this.calls += 1;
    this.firstMs = Math.min(this.firstMs, call.startMs);
    this.lastMs = Math.max(this.lastMs, call.endMs ?? call.startMs);
    const failed = hasFailed(call.outcome);
    let method = this.#methods.get(call.method);
    if (method === undefined) this.#methods.set(call.method, (method = { calls: 0, failed: 0, durations: new Histogram() }));
    method.calls += 1;
    if (call.endMs !== null && !isWatch(call.method)) method.durations.add(call.endMs - call.startMs);
    let pod = this.#pods.get(call.pod);
    if (pod === undefined) this.#pods.set(call.pod, (pod = { pod: call.pod, calls: [], failed: 0 }));
    if (failed) {
      this.failed += 1;
      method.failed += 1;
      pod.failed += 1;
      this.#fail(call);
    }
    if (this.calls > MAX_CALLS) {
      this.left += 1;
      return;
    }
    const { service, container, sandboxAttempt, other, startMs, endMs, outcome, message } = call;
    const detail = callDetail(call.method, call.request);
    pod.calls.push({ method: call.method, service, container, attempt: sandboxAttempt, other, startMs, endMs, outcome, message, detail });
  }

  #fail({ method, outcome, message, pod, container, startMs }: PodCall): void {
    const key = `${method} ${outcome} ${message.replaceAll(IDS, '<id>')}`;
    const known = this.#failures.get(key);
    if (known !== undefined) known.count += 1;
    else if (this.#failures.size < MAX_FAILURES) this.#failures.set(key, { method, outcome, message, count: 1, pod: pod?.key ?? '', container, startMs });
  }

  /** The node, then pods in the order of their first calls. */
  get pods(): readonly ReportPod[] {
    const found = [...this.#pods.values()];
    for (const { calls } of found) calls.sort((a, b) => a.startMs - b.startMs);
    const startOf = ({ pod, calls }: ReportPod): number => (pod === null ? -Infinity : (calls[0]?.startMs ?? Infinity));
    return found.sort((a, b) => startOf(a) - startOf(b));
  }

  /** By the time they took together, most first. */
  get methods(): readonly MethodRow[] {
    const rows = [...this.#methods].map(([method, { calls, failed, durations }]): MethodRow => {
      const [p50Ms, p99Ms] = [durations.quantile(0.5), durations.quantile(0.99)];
      return { method, kind: kindOf(method), calls, failed, p50Ms, p99Ms, longestMs: durations.maxMs, totalMs: durations.sumMs };
    });
    return rows.sort((a, b) => b.totalMs - a.totalMs || (a.method < b.method ? -1 : 1));
  }

  /** In the order of the first of each. */
  get failures(): readonly FailureRow[] {
    return [...this.#failures.values()].sort((a, b) => a.startMs - b.startMs);
  }
}

/** From a pod's first call to the end of the last first start of its containers; null when it never came that far. */
export function startedInMs({ calls }: ReportPod): number | null {
  const [first] = calls;
  if (first === undefined || first.method !== 'RunPodSandbox') return null;
  let last: number | null = null;
  for (const { method, container, endMs, outcome } of calls)
    if (method === 'StartContainer' && outcome === 'OK' && container.endsWith('#0') && endMs !== null) last = Math.max(last ?? 0, endMs);
  return last === null ? null : last - first.startMs;
}
