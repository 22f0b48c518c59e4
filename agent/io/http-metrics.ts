import type { Clock } from '../../base/clock.ts';
import { Counter, Histogram } from '../../base/metrics-text.ts';

/** First parts of paths that are counted by name; a stranger's inventions are all `other`. */
const known = new Set([
  ...['healthz', 'pods', 'stats', 'metrics', 'metrics/cadvisor', 'metrics/probes', 'metrics/resource', 'run', 'exec', 'attach', 'portForward'],
  ...['containerLogs', 'configz', 'runningpods', 'allocatedPods', 'checkpoint', 'logs', 'debug', 'pprof', 'flagz', 'statusz'],
]);
const methods = new Set(['OPTIONS', 'GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'TRACE', 'CONNECT']);
/** As upstream has it, whose portForward is none for its capital letter. */
const longRunning = new Set(['exec', 'attach', 'portforward', 'debug']);

/** What the agent's servers were asked, under upstream's names. */
export class HttpMetrics {
  readonly #clock: Clock;
  readonly #requests = new Counter('kubelet_http_requests_total', '[ALPHA] Number of the http requests received since the server started');
  readonly #inflight = new Counter('kubelet_http_inflight_requests', '[ALPHA] Number of the inflight http requests', 'gauge');
  readonly #duration = new Histogram('kubelet_http_requests_duration_seconds', '[ALPHA] Duration in seconds to serve http requests');
  readonly #streams = new Counter(
    'kubelet_websocket_streaming_requests_total',
    '[ALPHA] Total number of WebSocket streaming requests (exec/attach/portforward) received by the kubelet.',
  );

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** A request has come; the answer says that it is over. */
  began(method: string, url: string, server: 'readwrite' | 'readonly'): () => void {
    const [, first = '', second] = (url.split('?')[0] ?? '').split('/');
    const root = first === 'metrics' && second !== undefined ? `metrics/${second}` : first;
    const path = known.has(root) ? root : 'other';
    const labels = { long_running: String(longRunning.has(path)), method: methods.has(method) ? method : 'other', path, server_type: server };
    const beganMs = this.#clock.monoMs();
    this.#requests.add(labels);
    this.#inflight.add(labels);
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      this.#inflight.add(labels, -1);
      this.#duration.observe(labels, (this.#clock.monoMs() - beganMs) / 1000);
    };
  }

  /** A stream over a WebSocket that the agent speaks itself. */
  streamed(subresource: 'exec' | 'attach' | 'portforward'): void {
    this.#streams.add({ subresource });
  }

  text(): string {
    return this.#requests.text() + this.#inflight.text() + this.#duration.text() + this.#streams.text();
  }
}
