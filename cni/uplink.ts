import { uplinkOf } from './core/link-facts.ts';
import type { Kernel } from './io/kernel.ts';

/** The default route moves rarely; its link's MTU is asked for at each ADD all the same. */
const ROUTE_MS = 5_000;

/** The MTU of the link that leads outside. */
export class Uplink {
  readonly #kernel: Kernel;
  readonly #monoMs: () => number;
  #link = 0;
  #knownUntilMs = -1;

  constructor(kernel: Kernel, monoMs: () => number) {
    this.#kernel = kernel;
    this.#monoMs = monoMs;
  }

  /** Bytes; 0 when nothing leads outside. */
  async mtu(): Promise<number> {
    if (this.#monoMs() < this.#knownUntilMs && this.#link !== 0) {
      const link = await this.#kernel.link(null, this.#link);
      if (link !== null) return link.mtu;
    }
    this.#link = uplinkOf(await this.#kernel.routes(null));
    this.#knownUntilMs = this.#monoMs() + ROUTE_MS;
    return this.#link === 0 ? 0 : ((await this.#kernel.link(null, this.#link))?.mtu ?? 0);
  }
}
