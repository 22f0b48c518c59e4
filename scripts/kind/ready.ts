import { OpError } from '../../base/errors.ts';
import type { Place } from './place.ts';

/** What was seen of a Node object while it was watched. */
export interface Seen {
  /** Whether Ready was True in every version of the object. */
  readonly isReadyThroughout: boolean;
  readonly kubeletVersion: string;
  readonly ready: string;
}

interface NodeObject {
  readonly status?: { readonly conditions?: readonly { type: string; status: string }[]; readonly nodeInfo?: { kubeletVersion?: string } };
}

/** Watches the place's Node object from before something is done to it until it is as wanted. */
export class ReadyWatch implements AsyncDisposable {
  #seen: Seen = { isReadyThroughout: true, kubeletVersion: '', ready: '' };
  #changed = Promise.withResolvers<void>();
  readonly #watch: AsyncDisposable;
  readonly #place: Place;
  #isOver = false;

  constructor(place: Place) {
    this.#place = place;
    this.#watch = place.watch(
      (line) => this.#take(line),
      () => this.#over(),
    );
  }

  get seen(): Seen {
    return this.#seen;
  }

  #take(line: string): void {
    let status: NodeObject['status'];
    try {
      status = JSON.parse(line) as NodeObject['status'];
    } catch {
      return;
    }
    const ready = status?.conditions?.find(({ type }) => type === 'Ready')?.status ?? 'Unknown';
    this.#seen = {
      isReadyThroughout: this.#seen.isReadyThroughout && ready === 'True',
      kubeletVersion: status?.nodeInfo?.kubeletVersion ?? '',
      ready,
    };
    this.#wake();
  }

  #wake(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers<void>();
  }

  #over(): void {
    this.#isOver = true;
    this.#wake();
  }

  /** Waits until the object is as `isWanted` says; OpError `deadline` with what it was last. */
  async until(what: string, isWanted: (seen: Seen) => boolean, timeoutMs: number): Promise<Seen> {
    const { clock, engine } = this.#place;
    let isLate = false;
    const stop = Promise.withResolvers<void>();
    using _timer = clock.after(timeoutMs, () => {
      isLate = true;
      stop.resolve();
    });
    const abort = (): void => stop.resolve();
    engine.signal.addEventListener('abort', abort, { once: true });
    try {
      for (;;) {
        if (isWanted(this.#seen)) return this.#seen;
        engine.signal.throwIfAborted();
        if (this.#isOver) throw new OpError('unavailable', `waiting until ${what}`, 'the watch of the node ended');
        if (isLate)
          throw new OpError('deadline', `waiting until ${what}`, `Ready is ${this.#seen.ready || 'unknown'} with ${this.#seen.kubeletVersion || 'no kubelet'}`);
        await Promise.race([this.#changed.promise, stop.promise]);
      }
    } finally {
      engine.signal.removeEventListener('abort', abort);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#watch[Symbol.asyncDispose]();
  }
}
