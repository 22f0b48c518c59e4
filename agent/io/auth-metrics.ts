import type { Clock } from '../../base/clock.ts';
import { ApiError } from '../../base/kubeapi/errors.ts';
import { alpha, alphaHistogram } from '../../base/metrics-text.ts';

const seconds = [0.25, 0.5, 0.7, 1, 1.5, 3, 5, 10];
const hour = 3_600;
const lifetimes = [0, 0.5 * hour, hour, 2 * hour, 6 * hour, 12 * hour, 24 * hour, 2 * 24 * hour, 4 * 24 * hour, 7 * 24 * hour, 30 * 24 * hour, 90 * 24 * hour];
const yearly = [180 * 24 * hour, 360 * 24 * hour];

/** Reviews that the agent's own API asks the API server for, and certificates that callers show. */
export class AuthMetrics {
  readonly #clock: Clock;
  readonly #reviews = {
    authn: [
      alpha('apiserver_delegated_authn_request_total', 'Number of HTTP requests partitioned by status code.'),
      alphaHistogram('apiserver_delegated_authn_request_duration_seconds', 'Request latency in seconds. Broken down by status code.', seconds),
    ],
    authz: [
      alpha('apiserver_delegated_authz_request_total', 'Number of HTTP requests partitioned by status code.'),
      alphaHistogram('apiserver_delegated_authz_request_duration_seconds', 'Request latency in seconds. Broken down by status code.', seconds),
    ],
  } as const;
  readonly #certificates = alphaHistogram(
    'apiserver_client_certificate_expiration_seconds',
    'Distribution of the remaining lifetime on the certificate used to authenticate a request.',
    [...lifetimes, ...yearly],
  ).zero();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Runs a review and counts it by the status of its answer. */
  async review<T>(kind: 'authn' | 'authz', work: () => Promise<T>): Promise<T> {
    const [total, duration] = this.#reviews[kind];
    const beganMs = this.#clock.monoMs();
    let code = '201';
    try {
      return await work();
    } catch (error) {
      code = error instanceof ApiError ? String(error.code) : '<error>';
      throw error;
    } finally {
      total.add({ code });
      duration.observe({ code }, (this.#clock.monoMs() - beganMs) / 1000);
    }
  }

  /** A caller's certificate was believed that ends then. */
  certificate(notAfterMs: number): void {
    this.#certificates.observe({}, (notAfterMs - this.#clock.nowMs()) / 1000);
  }

  text(): string {
    return [...this.#reviews.authn, ...this.#reviews.authz, this.#certificates].map((metric) => metric.text()).join('');
  }
}
