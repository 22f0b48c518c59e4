import { fnv1a32 } from './hash.ts';

const firstMs = 1000;
const maxMs = 10_000;
const startMs = 10_000;
const startJitter = 0.5;
/** What a failed start made all the same is looked at when the next listing would show it. */
const madeMs = 1000;

/** How soon a pod of which something failed is looked at again, in ms. It has no clock: each answer is a pause from now. */
export class Retries {
  readonly #uid: string;
  #nextMs = firstMs;
  #starts = 0;

  constructor(uid: string) {
    this.#uid = uid;
  }

  /** Whether something has failed since all went well last. */
  get isBehind(): boolean {
    return this.#nextMs !== firstMs || this.#starts > 0;
  }

  /** After whatever else failed, a volume or an end: growing, from one second to ten. */
  pauseMs(): number {
    const ms = this.#nextMs;
    this.#nextMs = Math.min(this.#nextMs * 2, maxMs);
    return ms;
  }

  /**
   * After a sandbox or a container that could not be started: ten seconds and up to half as many again, each time
   * anew, as upstream's pod workers rest after an error. How many more follows from pod and try, so that pods that
   * failed together come back apart.
   * @param made whether the same try made something, a sandbox say: upstream's next listing shows it and brings the next look
   */
  startPauseMs(made: boolean): number {
    this.#starts += 1;
    return made ? madeMs : Math.round(startMs * (1 + (startJitter * fnv1a32(`${this.#starts}/${this.#uid}`)) / 2 ** 32));
  }

  /** All went well. */
  done(): void {
    this.#nextMs = firstMs;
    this.#starts = 0;
  }
}
