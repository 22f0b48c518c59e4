import type { Clock } from './clock.ts';
import { isRetriable, OpError } from './errors.ts';
import type { Rng } from './rng.ts';

/** Delays that grow: base, base × factor, … up to max, each lengthened by a random share up to `jitter`. */
export interface BackoffOptions {
  baseMs: number;
  maxMs: number;
  /** Default 2. */
  factor?: number;
  /** Share of the delay that chance may add; default 0.1. */
  jitter?: number;
}

export interface RetryOptions extends BackoffOptions {
  clock: Clock;
  rng: Rng;
  /** How often to try in all; default without end. */
  attempts?: number;
  /** Which failures are worth another try; default by OpError's code. */
  retriable?: (error: unknown) => boolean;
  onRetry?: (error: unknown, delayMs: number, attempt: number) => void;
}

/** The delay after failure number `failures` (1 is the first), in milliseconds. */
export function backoffMs(failures: number, options: BackoffOptions, rng: Rng): number {
  const grown = options.baseMs * (options.factor ?? 2) ** Math.max(0, failures - 1);
  return Math.min(grown, options.maxMs) * (1 + (options.jitter ?? 0.1) * rng.float());
}

/**
 * Tries until it works, the failure is not worth another try, the attempts are used up, or `signal` is aborted.
 * Throws the last failure, or OpError `aborted`.
 */
export async function retry<T>(options: RetryOptions, attempt: (count: number, signal?: AbortSignal) => Promise<T>, signal?: AbortSignal): Promise<T> {
  const retriable = options.retriable ?? isRetriable;
  for (let count = 1; ; count++) {
    if (signal?.aborted === true) throw new OpError('aborted', 'retry', 'stopped by the caller', { cause: signal.reason });
    try {
      return await attempt(count, signal);
    } catch (error) {
      if (!retriable(error) || count >= (options.attempts ?? Infinity)) throw error;
      const delayMs = backoffMs(count, options, options.rng);
      options.onRetry?.(error, delayMs, count);
      await options.clock.sleep(delayMs, signal);
    }
  }
}

/** A failure count per key, with the delay it earns; for work that is retried by a queue. */
export interface KeyedBackoff {
  /** Counts one more failure of `key` and returns the delay before its next try. */
  failed(key: string): number;
  succeeded(key: string): void;
  failures(key: string): number;
}

export function createKeyedBackoff(options: BackoffOptions, rng: Rng): KeyedBackoff {
  const counts = new Map<string, number>();
  return {
    failed(key) {
      const count = (counts.get(key) ?? 0) + 1;
      counts.set(key, count);
      return backoffMs(count, options, rng);
    },
    succeeded: (key) => void counts.delete(key),
    failures: (key) => counts.get(key) ?? 0,
  };
}
