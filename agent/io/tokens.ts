import type { Clock } from '../../base/clock.ts';
import { messageOf, OpError } from '../../base/errors.ts';
import { serviceAccounts, subresource } from '../../base/kubeapi/refs.ts';
import type { KubeApi } from '../../base/kubeapi/types.ts';
import type { Log } from '../../base/log.ts';
import type { Rng } from '../../base/rng.ts';
import type { Pod, TokenRequest } from '../../proto/kube/types.ts';
import { tokenKey } from '../core/volumes-payload.ts';
import type { TokenAsk } from '../core/volumes-payload.ts';

export interface TokensOptions {
  readonly api: KubeApi;
  readonly clock: Clock;
  readonly rng: Rng;
  readonly log: Log;
  readonly timeoutMs?: number;
}

interface Held {
  readonly token: string;
  /** As the API server wrote it. */
  readonly expirationTimestamp: string;
  /** Wall clock: it goes on while the machine sleeps. */
  readonly issuedAtMs: number;
  /** Monotonic: it does not jump. */
  readonly issuedMonoMs: number;
  readonly lifeMs: number;
  readonly jitterMs: number;
}

const dayMs = 24 * 3600 * 1000;
const maxJitterMs = 10_000;
/** Between two attempts while a usable token is held, so that a refusing server is not pressed. */
const retryMs = 1000;

/** The age at which a token is due: 80 % of its life or a day, a little earlier by chance. */
export function dueAfterMs({ lifeMs, jitterMs }: Pick<Held, 'lifeMs' | 'jitterMs'>): number {
  return Math.min(lifeMs * 0.8, dayMs) - jitterMs;
}

/**
 * Tokens of service accounts, bound to pods (TokenRequest), kept while they are fresh. A refused renewal is not
 * remembered: the old token serves on and the next pass asks again.
 */
export class Tokens {
  readonly #options: TokensOptions;
  readonly #held = new Map<string, Map<string, Held>>();
  readonly #attempts = new Map<string, number>();

  constructor(options: TokensOptions) {
    this.#options = options;
  }

  /** A token for a volume of `pod`. Throws ApiError or OpError when there is none that still works. */
  async get(pod: Pod, ask: TokenAsk, signal: AbortSignal): Promise<string> {
    return (await this.getStatus(pod, ask, signal)).token;
  }

  /** As `get`, with the moment at which it ends. */
  async getStatus(pod: Pod, ask: TokenAsk, signal: AbortSignal): Promise<{ token: string; expirationTimestamp: string }> {
    const uid = pod.metadata.uid ?? '';
    const key = tokenKey(ask);
    const held = this.#held.get(uid)?.get(key);
    const { clock } = this.#options;
    const now = clock.monoMs();
    // Of two clocks the one that says older: one can be set back, the other stands still while the machine sleeps.
    const ageMs = held === undefined ? 0 : Math.max(clock.nowMs() - held.issuedAtMs, now - held.issuedMonoMs);
    if (held !== undefined && ageMs < dueAfterMs(held)) return held;
    const isUsable = held !== undefined && ageMs < held.lifeMs;
    const attempt = `${uid}/${key}`;
    if (isUsable && now - (this.#attempts.get(attempt) ?? -Infinity) < retryMs) return held;
    this.#attempts.set(attempt, now);
    try {
      const fresh = await this.#request(pod, ask, signal);
      const ofPod = this.#held.get(uid) ?? new Map<string, Held>();
      ofPod.set(key, fresh);
      this.#held.set(uid, ofPod);
      return fresh;
    } catch (error) {
      if (!isUsable || signal.aborted) throw error;
      this.#options.log.warn('Could not update a service account token, the present one still works', {
        pod: pod.metadata.name,
        namespace: pod.metadata.namespace,
        err: messageOf(error),
      });
      return held;
    }
  }

  /** Forgets the tokens of a pod. */
  release(uid: string): void {
    // Also of those that were asked for in vain.
    for (const attempt of this.#attempts.keys()) if (attempt.startsWith(`${uid}/`)) this.#attempts.delete(attempt);
    this.#held.delete(uid);
  }

  async #request(pod: Pod, ask: TokenAsk, signal: AbortSignal): Promise<Held> {
    const { clock, api, rng } = this.#options;
    const account = pod.spec.serviceAccountName ?? 'default';
    const ref = subresource(serviceAccounts(pod.metadata.namespace, account), 'token');
    const body: TokenRequest = {
      apiVersion: 'authentication.k8s.io/v1',
      kind: 'TokenRequest',
      metadata: {},
      spec: {
        audiences: ask.audience === '' ? [] : [ask.audience],
        expirationSeconds: ask.expirationSeconds,
        boundObjectRef: { apiVersion: 'v1', kind: 'Pod', name: pod.metadata.name ?? '', uid: pod.metadata.uid ?? '' },
      },
    };
    const answer = await api.create<TokenRequest>(ref, body, { timeoutMs: this.#options.timeoutMs ?? 10_000 }, signal);
    const token = answer.status?.token;
    if (token === undefined || token === '') throw new OpError('failed', `ask for a token of service account ${account}`, 'the answer holds none');
    const now = clock.nowMs();
    const expiresAtMs = Date.parse(answer.status?.expirationTimestamp ?? '');
    const lifeMs = Number.isFinite(expiresAtMs) ? Math.max(expiresAtMs - now, 0) : ask.expirationSeconds * 1000;
    // A life of a minute, as tests use, leaves no room for ten seconds of chance.
    return {
      token,
      expirationTimestamp: answer.status?.expirationTimestamp ?? '',
      issuedAtMs: now,
      issuedMonoMs: clock.monoMs(),
      lifeMs,
      jitterMs: rng.float() * Math.min(maxJitterMs, lifeMs / 60),
    };
  }
}
