import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Log } from '../../base/log.ts';
import type { ProxyHealth } from '../health.ts';
import { serve } from './http.ts';
import type { Metrics } from './metrics.ts';

/** What the proxy answers over HTTP: its own health, its metrics, and load balancers that ask about one Service. */

function json(response: ServerResponse, status: number, body: string, headers: Record<string, string> = {}): void {
  response.writeHead(status, { 'content-type': 'application/json', 'x-content-type-options': 'nosniff', ...headers });
  response.end(body);
}

function pathOf(request: IncomingMessage): string {
  return (request.url ?? '/').split('?')[0]!;
}

/** /healthz counts the node's own state in, /livez does not. */
export async function serveHealthz(at: { host: string; port: number }, health: ProxyHealth, metrics: Metrics): Promise<AsyncDisposable & { port: number }> {
  return await serve(
    at.host,
    at.port,
    (request, response) => {
      const path = pathOf(request);
      if (path !== '/healthz' && path !== '/livez') {
        response.writeHead(404, { 'content-type': 'text/plain; charset=utf-8' }).end('404 page not found\n');
        return;
      }
      const withNode = path === '/healthz';
      const good = health.healthy && (!withNode || health.nodeEligible);
      metrics.add(`kubeproxy_proxy_${withNode ? 'healthz' : 'livez'}_total`, 1, { code: good ? '200' : '503' });
      json(response, good ? 200 : 503, JSON.stringify(health.report(withNode)));
    },
    { bothFamilies: true },
  );
}

/**
 * @param page some of what it tells is asked from the kernel when somebody looks
 * @param document the configuration, for /configz
 */
export async function serveMetrics(
  at: { host: string; port: number },
  page: { text(): string | Promise<string> },
  mode: string,
  document: object,
): Promise<AsyncDisposable & { port: number }> {
  return await serve(at.host, at.port, (request, response) => {
    const text = (type: string, body: string): void => void response.writeHead(200, { 'content-type': type, 'x-content-type-options': 'nosniff' }).end(body);
    switch (pathOf(request)) {
      case '/metrics':
        return void Promise.resolve(page.text()).then((body) => text('text/plain; version=0.0.4; charset=utf-8', body));
      case '/configz':
        return json(response, 200, JSON.stringify({ 'kubeproxy.config.k8s.io': document }));
      case '/proxyMode':
        return text('text/plain; charset=utf-8', mode);
      case '/healthz':
        return text('text/plain; charset=utf-8', 'ok');
      default:
        response.writeHead(404, { 'content-type': 'text/plain; charset=utf-8' }).end('404 page not found\n');
    }
  });
}

export interface HealthCheck {
  /** `namespace/name` of the Service. */
  key: string;
  port: number;
  localEndpoints: number;
  /** Where it is served. */
  hosts: readonly string[];
}

/** The health-check node ports of Services with policy Local. */
export class HealthPorts implements AsyncDisposable {
  readonly #log: Log;
  readonly #isHealthy: () => boolean;
  readonly #open = new Map<string, { check: HealthCheck; servers: AsyncDisposable[] }>();

  constructor(options: { log: Log; isHealthy: () => boolean }) {
    this.#log = options.log;
    this.#isHealthy = options.isHealthy;
  }

  /** Opens and closes ports so that exactly `checks` are served, and tells them their counts. */
  async update(checks: readonly HealthCheck[]): Promise<void> {
    const wanted = new Map(checks.map((check) => [`${check.key} ${check.port} ${check.hosts.join(',')}`, check]));
    for (const [id, { servers }] of this.#open) {
      if (wanted.has(id)) continue;
      this.#open.delete(id);
      for (const server of servers) await server[Symbol.asyncDispose]();
    }
    for (const [id, check] of wanted) {
      const open = this.#open.get(id);
      if (open !== undefined) {
        open.check = check;
        continue;
      }
      const entry = { check, servers: [] as AsyncDisposable[] };
      for (const host of check.hosts) {
        try {
          entry.servers.push(await serve(host, check.port, (_request, response) => this.#answer(entry.check, response), { ipv6Only: host.includes(':') }));
        } catch (error) {
          this.#log.error('Failed to start healthcheck', { service: check.key, port: check.port, error });
        }
      }
      // A port somebody else holds is tried again at the next sync.
      if (entry.servers.length > 0 || check.hosts.length === 0) this.#open.set(id, entry);
    }
  }

  #answer(check: HealthCheck, response: ServerResponse): void {
    const healthy = this.#isHealthy();
    const [namespace, name] = check.key.split('/');
    const body = [
      '{',
      '\t"service": {',
      `\t\t"namespace": ${JSON.stringify(namespace)},`,
      `\t\t"name": ${JSON.stringify(name)}`,
      '\t},',
      `\t"localEndpoints": ${check.localEndpoints},`,
      `\t"serviceProxyHealthy": ${healthy}`,
      '}',
    ];
    json(response, healthy && check.localEndpoints > 0 ? 200 : 503, body.join('\n'), { 'x-load-balancing-endpoint-weight': String(check.localEndpoints) });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.update([]);
  }
}
