import type { Clock } from '../../base/clock.ts';
import { alpha } from '../../base/metrics-text.ts';

const gauge = (name: string, help: string): ReturnType<typeof alpha> => alpha(`kubelet_node_startup_${name}`, help, 'gauge').zero();

/** How long a machine that was no node before took to become one; of a node that was known nothing is told, as upstream does. */
export class StartupMetrics {
  readonly #clock: Clock;
  readonly #bootMs: number | null;
  readonly #startMs: number;
  #triedMs: number | null = null;
  #registeredMs: number | null = null;
  #readyMs: number | null = null;
  readonly #preKubelet = gauge('pre_kubelet_duration_seconds', 'Duration in seconds of node startup before kubelet starts.');
  readonly #preRegistration = gauge('pre_registration_duration_seconds', 'Duration in seconds of node startup before registration.');
  readonly #registration = gauge('registration_duration_seconds', 'Duration in seconds of node startup during registration.');
  readonly #postRegistration = gauge('post_registration_duration_seconds', 'Duration in seconds of node startup after registration.');
  readonly #total = gauge('duration_seconds', 'Duration in seconds of node startup in total.');

  /** `upMs`: for how long the machine runs; null: not known. */
  constructor(clock: Clock, upMs: number | null) {
    this.#clock = clock;
    this.#startMs = clock.nowMs();
    this.#bootMs = upMs === null ? null : this.#startMs - upMs;
  }

  tries(): void {
    this.#triedMs ??= this.#clock.nowMs();
  }

  /** The Node was made, not found. */
  registered(): void {
    if (this.#triedMs === null || this.#registeredMs !== null) return;
    this.#registeredMs = this.#clock.nowMs();
    if (this.#bootMs !== null) this.#preKubelet.set({}, (this.#startMs - this.#bootMs) / 1000);
    this.#preRegistration.set({}, (this.#triedMs - this.#startMs) / 1000);
    this.#registration.set({}, (this.#registeredMs - this.#triedMs) / 1000);
  }

  ready(): void {
    if (this.#registeredMs === null || this.#readyMs !== null) return;
    this.#readyMs = this.#clock.nowMs();
    this.#postRegistration.set({}, (this.#readyMs - this.#registeredMs) / 1000);
    if (this.#bootMs !== null) this.#total.set({}, (this.#readyMs - this.#bootMs) / 1000);
  }

  text(): string {
    return [this.#preKubelet, this.#preRegistration, this.#registration, this.#postRegistration, this.#total].map((metric) => metric.text()).join('');
  }
}
