import { untilAborted } from '../base/abort.ts';
import type { Clock } from '../base/clock.ts';
import { OpError } from '../base/errors.ts';
import { createKubeApi } from '../base/kubeapi/client.ts';
import { followKubeConfig, readKubeConfig, type KubeConfig } from '../base/kubeapi/config.ts';
import type { RequestObserver } from '../base/kubeapi/sender.ts';
import type { KubeApi } from '../base/kubeapi/types.ts';
import type { Log } from '../base/log.ts';
import type { Rng } from '../base/rng.ts';
import { kubernetesVersion } from '../base/version.ts';
import type { KubeletConfiguration } from './core/config.ts';
import { clientTemplate } from './core/node-certs.ts';
import { bootstrapClientCertificate, clientPairOf, isStillValid, writeBootstrapped } from './io/bootstrap.ts';
import { openCertStore, pairFrom, type CertStore, type StoredPair } from './io/cert-store.ts';
import { createRotation, type Rotation } from './io/cert-rotation.ts';
import { absentApi, standaloneProblem } from './io/standalone.ts';
import type { CertMetrics } from './io/cert-metrics.ts';
import type { AgentFlags } from './io/config-file.ts';

export interface IdentityOptions {
  readonly clock: Clock;
  readonly rng: Rng;
  readonly log: Log;
  readonly config: KubeletConfiguration;
  readonly flags: Pick<AgentFlags, 'kubeconfig' | 'bootstrapKubeconfig' | 'certDir'>;
  readonly nodeName: string;
  readonly certificates: CertMetrics;
  /** Counts and traces what is asked of the API server. */
  readonly observer?: RequestObserver;
}

/** As whom this node speaks to the API server. */
export interface Identity extends AsyncDisposable {
  readonly api: KubeApi;
  /** Gets and renews the client certificate. Throws OpError `denied` when only a new start can bring one. */
  run(signal: AbortSignal): Promise<void>;
}

const checkMs = 10_000;
/** So long without a certificate, while the API server answers, and a new start has to look for new credentials. */
const exitAfterMs = 5 * 60_000;
const saidEveryMs = 60_000;

/**
 * Reads the kubeconfigs and opens the client. With rotateCertificates the certificate is asked for in the background,
 * so that pods run meanwhile; without, a bootstrap is waited for. Throws OpError for what no waiting can mend.
 */
export async function openIdentity(options: IdentityOptions, signal: AbortSignal): Promise<Identity> {
  const { clock, rng, config, flags } = options;
  const log = options.log.child('client-cert');
  const { bootstrapKubeconfig, certDir, kubeconfig } = flags;
  if (kubeconfig === '') {
    const problem = standaloneProblem(config);
    if (problem !== null) throw new OpError('invalid', 'start the agent', problem, { advice: 'Without --kubeconfig the agent runs without an API server.' });
    log.info('Standalone mode, no API client');
    return { api: absentApi(), run: untilAborted, [Symbol.asyncDispose]: () => Promise.resolve() };
  }
  const store = await openCertStore({ clock, dir: certDir, prefix: 'kubelet-client' });
  const open = (source: { config: KubeConfig; reload?: () => Promise<KubeConfig | undefined> }, limited: boolean): KubeApi =>
    createKubeApi({
      ...source,
      log: options.log.child('api'),
      clock,
      rng,
      observer: options.observer,
      userAgent: `kubelet/${kubernetesVersion} (linux) nodelet`,
      ...(limited && { qps: config.kubeAPIQPS, burst: config.kubeAPIBurst }),
    });

  const toJoin = bootstrapKubeconfig !== '' && !(await isStillValid(kubeconfig, clock, log)) ? await readKubeConfig(bootstrapKubeconfig) : null;
  if (toJoin !== null && config.rotateCertificates) {
    await writeBootstrapped(kubeconfig, toJoin, store.currentPath);
    log.info('Use the bootstrap credentials to request a cert, and set kubeconfig to point to the certificate dir', { kubeconfig });
  } else if (toJoin !== null) {
    await using api = open({ config: toJoin }, false);
    await bootstrapClientCertificate({ clock, rng, log, store, certDir, nodeName: options.nodeName, kubeconfig, config: toJoin, api }, signal);
  } else if (bootstrapKubeconfig !== '') log.info('Current kubeconfig file contents are still valid, no bootstrap necessary', { kubeconfig });

  const source = await followKubeConfig(kubeconfig, log);
  const usesCertificate = source.config.cert !== undefined;
  if (!config.rotateCertificates || !usesCertificate) {
    if (config.rotateCertificates) log.warn('rotateCertificates is set and the kubeconfig has no client certificate: nothing is rotated', { kubeconfig });
    const api = open(source, true);
    return { api, run: untilAborted, [Symbol.asyncDispose]: () => api[Symbol.asyncDispose]() };
  }
  log.info('Client rotation is on, will bootstrap in background');
  return rotating({ ...options, log }, { store, source, open, toJoin });
}

interface RotatingParts {
  readonly store: CertStore;
  readonly source: { config: KubeConfig; reload: () => Promise<KubeConfig | undefined> };
  readonly open: (source: { config: KubeConfig; reload?: () => Promise<KubeConfig | undefined> }, limited: boolean) => KubeApi;
  readonly toJoin: KubeConfig | null;
}

async function rotating(options: IdentityOptions, { store, source, open, toJoin }: RotatingParts): Promise<Identity> {
  const { clock, log, nodeName } = options;
  const initial = await initialPair(store, source.config, clock.nowMs());
  // Whatever the kubeconfig says of its user, what speaks is the certificate in the store.
  const pair = { file: store.currentPath };
  const asCertificate = ({ server, namespace, insecure, ca, tlsServerName }: KubeConfig): KubeConfig => ({
    server,
    namespace,
    insecure,
    ...(ca !== undefined && { ca }),
    ...(tlsServerName !== undefined && { tlsServerName }),
    cert: pair,
    key: pair,
  });
  const api = open(
    {
      config: asCertificate(source.config),
      async reload() {
        const next = await source.reload();
        return next === undefined ? undefined : asCertificate(next);
      },
    },
    true,
  );
  const first = open({ config: toJoin ?? source.config }, false);
  const rotation = createRotation({
    ...options,
    store,
    purpose: 'client',
    template: () => clientTemplate(nodeName),
    api: (hasCertificate) => (hasCertificate ? api : first),
    initial,
    onRenewed: () => log.info('Certificate rotation detected, new connections use the new credentials'),
    onFailure: () => options.certificates.failed('client'),
  });
  options.certificates.watch('client', () => rotation.current()?.notAfterMs ?? null);
  return {
    api,
    async run(signal) {
      const stop = new AbortController();
      const both = AbortSignal.any([signal, stop.signal]);
      try {
        await Promise.all([rotation.run(both), watchForEnd(rotation, clock, log, both)]);
      } finally {
        stop.abort();
      }
    },
    async [Symbol.asyncDispose]() {
      await Promise.all([api[Symbol.asyncDispose](), first[Symbol.asyncDispose]()]);
    },
  };
}

/** What is in the store; else what the kubeconfig carries, which is put there and renewed at once, as kubeadm's first node needs it. */
async function initialPair(store: CertStore, config: KubeConfig, nowMs: number): Promise<{ pair: StoredPair | null; renew: boolean }> {
  const kept = await store.current();
  if (kept !== null && nowMs < kept.notAfterMs) return { pair: kept, renew: false };
  const given = await clientPairOf(config).catch(() => null);
  if (given === null) return { pair: null, renew: true };
  const pair = pairFrom(`${given.certificatePem}\n${given.privateKeyPem}`, 'the kubeconfig');
  if (nowMs > pair.notAfterMs) return { pair: null, renew: true };
  return { pair: await store.update(pair.certificatePem, pair.privateKeyPem), renew: true };
}

/** Ends the agent when its certificate is gone and asking for another has no hope: a new start reads new credentials. */
async function watchForEnd(rotation: Rotation, clock: Clock, log: Log, signal: AbortSignal): Promise<void> {
  let hadMs = clock.monoMs();
  let saidMs = -Infinity;
  while (!signal.aborted) {
    await clock.sleep(checkMs, signal).catch(() => undefined);
    const nowMs = clock.monoMs();
    if (rotation.current() !== null) hadMs = nowMs;
    else if (nowMs - hadMs > exitAfterMs && !signal.aborted) {
      if (rotation.serverAnswers()) throw new OpError('denied', 'speak to the API server', 'no valid client certificate is found and the server is responsive');
      if (nowMs - saidMs < saidEveryMs) continue;
      saidMs = nowMs;
      log.error('No valid client certificate is found but the server is not responsive. A restart may be necessary to retrieve new initial credentials.');
    }
  }
}
