import type { AuthConfig, Image, ImageSpecInput, PodSandboxConfig } from '../../proto/cri/types.ts';
import type { Clock } from '../../base/clock.ts';
import { OpError } from '../../base/errors.ts';
import type { Container, Pod } from '../../proto/kube/types.ts';
import { grow, heldUntilMs } from '../core/backoff.ts';
import type { Backoff, BackoffRules } from '../core/backoff.ts';
import { keyOf } from '../core/containers.ts';
import { parseImage, pullPolicyOf } from '../core/images.ts';
import type { ImageName } from '../core/images.ts';
import { Limiter } from '../../base/kubeapi/limiter.ts';
import { credentialsOf, type CredentialSource, type ShownCredentials } from '../core/pull-records.ts';
import type { ImageUser } from '../core/security.ts';
import { durationText } from '../../base/duration.ts';
import type { EventText } from '../core/types.ts';
import { pullErrorText, runtimeWords, rpcErrorText } from './cri.ts';
import type { Cri } from './cri.ts';
import type { ImageMetrics } from './image-metrics.ts';
import { createLine } from './line.ts';
import type { PullRecords } from './pull-records.ts';

export interface ImageNeed {
  readonly pod: Pod;
  readonly container: Pick<Container, 'name' | 'image' | 'imagePullPolicy'>;
  readonly sandboxConfig: PodSandboxConfig;
  readonly runtimeHandler: string;
  readonly tell: (event: EventText) => void;
}

export type ImageOutcome =
  /** `user`: what the runtime's answer said of the image; undefined when it was not asked. */
  | { readonly ok: true; readonly imageRef: string; readonly user?: ImageUser }
  /** `isSaid`: Events have told of it a moment ago. */
  | { readonly ok: false; readonly reason: string; readonly message: string; readonly isSaid?: boolean };

export interface ImagePuller {
  /**
   * Makes sure that the image is there, as the pull policy says; waits for its turn and for the pull. After a pull that
   * failed the back-off only refuses: the next one is tried when its pod is looked at after that, as upstream does.
   */
  ensure(need: ImageNeed, signal: AbortSignal): Promise<ImageOutcome>;
  forget(uid: string): void;
}

/** Credentials for a registry, best first; none is an anonymous pull. */
export interface PullCredentials {
  forImage(pod: Pod, name: ImageName, signal: AbortSignal): Promise<{ auths: readonly TrackedAuth[]; missing: readonly string[] }>;
}

/** A credential, whose it is, and the hash under which it is remembered. */
export interface TrackedAuth {
  readonly auth: AuthConfig;
  readonly source: CredentialSource;
  readonly hash: string;
}

export interface ImagePullerOptions {
  readonly cri: Cri;
  readonly clock: Clock;
  readonly credentials: PullCredentials;
  readonly rules: BackoffRules;
  /** One pull at a time on the node. */
  readonly serial: boolean;
  /** Without `serial`: how many at once, 0 is no bound. */
  readonly maxParallel: number;
  readonly timeoutMs: number;
  /** `registryPullQPS` and `registryBurst`: pulls beyond are refused, not delayed, as upstream does; 0 is no bound. */
  readonly qps?: number;
  readonly burst?: number;
  readonly metrics?: Pick<ImageMetrics, 'pulled' | 'ensured'>;
  /** How long pods waited for pulls. */
  readonly onPulled?: (uid: string, tookMs: number) => void;
  /** `KubeletEnsureSecretPulledImages`: who may use what is here already; null: everybody. */
  readonly records: PullRecords | null;
}

interface Failed {
  readonly backoff: Backoff;
  readonly failedAtMs: number;
  readonly words: string;
  /** When an Event last told of the back-off, by container. */
  readonly saidAtMs: Map<string, number>;
}

/** A pod is looked at for many reasons; that an image is still held is told again only so often, as upstream's usual look comes. */
const sayAgainMs = 10_000;

interface Pulled {
  readonly imageRef: string;
  readonly pullMs: number;
  readonly sizeBytes: string;
  /** With what it worked; null: without any. */
  readonly by: TrackedAuth | null;
}

/**
 * Images, one by one. A second pod that wants an image which is being pulled takes its turn after it and then asks the
 * runtime again, which answers from what it has: upstream's two durations come from exactly this.
 */
export function createImagePuller(options: ImagePullerOptions): ImagePuller {
  const { cri, clock, timeoutMs } = options;
  const failures = new Map<string, Failed>();
  const limiter = options.qps === undefined || options.qps <= 0 ? null : new Limiter(options.qps, options.burst ?? options.qps, clock);
  const turns = createLine({ clock, what: 'pull an image', limit: options.serial ? 1 : options.maxParallel });

  /** For the event alone: no reason to fail. */
  const sizeOf = async (image: ImageSpecInput, signal: AbortSignal): Promise<string> => {
    try {
      return (await cri.images.imageStatus({ image }, { timeoutMs, signal })).image?.size ?? '0';
    } catch {
      return '0';
    }
  };
  const pull = async (need: ImageNeed, name: ImageName, signal: AbortSignal): Promise<Pulled> => {
    const { auths, missing } = await options.credentials.forImage(need.pod, name, signal);
    using _turn = await turns.take(0, signal);
    const beganMs = clock.monoMs();
    const image = {
      image: name.pullName,
      annotations: { ...need.pod.metadata.annotations },
      ...(need.runtimeHandler === '' ? {} : { runtimeHandler: need.runtimeHandler }),
    };
    let trouble: unknown;
    for (const by of auths.length === 0 ? [null] : auths) {
      if (limiter?.tryTake() === false) throw new Error('pull QPS exceeded');
      try {
        // A pull may take long and has no deadline of its own; it ends with the pod.
        const { imageRef } = await cri.images.pullImage(
          { image, sandboxConfig: need.sandboxConfig, ...(by === null ? {} : { auth: by.auth }) },
          { signal, timeoutMs: Number.POSITIVE_INFINITY },
        );
        const sizeBytes = await sizeOf(image, signal);
        return { imageRef, pullMs: clock.monoMs() - beganMs, sizeBytes, by };
      } catch (error) {
        if (signal.aborted) throw error;
        trouble = error;
      }
    }
    if (missing.length > 0)
      need.tell({
        type: 'Warning',
        reason: 'FailedToRetrieveImagePullSecret',
        message: `Unable to retrieve some image pull secrets (${missing.join(', ')}); attempting to pull the image may not succeed.`,
      });
    throw trouble;
  };

  const shownBy = async (need: ImageNeed, name: ImageName, signal: AbortSignal): Promise<ShownCredentials> => {
    const { auths } = await options.credentials.forImage(need.pod, name, signal);
    const secrets = auths.flatMap(({ source, hash }) =>
      source?.kind === 'secret' ? [{ uid: source.uid, namespace: source.namespace, name: source.name, credentialHash: hash }] : [],
    );
    const account = auths.find(({ source }) => source?.kind === 'serviceAccount')?.source;
    return { secrets, serviceAccount: account ? { uid: account.uid, namespace: account.namespace, name: account.name } : null };
  };

  return {
    async ensure(need, signal) {
      const { pod, container, tell } = need;
      const asked = container.image ?? '';
      const say = (type: 'Normal' | 'Warning', reason: string, message: string): void => tell({ type, reason, message, container: container.name });
      const name = parseImage(asked);
      if (typeof name === 'string') {
        const message = `Failed to apply default image tag "${asked}": ${name}`;
        options.metrics?.ensured(pullPolicyOf(container), null, null);
        say('Warning', 'InspectFailed', message);
        return refused('InvalidImageName', message);
      }
      const policy = pullPolicyOf(container);
      if (policy === 'Always') options.metrics?.ensured(policy, null, true);
      if (policy !== 'Always') {
        const here = await present(cri, name, need.runtimeHandler, timeoutMs, signal);
        if (!here.ok) {
          options.metrics?.ensured(policy, null, null);
          const message = `Failed to inspect image "${name.pullName}": ${here.words}`;
          say('Warning', 'InspectFailed', message);
          return refused('ImageInspectError', message);
        }
        const { records } = options;
        const mustProve = here.imageRef !== null && records !== null && (await records.mustPull(asked, here.imageRef, () => shownBy(need, name, signal)));
        options.metrics?.ensured(policy, here.imageRef !== null, policy === 'Never' && here.imageRef === null ? null : here.imageRef === null || mustProve);
        if (here.imageRef !== null && !mustProve) {
          say('Normal', 'Pulled', `Container image "${asked}" already present on machine${records === null ? '' : ' and can be accessed by the pod'}`);
          return { ok: true, imageRef: here.imageRef, user: here.user };
        }
        if (policy === 'Never') {
          const message = `Container image "${asked}" is not present with pull policy of Never`;
          say('Warning', 'ErrImageNeverPull', message);
          return refused('ErrImageNeverPull', message);
        }
      }
      const key = `${keyOf(pod).uid}_${asked}`;
      const failed = failures.get(key);
      const heldMs = failed === undefined ? null : heldUntilMs(failed.backoff, options.rules, failed.failedAtMs, clock.nowMs());
      if (failed !== undefined && heldMs !== null) {
        const message = `Back-off pulling image "${asked}"`;
        const saidAtMs = failed.saidAtMs.get(container.name);
        const isSaid = saidAtMs !== undefined && clock.monoMs() - saidAtMs < sayAgainMs;
        if (!isSaid) {
          failed.saidAtMs.set(container.name, clock.monoMs());
          say('Normal', 'BackOff', message);
        }
        return { ok: false, reason: 'ImagePullBackOff', message: `${message}: ${failed.words}`, isSaid };
      }
      say('Normal', 'Pulling', `Pulling image "${asked}"`);
      const askedAtMs = clock.monoMs();
      try {
        await options.records?.begin(asked);
        let pulled: Pulled | null = null;
        try {
          pulled = await pull(need, name, signal);
        } finally {
          if (pulled === null) await options.records?.failed(asked);
          else await options.records?.done(asked, pulled.imageRef, credentialsOf(pulled.by?.source ?? null, pulled.by?.hash ?? ''));
        }
        failures.delete(key);
        const waitedMs = clock.monoMs() - askedAtMs;
        options.metrics?.pulled(Number(pulled.sizeBytes), waitedMs);
        options.onPulled?.(keyOf(pod).uid, waitedMs);
        say(
          'Normal',
          'Pulled',
          `Successfully pulled image "${asked}" in ${durationText(pulled.pullMs)} (${durationText(waitedMs)} including waiting). Image size: ${pulled.sizeBytes} bytes.`,
        );
        return { ok: true, imageRef: pulled.imageRef };
      } catch (error) {
        if (signal.aborted) throw new OpError('aborted', `pull ${asked}`, 'stopped by the caller', { cause: error });
        const nowMs = clock.nowMs();
        say('Warning', 'Failed', `Failed to pull image "${asked}": ${pullErrorText(error)}`);
        const { reason, message } = pullFailure(asked, error);
        const backoff = grow(failed?.backoff, options.rules, nowMs, nowMs);
        failures.set(key, { backoff, failedAtMs: nowMs, words: `${reason}: ${message}`, saidAtMs: new Map() });
        return { ok: false, reason, message };
      }
    },
    forget(uid) {
      for (const key of failures.keys()) if (key.startsWith(`${uid}_`)) failures.delete(key);
    },
  };
}

/** As whom the image's processes run when nothing else is said. */
export function imageUserOf(image: Image): ImageUser {
  if (image.uid !== null) return { uid: Number(image.uid.value), username: '' };
  return image.username === '' ? { uid: 0, username: '' } : { uid: null, username: image.username };
}

function refused(reason: string, message: string): ImageOutcome {
  return { ok: false, reason, message };
}

async function present(
  cri: Cri,
  name: ImageName,
  runtimeHandler: string,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<{ ok: true; imageRef: string; user: ImageUser } | { ok: true; imageRef: null } | { ok: false; words: string }> {
  try {
    const { image } = await cri.images.imageStatus(
      { image: { image: name.pullName, ...(runtimeHandler === '' ? {} : { runtimeHandler }) } },
      { timeoutMs, signal },
    );
    return image === null || image.id === '' ? { ok: true, imageRef: null } : { ok: true, imageRef: image.id, user: imageUserOf(image) };
  } catch (error) {
    if (signal.aborted) throw error;
    return { ok: false, words: rpcErrorText(error) };
  }
}

/** The runtime marks two kinds of failure by the first word of its text: there is no code for them in CRI. */
const marked: readonly [string, string][] = [
  ['RegistryUnavailable', 'the registry is unavailable'],
  ['SignatureValidationFailed', 'the signature validation failed'],
];

function pullFailure(image: string, error: unknown): { reason: string; message: string } {
  const words = runtimeWords(error);
  for (const [mark, because] of marked) {
    if (words.startsWith(mark)) return { reason: mark, message: `image pull failed for ${image} because ${because}${words.slice(mark.length)}` };
  }
  return { reason: 'ErrImagePull', message: pullErrorText(error) };
}
