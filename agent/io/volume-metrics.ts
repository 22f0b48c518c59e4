import { alpha, Histogram, metricText } from '../../base/metrics-text.ts';
import type { Pod, Volume } from '../../proto/kube/types.ts';

/** What upstream calls the plugin of a volume; '' for what it has none for. */
export function pluginName(volume: Volume | undefined): string {
  if (volume === undefined) return '';
  const names = {
    emptyDir: 'empty-dir',
    configMap: 'configmap',
    secret: 'secret',
    projected: 'projected',
    downwardAPI: 'downward-api',
    hostPath: 'host-path',
    nfs: 'nfs',
    image: 'image',
  } as const;
  if (volume.csi !== undefined) return `kubernetes.io/csi:${volume.csi.driver}`;
  for (const [source, name] of Object.entries(names)) if (volume[source as keyof typeof names] !== undefined) return `kubernetes.io/${name}`;
  return '';
}

/** The plugin of a pod's volume by its name. */
export function pluginOf(pod: Pod, name: string): string {
  return pluginName(pod.spec.volumes?.find((volume) => volume.name === name)) || 'N/A';
}

export interface VolumeCounts {
  /** Plugin names of volumes that pods want, and of those that are set up. */
  readonly wanted: readonly string[];
  readonly mounted: readonly string[];
  /** Sockets of plugins that are there, and of those that are registered. */
  readonly sockets: readonly string[];
  readonly registered: readonly string[];
}

/** Metrics of volumes and of plugins that register by a socket, under upstream's names. */
export class VolumeMetrics {
  readonly #operations = new Histogram(
    'storage_operation_duration_seconds',
    '[BETA] Storage operation duration',
    [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600],
  );
  readonly #whole = new Histogram(
    'volume_operation_total_seconds',
    '[BETA] Storage operation end to end duration in seconds',
    [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600],
  );
  readonly #found = alpha(
    'reconstruct_volume_operations_total',
    'The number of volumes that were attempted to be reconstructed from the operating system during kubelet startup. This includes both successful and failed reconstruction.',
  ).zero();
  readonly #notFound = alpha(
    'reconstruct_volume_operations_errors_total',
    'The number of volumes that failed reconstruction from the operating system during kubelet startup.',
  ).zero();
  readonly #forced = alpha(
    'force_cleaned_failed_volume_operations_total',
    'The number of volumes that were force cleaned after their reconstruction failed during kubelet startup. This includes both successful and failed cleanups.',
  ).zero();
  readonly #forcedErrors = alpha(
    'force_cleaned_failed_volume_operation_errors_total',
    'The number of volumes that failed force cleanup after their reconstruction failed during kubelet startup.',
  ).zero();
  readonly #cleaned = alpha(
    'kubelet_orphan_pod_cleaned_volumes',
    'The total number of orphaned Pods whose volumes were cleaned in the last periodic sweep.',
    'gauge',
  ).zero();
  readonly #notCleaned = alpha(
    'kubelet_orphan_pod_cleaned_volumes_errors',
    'The number of orphaned Pods whose volumes failed to be cleaned in the last periodic sweep.',
    'gauge',
  ).zero();

  done(plugin: string, operation: 'volume_mount' | 'volume_unmount', tookMs: number, failed: boolean): void {
    const labels = { migrated: 'false', operation_name: operation, status: failed ? 'fail-unknown' : 'success', volume_plugin: plugin };
    this.#operations.observe(labels, tookMs / 1000);
  }

  /** A volume is there, so long after it was wanted first. */
  mounted(plugin: string, afterMs: number): void {
    this.#whole.observe({ operation_name: 'overall_volume_mount', plugin_name: plugin }, afterMs / 1000);
  }

  /** Volumes of a pod that an earlier process set up were looked for on disk. */
  reconstructed(volumes: number, failed: boolean): void {
    this.#found.add({}, volumes);
    if (failed) this.#notFound.add({}, volumes);
  }

  /** What pods that nobody knows left was taken away: of so many, of so many not. */
  swept(cleaned: number, failed: number): void {
    this.#cleaned.set({}, cleaned);
    this.#notCleaned.set({}, failed);
  }

  text({ wanted, mounted, sockets, registered }: VolumeCounts): string {
    const all = [this.#operations, this.#whole, this.#found, this.#notFound, this.#forced, this.#forcedErrors, this.#cleaned, this.#notCleaned];
    return [
      ...all.map((metric) => metric.text()),
      statesText('volume_manager_total_volumes', '[ALPHA] Number of volumes in Volume Manager', 'plugin_name', wanted, mounted),
      statesText('plugin_manager_total_plugins', '[ALPHA] Number of plugins in Plugin Manager', 'socket_path', sockets, registered),
    ].join('');
  }
}

/** How often each name is wanted, and how often it is there. */
function statesText(name: string, help: string, label: string, desired: readonly string[], actual: readonly string[]): string {
  const samples = (state: string, names: readonly string[]) =>
    [...new Set(names)].map((each) => ({ labels: { [label]: each, state }, value: names.filter((other) => other === each).length }));
  return metricText(name, 'gauge', help, [...samples('actual_state_of_world', actual), ...samples('desired_state_of_world', desired)]);
}
