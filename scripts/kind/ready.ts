import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
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
  readonly #end: () => void;
  readonly #ended: Promise<unknown>;
  #isOver = false;

  constructor(place: Place) {
    const child = spawn(
      'docker',
      [
        'exec',
        place.controlPlane,
        'kubectl',
        '--kubeconfig=/etc/kubernetes/admin.conf',
        'get',
        'node',
        place.node,
        '--watch',
        '--output=jsonpath={.status}{"\\n"}',
      ],
      { env: { ...place.engine.env }, stdio: ['ignore', 'pipe', 'ignore'] },
    );
    child.on('error', () => this.#over());
    child.on('close', () => this.#over());
    this.#ended = new Promise((resolve) => void child.once('close', resolve));
    this.#end = () => void child.kill('SIGTERM');
    createInterface({ input: child.stdout }).on('line', (line) => this.#take(line));
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
  async until(what: string, isWanted: (seen: Seen) => boolean, timeoutMs: number, signal: AbortSignal): Promise<Seen> {
    const deadline = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
    const stop = new Promise<void>((resolve) => deadline.addEventListener('abort', () => resolve(), { once: true }));
    for (;;) {
      if (isWanted(this.#seen)) return this.#seen;
      signal.throwIfAborted();
      if (this.#isOver) throw new OpError('unavailable', `waiting until ${what}`, 'the watch of the node ended');
      if (deadline.aborted)
        throw new OpError('deadline', `waiting until ${what}`, `Ready is ${this.#seen.ready || 'unknown'} with ${this.#seen.kubeletVersion || 'no kubelet'}`);
      await Promise.race([this.#changed.promise, stop]);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#end();
    await this.#ended;
  }
}
