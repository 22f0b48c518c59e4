import type { IncomingMessage, ServerResponse } from 'node:http';
import { messageOf } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import type { ProxyHealth } from '../health.ts';
import { serve } from './http.ts';
import type { Metrics } from './metrics.ts';

/** What the proxy answers over HTTP to those who ask about its health, its own or that of one Service. */

export function json(response: ServerResponse, status: number, body: string, headers: Record<string, string> = {}): void {
  response.writeHead(status, { 'content-type': 'application/json', 'x-content-type-options': 'nosniff', ...headers });
  response.end(body);
}

export function pathOf(request: IncomingMessage): string {
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

export interface HealthCheck {
  /** `namespace/name` of the Service. */
  key: string;
  port: number;
  localEndpoints: number;
  /** Where it is served. */
  hosts: readonly string[];
}

export interface HealthPortsOptions {
  readonly log: Log;
  readonly isHealthy: () => boolean;
  /** Told once of a port that cannot be opened; it is tried again at each sync. */
  readonly failed?: (service: string, problem: string) => void;
}

/** One address of one port; without a server it could not be opened. */
interface Opened {
  check: HealthCheck;
  server: AsyncDisposable | null;
}

/** The health-check node ports of Services with policy Local. */
export class HealthPorts implements AsyncDisposable {
  readonly #options: HealthPortsOptions;
  readonly #open = new Map<string, Opened>();

  constructor(options: HealthPortsOptions) {
    this.#options = options;
  }

  /** Opens and closes ports so that exactly `checks` are served, and tells them their counts. */
  async update(checks: readonly HealthCheck[]): Promise<void> {
    const wanted = new Map(checks.flatMap((check) => check.hosts.map((host) => [`${check.key} ${check.port} ${host}`, { check, host }])));
    for (const [id, { server }] of this.#open) {
      if (wanted.has(id)) continue;
      this.#open.delete(id);
      await server?.[Symbol.asyncDispose]();
    }
    for (const [id, { check, host }] of wanted) {
      const known = this.#open.get(id);
      const entry: Opened = known ?? { check, server: null };
      entry.check = check;
      this.#open.set(id, entry);
      entry.server ??= await this.#serve(entry, host, known !== undefined);
    }
  }

  /** A port somebody else holds is tried again at the next sync. */
  async #serve(entry: Opened, host: string, isKnown: boolean): Promise<AsyncDisposable | null> {
    const { key, port } = entry.check;
    try {
      return await serve(host, port, (_request, response) => this.#answer(entry.check, response), { ipv6Only: host.includes(':') });
    } catch (error) {
      this.#options.log.error('Failed to start healthcheck', { service: key, port, host, error });
      if (!isKnown) this.#options.failed?.(key, `the health check of ${key} cannot be served on port ${port}: ${messageOf(error)}`);
      return null;
    }
  }

  #answer(check: HealthCheck, response: ServerResponse): void {
    const healthy = this.#options.isHealthy();
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
