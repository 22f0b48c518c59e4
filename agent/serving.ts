import { isIP } from 'node:net';
import { untilAborted } from '../base/abort.ts';
import type { Clock } from '../base/clock.ts';
import type { KubeApi } from '../base/kubeapi/types.ts';
import type { Log } from '../base/log.ts';
import type { Rng } from '../base/rng.ts';
import type { Sys } from '../base/sys/types.ts';
import type { Pod } from '../proto/kube/types.ts';
import { configzOf } from './core/config.ts';
import type { KubeletConfiguration } from './core/config.ts';
import { durationMs } from '../base/duration.ts';
import { gateEnabled } from '../base/feature-gates.ts';
import { flagzOf } from './core/flagz.ts';
import { servingTemplate, signers } from './core/node-certs.ts';
import type { NodeAddress } from './core/node-status.ts';
import { openCertStore } from './io/cert-store.ts';
import { createRotation, type Rotation } from './io/cert-rotation.ts';
import type { CertMetrics } from './io/cert-metrics.ts';
import { followServingCert, loadServingCert, type IssuedPair, type ServingCertOptions } from './io/certs.ts';
import type { Cri } from './io/cri.ts';
import { AuthMetrics } from './io/auth-metrics.ts';
import { HttpMetrics } from './io/http-metrics.ts';
import type { AgentMetrics } from './io/metrics.ts';
import { createServerAuth } from './io/server-auth.ts';
import { tlsCiphers, tlsCurves, tlsMinVersion } from './io/server-defaults.ts';
import { Profiles } from '../base/profiles.ts';
import { createServerRoutes } from './io/server-routes.ts';
import { startHealthz, startReadOnly, startServer } from './io/server.ts';
import type { Stats } from './io/stats.ts';
import { createSystemLogs } from './io/system-logs.ts';
import type { Tracer } from './io/tracer.ts';
import type { Loop } from './loop.ts';

export interface ServingOptions {
  readonly clock: Clock;
  readonly rng: Rng;
  readonly log: Log;
  readonly api: KubeApi;
  readonly cri: Cri;
  readonly config: KubeletConfiguration;
  readonly certDir: string;
  readonly nodeName: string;
  readonly addresses: readonly NodeAddress[];
  readonly pods: Loop;
  /** Pods that hold something of the node, as they were given it. */
  readonly allocated: () => readonly Pod[];
  readonly metrics: AgentMetrics;
  readonly stats: Stats;
  readonly certificates: CertMetrics;
  readonly sys: Pick<Sys, 'run'>;
  readonly tracer: Tracer;
  readonly rootDir: string;
  /** What was said on the command line. */
  readonly given: ReadonlyMap<string, unknown>;
  /** `--v`, which `/debug/flags/v` may change. */
  readonly verbosity: { level: number };
}

export interface Serving extends AsyncDisposable {
  run(signal: AbortSignal): Promise<void>;
}

/** The HTTPS API of the kubelet, and the health page on the loopback address. */
export async function openServing(options: ServingOptions): Promise<Serving> {
  const { clock, log, api, cri, config, nodeName, pods, metrics, stats } = options;
  const rotation = config.enableServer && config.serverTLSBootstrap ? await openRotation(options) : null;
  const certs: ServingCertOptions = {
    clock,
    log: log.child('certs'),
    certDir: options.certDir,
    certFile: config.tlsCertFile,
    keyFile: config.tlsPrivateKeyFile,
    clientCAFile: config.authentication.x509.clientCAFile,
    hostname: nodeName,
    ipAddresses: options.addresses.filter(({ type }) => type === 'InternalIP').map(({ address }) => address),
    ...(rotation !== null && { issued: rotation.issued }),
  };
  const syncLoop = (): string | null => pods.pleg.unhealthy();
  const healthz = config.healthzPort === 0 ? null : await startHealthz(config.healthzBindAddress, config.healthzPort, syncLoop);
  if (!config.enableServer) return { run: untilAborted, [Symbol.asyncDispose]: async () => healthz?.[Symbol.asyncDispose]() };
  const { authentication, authorization } = config;
  const reviews = new AuthMetrics(clock);
  const auth = createServerAuth({
    clock,
    metrics: reviews,
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
  const http = new HttpMetrics(clock);
  options.metrics.also.push(() => http.text() + reviews.text());
  const routes = createServerRoutes({
    clock,
    pods,
    syncLoop,
    log: log.child('server'),
    runtime: cri.runtime,
    runtimeTimeoutMs: durationMs(config.runtimeRequestTimeout),
    podLogsDir: config.podLogsDir,
    debugHandlers: config.enableDebuggingHandlers,
    streamed: (subresource) => http.streamed(subresource),
    splitStreams: gateEnabled(config.featureGates, 'PodLogsQuerySplitStreams'),
    webSockets: gateEnabled(config.featureGates, 'ExtendWebSocketsToKubelet'),
    systemLogs: config.enableSystemLogHandler ? createSystemLogs({ root: '/var/log', sys: options.sys, queries: config.enableSystemLogQuery }) : null,
    debug: {
      rootDir: options.rootDir,
      startedMs: clock.nowMs(),
      flagz: gateEnabled(config.featureGates, 'ComponentFlagz') ? flagzOf(config, options.given) : null,
      statusz: gateEnabled(config.featureGates, 'ComponentStatusz'),
      checkpoints: gateEnabled(config.featureGates, 'ContainerCheckpoint'),
      profiles: config.enableProfilingHandler ? new Profiles(clock, [process.execPath, ...process.argv.slice(1)]) : null,
      setVerbosity: config.enableDebugFlagsHandler ? (level) => void (options.verbosity.level = level) : null,
    },
    allocated: options.allocated,
    configz: () => configzOf(config),
    async metrics(page, signal) {
      if (page === 'probes') return metrics.probesText();
      if (page === 'slis') return metrics.startText();
      if (page === 'resource') return stats.resource(signal);
      return page === 'cadvisor' ? stats.cadvisor(signal) : (await stats.logs(signal)) + (await metrics.text());
    },
    stats: (query, signal) => stats.summary(query, signal),
  });
  const material = await loadServingCert(certs);
  const server = await startServer({
    log: log.child('server'),
    address: config.address,
    port: config.port,
    tls: {
      ...material,
      minVersion: tlsMinVersion(config.tlsMinVersion),
      ciphers: tlsCiphers(config.tlsCipherSuites),
      curves: tlsCurves(config.tlsCurvePreferences),
    },
    auth,
    allocatedPods: config.enableDebuggingHandlers && gateEnabled(config.featureGates, 'KubeletAllocatedPodsEndpoint'),
    tracer: options.tracer,
    metrics: http,
    handle: routes.handle,
    upgrade: routes.upgrade,
  });
  const readOnly =
    config.readOnlyPort === 0
      ? null
      : await startReadOnly({ log: log.child('server'), address: config.address, port: config.readOnlyPort, handle: routes.handle, metrics: http });
  return {
    async run(signal) {
      await Promise.all([followServingCert(certs, material, (next) => server.renew(next), signal), rotation?.run(signal)]);
    },
    async [Symbol.asyncDispose]() {
      await readOnly?.[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
      await healthz?.[Symbol.asyncDispose]();
    },
  };
}

/** `serverTLSBootstrap`: a certificate for the node's names and addresses from the control plane, asked for anew as it ages. */
async function openRotation(options: ServingOptions): Promise<Pick<Rotation, 'run'> & { readonly issued: IssuedPair }> {
  const { clock, rng, api, certDir, certificates, config, nodeName } = options;
  const log = options.log.child('serving-cert');
  const store = await openCertStore({ clock, dir: certDir, prefix: 'kubelet-server', certFile: config.tlsCertFile, keyFile: config.tlsPrivateKeyFile });
  const kept = await store.current();
  const pair = kept !== null && clock.nowMs() < kept.notAfterMs ? kept : null;
  const template = servingTemplate(nodeName, options.addresses, {
    dnsOnly: gateEnabled(config.featureGates, 'AllowDNSOnlyNodeCSR'),
    isIP: (text) => isIP(text) !== 0,
  });
  const rotation = createRotation({
    clock,
    rng,
    log,
    store,
    purpose: 'serving',
    template: () => template,
    api: () => api,
    initial: { pair, renew: pair === null },
    onFailure: () => certificates.failed('serving'),
    onRenewed(_, previous) {
      if (previous !== null) certificates.rotated(clock.nowMs() - previous.notBeforeMs);
      issued.onChange();
    },
  });
  const issued: IssuedPair = { current: () => rotation.current(), onChange: () => undefined };
  certificates.watch('serving', () => rotation.current()?.notAfterMs ?? null);
  if (pair === null)
    log.info('No serving certificate is there yet: until one is issued, TLS connections to this node fail', { signer: signers.serving.signerName });
  return { issued, run: (signal) => rotation.run(signal) };
}
