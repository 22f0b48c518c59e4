import type { Clock } from '../../base/clock.ts';
import { watchLoopDelay } from '../../base/loop-delay.ts';
import { alpha, alphaHistogram, Counter, Histogram, metricText, type Labels } from '../../base/metrics-text.ts';
import { processText, startTimeText } from '../../base/process-metrics.ts';
import type { Interceptor } from '../../cri/mod.ts';
import type { RunPodSandboxRequest } from '../../proto/cri/types.ts';
import type { Pods } from '../seams.ts';
import { createCertMetrics, type CertMetrics } from './cert-metrics.ts';
import type { ProbeLabels } from './probes.ts';
import { ImageMetrics } from './image-metrics.ts';
import { PodMetrics, podStartBuckets, type PodCounts } from './pod-metrics.ts';
import { PlegMetrics } from './pleg-metrics.ts';
import { componentText, registeredText } from './component-metrics.ts';
import { ResizeMetrics } from './resize-metrics.ts';
import { ResourceMetrics } from './resource-metrics.ts';
import { StartupMetrics } from './startup-metrics.ts';
import { VolumeMetrics } from './volume-metrics.ts';

/** So many series are written before the loop goes on: about a millisecond. */
const seriesAtOnce = 32;
/** Fifteen steps from 0.1 to 40 s, each as much larger as the one before: upstream's. */
const draBuckets = Array.from({ length: 15 }, (_, step) => 0.1 * 400 ** (step / 14));

export interface MetricsOptions {
  clock: Clock;
  nodeName: string;
  cgroupVersion: () => 1 | 2;
  /** Bytes that pods' cgroups protect; left out: nothing is. */
  memoryQos?: () => { readonly minBytes: bigint; readonly lowBytes: bigint };
  /** What is counted at the scrape. */
  counts: () => { runningPods: number; containers: Readonly<Record<string, number>>; pods: PodCounts; eventsDropped: number };
  /** For how long the machine runs; null: not known. */
  upMs: number | null;
  featureGates: Readonly<Record<string, boolean>>;
}

/** The agent's own metrics, under the kubelet's names; what upstream has no name for begins with nodelet_. */
export class AgentMetrics implements Disposable {
  readonly #options: MetricsOptions;
  readonly #loop = watchLoopDelay();
  readonly #startedSeconds: number;
  readonly #worker = new Histogram(
    'kubelet_pod_worker_duration_seconds',
    '[ALPHA] Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync',
  );
  readonly #podStart = new Histogram(
    'kubelet_pod_start_duration_seconds',
    '[ALPHA] Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run',
    podStartBuckets,
  ).zero();
  readonly #status = new Histogram(
    'kubelet_pod_status_sync_duration_seconds',
    '[ALPHA] Duration in seconds to sync a pod status update. Measures time from detection of a change to pod status until the API is successfully updated for that pod, even if multiple intevening changes to pod status occur.',
    [0.01, 0.05, 0.1, 0.5, 1, 5, 10, 20, 30, 45, 60],
  ).zero();
  readonly #operations = new Counter('kubelet_runtime_operations_total', '[ALPHA] Cumulative number of runtime operations by operation type.');
  readonly #operationErrors = new Counter(
    'kubelet_runtime_operations_errors_total',
    '[ALPHA] Cumulative number of runtime operation errors by operation type.',
  );
  readonly #operationDuration = new Histogram(
    'kubelet_runtime_operations_duration_seconds',
    '[ALPHA] Duration in seconds of runtime operations. Broken down by operation type.',
    [
      0.005, 0.0125, 0.03125, 0.078125, 0.1953125, 0.48828125, 1.220703125, 3.0517578125, 7.62939453125, 19.073486328125, 47.6837158203125, 119.20928955078125,
      298.0232238769531, 745.0580596923828,
    ],
  );
  readonly #evictions = new Counter('kubelet_evictions', '[ALPHA] Cumulative number of pod evictions by eviction signal');
  readonly #evictionAge = new Histogram(
    'kubelet_eviction_stats_age_seconds',
    '[ALPHA] Time between when stats are collected, and when pod is evicted based on those stats by eviction signal',
  );
  readonly #rejections = new Counter('kubelet_admission_rejections_total', '[ALPHA] Cumulative number pod admission rejections by the Kubelet.');
  readonly #preemptions = new Counter('kubelet_preemptions', '[ALPHA] Cumulative number of pod preemptions by preemption resource');
  readonly #cgroups = alphaHistogram('kubelet_cgroup_manager_duration_seconds', 'Duration in seconds for cgroup manager operations. Broken down by method.');
  readonly #losing = alpha(
    'kubelet_cri_losing_support',
    'the Kubernetes version that the currently running CRI implementation will lose support on if not upgraded.',
    'gauge',
  );
  readonly #csi = new Histogram(
    'csi_operations_seconds',
    '[ALPHA] Container Storage Interface operation duration with gRPC error code status total',
    [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600],
  );
  readonly #draCalls = new Histogram('dra_grpc_operations_duration_seconds', '[ALPHA] Duration in seconds of the DRA gRPC operations', draBuckets);
  readonly #draRounds = new Histogram(
    'dra_operations_duration_seconds',
    "[ALPHA] Latency histogram in seconds for the duration of handling all ResourceClaims referenced by a pod when the pod starts or stops. Identified by the name of the operation (PrepareResources or UnprepareResources) and separated by the success of the operation. The number of failed operations is provided through the histogram's overall count.",
    draBuckets,
  );
  readonly #probes = new Counter('prober_probe_total', '[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.');
  readonly #probeDuration = new Histogram('prober_probe_duration_seconds', '[ALPHA] Duration in seconds for a probe response.');
  readonly #shutdownStart = new Counter(
    'kubelet_graceful_shutdown_start_time_seconds',
    '[ALPHA] Last graceful shutdown start time since unix epoch in seconds',
    'gauge',
  );
  readonly #shutdownEnd = new Counter(
    'kubelet_graceful_shutdown_end_time_seconds',
    '[ALPHA] Last graceful shutdown end time since unix epoch in seconds',
    'gauge',
  );
  readonly certificates: CertMetrics;
  readonly resources = new ResourceMetrics();
  readonly lives: PodMetrics;
  readonly images = new ImageMetrics();
  readonly pleg: PlegMetrics;
  readonly resizes = new ResizeMetrics();
  readonly volumes = new VolumeMetrics();
  readonly startup: StartupMetrics;
  /** What others tell at each scrape. */
  readonly also: (() => string)[] = [];

  constructor(options: MetricsOptions) {
    this.certificates = createCertMetrics(options.clock);
    this.lives = new PodMetrics(options.clock);
    this.pleg = new PlegMetrics(options.clock);
    this.startup = new StartupMetrics(options.clock, options.upMs);
    this.#options = options;
    this.shutdown({ startMs: null, endMs: null });
    this.#startedSeconds = options.clock.nowMs() / 1000;
  }

  podWorked(operation: 'create' | 'update' | 'sync' | 'terminated', tookMs: number): void {
    this.#worker.observe({ operation_type: operation }, tookMs / 1000);
  }

  /** `afterMs`: from the first sight of the pod until it runs. */
  podStarted(afterMs: number): void {
    this.#podStart.observe({}, afterMs / 1000);
  }

  /** `reason`: one of few. */
  rejected(reason: string): void {
    this.#rejections.add({ reason });
  }

  evicted(signal: string): void {
    this.#evictions.add({ eviction_signal: signal });
  }

  /** `ageMs`: of what the eviction was decided by. */
  evictedAfter(signal: string, ageMs: number): void {
    this.#evictionAge.observe({ eviction_signal: signal }, ageMs / 1000);
  }

  preempted(resource: string): void {
    this.#preemptions.add({ preemption_signal: resource });
  }

  /** A call to a DRA driver. */
  draCalled(driver: string, method: string, status: string, tookMs: number): void {
    this.#draCalls.observe({ driver_name: driver, grpc_status_code: status, method_name: method }, tookMs / 1000);
  }

  /** All claims of a pod were prepared or taken back, or failed to be. */
  draDone(operation: string, failed: boolean, tookMs: number): void {
    this.#draRounds.observe({ is_error: String(failed), operation_name: operation }, tookMs / 1000);
  }

  /** Something was done to the cgroup of a pod, or to that of a class of pods. */
  cgroupDone(operation: 'create' | 'update' | 'destroy', tookMs: number): void {
    this.#cgroups.observe({ operation_type: operation }, tookMs / 1000);
  }

  /** The runtime lacks what kubelets from this version of Kubernetes on need. */
  losingSupport(version: string): void {
    this.#losing.set({ version }, 1);
  }

  /** A call to a CSI driver; `method` with its service: `/csi.v1.Node/NodePublishVolume`. */
  csiCalled(driver: string, method: string, status: string, tookMs: number): void {
    this.#csi.observe({ driver_name: driver, grpc_status_code: status, method_name: method, migrated: 'false' }, tookMs / 1000);
  }

  statusWritten(tookMs: number): void {
    this.#status.observe({}, tookMs / 1000);
  }

  /** When the last shutdown of the node began and ended, wall clock; null is 0. */
  shutdown({ startMs, endMs }: { readonly startMs: number | null; readonly endMs: number | null }): void {
    this.#shutdownStart.set({}, Math.trunc((startMs ?? 0) / 1000));
    this.#shutdownEnd.set({}, Math.trunc((endMs ?? 0) / 1000));
  }

  /** A CRI call; `operation` in the kubelet's form: `list_containers`. */
  runtimeCalled(operation: string, tookMs: number, failed: boolean): void {
    const labels = { operation_type: operation };
    this.#operations.add(labels);
    if (failed) this.#operationErrors.add(labels);
    this.#operationDuration.observe(labels, tookMs / 1000);
  }

  probed(labels: ProbeLabels, result: 'successful' | 'failed' | 'unknown', tookMs: number): void {
    this.#probes.add({ ...seriesOf(labels), result });
    if (result !== 'failed') this.#probeDuration.observe(durationSeriesOf(labels), tookMs / 1000);
  }

  probeGone(labels: ProbeLabels): void {
    for (const result of ['successful', 'failed', 'unknown']) this.#probes.remove({ ...seriesOf(labels), result });
    this.#probeDuration.remove(durationSeriesOf(labels));
  }

  /** /metrics. */
  async text(): Promise<string> {
    const { nodeName, cgroupVersion, memoryQos } = this.#options;
    const counts = this.#options.counts();
    const gauge = (name: string, help: string, rows: readonly (readonly [Labels, number])[]): string =>
      metricText(
        name,
        'gauge',
        help,
        rows.map(([labels, value]) => ({ labels, value })),
      );
    const page = [
      gauge('kubelet_node_name', "[ALPHA] The node's name. The count is always 1.", [[{ node: nodeName }, 1]]),
      gauge(
        'kubelet_memory_qos_node_memory_min_bytes',
        '[ALPHA] Total cgroup v2 memory.min in bytes for Guaranteed pods. This memory is hard-reserved and never reclaimed by the kernel.',
        [[{}, Number(memoryQos?.().minBytes ?? 0n)]],
      ),
      gauge(
        'kubelet_memory_qos_node_memory_low_bytes',
        '[ALPHA] Total cgroup v2 memory.low in bytes for Burstable pods. This memory is soft-reserved and may be reclaimed under extreme pressure.',
        [[{}, Number(memoryQos?.().lowBytes ?? 0n)]],
      ),
      gauge('kubelet_cgroup_version', '[ALPHA] cgroup version on the hosts.', [[{}, cgroupVersion()]]),
      this.pleg.text(counts),
      this.lives.text(counts.pods),
      this.images.text(),
      this.startup.text(),
      ...[
        this.#worker,
        this.#podStart,
        this.#status,
        this.#operations,
        this.#operationErrors,
        this.#operationDuration,
        this.#cgroups,
        this.#losing,
        this.#csi,
        this.#draCalls,
        this.#draRounds,
        this.#shutdownStart,
        this.#shutdownEnd,
        this.#evictions,
        this.#evictionAge,
        this.#preemptions,
        this.#rejections,
      ].map((metric) => metric.text()),
      this.certificates.text(),
      this.resources.text(),
      metricText('nodelet_events_dropped_total', 'counter', 'Events that were not written: over the budget of their object, a full queue, or refused.', [
        { labels: {}, value: counts.eventsDropped },
      ]),
      ...this.also.map((text) => text()),
      this.#loop.text(),
      componentText(this.#options.featureGates),
      await processText(this.#startedSeconds),
    ].join('');
    return page + registeredText(page);
  }

  /** /metrics/probes. */
  async probesText(): Promise<string> {
    let page = this.#probes.text();
    let count = 0;
    for (const part of this.#probeDuration.parts()) {
      page += part;
      // A megabyte on a full node: pods go on meanwhile.
      if (++count % seriesAtOnce === 0) await new Promise(setImmediate);
    }
    return page + this.startText();
  }

  /** What is on every page that is made apart from /metrics. */
  startText(): string {
    return startTimeText(this.#startedSeconds);
  }

  [Symbol.dispose](): void {
    this.#loop[Symbol.dispose]();
  }
}

/** What /metrics tells of pods: of the last listing of the runtime, and of what is wanted. */
export function countsOf(
  pods: Pick<Pods, 'allFacts' | 'list'> & { working(): PodCounts['workers']; holdsResources(uid: string): boolean },
  mirrors: number,
  eventsDropped: number,
): ReturnType<MetricsOptions['counts']> {
  const containers: Record<string, number> = {};
  let runningPods = 0;
  for (const facts of pods.allFacts()) {
    if (facts.sandboxes.some(({ ready }) => ready)) runningPods++;
    for (const { state } of facts.containers) containers[state] = (containers[state] ?? 0) + 1;
  }
  const isActive = (uid: string): boolean => pods.holdsResources(uid);
  return { runningPods, containers, pods: { pods: pods.list(), isActive, mirrors, workers: pods.working() }, eventsDropped };
}

/** Counts every call to the runtime, under the kubelet's names: RunPodSandbox is run_podsandbox. */
export function countCalls(clock: Clock, metrics: Pick<AgentMetrics, 'runtimeCalled' | 'lives'>): Interceptor {
  return {
    async call(call, options, next) {
      const operation = call.method
        .replaceAll(/(?<=[a-z])(?=[A-Z])/g, '_')
        .toLowerCase()
        .replace('pod_sandbox', 'podsandbox');
      const beganMs = clock.monoMs();
      let failed = true;
      try {
        const answer = await next(call, options);
        failed = false;
        return answer;
      } finally {
        const tookMs = clock.monoMs() - beganMs;
        metrics.runtimeCalled(operation, tookMs, failed);
        if (call.method === 'RunPodSandbox') {
          const { runtimeHandler = '' } = call.request as Partial<RunPodSandboxRequest>;
          metrics.lives.sandboxRun(runtimeHandler, tookMs, failed);
        }
      }
    },
  };
}

function seriesOf({ kind, container, pod, namespace, uid }: ProbeLabels): Record<string, string> {
  return { container, namespace, pod, pod_uid: uid, probe_type: titleOf(kind) };
}

function durationSeriesOf({ kind, container, pod, namespace }: ProbeLabels): Record<string, string> {
  return { container, namespace, pod, probe_type: titleOf(kind) };
}

const titleOf = (kind: string): string => kind.charAt(0).toUpperCase() + kind.slice(1);
