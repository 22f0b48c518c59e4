import { Agent, request } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { messageOf } from '../../base/errors.ts';

/** What clients outside the nodes saw of a Service. */
export interface Served {
  readonly requests: number;
  readonly failures: readonly string[];
  /** Requests by the pod that answered. */
  readonly byPod: Readonly<Record<string, number>>;
  readonly slowestMs: number;
}

const EACH_MS = 5_000;
const PAUSE_MS = 20;

/** Asks a Service again and again: one client with a connection for each request, and one with connections that are kept. */
export class Clients implements AsyncDisposable {
  readonly #stop = new AbortController();
  readonly #work: Promise<unknown>;
  readonly #agents = [
    { kind: 'new', agent: new Agent({ keepAlive: false }) },
    { kind: 'kept', agent: new Agent({ keepAlive: true, maxSockets: 1 }) },
    { kind: 'kept', agent: new Agent({ keepAlive: true, maxSockets: 1 }) },
  ];
  #requests = 0;
  #slowestMs = 0;
  readonly #failures: string[] = [];
  readonly #byPod = new Map<string, number>();

  constructor(url: string) {
    this.#work = Promise.all(this.#agents.map(({ kind, agent }) => this.#loop(url, kind, agent)));
  }

  async #loop(url: string, kind: string, agent: Agent): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      const begunAt = performance.now();
      try {
        const pod = await ask(url, agent);
        this.#byPod.set(pod, (this.#byPod.get(pod) ?? 0) + 1);
      } catch (error) {
        if (this.#failures.length < 100) this.#failures.push(`${new Date().toISOString()} ${kind}: ${messageOf(error)}`);
      }
      this.#requests += 1;
      this.#slowestMs = Math.max(this.#slowestMs, performance.now() - begunAt);
      await delay(PAUSE_MS, undefined, { signal }).catch(() => undefined);
    }
  }

  get served(): Served {
    return { requests: this.#requests, failures: [...this.#failures], byPod: Object.fromEntries(this.#byPod), slowestMs: this.#slowestMs };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#work;
    for (const { agent } of this.#agents) agent.destroy();
  }
}

function ask(url: string, agent: Agent): Promise<string> {
  return new Promise((resolve, reject) => {
    const asked = request(url, { agent, timeout: EACH_MS }, (answer) => {
      let text = '';
      answer.setEncoding('utf8');
      answer.on('data', (chunk: string) => void (text += chunk));
      answer.on('end', () => {
        if (answer.statusCode === 200) resolve(text.trim());
        else reject(new Error(`status ${answer.statusCode ?? 0}`));
      });
      answer.on('error', reject);
    });
    asked.on('timeout', () => asked.destroy(new Error(`no answer in ${EACH_MS} ms`)));
    asked.on('error', reject);
    asked.end();
  });
}
