import { hasCode, messageOf, OpError } from '../../base/errors.ts';
import { ApiError } from '../../base/kubeapi/errors.ts';
import type { ConfigMap, Pod, Secret } from '../../proto/kube/types.ts';
import type { Credential } from '../core/pod-certificates.ts';
import { certificateKey, tokenKey } from '../core/volumes-payload.ts';
import type { Fetched, PayloadInputs, PayloadNeeds } from '../core/volumes-payload.ts';
import type { VolumeGates } from '../core/volumes-plan.ts';
import type { EnvSources } from '../seams.ts';
import type { PodCertificates } from './pod-certificates.ts';
import type { Tokens } from './tokens.ts';
import type { TrustBundles } from './trust-bundles.ts';

export interface InputSources {
  readonly sources: Pick<EnvSources, 'configMap' | 'secret'>;
  readonly tokens: Pick<Tokens, 'get'>;
  readonly certificates: Pick<PodCertificates, 'get'>;
  readonly trustBundles: Pick<TrustBundles, 'read'>;
  readonly allocatable: () => Readonly<Record<string, string>>;
  readonly gates?: VolumeGates;
}

/** All that the files of a volume are made of. What could not be read is in the answer; only the caller's own stop throws. */
export async function fetchInputs(from: InputSources, pod: Pod, needs: PayloadNeeds, signal: AbortSignal): Promise<PayloadInputs> {
  const namespace = pod.metadata.namespace ?? '';
  const configMaps = new Map<string, Fetched<ConfigMap>>();
  const secrets = new Map<string, Fetched<Secret>>();
  const tokens = new Map<string, { token: string } | { error: string }>();
  const certificates = new Map<string, Credential | { error: string }>();
  for (const ask of needs.certificates) certificates.set(certificateKey(ask), from.certificates.get(pod, ask));
  let trustBundles: PayloadInputs['trustBundles'] = { error: 'no trust bundle was asked for' };
  await Promise.all([
    ...needs.configMaps.map(async (name) => configMaps.set(name, await fetched(from.sources.configMap(namespace, name, signal)))),
    ...needs.secrets.map(async (name) => secrets.set(name, await fetched(from.sources.secret(namespace, name, signal)))),
    ...needs.tokens.map(async (ask) => {
      const got = await fetched(from.tokens.get(pod, ask, signal));
      tokens.set(tokenKey(ask), 'error' in got ? { error: `failed to fetch token: ${got.error}` } : { token: got.object ?? '' });
    }),
    needs.trustBundles && from.trustBundles.read(pod.metadata.uid ?? '', signal).then((copy) => (trustBundles = copy)),
  ]);
  return { pod, configMaps, secrets, tokens, certificates, trustBundles, allocatable: from.allocatable(), fileUsers: from.gates?.fileUsers ?? false };
}

async function fetched<T>(promise: Promise<T | null>): Promise<Fetched<T>> {
  try {
    return { object: await promise };
  } catch (error) {
    if (!isExpected(error)) throw error;
    return { error: messageOf(error) };
  }
}

/** Failures of the outside, which are told and tried again. Bugs and the caller's own stop pass on. */
export function isExpected(error: unknown): boolean {
  if (hasCode(error, 'aborted')) return false;
  return error instanceof OpError || error instanceof ApiError;
}
