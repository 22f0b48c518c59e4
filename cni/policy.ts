import type { Clock } from '../base/clock.ts';
import { messageOf, OpError } from '../base/errors.ts';
import { isApiError } from '../base/kubeapi/errors.ts';
import * as refs from '../base/kubeapi/refs.ts';
import type { KubeApi, KubeObject, ReflectHandler } from '../base/kubeapi/types.ts';
import type { Log } from '../base/log.ts';
import type { Namespace, NetworkPolicy, Pod } from '../proto/kube/types.ts';
import { addressText, type Address } from './core/address.ts';
import { keyOf, namespaceFacts, podFacts, policyFacts, type Policy, type PolicyNamespace, type PolicyPod } from './core/policy-facts.ts';
import { isEmpty, policyRules, type PolicyRules } from './core/policy-rules.ts';
import { changeText, isAsWritten, wholeText } from './core/policy-table.ts';
import type { PolicyTable } from './io/policy-table.ts';

/** Pods and policies change together: one write for all. */
const GATHER_MS = 50;
/** A table that somebody flushed is back after this. */
const LOOK_MS = 30_000;
const RETRY_MS = [500, 2_000, 10_000, 30_000];
/** How long a pod's ADD waits until its policies stand. */
const ADMIT_MS = 5_000;
/** Policies, pods and namespaces. */
const EVERYTHING = 3;

export interface PolicyNetworkOptions {
  readonly nodeName: string;
  readonly table: PolicyTable;
  readonly clock: Clock;
  readonly log: Log;
}

/** Keeps the table of policies: what the API says, and the addresses that pods have before the API knows them. */
export class PolicyNetwork {
  readonly #options: PolicyNetworkOptions;
  readonly #policies = new Map<string, Policy>();
  readonly #pods = new Map<string, PolicyPod>();
  readonly #namespaces = new Map<string, PolicyNamespace>();
  /** Addresses given out here to pods whose status does not have them yet. */
  readonly #given = new Map<string, { readonly containerId: string; readonly addresses: readonly Address[] }>();
  readonly #listed = new Set<'policies' | 'pods' | 'namespaces'>();
  /** Null: not known, so the next write is a whole one. */
  #written: PolicyRules | null = null;
  #isChanged = true;
  /** Writes that were begun, and the last of them that is done. */
  #begun = 0;
  #done = 0;
  #failures = 0;
  #lastTrouble = '';
  #wake: (() => void) | null = null;
  #waiting: (() => void)[] = [];

  constructor(options: PolicyNetworkOptions) {
    this.#options = options;
  }

  /** Follows the API until `signal` is aborted; the rules stay. Pods are watched from the first policy on. */
  async run(api: KubeApi, signal: AbortSignal): Promise<void> {
    const first = Promise.withResolvers<void>();
    const stop = (): void => first.resolve();
    signal.addEventListener('abort', stop, { once: true });
    const policies = this.#copy<NetworkPolicy, Policy>('policies', this.#policies, policyFacts, () => {
      if (this.#policies.size > 0) first.resolve();
    });
    const pods = this.#copy<Pod, PolicyPod>('pods', this.#pods, podFacts, (key) => this.#forgetGiven(key));
    const namespaces = this.#copy<Namespace, PolicyNamespace>('namespaces', this.#namespaces, namespaceFacts, () => {});
    const peers = async (): Promise<void> => {
      await first.promise;
      if (signal.aborted) return;
      await Promise.all([api.reflect(refs.pods(), {}, pods, signal), api.reflect(refs.namespaces(), {}, namespaces, signal)]);
    };
    await Promise.all([api.reflect(refs.networkPolicies(), {}, policies, signal), peers(), this.#loop(signal)]);
  }

  /** A copy of a collection; `tell` is called after each change of it. */
  #copy<T extends KubeObject, F>(
    what: 'policies' | 'pods' | 'namespaces',
    into: Map<string, F>,
    facts: (object: T) => F,
    tell: (key: string) => void,
  ): ReflectHandler<T> {
    const { log } = this.#options;
    const keyFor = (object: T): string => (what === 'namespaces' ? (object.metadata.name ?? '') : keyOf(object));
    let isDenied = false;
    return {
      replaced: (objects) => {
        into.clear();
        for (const object of objects) into.set(keyFor(object), facts(object));
        this.#listed.add(what);
        isDenied = false;
        for (const key of new Set([...into.keys(), ...this.#given.keys()])) tell(key);
        this.#changed();
      },
      changed: (type, object) => {
        const key = keyFor(object);
        const before = into.get(key);
        const after = type === 'DELETED' ? undefined : facts(object);
        if (after === undefined) into.delete(key);
        else into.set(key, after);
        tell(key);
        if (JSON.stringify(before, digits) !== JSON.stringify(after, digits)) this.#changed();
      },
      trouble: (error) => {
        if (isApiError(error, 403) && !isDenied) {
          isDenied = true;
          log.error('NetworkPolicies cannot be followed: the account may not list and watch them, pods and namespaces', { what, error: messageOf(error) });
        } else log.debug(1, 'Watch interrupted', { what, error });
      },
      trim,
    };
  }

  /**
   * Tells the addresses of a new pod of this node, and waits until its policies stand, so that it never talks without
   * them. Without policies, or before everything was listed once, it does not wait.
   */
  async admit(key: string, containerId: string, addresses: readonly Address[]): Promise<void> {
    if (this.#isReady() && this.#policies.size === 0) return;
    this.#given.set(key, { containerId, addresses });
    if (this.#listed.size < EVERYTHING) return;
    const { clock, log } = this.#options;
    const untilMs = clock.monoMs() + ADMIT_MS;
    // Only a write that begins once the pod's labels are known has it.
    for (let after: number | null = null; after === null || this.#done <= after;) {
      if (after === null && this.#pods.has(key)) {
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
  #forgetGiven(key: string): void {
    const given = this.#given.get(key);
    if (given === undefined) return;
    const pod = this.#pods.get(key);
    const told = new Set(pod?.addresses.map(addressText));
    if (pod === undefined || pod.isFinished || given.addresses.every((address) => told.has(addressText(address)))) this.#given.delete(key);
  }

  #changed(): void {
    this.#isChanged = true;
    this.#wake?.();
  }

  async #loop(signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    for (let lookMs = clock.monoMs() + LOOK_MS; !signal.aborted;) {
      if (clock.monoMs() >= lookMs) {
        await this.#attempt(() => this.#look());
        lookMs = clock.monoMs() + LOOK_MS;
      }
      if (this.#isChanged && this.#isReady()) {
        await clock.sleep(GATHER_MS, signal);
        await this.#attempt(() => this.sync());
      }
      if (this.#failures > 0) await clock.sleep(RETRY_MS[this.#failures - 1] ?? RETRY_MS.at(-1)!, signal);
      else if (!this.#isChanged || !this.#isReady()) await this.#idle(Math.max(0, lookMs - clock.monoMs()), signal);
    }
  }

  #isReady(): boolean {
    return this.#listed.has('policies') && (this.#policies.size === 0 || this.#listed.size === EVERYTHING);
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
    const rules = policyRules({ node: nodeName, policies: this.#policies.values(), pods: this.#podsNow(), namespaces: this.#namespaces });
    const before = this.#written;
    const text = before === null ? wholeText(rules) : changeText(before, rules);
    if (text !== '') await table.write(text);
    this.#written = rules;
    this.#done = own;
    if (text !== '') log.debug(1, 'Policies written', { isWhole: before === null, chains: rules.chains.size, sets: rules.sets.size, bytes: text.length });
    for (const wake of this.#waiting.splice(0)) wake();
  }

  *#podsNow(): Generator<PolicyPod> {
    for (const [key, pod] of this.#pods) {
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

  /** Waits for a change, `waitMs` at most. */
  async #idle(waitMs: number, signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    await new Promise<void>((resolve) => {
      const wake = (): void => {
        timer[Symbol.dispose]();
        signal.removeEventListener('abort', wake);
        this.#wake = null;
        resolve();
      };
      const timer = clock.after(waitMs, wake);
      this.#wake = wake;
      signal.addEventListener('abort', wake, { once: true });
    });
  }
}

const digits = (_key: string, value: unknown): unknown => (typeof value === 'bigint' ? String(value) : value);

/** Only what the rules depend on is kept of each object. */
function trim<T extends KubeObject>(object: T): T {
  const { name, namespace, labels } = object.metadata;
  const { spec, status } = object as { spec?: Partial<Pod['spec']>; status?: Partial<NonNullable<Pod['status']>> };
  const ofPod =
    spec?.containers === undefined
      ? { spec }
      : {
          spec: {
            nodeName: spec.nodeName,
            hostNetwork: spec.hostNetwork,
            containers: spec.containers.map(portsOf),
            initContainers: spec.initContainers?.map(portsOf),
          },
          status: { phase: status?.phase, podIP: status?.podIP, podIPs: status?.podIPs },
        };
  return { metadata: { name, namespace, labels }, ...ofPod } as unknown as T;
}

type Container = Pod['spec']['containers'][number];
const portsOf = ({ name, ports, restartPolicy }: Container): Pick<Container, 'name' | 'ports' | 'restartPolicy'> => ({
  name,
  ...(ports === undefined ? {} : { ports }),
  ...(restartPolicy === undefined ? {} : { restartPolicy }),
});
