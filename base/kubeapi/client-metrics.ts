import type { Clock } from '../clock.ts';
import { alpha, alphaHistogram } from '../metrics-text.ts';
import type { OutgoingRequest, RequestObserver, Send } from './sender.ts';

type Attributes = Readonly<Record<string, string | number>>;

/** What traces requests to the API server. */
export interface RequestTracer {
  /** Runs `work` as a span; `set` adds attributes that are known later. */
  span<T>(
    name: string,
    options: { readonly kind: 'client'; readonly attributes: Attributes },
    work: (set: (attributes: Attributes) => void) => Promise<T>,
  ): Promise<T>;
  /** The `traceparent` to send on; null: nothing is traced. */
  traceparent(): string | null;
}

const untraced: RequestTracer = { span: (_name, _options, work) => work(() => undefined), traceparent: () => null };

const seconds = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60];
/** 64 bytes to 16 MiB. */
const bytes = [64, 256, 512, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216];

/** Calls to the API server, counted and traced as client-go's transport and OpenTelemetry's `otelhttp` around it do. */
export class ClientMetrics implements RequestObserver {
  readonly #clock: Clock;
  readonly #tracer: RequestTracer;
  readonly #latency = alphaHistogram('rest_client_request_duration_seconds', 'Request latency in seconds. Broken down by verb, and host.', seconds);
  readonly #requestSize = alphaHistogram('rest_client_request_size_bytes', 'Request size in bytes. Broken down by verb and host.', bytes);
  readonly #responseSize = alphaHistogram('rest_client_response_size_bytes', 'Response size in bytes. Broken down by verb and host.', bytes);
  readonly #waits = alphaHistogram(
    'rest_client_rate_limiter_duration_seconds',
    'Client side rate limiter latency in seconds. Broken down by verb, and host.',
    seconds,
  );
  readonly #results = alpha('rest_client_requests_total', 'Number of HTTP requests, partitioned by status code, method, and host.');
  readonly #retries = alpha('rest_client_request_retries_total', 'Number of request retries, partitioned by status code, verb, and host.');

  constructor(clock: Clock, tracer: RequestTracer = untraced) {
    this.#clock = clock;
    this.#tracer = tracer;
  }

  around<T>({ method, url, bodyBytes }: OutgoingRequest, send: Send<T>): Promise<T> {
    const { host, hostname, port, protocol } = new URL(url);
    const attributes = {
      'http.request.method': method,
      'url.full': url,
      'server.address': hostname,
      'server.port': Number(port) || (protocol === 'https:' ? 443 : 80),
    };
    const beganMs = this.#clock.monoMs();
    return this.#tracer.span(`HTTP ${method}`, { kind: 'client', attributes }, async (set) => {
      let code = '<error>';
      const traceparent = this.#tracer.traceparent();
      try {
        return await send(traceparent === null ? {} : { traceparent }, (status, answerBytes) => {
          code = String(status);
          set({ 'http.response.status_code': status, ...(status >= 400 && { 'error.type': code }) });
          const labels = { host, verb: method };
          this.#latency.observe(labels, (this.#clock.monoMs() - beganMs) / 1000);
          this.#requestSize.observe(labels, bodyBytes);
          if (answerBytes !== null) this.#responseSize.observe(labels, answerBytes);
        });
      } finally {
        this.#results.add({ code, host, method });
      }
    });
  }

  waited(method: string, server: string, tookMs: number): void {
    this.#waits.observe({ host: new URL(server).host, verb: method }, tookMs / 1000);
  }

  retried(method: string, server: string, status: number): void {
    this.#retries.add({ code: String(status), host: new URL(server).host, verb: method });
  }

  text(): string {
    return [this.#latency, this.#requestSize, this.#responseSize, this.#waits, this.#results, this.#retries].map((metric) => metric.text()).join('');
  }
}
