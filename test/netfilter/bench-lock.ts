import { realClock } from '../../base/clock.ts';
import type { Sys } from '../../base/sys/types.ts';
import { BatchEncoder } from '../../netfilter/core/encode-netlink.ts';
import { netfilterSocket } from '../../netfilter/io/socket.ts';

const EVERY_MS = 10;
const TIMEOUT_MS = 120_000;

/**
 * How long another writer has to wait. The kernel lets one transaction at a time into a network namespace's nftables,
 * those of the nft kind of iptables among them. The probe is an empty transaction: it takes the lock and changes nothing,
 * not even the generation. (One that the kernel refuses holds the lock for a grace period of RCU.)
 */
export class LockProbe implements AsyncDisposable {
  #longestMs = 0;
  #stopped = false;
  readonly #running: Promise<void>;

  /** @param sys in that namespace */
  constructor(sys: Sys) {
    this.#running = this.#run(netfilterSocket(sys, {}, TIMEOUT_MS));
    // Heard of when it is disposed.
    this.#running.catch(() => {});
  }

  async #run(send: ReturnType<typeof netfilterSocket>): Promise<void> {
    const message = new BatchEncoder('ip').finish();
    while (!this.#stopped) {
      const startMs = realClock.monoMs();
      await send(message, 1);
      this.#longestMs = Math.max(this.#longestMs, realClock.monoMs() - startMs);
      await realClock.sleep(EVERY_MS);
    }
  }

  /** The longest wait so far. */
  get longestMs(): number {
    return this.#longestMs;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stopped = true;
    await this.#running;
  }
}
