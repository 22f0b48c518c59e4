import { Counter, Histogram } from '../../base/metrics-text.ts';

const scope = (name: string, help: string): Counter => new Counter(name, `[ALPHA] ${help}`);

const exponential = Array.from({ length: 15 }, (_, step) => 0.05 * 2 ** step);

/** Metrics of devices, exclusive CPUs, pinned memory, NUMA admission and the sockets that tell of them, under upstream's names. */
export class ResourceMetrics {
  readonly registrations = scope('kubelet_device_plugin_registration_total', 'Cumulative number of device plugin registrations. Broken down by resource name.');
  readonly allocations = new Histogram(
    'kubelet_device_plugin_alloc_duration_seconds',
    '[ALPHA] Duration in seconds to serve a device plugin Allocation request. Broken down by resource name.',
  );
  readonly cpuRequests = scope('kubelet_cpu_manager_pinning_requests_total', 'The number of cpu core allocations which required pinning.').zero();
  readonly cpuErrors = scope('kubelet_cpu_manager_pinning_errors_total', 'The number of cpu core allocations which required pinning failed.').zero();
  readonly sharedPool = new Counter(
    'kubelet_cpu_manager_shared_pool_size_millicores',
    '[ALPHA] The size of the shared CPU pool for non-guaranteed QoS pods, in millicores.',
    'gauge',
  ).zero();
  readonly exclusive = new Counter(
    'kubelet_cpu_manager_exclusive_cpu_allocation_count',
    '[ALPHA] The total number of CPUs exclusively allocated to containers running on this node',
    'gauge',
  ).zero();
  readonly perNuma = new Counter('kubelet_cpu_manager_allocation_per_numa', '[ALPHA] Number of CPUs allocated per NUMA node', 'gauge');
  readonly memoryRequests = scope('kubelet_memory_manager_pinning_requests_total', 'The number of memory pages allocations which required pinning.').zero();
  readonly memoryErrors = scope(
    'kubelet_memory_manager_pinning_errors_total',
    'The number of memory pages allocations which required pinning that failed.',
  ).zero();
  readonly admissions = scope(
    'kubelet_topology_manager_admission_requests_total',
    'The number of admission requests where resources have to be aligned.',
  ).zero();
  readonly admissionErrors = scope(
    'kubelet_topology_manager_admission_errors_total',
    'The number of admission request failures where resources could not be aligned.',
  ).zero();
  readonly admissionMs = new Histogram(
    'kubelet_topology_manager_admission_duration_ms',
    '[ALPHA] Duration in milliseconds to serve a pod admission request.',
    exponential,
  ).zero();
  readonly aligned = scope(
    'kubelet_container_aligned_compute_resources_count',
    'Cumulative number of aligned compute resources allocated to containers by alignment type.',
  );
  readonly alignedErrors = scope(
    'kubelet_container_aligned_compute_resources_failure_count',
    'Cumulative number of failures to allocate aligned compute resources to containers by alignment type.',
  );
  /** These three only where pods own resources as a whole. */
  readonly managerAllocations = scope(
    'kubelet_resource_manager_allocations_total',
    'Number of exclusive resource allocations performed by a resource manager.',
  );
  readonly managerErrors = scope('kubelet_resource_manager_allocation_errors_total', 'Number of errors encountered during exclusive resource allocation.');
  readonly managerAssignments = scope(
    'kubelet_resource_manager_container_assignments_total',
    'Number of containers with a specific type of resource assignment.',
  );
  readonly podResources = scope(
    'kubelet_pod_resources_endpoint_requests_total',
    'Cumulative number of requests to the PodResource endpoint. Broken down by server api version.',
  );
  readonly podResourcesList = scope(
    'kubelet_pod_resources_endpoint_requests_list',
    'Number of requests to the PodResource List endpoint. Broken down by server api version.',
  );
  readonly podResourcesAllocatable = scope(
    'kubelet_pod_resources_endpoint_requests_get_allocatable',
    'Number of requests to the PodResource GetAllocatableResources endpoint. Broken down by server api version.',
  );
  readonly podResourcesGet = scope(
    'kubelet_pod_resources_endpoint_requests_get',
    'Number of requests to the PodResource Get endpoint. Broken down by server api version.',
  );
  readonly podResourcesGetErrors = scope(
    'kubelet_pod_resources_endpoint_errors_get',
    'Number of requests to the PodResource Get endpoint which returned error. Broken down by server api version.',
  );
  readonly podRequests = scope(
    'kubelet_pod_requests_total',
    'Cumulative number of requests to the PodsAPI endpoint. Broken down by server api version and status code.',
  );
  readonly podRequestsBy = {
    ListPods: scope('kubelet_pod_requests_list_total', 'Number of requests to the PodsAPI List endpoint. Broken down by server api version and status code.'),
    GetPod: scope('kubelet_pod_requests_get_total', 'Number of requests to the PodsAPI Get endpoint. Broken down by server api version and status code.'),
    WatchPods: scope(
      'kubelet_pod_requests_watch_total',
      'Number of requests to the PodsAPI Watch endpoint. Broken down by server api version and status code.',
    ),
  };

  /** A watcher is told of what has changed since it was told last: nothing waits for it, and nothing is dropped. */
  readonly podWatchDropped = scope('kubelet_pod_watch_events_dropped_total', 'Cumulative number of pod watch events dropped.').zero();

  text(): string {
    const { podRequestsBy, ...own } = this;
    return [...Object.values(own), ...Object.values(podRequestsBy)].map((metric) => metric.text()).join('');
  }
}
