import { spawn, type ChildProcess } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import type { Event, Pod } from '../../proto/kube/types.ts';

export interface Seen {
  readonly atMs: number;
  readonly type: string;
  readonly pod: Pod;
}

/** Every change of the pods and Events of one namespace from now on, as a watch of stock kubectl shows it. */
export class Watch implements Disposable {
  readonly #children: ChildProcess[] = [];
  readonly #history = new Map<string, Seen[]>();
  readonly events: { readonly atMs: number; readonly event: Event }[] = [];
  #changed = Promise.withResolvers<void>();

  constructor(kubeconfig: string, namespace: string) {
    this.#follow(kubeconfig, `/api/v1/namespaces/${namespace}/pods?watch=1`, (type, object) => {
      const pod = object as Pod;
      const name = pod.metadata?.name ?? '';
      const of = this.#history.get(name) ?? [];
      of.push({ atMs: performance.now(), type, pod });
      this.#history.set(name, of);
    });
    this.#follow(kubeconfig, `/api/v1/namespaces/${namespace}/events?watch=1`, (_type, object) => {
      this.events.push({ atMs: performance.now(), event: object as Event });
    });
  }

  #follow(kubeconfig: string, path: string, take: (type: string, object: unknown) => void): void {
    const child = spawn('kubectl', [`--kubeconfig=${kubeconfig}`, 'get', '--raw', path], { stdio: ['ignore', 'pipe', 'inherit'] });
    this.#children.push(child);
    let rest = '';
    child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
      const lines = (rest + chunk).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) {
        const { type, object } = JSON.parse(line) as { type: string; object: unknown };
        if (type !== 'BOOKMARK') take(type, object);
      }
      const told = this.#changed;
      this.#changed = Promise.withResolvers();
      told.resolve();
    });
  }

  /** All that was seen of a pod, oldest first. */
  history(name: string): readonly Seen[] {
    return this.#history.get(name) ?? [];
  }

  last(name: string): Pod | undefined {
    return this.history(name).at(-1)?.pod;
  }

  eventsOf(name: string): Event[] {
    return this.events.map(({ event }) => event).filter((event) => event.involvedObject.name === name);
  }

  /** Waits until `look` finds something; it is asked again at each change. */
  async until<T>(what: string, timeoutMs: number, look: () => T | null | undefined | false): Promise<T> {
    const deadline = performance.now() + timeoutMs;
    for (;;) {
      const found = look();
      if (found !== null && found !== undefined && found !== false) return found;
      const leftMs = deadline - performance.now();
      if (leftMs <= 0) throw new Error(`${what}: not within ${timeoutMs} ms`);
      const pause = new AbortController();
      await Promise.race([this.#changed.promise, delay(Math.min(leftMs, 1000), undefined, { signal: pause.signal }).catch(() => {})]);
      pause.abort();
    }
  }

  /** A state of the pod that holds now. */
  async pod(name: string, what: string, timeoutMs: number, holds: (pod: Pod) => boolean | undefined): Promise<Pod> {
    try {
      return await this.until(`${name} ${what}`, timeoutMs, () => {
        const pod = this.last(name);
        return pod !== undefined && this.history(name).at(-1)?.type !== 'DELETED' && holds(pod) === true ? pod : null;
      });
    } catch (error) {
      throw new Error(`${(error as Error).message}; last: ${JSON.stringify(this.last(name)?.status)}`, { cause: error });
    }
  }

  /** The moment at which the object was gone. */
  async gone(name: string, timeoutMs: number, uid?: string): Promise<Seen> {
    return this.until(`${name} gone`, timeoutMs, () =>
      this.history(name).findLast((seen) => seen.type === 'DELETED' && (uid === undefined || seen.pod.metadata?.uid === uid)),
    );
  }

  [Symbol.dispose](): void {
    for (const child of this.#children) child.kill();
  }
}
