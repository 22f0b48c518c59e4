import { Buffer } from 'node:buffer';
import { messageOf, OpError } from '../../../base/errors.ts';
import { secrets } from '../../../base/kubeapi/refs.ts';
import type { KubeApi } from '../../../base/kubeapi/types.ts';
import type { CSIDriver, Pod, Secret } from '../../../proto/kube/types.ts';
import { RpcError } from '../../../cri/mod.ts';
import { isFinal, podAttributes, tokensAttribute, tokensText } from '../../core/csi/requests.ts';
import type { CsiVolume, SecretRef } from '../../core/csi/volume.ts';
import type { Tokens } from '../tokens.ts';

/** A failure of one step of setting a volume up, with upstream's words for an event. */
export class StepFailure extends Error {
  /** Whether the step has certainly come to its end in the driver. */
  readonly isFinal: boolean;
  /** Not told at once, only when it takes too long. */
  readonly quiet: boolean;

  constructor(step: string, specName: string, message: string, options: { isFinal?: boolean; quiet?: boolean } = {}) {
    super(`${step} for volume ${JSON.stringify(specName)} : ${message}`);
    this.isFinal = options.isFinal ?? true;
    this.quiet = options.quiet ?? false;
  }
}

/** Upstream's words of a failure: a driver's refusal as Go's gRPC prints it. */
export function words(error: unknown): string {
  return error instanceof RpcError ? error.goMessage : messageOf(error);
}

/** A failure of the node's own is over when it is thrown; a driver's only with some of gRPC's statuses. */
export function isOver(error: unknown): boolean {
  return !(error instanceof RpcError) || isFinal(error.status);
}

/** The content of a Secret that a volume names. */
export async function secretOf(api: KubeApi, ref: SecretRef | null, field: string, signal: AbortSignal): Promise<Readonly<Record<string, string>>> {
  if (ref === null) return {};
  try {
    const secret = await api.get<Secret>(secrets(ref.namespace, ref.name), { timeoutMs: 10_000 }, signal);
    return Object.fromEntries(Object.entries(secret.data ?? {}).map(([key, value]) => [key, Buffer.from(value, 'base64').toString('utf8')]));
  } catch (error) {
    const detail = `kubernetes.io/csi: failed to find the secret ${ref.name} in the namespace ${ref.namespace} with error: ${messageOf(error)}`;
    throw new OpError('unavailable', `fetching ${field} ${ref.namespace}/${ref.name} failed`, detail, { cause: error });
  }
}

/** What the driver hears of the pod beside the volume's own attributes: who it is, and tokens for it. */
export async function podWords(
  pod: Pod,
  volume: CsiVolume,
  object: CSIDriver | null,
  tokens: Pick<Tokens, 'getStatus'>,
  signal: AbortSignal,
): Promise<{ attributes: Readonly<Record<string, string>>; secrets: Readonly<Record<string, string>> }> {
  const attributes = object?.spec.podInfoOnMount === true ? podAttributes(pod, volume) : {};
  const asked = object?.spec.tokenRequests ?? [];
  if (asked.length === 0) return { attributes, secrets: {} };
  const got = new Map<string, { token: string; expirationTimestamp: string }>();
  for (const { audience, expirationSeconds } of asked)
    got.set(audience, await tokens.getStatus(pod, { audience, expirationSeconds: expirationSeconds ?? 3600 }, signal));
  const words = { [tokensAttribute]: tokensText(got) };
  return object?.spec.serviceAccountTokenInSecrets === true ? { attributes, secrets: words } : { attributes: { ...attributes, ...words }, secrets: {} };
}
