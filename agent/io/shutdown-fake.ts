import { OpError } from '../../base/errors.ts';
import type { Logind } from './logind.ts';

/** logind in memory: a test begins and calls off shutdowns. */
export class FakeLogind implements Logind {
  delay: number;
  /** What it agrees to when asked for more. */
  mostMs = Number.POSITIVE_INFINITY;
  locks = 0;
  readonly #ended = Promise.withResolvers<void>();
  readonly ended = this.#ended.promise;
  #callback: (begins: boolean) => void = () => undefined;
  #lost = false;

  constructor(delayMs = 5000) {
    this.delay = delayMs;
  }

  async delayMs(): Promise<number> {
    return this.delay;
  }

  async askForDelay(delayMs: number): Promise<void> {
    this.delay = Math.min(delayMs, this.mostMs);
  }

  async inhibit(): Promise<AsyncDisposable> {
    if (this.#lost) throw new OpError('unavailable', 'inhibit', 'the connection was closed');
    this.locks += 1;
    return { [Symbol.asyncDispose]: async () => void (this.locks -= 1) };
  }

  async follow(callback: (begins: boolean) => void): Promise<void> {
    this.#callback = callback;
  }

  tell(begins: boolean): void {
    this.#callback(begins);
  }

  /** The connection is lost. */
  lose(): void {
    this.#lost = true;
    this.#ended.resolve();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.lose();
  }
}
