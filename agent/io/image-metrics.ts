import { alpha, alphaHistogram } from '../../base/metrics-text.ts';

const mebibyte = 1024 * 1024;
const gibibyte = 1024 * mebibyte;

/** Upstream's sizes of images: from so many bytes on, the name. */
const sizes: readonly (readonly [number, string])[] = [
  [100 * gibibyte, 'GT100GB'],
  [60 * gibibyte, '60GB-100GB'],
  [40 * gibibyte, '40GB-60GB'],
  [30 * gibibyte, '30GB-40GB'],
  [20 * gibibyte, '20GB-30GB'],
  [10 * gibibyte, '10GB-20GB'],
  [5 * gibibyte, '5GB-10GB'],
  [gibibyte, '1GB-5GB'],
  [500 * mebibyte, '500MB-1GB'],
  [100 * mebibyte, '100MB-500MB'],
  [10 * mebibyte, '10MB-100MB'],
  [0, '0-10MB'],
];

export function imageSizeName(bytes: number): string {
  return sizes.find(([from]) => bytes >= from)?.[1] ?? 'N/A';
}

/** What came of the question whether an image that is here must be asked for with the pod's own credentials. */
export type PullCheck = 'credentialPolicyAllowed' | 'credentialRecordFound' | 'mustAuthenticate' | 'error';

/** Metrics of images: pulled, there already, remembered, taken away; and of the programs that know credentials. */
export class ImageMetrics {
  readonly #pulls = alphaHistogram(
    'kubelet_image_pull_duration_seconds',
    'Duration in seconds to pull an image.',
    [1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1_200, 1_800, 2_700, 3_600],
  );
  readonly #ensured = alpha('kubelet_image_manager_ensure_image_requests_total', 'Number of ensure-image requests processed by the kubelet.');
  readonly #checks = alpha(
    'kubelet_imagemanager_image_mustpull_checks_total',
    'Counter for how many times kubelet checked whether credentials need to be re-verified to access an image',
  );
  readonly #intents = alpha('kubelet_imagemanager_ondisk_pullintents', 'Number of ImagePullIntents stored on disk.', 'gauge').zero();
  readonly #records = alpha('kubelet_imagemanager_ondisk_pulledrecords', 'Number of ImagePulledRecords stored on disk.', 'gauge').zero();
  /** Records are read from disk each time: no memory is kept for them. */
  readonly #inMemory = ['PullIntents', 'PulledRecords'].map((what) =>
    alpha(`kubelet_imagemanager_inmemory_${what.toLowerCase()}_usage_percent`, `The Image${what} in-memory cache usage in percent.`, 'gauge').zero(),
  );
  readonly #collected = alpha(
    'kubelet_image_garbage_collected_total',
    'Total number of images garbage collected by the kubelet, whether through disk usage or image age.',
  );
  readonly #programErrors = alpha('kubelet_credential_provider_plugin_errors_total', 'Number of errors from credential provider plugin');
  readonly #programs = alphaHistogram('kubelet_credential_provider_plugin_duration', 'Duration of execution in seconds for credential provider plugin');

  /** `tookMs` with the wait for its turn. */
  pulled(sizeBytes: number, tookMs: number): void {
    this.#pulls.observe({ image_size_in_bytes: imageSizeName(sizeBytes) }, tookMs / 1000);
  }

  /** A container's image was seen to; null: nobody asked. */
  ensured(policy: string, present: boolean | null, pull: boolean | null): void {
    const word = (answer: boolean | null): string => (answer === null ? 'unknown' : String(answer));
    this.#ensured.add({ present_locally: word(present), pull_policy: policy.toLowerCase(), pull_required: word(pull) });
  }

  checked(result: PullCheck): void {
    this.#checks.add({ result });
  }

  remembered(what: 'intents' | 'records', count: number): void {
    (what === 'intents' ? this.#intents : this.#records).set({}, count);
  }

  collected(reason: 'age' | 'space'): void {
    this.#collected.add({ reason });
  }

  programRan(name: string, tookMs: number, failed: boolean): void {
    this.#programs.observe({ plugin_name: name }, tookMs / 1000);
    if (failed) this.#programErrors.add({ plugin_name: name });
  }

  text(): string {
    const all = [
      this.#pulls,
      this.#ensured,
      this.#checks,
      this.#intents,
      this.#records,
      ...this.#inMemory,
      this.#collected,
      this.#programErrors,
      this.#programs,
    ];
    return all.map((metric) => metric.text()).join('');
  }
}
