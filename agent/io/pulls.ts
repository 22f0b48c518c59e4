import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import type { KubeApi } from '../../base/kubeapi/types.ts';
import type { Log } from '../../base/log.ts';
import type { Sys } from '../../base/sys/types.ts';
import { backoffRules } from '../core/backoff.ts';
import type { KubeletConfiguration } from '../core/config.ts';
import { gateEnabled } from '../../base/feature-gates.ts';
import type { AgentSettings, EnvSources } from '../seams.ts';
import { openCredentialProviders } from './credential-providers.ts';
import type { Cri } from './cri.ts';
import type { ImageMetrics } from './image-metrics.ts';
import { createImagePuller, type ImagePuller } from './images.ts';
import type { PodMetrics } from './pod-metrics.ts';
import { createPullCredentials } from './pull-credentials.ts';
import { openPullRecords, type PullRecords } from './pull-records.ts';
import type { Tokens } from './tokens.ts';

export interface PullsOptions {
  readonly cri: Cri;
  readonly clock: Clock;
  readonly log: Log;
  readonly sys: Pick<Sys, 'run'>;
  readonly api: Pick<KubeApi, 'get'>;
  readonly settings: AgentSettings;
  readonly config: Pick<KubeletConfiguration, 'featureGates' | 'imagePullCredentialsVerificationPolicy' | 'preloadedImagesVerificationAllowlist'>;
  readonly sources: Pick<EnvSources, 'secret'>;
  readonly tokens: Pick<Tokens, 'get'>;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly metrics: { readonly images: ImageMetrics; readonly lives: Pick<PodMetrics, 'pulled'> };
  readonly signal: AbortSignal;
}

export interface Pulls {
  readonly images: ImagePuller;
  /** Null where `KubeletEnsureSecretPulledImages` is off. */
  readonly records: PullRecords | null;
}

/** Everything about getting images: credentials of three kinds, what is remembered of pulls, and turns. Throws OpError for a configuration that cannot be used. */
export async function openPulls(options: PullsOptions): Promise<Pulls> {
  const { cri, clock, sys, api, settings, config, sources, tokens, env, metrics } = options;
  const log = options.log.child('images');
  const { rootDir, runtimeRequestTimeoutMs: timeoutMs } = settings;
  const providers = await openCredentialProviders({
    clock,
    sys,
    api,
    tokens,
    env,
    log,
    onRun: (name, tookMs, failed) => metrics.images.programRan(name, tookMs, failed),
    config: settings.credentialProviderConfig,
    binDir: settings.credentialProviderBinDir,
    tokensAllowed: gateEnabled(config.featureGates, 'KubeletServiceAccountTokenForCredentialProviders'),
  });
  const records = gateEnabled(config.featureGates, 'KubeletEnsureSecretPulledImages')
    ? await openPullRecords({
        clock,
        log,
        rootDir,
        metrics: metrics.images,
        policy: config.imagePullCredentialsVerificationPolicy,
        allowlist: config.preloadedImagesVerificationAllowlist,
      })
    : null;
  await records
    ?.recover(async () => {
      const { images } = await cri.images.listImages({}, { timeoutMs, signal: options.signal });
      return images.map(({ id, repoTags, repoDigests }) => ({ id, names: [...repoTags, ...repoDigests] }));
    })
    .catch((error: unknown) => log.error('there were errors reading what earlier pulls left', { err: messageOf(error) }));
  const images = createImagePuller({
    cri,
    clock,
    timeoutMs,
    records,
    metrics: metrics.images,
    onPulled: (uid, tookMs) => metrics.lives.pulled(uid, tookMs),
    rules: backoffRules(),
    credentials: createPullCredentials({ sources, log, providers, nodeFiles: [`${rootDir}/config.json`, '/root/.docker/config.json'] }),
    qps: settings.registryPullQps,
    burst: settings.registryBurst,
    serial: settings.serializeImagePulls,
    maxParallel: settings.maxParallelImagePulls,
  });
  return { images, records };
}
