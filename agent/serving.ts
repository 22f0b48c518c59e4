import type { Clock } from '../base/clock.ts';
import type { KubeApi } from '../base/kubeapi/types.ts';
import type { Log } from '../base/log.ts';
import { configzOf } from './core/config.ts';
import type { KubeletConfiguration } from './core/config.ts';
import { durationMs } from './core/duration.ts';
import type { NodeAddress } from './core/node-status.ts';
import { followServingCert, loadServingCert } from './io/certs.ts';
import type { Cri } from './io/cri.ts';
import type { AgentMetrics } from './io/metrics.ts';
import { createServerAuth } from './io/server-auth.ts';
import { tlsCiphers, tlsMinVersion } from './io/server-defaults.ts';
import { createServerRoutes } from './io/server-routes.ts';
import { startHealthz, startReadOnly, startServer } from './io/server.ts';
import type { Stats } from './io/stats.ts';
import type { Loop } from './loop.ts';

export interface ServingOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly api: KubeApi;
  readonly cri: Cri;
  readonly config: KubeletConfiguration;
  readonly certDir: string;
  readonly nodeName: string;
  readonly addresses: readonly NodeAddress[];
  readonly pods: Loop;
  readonly metrics: AgentMetrics;
  readonly stats: Stats;
}

export interface Serving extends AsyncDisposable {
  run(signal: AbortSignal): Promise<void>;
}

/** The HTTPS API of the kubelet, and the health page on the loopback address. */
export async function openServing(options: ServingOptions): Promise<Serving> {
  const { clock, log, api, cri, config, nodeName, pods, metrics, stats } = options;
  const certs = {
    clock,
    log: log.child('certs'),
    certDir: options.certDir,
    certFile: config.tlsCertFile,
    keyFile: config.tlsPrivateKeyFile,
    clientCAFile: config.authentication.x509.clientCAFile,
    hostname: nodeName,
    ipAddresses: options.addresses.filter(({ type }) => type === 'InternalIP').map(({ address }) => address),
  };
  const syncLoop = (): string | null => pods.pleg.unhealthy();
  const healthz = config.healthzPort === 0 ? null : await startHealthz(config.healthzBindAddress, config.healthzPort, syncLoop);
  if (!config.enableServer) return { run: untilStopped, [Symbol.asyncDispose]: async () => healthz?.[Symbol.asyncDispose]() };
  const { authentication, authorization } = config;
  const auth = createServerAuth({
    clock,
    api,
    nodeName,
    x509: authentication.x509.clientCAFile !== '',
    anonymous: authentication.anonymous.enabled,
    tokenWebhook: { enabled: authentication.webhook.enabled, cacheTtlMs: durationMs(authentication.webhook.cacheTTL) },
    authorization:
      authorization.mode === 'AlwaysAllow'
        ? 'AlwaysAllow'
        : { allowedTtlMs: durationMs(authorization.webhook.cacheAuthorizedTTL), deniedTtlMs: durationMs(authorization.webhook.cacheUnauthorizedTTL) },
  });
  const routes = createServerRoutes({
    clock,
    pods,
    syncLoop,
    log: log.child('server'),
    runtime: cri.runtime,
    runtimeTimeoutMs: durationMs(config.runtimeRequestTimeout),
    podLogsDir: config.podLogsDir,
    debugHandlers: config.enableDebuggingHandlers,
    configz: () => configzOf(config),
    async metrics(page, signal) {
      if (page === 'probes') return metrics.probesText();
      if (page === 'resource') return stats.resource(signal);
      return page === 'cadvisor' ? stats.cadvisor(signal) : metrics.text();
    },
    stats: (query, signal) => stats.summary(query, signal),
  });
  const material = await loadServingCert(certs);
  const server = await startServer({
    log: log.child('server'),
    address: config.address,
    port: config.port,
    tls: { ...material, minVersion: tlsMinVersion(config.tlsMinVersion), ciphers: tlsCiphers(config.tlsCipherSuites) },
    auth,
    handle: routes.handle,
    upgrade: routes.upgrade,
  });
  const readOnly =
    config.readOnlyPort === 0
      ? null
      : await startReadOnly({ log: log.child('server'), address: config.address, port: config.readOnlyPort, handle: routes.handle });
  return {
    run: (signal) => followServingCert(certs, material, (next) => server.renew(next), signal),
    async [Symbol.asyncDispose]() {
      await readOnly?.[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
      await healthz?.[Symbol.asyncDispose]();
    },
  };
}

function untilStopped(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
