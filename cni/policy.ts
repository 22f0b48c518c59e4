import { Nap } from '../base/abort.ts';
import type { Clock } from '../base/clock.ts';
import { messageOf, OpError } from '../base/errors.ts';
import type { KubeApi } from '../base/kubeapi/types.ts';
import type { Log } from '../base/log.ts';
import { addressText, type Address } from './core/address.ts';
import type { PolicyPod } from './core/policy-facts.ts';
import { isEmpty, policyRules, type PolicyRules } from './core/policy-rules.ts';
import { changeText, isAsWritten, wholeText } from './core/policy-table.ts';
import type { PolicyTable } from './io/policy-table.ts';
import { PolicyCopies } from './policy-copies.ts';

/** Pods and policies change together: one write for all. */
const GATHER_MS = 50;
/** A table that somebody flushed is back after this. */
const LOOK_MS = 30_000;
const RETRY_MS = [500, 2_000, 10_000, 30_000];
/** How long a pod's ADD waits until its policies stand. */
const ADMIT_MS = 5_000;

export interface PolicyNetworkOptions {
  readonly nodeName: string;
  readonly table: PolicyTable;
  readonly clock: Clock;
  readonly log: Log;
}

/** Keeps the table of policies: what the API says, and the addresses that pods have before the API knows them. */
export class PolicyNetwork {
  readonly #options: PolicyNetworkOptions;
  readonly #copies: PolicyCopies;
  /** Addresses given out here to pods whose status does not have them yet. */
  readonly #given = new Map<string, { readonly containerId: string; readonly addresses: readonly Address[] }>();
  /** Null: not known, so the next write is a whole one. */
  #written: PolicyRules | null = null;
  #isChanged = true;
  /** Writes that were begun, and the last of them that is done. */
  #begun = 0;
  #done = 0;
  #failures = 0;
  #lastTrouble = '';
  readonly #nap = new Nap();
  #waiting: (() => void)[] = [];

  constructor(options: PolicyNetworkOptions) {
    this.#options = options;
    this.#copies = new PolicyCopies({
      log: options.log,
      changed: () => this.#changed(),
      podTold: (key) => this.#forgetGiven(key === null ? [...this.#given.keys()] : [key]),
    });
  }

  /** Follows the API until `signal` is aborted; the rules stay. */
  async run(api: KubeApi, signal: AbortSignal): Promise<void> {
    await Promise.all([this.#copies.run(api, signal), this.#loop(signal)]);
  }

  /**
   * Tells the addresses of a new pod of this node, and waits until its policies stand, so that it never talks without
   * them. Without policies, or before everything was listed once, it does not wait.
   */
  async admit(key: string, containerId: string, addresses: readonly Address[]): Promise<void> {
    if (this.#copies.isComplete && this.#copies.isFree) return;
    this.#given.set(key, { containerId, addresses });
    if (!this.#copies.isComplete) return;
    const { clock, log } = this.#options;
    const untilMs = clock.monoMs() + ADMIT_MS;
    // Only a write that begins once the pod's labels are known has it.
    for (let after: number | null = null; after === null || this.#done <= after;) {
      if (after === null && this.#copies.pods.has(key)) {
        after = this.#begun;
        this.#changed();
      }
      const leftMs = untilMs - clock.monoMs();
      if (leftMs <= 0) {
        log.warn('A pod begins before its policies stand', { pod: key });
        return;
      }
      await new Promise<void>((resolve) => {
        const timer = clock.after(leftMs, resolve);
        this.#waiting.push(() => {
          timer[Symbol.dispose]();
          resolve();
        });
      });
    }
  }

  /** The addresses of the pod's sandbox are free. */
  release(key: string, containerId: string): void {
    if (this.#given.get(key)?.containerId !== containerId) return;
    this.#given.delete(key);
    this.#changed();
  }

  /** What the API tells by now, and what belongs to pods that are gone. */
  #forgetGiven(keys: readonly string[]): void {
    for (const key of keys) {
      const given = this.#given.get(key);
      if (given === undefined) continue;
      const pod = this.#copies.pods.get(key);
      const told = new Set(pod?.addresses.map(addressText));
      if (pod === undefined || pod.isFinished || given.addresses.every((address) => told.has(addressText(address)))) this.#given.delete(key);
    }
  }

  #changed(): void {
    this.#isChanged = true;
    this.#nap.wake();
  }

  async #loop(signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    for (let lookMs = clock.monoMs() + LOOK_MS; !signal.aborted;) {
      if (clock.monoMs() >= lookMs) {
        await this.#attempt(() => this.#look());
        lookMs = clock.monoMs() + LOOK_MS;
      }
      if (this.#isChanged && this.#copies.isComplete) {
        await clock.sleep(GATHER_MS, signal);
        await this.#attempt(() => this.sync());
      }
      if (this.#failures > 0) await clock.sleep(RETRY_MS[this.#failures - 1] ?? RETRY_MS.at(-1)!, signal);
      else if (!this.#isChanged || !this.#copies.isComplete) await this.#nap.take(this.#options.clock, Math.max(0, lookMs - clock.monoMs()), signal);
    }
  }

  /** A write that failed is done again as a whole one. */
  async #attempt(work: () => Promise<void>): Promise<void> {
    const { log } = this.#options;
    try {
      await work();
      this.#failures = 0;
      this.#lastTrouble = '';
    } catch (error) {
      if (!(error instanceof OpError)) throw error;
      this.#failures += 1;
      this.#written = null;
      this.#isChanged = true;
      if (messageOf(error) !== this.#lastTrouble) log.error('The policies in the kernel are not as they should be', { error: messageOf(error) });
      this.#lastTrouble = messageOf(error);
    }
  }

  /** Makes the kernel's table what is known now. */
  async sync(): Promise<void> {
    const { nodeName, table, log } = this.#options;
    this.#isChanged = false;
    const own = ++this.#begun;
    const { policies, clusterPolicies, namespaces, nodes } = this.#copies;
    const rules = policyRules({
      node: nodeName,
      policies: policies.values(),
      clusterPolicies: clusterPolicies.values(),
      pods: this.#podsNow(),
      namespaces,
      nodes: nodes.values(),
    });
    const before = this.#written;
    const text = before === null ? wholeText(rules) : changeText(before, rules);
    if (text !== '') await table.write(text);
    this.#written = rules;
    this.#done = own;
    if (text !== '') log.debug(1, 'Policies written', { isWhole: before === null, chains: rules.chains.size, sets: rules.sets.size, bytes: text.length });
    for (const wake of this.#waiting.splice(0)) wake();
  }

  *#podsNow(): Generator<PolicyPod> {
    for (const [key, pod] of this.#copies.pods) {
      const given = this.#given.get(key);
      yield given === undefined || pod.isHost || pod.isFinished ? pod : { ...pod, addresses: given.addresses };
    }
  }

  /** Whether somebody else changed the table; it is written anew then. */
  async #look(): Promise<void> {
    const { table, log } = this.#options;
    const rules = this.#written;
    if (rules === null) return;
    const found = await table.read();
    if (found.state === 'unknown' || rules !== this.#written) return;
    if (found.state === 'none' ? isEmpty(rules) : !isEmpty(rules) && isAsWritten(found.listing, rules)) return;
    log.warn('Somebody changed the table of policies; it is written again');
    this.#written = null;
    this.#isChanged = true;
  }
}
