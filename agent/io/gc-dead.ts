import { messageOf } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import type { Pods } from '../seams.ts';
import type { Gc } from './gc.ts';

export interface DeadContainersOptions {
  readonly gc: Pick<Gc, 'deadPass'>;
  readonly pods: Pick<Pods, 'allFacts' | 'mayRun'> & { onRuntimeChange(callback: (uids: readonly string[]) => void): void };
  readonly log: Log;
}

/** Takes away what a crash loop leaves, one pod after another, as soon as the listing shows the next one dead. */
export class DeadContainers {
  readonly #options: DeadContainersOptions;
  readonly #changed = new Set<string>();
  #wake: () => void = () => undefined;

  constructor(options: DeadContainersOptions) {
    this.#options = options;
    options.pods.onRuntimeChange((uids) => {
      for (const uid of uids) this.#changed.add(uid);
      this.#wake();
    });
  }

  /** Runs until `signal` is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const [uid] = this.#changed;
      if (uid === undefined) {
        const { promise, resolve } = Promise.withResolvers<void>();
        this.#wake = resolve;
        const stop = (): void => resolve();
        signal.addEventListener('abort', stop, { once: true });
        await promise;
        signal.removeEventListener('abort', stop);
        continue;
      }
      this.#changed.delete(uid);
      await this.#pass(uid, signal);
    }
  }

  async #pass(uid: string, signal: AbortSignal): Promise<void> {
    const { gc, pods, log } = this.#options;
    // As listed: what a worker has read may be from before the end that this is about.
    const facts = pods.allFacts().find((each) => each.uid === uid);
    // An ended pod's containers go with it.
    if (facts === undefined || !pods.mayRun(uid)) return;
    try {
      await gc.deadPass(facts, signal);
    } catch (error) {
      if (!signal.aborted) log.warn('A dead container could not be removed', { podUID: uid, err: messageOf(error) });
    }
  }
}
