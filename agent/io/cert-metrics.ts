import type { Clock } from '../../base/clock.ts';
import { Counter, Histogram, metricText } from '../../base/metrics-text.ts';
import type { CertPurpose } from '../core/node-certs.ts';

/** What /metrics tells of the certificates that this node asks for. */
export interface CertMetrics {
  /** From now on the end of that certificate is shown; null where it has none that is valid. */
  watch(purpose: CertPurpose, notAfterMs: () => number | null): void;
  failed(purpose: CertPurpose): void;
  /** A serving certificate was replaced that had begun so long ago. */
  rotated(livedMs: number): void;
  text(): string;
}

const day = 86_400;
const ages = [60, 3_600, 4 * 3_600, day, 7 * day, 30 * day, 90 * day, 180 * day, 360 * day, 1_440 * day];

const gauges: Readonly<Record<CertPurpose, readonly [name: string, help: string]>> = {
  client: [
    'kubelet_certificate_manager_client_ttl_seconds',
    "[ALPHA] Gauge of the TTL (time-to-live) of the Kubelet's client certificate. The value is in seconds until certificate expiry (negative if already expired). If client certificate is invalid or unused, the value will be +INF.",
  ],
  serving: [
    'kubelet_certificate_manager_server_ttl_seconds',
    "[ALPHA] Gauge of the shortest TTL (time-to-live) of the Kubelet's serving certificate. The value is in seconds until certificate expiry (negative if already expired). If serving certificate is invalid or unused, the value will be +INF.",
  ],
};

/** Names and help texts are upstream's. */
export function createCertMetrics(clock: Clock): CertMetrics {
  const watched = new Map<CertPurpose, () => number | null>();
  const errors = {
    client: new Counter('kubelet_certificate_manager_client_expiration_renew_errors', '[ALPHA] Counter of certificate renewal errors.'),
    serving: new Counter('kubelet_server_expiration_renew_errors', '[ALPHA] Counter of certificate renewal errors.'),
  };
  const rotations = new Histogram(
    'kubelet_certificate_manager_server_rotation_seconds',
    '[ALPHA] Histogram of the number of seconds the previous certificate lived before being rotated.',
    ages,
  );
  return {
    watch(purpose, notAfterMs) {
      watched.set(purpose, notAfterMs);
      errors[purpose].add({}, 0);
    },
    failed: (purpose) => errors[purpose].add({}),
    rotated: (livedMs) => rotations.observe({}, livedMs / 1000),
    text() {
      const shown = [...watched].map(([purpose, notAfterMs]) => {
        const [name, help] = gauges[purpose];
        const endMs = notAfterMs();
        return metricText(name, 'gauge', help, [{ labels: {}, value: endMs === null ? Infinity : Math.trunc((endMs - clock.nowMs()) / 1000) }]);
      });
      return [...shown, errors.client.text(), errors.serving.text(), rotations.text()].join('');
    },
  };
}
