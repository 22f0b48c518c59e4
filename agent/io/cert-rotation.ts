import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import { ApiError } from '../../base/kubeapi/errors.ts';
import type { KubeApi } from '../../base/kubeapi/types.ts';
import type { Log } from '../../base/log.ts';
import { backoffMs } from '../../base/retry.ts';
import type { Rng } from '../../base/rng.ts';
import { newPrivateKeyPem } from '../../base/x509.ts';
import { rotationDeadlineMs, type CertPurpose, type CertTemplate } from '../core/node-certs.ts';
import { templateGap, type CertStore, type StoredPair } from './cert-store.ts';
import { awaitCertificate, postRequest } from './csr.ts';

export interface RotationOptions {
  readonly clock: Clock;
  readonly rng: Rng;
  readonly log: Log;
  readonly store: CertStore;
  readonly purpose: CertPurpose;
  /** Null while nothing can be asked for yet. */
  readonly template: () => CertTemplate | null;
  /** Who asks: with the certificate there is, or without one. */
  readonly api: (hasCertificate: boolean) => KubeApi;
  /** What is used until the first rotation; `renew`: ask for another at once. */
  readonly initial: { readonly pair: StoredPair | null; readonly renew: boolean };
  readonly onRenewed?: (pair: StoredPair, previous: StoredPair | null) => void;
  readonly onFailure?: () => void;
}

export interface Rotation {
  /** Null before the first, and after the end of the last. */
  current(): StoredPair | null;
  /** Whether the API server answered the last request, if only to refuse it. */
  serverAnswers(): boolean;
  /** Asks for certificates as they are due, until `signal` is aborted. */
  run(signal: AbortSignal): Promise<void>;
}

/** How long a request may wait for its signature before another is made. */
const issueTimeoutMs = 15 * 60_000;
const retries = { baseMs: 2_000, maxMs: 32_000, jitter: 0.1 };
/** Timers are no longer than this, so that a clock that is set is noticed. */
const longestSleepMs = 60_000;
const restMs = 1_000;

/** Keeps one certificate of this node young: asks for it, and for the next at 70 to 90 % of its life. */
export function createRotation(options: RotationOptions): Rotation {
  const { clock, rng, log, store, purpose } = options;
  let pair = options.initial.pair;
  let due = options.initial.renew;
  let answers = false;
  const current = (): StoredPair | null => (pair === null || clock.nowMs() > pair.notAfterMs ? null : pair);

  /** When the next is asked for; now, if what there is does not do. */
  const deadlineMs = (wanted: CertTemplate): number => {
    const nowMs = clock.nowMs();
    if (due || pair === null) return nowMs;
    const gap = templateGap(pair, wanted);
    if (gap !== null) {
      log.info('The current certificate is not the one that is wanted', { why: gap });
      return nowMs;
    }
    const at = rotationDeadlineMs(pair.notBeforeMs, pair.notAfterMs, rng.float());
    log.info('Certificate rotation deadline determined', { expiration: new Date(pair.notAfterMs).toISOString(), deadline: new Date(at).toISOString() });
    return at;
  };

  const rotate = async (template: CertTemplate, signal: AbortSignal): Promise<boolean> => {
    log.info('Rotating certificates', { purpose });
    const api = options.api(current() !== null);
    const privateKeyPem = newPrivateKeyPem('sec1');
    let request: { name: string; uid: string };
    try {
      request = await postRequest({ clock, log, api, purpose, template, privateKeyPem }, signal);
    } catch (error) {
      if (signal.aborted) return false;
      answers = error instanceof ApiError && [401, 403, 404].includes(error.code);
      log.error('Failed while requesting a signed certificate from the control plane', { err: messageOf(error) });
      return false;
    }
    try {
      const certificatePem = await awaitCertificate({ clock, log, api }, request, issueTimeoutMs, signal);
      const previous = pair;
      pair = await store.update(certificatePem, privateKeyPem);
      answers = true;
      options.onRenewed?.(pair, previous);
      return true;
    } catch (error) {
      if (!signal.aborted) log.error('Certificate request was not signed', { csr: request.name, err: messageOf(error) });
      return false;
    }
  };

  return {
    current,
    serverAnswers: () => answers,
    async run(signal) {
      const sleep = (ms: number): Promise<void> => clock.sleep(ms, signal).catch(() => undefined);
      let waited = false;
      while (!signal.aborted) {
        const template = options.template();
        if (template === null) {
          if (!waited) log.info('No address of this node is known yet to ask a serving certificate for');
          waited = true;
          await sleep(restMs);
          continue;
        }
        const untilMs = deadlineMs(template);
        while (!signal.aborted && clock.nowMs() < untilMs) await sleep(Math.min(untilMs - clock.nowMs(), longestSleepMs));
        due = false;
        for (let failures = 1; !signal.aborted && !(await rotate(template, signal)); failures++) {
          options.onFailure?.();
          await sleep(backoffMs(failures, retries, rng));
        }
        await sleep(restMs);
      }
    },
  };
}
