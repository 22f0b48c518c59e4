import { setTimeout as delay } from 'node:timers/promises';
import { OpError } from '../../base/errors.ts';
import { isApiError } from '../../base/kubeapi/errors.ts';
import type { KubeApi, ResourceRef } from '../../base/kubeapi/types.ts';
import { seededRng } from '../../base/rng.ts';
import type { Rng } from '../../base/rng.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { realClock } from '../../base/clock.ts';
import { freshNamespace, removeNamespace } from '../namespaces.ts';
import { Auditor } from './auditor.ts';
import type { Violation } from './auditor.ts';
import { added, figuresOf, growth } from './footprint.ts';
import type { Figures, Footprint } from './footprint.ts';
import { ChurnNode, pidOfContainer, processFigures } from './node.ts';
import type { NodeOptions } from './node.ts';
import { unfinished, type Deployment } from './residents.ts';
import { runtimesOwn, type Kill } from './shims.ts';
import { progressText, tellEvery, type Progress } from './telling.ts';
import { deedFor, NAMESPACE, podFor } from './workload.ts';
import type { Deed } from './workload.ts';

export interface ChurnOptions {
  readonly seed: number;
  readonly minutes: number;
  readonly pods: number;
  readonly kills: boolean;
  /** As for the auditor. */
  readonly slow: number;
  readonly api: KubeApi;
  readonly node: NodeOptions;
  readonly signal: AbortSignal;
  /** Says what is being done. */
  readonly step: <T>(words: string, work: () => Promise<T>) => Promise<T>;
  /** Hears every 15 s how far it is. */
  readonly tell: (line: string) => void;
  /** Pid of the first of these programs that the node runs. */
  readonly pidOf: (names: readonly string[]) => Promise<number | null>;
  /** The agent's /metrics. */
  readonly metrics: () => Promise<string>;
}

export interface Report {
  readonly seed: number;
  readonly seconds: number;
  readonly deeds: Readonly<Record<string, number>>;
  readonly seen: { readonly events: number; readonly listings: number; readonly containers: number };
  readonly violations: readonly Violation[];
  readonly stuck: readonly string[];
  readonly left: Readonly<Record<string, readonly string[]>>;
  /** What the runtime left by itself, with the proof: no kubelet could have known of it. */
  readonly leftByRuntime: readonly string[];
  readonly grown: readonly string[];
  readonly figures: Readonly<Record<string, Figures>>;
}

const listEveryMs = 250;
/** What ends by itself may take so long after the last pod is gone. */
const settleMs = 100_000;
const drainMs = 180_000;
const tellEveryMs = 15_000;
const residentsMs = 120_000;
const agentNames = ['agent', 'kubelet'];

const ref = (resource: string, name?: string): ResourceRef => ({
  group: '',
  version: 'v1',
  resource,
  namespace: NAMESPACE,
  ...(name === undefined ? {} : { name }),
});

/**
 * The run: some warm-up, then most of the time with kills, then the rest on one agent and one runtime that live, whose
 * figures are compared before and after. Between the parts every pod is deleted and the node must be empty.
 */
export async function churn(options: ChurnOptions): Promise<Report> {
  const { api, signal, step, kills } = options;
  await using node = new ChurnNode(options.node);
  await step('a namespace', () => namespaceWithSettings(api, signal));
  await step('what the cluster runs of itself', () => residentsRun(api, signal));
  let before = await node.footprint();
  const churning = new Churn(options, node);
  await using watching = churning.watch();
  void watching;
  const beganMs = performance.now();
  const secondsSoFar = (): number => Math.round((performance.now() - beganMs) / 1000);
  using telling = tellEvery(realClock, tellEveryMs, () => options.tell(progressText({ seconds: secondsSoFar(), ...churning.progress })));
  void telling;
  const wholeMs = options.minutes * 60_000;
  const left: Record<string, string[]> = {};
  const leftByRuntime: string[] = [];
  const stuck: string[] = [];
  const drain = async (): Promise<void> => {
    stuck.push(...(await churning.drain()));
    // What is left is told once, and not waited for again.
    for (const [kind, names] of Object.entries(await settled(node, before, signal))) {
      before = { ...before, [kind]: [...(before[kind] ?? []), ...names] };
      const others = kind === 'processes' ? await churning.withoutRuntimes(names, leftByRuntime) : names;
      if (others.length > 0) left[kind] = [...(left[kind] ?? []), ...others];
    }
  };
  if (kills) {
    await step(`churn with kills for ${Math.round((wholeMs * 0.6) / 1000)} s`, () => churning.run(wholeMs * 0.6, true));
    await step('all pods are deleted', drain);
  }
  const quietMs = kills ? wholeMs * 0.2 : wholeMs / 2;
  await step(`churn for ${Math.round(quietMs / 1000)} s`, () => churning.run(quietMs, false));
  await step('all pods are deleted', drain);
  const first = await figures(options);
  await step(`churn for ${Math.round(quietMs / 1000)} s more`, () => churning.run(quietMs, false));
  await step('all pods are deleted', drain);
  const second = await figures(options);
  const grown = ['agent', 'containerd'].flatMap((what) => growth(first[what] ?? {}, second[what] ?? {}).map((line) => `${what}: ${line}`));
  await removeNamespace(api, NAMESPACE, signal);
  const { auditor, deeds } = churning;
  return {
    seed: options.seed,
    seconds: secondsSoFar(),
    deeds,
    seen: auditor.seen,
    violations: auditor.violations,
    stuck,
    left,
    leftByRuntime,
    grown,
    figures: Object.fromEntries(
      ['agent', 'containerd'].flatMap((what) => [
        [`${what} before`, first[what] ?? {}],
        [`${what} after`, second[what] ?? {}],
      ]),
    ),
  };
}

class Churn {
  readonly auditor: Auditor;
  readonly deeds: Record<string, number> = {};
  readonly #options: ChurnOptions;
  readonly #node: ChurnNode;
  readonly #rng: Rng;
  readonly #pods = new Map<string, { readonly uid: string; isDeleted: boolean }>();
  readonly #listedAtMs = new Map<string, number>();
  readonly #kills: Kill[] = [];
  #number = 0;

  constructor(options: ChurnOptions, node: ChurnNode) {
    this.#options = options;
    this.#node = node;
    this.#rng = seededRng(options.seed);
    this.auditor = new Auditor(options.slow);
  }

  get progress(): Omit<Progress, 'seconds'> {
    return { pods: this.#pods.size, seen: this.auditor.seen, deeds: this.deeds, violations: this.auditor.violations.length };
  }

  /** Feeds the auditor until disposed. */
  watch(): AsyncDisposable {
    const stop = new AbortController();
    const signal = AbortSignal.any([stop.signal, this.#options.signal]);
    const pods = this.#options.api.reflect<Pod>(
      ref('pods'),
      {},
      {
        replaced: (items) => {
          this.auditor.list(items, Date.now());
          const there = new Set(items.map(({ metadata }) => metadata.name ?? ''));
          for (const name of this.#pods.keys()) if (!there.has(name)) this.#pods.delete(name);
          for (const pod of items) this.#saw(pod);
        },
        changed: (type, pod) => {
          this.auditor.pod(type, pod, Date.now());
          if (type === 'DELETED') this.#pods.delete(pod.metadata.name ?? '');
          else this.#saw(pod);
        },
      },
      signal,
    );
    const listings = (async () => {
      while (!signal.aborted) {
        const listing = await this.#node.listing();
        if (listing !== null) {
          this.auditor.listing(listing);
          for (const { id } of [...listing.containers, ...listing.sandboxes]) this.#listedAtMs.set(id, listing.toMs);
        }
        await delay(listEveryMs, undefined, { signal }).catch(() => undefined);
      }
    })();
    return {
      async [Symbol.asyncDispose]() {
        stop.abort();
        await Promise.all([pods, listings]);
      },
    };
  }

  async run(forMs: number, kills: boolean): Promise<void> {
    const { signal } = this.#options;
    const untilMs = performance.now() + forMs;
    // Drawn for themselves, so that the pods of a seed do not depend on them.
    const rng = seededRng(this.#options.seed + 1);
    let killAtMs = performance.now() + 10_000;
    while (performance.now() < untilMs) {
      signal.throwIfAborted();
      if (kills && performance.now() >= killAtMs) {
        const names = rng.int(3) === 0 ? ['containerd'] : agentNames;
        await this.#kill(names);
        killAtMs = performance.now() + 5000 + rng.int(25_000);
      }
      await this.#deed();
      await delay(100 + this.#rng.int(900), undefined, { signal });
    }
  }

  /** Names of processes without the shims that are the runtime's own leftovers, whose proofs go to `proofs`. */
  async withoutRuntimes(names: readonly string[], proofs: string[]): Promise<string[]> {
    const listed = await this.#node.listedIds();
    const shims = this.#node.shims();
    return names.flatMap((name) => {
      const shim = shims.get(name);
      if (shim === undefined) return [name];
      const evidence = { isListed: listed.has(shim.id), listedAtMs: this.#listedAtMs.get(shim.id) ?? null, kills: this.#kills };
      const proof = runtimesOwn(shim, evidence);
      if (proof === null) return [`${name}, its directory ${shim.hasDirectory ? 'there' : 'gone'}, in it ${shim.processes.join(' ') || 'nothing'}`];
      proofs.push(proof);
      return [];
    });
  }

  /** Deletes every pod; answers those that did not go in time. */
  async drain(): Promise<string[]> {
    const { signal } = this.#options;
    const untilMs = performance.now() + drainMs;
    for (;;) {
      for (const [name, pod] of this.#pods) if (!pod.isDeleted) await this.#delete(name);
      if (this.#pods.size === 0) return [];
      if (performance.now() > untilMs) return [...this.#pods.keys()];
      await delay(500, undefined, { signal });
    }
  }

  #saw(pod: Pod): void {
    const { name = '', uid = '', deletionTimestamp } = pod.metadata;
    const known = this.#pods.get(name);
    this.#pods.set(name, { uid, isDeleted: known?.isDeleted === true || deletionTimestamp !== undefined });
  }

  async #deed(): Promise<void> {
    const rng = this.#rng;
    const drawn = deedFor(rng);
    const living = [...this.#pods].filter(([, pod]) => !pod.isDeleted);
    // About as many as wanted: more or fewer make the other likelier.
    const deed: Deed = living.length >= this.#options.pods * 1.5 ? 'delete' : living.length < this.#options.pods / 2 ? 'create' : drawn;
    const [name] = living.length === 0 ? [''] : rng.pick(living);
    try {
      await this.#act(deed, name);
      this.#count(deed);
    } catch (error) {
      // The runtime is down, or what was meant has gone: what comes of it is what is looked at.
      if (this.#options.signal.aborted) throw error;
      this.#count(`${deed} refused`);
    }
  }

  async #act(deed: Deed, name: string): Promise<void> {
    const { api, signal, node } = this.#options;
    if (deed === 'create') {
      this.#number += 1;
      await api.create(ref('pods'), podFor(this.#rng, node.name, this.#number), {}, signal);
      return;
    }
    if (name === '') return;
    if (deed === 'delete' || deed === 'deleteNow') return await this.#delete(name, deed === 'deleteNow' ? 0 : undefined);
    const listing = await this.#node.listing();
    const uid = this.#pods.get(name)?.uid;
    const { runtime } = this.#node.cri;
    const container = listing?.containers.find((each) => each.uid === uid && each.running);
    const call = { timeoutMs: 10_000, signal };
    if (deed === 'killContainer' && container !== undefined) {
      const pid = pidOfContainer(container.id);
      if (pid !== null) process.kill(pid, 'SIGKILL');
    } else if (deed === 'stopContainer' && container !== undefined) await runtime.stopContainer({ containerId: container.id, timeout: '0' }, call);
    else if (deed === 'killSandbox') {
      const sandbox = listing?.sandboxes.find((each) => each.uid === uid && each.ready);
      if (sandbox !== undefined) await runtime.stopPodSandbox({ podSandboxId: sandbox.id }, call);
    } else if (deed === 'removeDead') {
      const dead = listing?.containers.find((each) => each.uid === uid && !each.running);
      if (dead === undefined) return;
      this.auditor.taken(dead);
      await runtime.removeContainer({ containerId: dead.id }, call);
    }
  }

  async #delete(name: string, gracePeriodSeconds?: number): Promise<void> {
    const { api, signal } = this.#options;
    const known = this.#pods.get(name);
    if (known !== undefined) known.isDeleted = true;
    try {
      await api.delete(ref('pods', name), gracePeriodSeconds === undefined ? {} : { gracePeriodSeconds }, {}, signal);
    } catch (error) {
      if (!isApiError(error, 404)) throw error;
    }
  }

  async #kill(names: readonly string[]): Promise<void> {
    const pid = await this.#options.pidOf(names);
    if (pid === null) return;
    const kill = { what: `kill -9 ${names[0] ?? ''}`, atMs: Date.now() };
    process.kill(pid, 'SIGKILL');
    this.auditor.killed(kill.atMs);
    this.#kills.push(kill);
    this.#count(kill.what);
  }

  #count(what: string): void {
    this.deeds[what] = (this.deeds[what] ?? 0) + 1;
  }
}

/** Waits for the Deployments that are there: their pods stay, and would count as left behind if they came after the first look. */
async function residentsRun(api: KubeApi, signal: AbortSignal): Promise<void> {
  const untilMs = performance.now() + residentsMs;
  for (;;) {
    const late = unfinished(await deploymentsOf(api, signal));
    if (late.length === 0) return;
    if (performance.now() > untilMs)
      throw new OpError('deadline', 'waiting for what the cluster runs of itself', `${late.join(', ')} not Ready after ${residentsMs / 1000} s`);
    await delay(500, undefined, { signal });
  }
}

async function deploymentsOf(api: KubeApi, signal: AbortSignal): Promise<readonly Deployment[]> {
  try {
    return (await api.list<Deployment>({ group: 'apps', version: 'v1', resource: 'deployments' }, {}, {}, signal)).items;
  } catch (error) {
    // A control plane without them has nothing of this kind to wait for.
    if (isApiError(error, 404)) return [];
    throw error;
  }
}

/** Waits until the node holds no more than before; answers what it holds all the same. */
async function settled(node: ChurnNode, before: Footprint, signal: AbortSignal): Promise<Record<string, string[]>> {
  const untilMs = performance.now() + settleMs;
  for (;;) {
    const left = await node.footprint().then(
      (after) => added(before, after),
      () => ({ runtime: ['does not answer'] }),
    );
    if (Object.keys(left).length === 0 || performance.now() > untilMs) return left;
    await delay(1000, undefined, { signal });
  }
}

async function figures(options: ChurnOptions): Promise<Record<string, Figures>> {
  const [agent, containerd] = [await options.pidOf(agentNames), await options.pidOf(['containerd'])];
  if (agent === null || containerd === null) throw new OpError('unavailable', 'looking at the node', 'agent or containerd does not run');
  const own = figuresOf(await options.metrics());
  return {
    agent: { ...own, ...processFigures(agent), ...(own['heapBytes'] === 0 ? {} : { heapBytes: own['heapBytes'] ?? 0 }) },
    containerd: processFigures(containerd),
  };
}

async function namespaceWithSettings(api: KubeApi, signal: AbortSignal): Promise<void> {
  await freshNamespace(api, NAMESPACE, signal);
  await api.create(
    ref('configmaps'),
    { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'churn', namespace: NAMESPACE }, data: { key: 'value' } },
    {},
    signal,
  );
}
