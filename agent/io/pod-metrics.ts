import type { Clock } from '../../base/clock.ts';
import { timeMs } from '../../base/time.ts';
import type { ContainerStatus, Pod, PodStatus } from '../../proto/kube/types.ts';
import { keyOf } from '../core/containers.ts';
import { alpha, alphaHistogram } from '../../base/metrics-text.ts';
import { qosClassOf } from '../core/qos.ts';
import { allStarted, isStateful, startLatency, wasUnschedulable, type Stretch } from '../core/start-latency.ts';
import { isStatic } from '../core/static-pod.ts';
import type { ContainerKind } from '../core/types.ts';

export const podStartBuckets = [0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1_200, 1_800, 2_700, 3_600];

const kindLabels: Readonly<Record<ContainerKind, string>> = {
  app: 'container',
  init: 'init_container',
  sidecar: 'init_container',
  ephemeral: 'ephemeral_container',
};

/** What is counted at the scrape: pods as they are wanted, and as they are worked on. */
export interface PodCounts {
  readonly pods: readonly Pod[];
  readonly isActive: (uid: string) => boolean;
  readonly mirrors: number;
  /** Pods that have a worker, whether somebody wants them or only the runtime knows them. */
  readonly workers: readonly { readonly uid: string; readonly phase: 'sync' | 'terminating' | 'terminated'; readonly pod: Pod | undefined }[];
}

interface Starting {
  readonly pulls: Stretch[];
}

/** Metrics of the life of pods and their containers, under upstream's names. */
export class PodMetrics {
  readonly #clock: Clock;
  /** Pods that came new to this process and of which the start was not told yet. */
  readonly #starting = new Map<string, Starting>();
  #networkPodSeen = false;
  readonly #total = alphaHistogram(
    'kubelet_pod_start_total_duration_seconds',
    'Duration in seconds to start a pod since creation, including time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch',
    podStartBuckets,
  );
  readonly #sli = alphaHistogram(
    'kubelet_pod_start_sli_duration_seconds',
    'Duration in seconds to start a pod, excluding time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch',
    podStartBuckets,
  );
  readonly #firstNetwork = alpha(
    'kubelet_first_network_pod_start_sli_duration_seconds',
    'Duration in seconds to start the first network pod, excluding time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch',
    'gauge',
  ).zero();
  readonly #workerStart = alphaHistogram(
    'kubelet_pod_worker_start_duration_seconds',
    'Duration in seconds from kubelet seeing a pod to starting a worker.',
  ).zero();
  readonly #containersPerPod = alphaHistogram('kubelet_containers_per_pod_count', 'The number of containers per pod.', [1, 2, 4, 8, 16]).zero();
  readonly #startedPods = alpha('kubelet_started_pods_total', 'Cumulative number of pods started').zero();
  readonly #startedPodErrors = alpha('kubelet_started_pods_errors_total', 'Cumulative number of errors when starting pods').zero();
  readonly #namespacedPods = alpha(
    'kubelet_started_user_namespaced_pods_total',
    'Cumulative number of pods with user namespaces started. This metric will only be collected on Linux.',
  ).zero();
  readonly #namespacedPodErrors = alpha(
    'kubelet_started_user_namespaced_pods_errors_total',
    'Cumulative number of errors when starting pods with user namespaces. This metric will only be collected on Linux.',
  ).zero();
  readonly #sandbox = alphaHistogram(
    'kubelet_run_podsandbox_duration_seconds',
    'Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.',
  );
  readonly #sandboxErrors = alpha('kubelet_run_podsandbox_errors_total', 'Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler.');
  readonly #startedContainers = alpha('kubelet_started_containers_total', 'Cumulative number of containers started');
  readonly #startedContainerErrors = alpha('kubelet_started_containers_errors_total', 'Cumulative number of errors when starting containers');
  readonly #terminated = alpha('kubelet_terminated_containers_total', 'Cumulative number of container terminations.');
  readonly #orphans = alpha(
    'kubelet_orphaned_runtime_pods_total',
    'Number of pods that have been detected in the container runtime without being already known to the pod worker. This typically indicates the kubelet was restarted while a pod was force deleted in the API or in the local configuration, which is unusual.',
  ).zero();
  readonly #restarted = alpha(
    'kubelet_restarted_pods_total',
    'Number of pods that have been restarted because they were deleted and recreated with the same UID while the kubelet was watching them (common for static pods, extremely uncommon for API pods)',
  )
    .zero({ static: '' })
    .zero({ static: 'true' });
  readonly #admitted = alpha(
    'kubelet_pod_level_resources_admission_total',
    'Total number of pods admitted during Kubelet admission, categorized by resource configuration mode (pod_and_container_level, pod_level, container_level, or empty for unconfigured/BestEffort) and QoS class.',
  );
  readonly #imageVolumes = {
    requested: alpha('kubelet_image_volume_requested_total', 'Number of requested image volumes.').zero(),
    mounted: alpha('kubelet_image_volume_mounted_succeed_total', 'Number of successful image volume mounts.').zero(),
    failed: alpha('kubelet_image_volume_mounted_errors_total', 'Number of failed image volume mounts.').zero(),
  };
  readonly #fallbacks = alpha(
    'kubelet_lifecycle_handler_http_fallbacks_total',
    'The number of times lifecycle handlers successfully fell back to http from https.',
  ).zero();
  readonly #sleeps = alpha(
    'kubelet_sleep_action_terminated_early_total',
    'The number of times lifecycle sleep handler got terminated before it finishes',
  ).zero();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** A pod has come that nothing runs of yet. */
  appeared(pod: Pod): void {
    if (!wasUnschedulable(pod) && !allStarted(pod.status)) this.#starting.set(keyOf(pod).uid, { pulls: [] });
  }

  /** The node has taken the pod, so long after it came. */
  taken(pod: Pod, afterMs: number): void {
    this.#workerStart.observe({}, afterMs / 1000);
    this.#containersPerPod.observe({}, pod.spec.containers.length);
    const has = (resources: Pod['spec']['resources']): boolean =>
      Object.keys(resources?.requests ?? {}).length > 0 || Object.keys(resources?.limits ?? {}).length > 0;
    const ofContainers = [...pod.spec.containers, ...(pod.spec.initContainers ?? [])].some(({ resources }) => has(resources));
    const mode = has(pod.spec.resources) ? (ofContainers ? 'pod_and_container_level' : 'pod_level') : ofContainers ? 'container_level' : '';
    this.#admitted.add({ config_mode: mode, qos_class: qosClassOf(pod).toLowerCase() });
  }

  pulled(uid: string, tookMs: number): void {
    const nowMs = this.#clock.nowMs();
    this.#starting.get(uid)?.pulls.push({ fromMs: nowMs - tookMs, toMs: nowMs });
  }

  /** The API server has told this of the pod. */
  watched(pod: Pod): void {
    const { uid } = keyOf(pod);
    const starting = this.#starting.get(uid);
    if (starting === undefined || !allStarted(pod.status)) return;
    this.#starting.delete(uid);
    if (timeMs(pod.metadata.creationTimestamp) === 0) return;
    const { totalMs, sliMs } = startLatency(pod, starting.pulls, this.#clock.nowMs());
    this.#total.observe({}, totalMs / 1000);
    if (isStateful(pod)) return;
    this.#sli.observe({}, sliMs / 1000);
    if (pod.spec.hostNetwork === true || this.#networkPodSeen) return;
    this.#networkPodSeen = true;
    this.#firstNetwork.set({}, sliMs / 1000);
  }

  gone(uid: string): void {
    this.#starting.delete(uid);
  }

  /** The runtime was asked for a sandbox. */
  sandboxRun(handler: string, tookMs: number, failed: boolean): void {
    this.#sandbox.observe({ runtime_handler: handler }, tookMs / 1000);
    if (failed) this.#sandboxErrors.add({ runtime_handler: handler });
  }

  /** A pod is to get a sandbox. */
  podStarts(pod: Pod): void {
    this.#startedPods.add({});
    if (isNamespaced(pod)) this.#namespacedPods.add({});
  }

  /** It did not get one. */
  podFailed(): void {
    this.#startedPodErrors.add({});
  }

  /**
   * Something failed in the round in which the pod got its sandbox, or was to: what is wrong with a user namespace shows
   * anywhere up to the start of the containers.
   */
  roundFailed(pod: Pod): void {
    if (isNamespaced(pod)) this.#namespacedPodErrors.add({});
  }

  containerStarts(kind: ContainerKind): void {
    this.#startedContainers.add({ container_type: kindLabels[kind] });
  }

  /** `reason`: one of the words that a container waits with. */
  containerFailed(kind: ContainerKind, reason: string): void {
    this.#startedContainerErrors.add({ code: reason, container_type: kindLabels[kind] });
  }

  /** The status that is told of a pod, and what was told before. */
  told(old: PodStatus, next: PodStatus): void {
    const look = (kind: ContainerKind, before: readonly ContainerStatus[] = [], after: readonly ContainerStatus[] = []): void => {
      for (const { name, state } of after) {
        const ended = state?.terminated;
        if (ended === undefined || before.find((each) => each.name === name)?.state?.terminated !== undefined) continue;
        this.#terminated.add({ container_type: kindLabels[kind], exit_code: String(ended.exitCode), reason: ended.reason ?? '' });
      }
    };
    look('init', old.initContainerStatuses, next.initContainerStatuses);
    look('app', old.containerStatuses, next.containerStatuses);
    look('ephemeral', old.ephemeralContainerStatuses, next.ephemeralContainerStatuses);
  }

  /** The runtime has a pod that nobody knows. */
  orphaned(): void {
    this.#orphans.add({});
  }

  /** A pod of the same UID has come back after its end. */
  cameBack(pod: Pod): void {
    this.#restarted.add({ static: isStatic(pod) ? 'true' : '' });
  }

  /** A container has mounts of images. As upstream counts: what failed for another reason than the mount counts as mounted. */
  imageVolumes(volumes: number, mounts: number, failure: { readonly reason: string; readonly message: string } | null): void {
    if (mounts === 0) return;
    this.#imageVolumes.requested.add({}, volumes);
    const failed = failure?.reason === 'CreateContainerError' && failure.message.startsWith('ImageVolumeMountFailed');
    (failed ? this.#imageVolumes.failed : this.#imageVolumes.mounted).add({}, mounts);
  }

  hookFellBack(): void {
    this.#fallbacks.add({});
  }

  sleepCutShort(): void {
    this.#sleeps.add({});
  }

  text(counts: PodCounts): string {
    const all = [
      ...[this.#total, this.#sli, this.#firstNetwork, this.#workerStart, this.#containersPerPod, this.#startedPods, this.#startedPodErrors],
      ...[this.#namespacedPods, this.#namespacedPodErrors, this.#sandbox, this.#sandboxErrors, this.#startedContainers, this.#startedContainerErrors],
      ...[this.#terminated, this.#orphans, this.#restarted, this.#admitted, ...Object.values(this.#imageVolumes), this.#fallbacks, this.#sleeps],
    ];
    return all.map((metric) => metric.text()).join('') + countsText(counts);
  }
}

/** With a user namespace of its own. */
const isNamespaced = ({ spec }: Pod): boolean => spec.hostUsers === false;

function countsText({ pods, isActive, mirrors, workers }: PodCounts): string {
  const active = alpha(
    'kubelet_active_pods',
    'The number of pods the kubelet considers active and which are being considered when admitting new pods. static is true if the pod is not from the apiserver.',
    'gauge',
  );
  const desired = alpha(
    'kubelet_desired_pods',
    'The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.',
    'gauge',
  );
  for (const metric of [active, desired]) metric.zero({ static: '' }).zero({ static: 'true' });
  const ephemeral = alpha('kubelet_managed_ephemeral_containers', 'Current number of ephemeral containers in pods managed by this kubelet.', 'gauge').zero();
  for (const pod of pods) {
    const labels = { static: isStatic(pod) ? 'true' : '' };
    desired.add(labels);
    if (isActive(keyOf(pod).uid)) active.add(labels);
    ephemeral.add({}, pod.spec.ephemeralContainers?.length ?? 0);
  }
  const mirror = alpha('kubelet_mirror_pods', 'The number of mirror pods the kubelet will try to create (one per admitted static pod)', 'gauge');
  mirror.set({}, mirrors);
  return [active, desired, ephemeral, mirror, workingPods(pods, workers)].map((metric) => metric.text()).join('');
}

function workingPods(pods: PodCounts['pods'], workers: PodCounts['workers']): ReturnType<typeof alpha> {
  const working = alpha(
    'kubelet_working_pods',
    'Number of pods the kubelet is actually running, broken down by lifecycle phase, whether the pod is desired, orphaned, or runtime only (also orphaned), and whether the pod is static. An orphaned pod has been removed from local configuration or force deleted in the API and consumes resources that are not otherwise visible.',
    'gauge',
  );
  const wanted = new Set(pods.map((pod) => keyOf(pod).uid));
  for (const lifecycle of ['sync', 'terminating', 'terminated']) {
    for (const config of ['desired', 'orphan']) for (const isFixed of ['', 'true']) working.zero({ config, lifecycle, static: isFixed });
    working.zero({ config: 'runtime_only', lifecycle, static: 'unknown' });
  }
  for (const { uid, phase, pod } of workers) {
    const config = wanted.has(uid) ? 'desired' : pod === undefined ? 'runtime_only' : 'orphan';
    working.add({ config, lifecycle: phase, static: pod === undefined ? 'unknown' : isStatic(pod) ? 'true' : '' });
  }
  return working;
}
