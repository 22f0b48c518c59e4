import type { Clock } from '../base/clock.ts';

/** Whether the rules keep up with the API server: the facts behind /healthz, /livez and the health-check node ports. */

export type IPFamily = 'IPv4' | 'IPv6';

export interface ProxyHealthReport {
  lastUpdated: string;
  currentTime: string;
  nodeEligible?: boolean;
  healthy: boolean;
  status: Partial<Record<IPFamily, { lastUpdated: string; healthy: boolean }>>;
}

export interface NodeFacts {
  exists: boolean;
  deleting: boolean;
  /** Carries the taint of an autoscaler that is about to remove it. */
  toBeDeleted: boolean;
}

/** Unhealthy when a change has waited longer than `timeoutMs` (upstream: twice the sync period). */
export class ProxyHealth {
  readonly #clock: Pick<Clock, 'nowMs' | 'monoMs'>;
  readonly #timeoutMs: number;
  readonly #updated = new Map<IPFamily, number>();
  /** Monotonic: a clock that is set forward makes no change late. */
  readonly #queued = new Map<IPFamily, number>();
  #node: NodeFacts = { exists: false, deleting: false, toBeDeleted: false };

  constructor(options: { clock: Pick<Clock, 'nowMs' | 'monoMs'>; timeoutMs: number }) {
    this.#clock = options.clock;
    this.#timeoutMs = options.timeoutMs;
  }

  queued(family: IPFamily): void {
    if (!this.#queued.has(family)) this.#queued.set(family, this.#clock.monoMs());
  }

  updated(family: IPFamily): void {
    this.#queued.delete(family);
    this.#updated.set(family, this.#clock.nowMs());
  }

  nodeChanged(node: NodeFacts): void {
    this.#node = node;
  }

  get nodeEligible(): boolean {
    return this.#node.exists && !this.#node.deleting && !this.#node.toBeDeleted;
  }

  get healthy(): boolean {
    return [...this.#updated.keys()].every((family) => !this.#isLate(family));
  }

  #isLate(family: IPFamily): boolean {
    const since = this.#queued.get(family);
    return since !== undefined && this.#clock.monoMs() - since >= this.#timeoutMs;
  }

  /** The body of /livez, and with `nodeEligible` that of /healthz. */
  report(withNode: boolean): ProxyHealthReport {
    const status: ProxyHealthReport['status'] = {};
    for (const [family, atMs] of this.#updated) status[family] = { lastUpdated: new Date(atMs).toISOString(), healthy: !this.#isLate(family) };
    const good = this.healthy && (!withNode || this.nodeEligible);
    // Readers take a recent lastUpdated for a sign of life, so a healthy proxy answers with now.
    const lastMs = good ? this.#clock.nowMs() : Math.max(0, ...this.#updated.values());
    return {
      lastUpdated: new Date(lastMs).toISOString(),
      currentTime: new Date(this.#clock.nowMs()).toISOString(),
      ...(withNode ? { nodeEligible: this.nodeEligible } : {}),
      healthy: this.healthy,
      status,
    };
  }
}
