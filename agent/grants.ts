import { messageOf } from '../base/errors.ts';
import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { Container, Pod, PodStatus } from '../proto/kube/types.ts';
import { keyOf } from './core/containers.ts';
import { availableCpus, cpuHints, giveCpus, podCpuHints, takeBackCpus } from './core/resources/cpu-static.ts';
import type { CpuState, StaticCpuRules } from './core/resources/cpu-static.ts';
import { formatCpuSet } from './core/resources/cpuset.ts';
import type { CpuSet } from './core/resources/cpuset.ts';
import { isUncoreAligned } from './core/resources/cpu-topology.ts';
import { mergeHints } from './core/resources/hints.ts';
import type { Hint, Hints, NumaInfo, TopologyPolicy } from './core/resources/hints.ts';
import { heldIds } from './core/resources/holdings.ts';
import type { ContainerGrants } from './core/resources/apply.ts';
import { giveMemory, givePodMemory, memoryHints, podMemoryHints, takeBackInits, takeBackMemory } from './core/resources/memory-static.ts';
import type { MemoryBlock, MemoryState } from './core/resources/memory-static.ts';
import { givePodCpus } from './core/resources/pod-cpus.ts';
import { podTopologyRefusal, refusalVerdict, topologyRefusal } from './core/resources/refusal.ts';
import type { Refusal } from './core/resources/refusal.ts';
import { containersOf, exclusiveCpus, exclusivePodCpus, isManagedAsPod, pinnedMemory, pinnedPodMemory } from './core/resources/requests.ts';
import type { Verdict } from './core/status.ts';
import type { PodFacts } from './core/types.ts';
import type { Cri } from './io/cri.ts';
import type { DevicePool } from './io/device-pool.ts';
import type { ResourceMetrics } from './io/resource-metrics.ts';
import type { StateFile } from './io/state-file.ts';

/** What is on while the CPU or memory policy is static; the state is replaced as a whole, then saved. */
export interface StaticPart<R, S> {
  readonly rules: R;
  state: S;
  readonly file: StateFile;
}

export interface GrantsOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly runtime: Cri['runtime'];
  readonly timeoutMs: number;
  readonly pool: DevicePool;
  readonly metrics: ResourceMetrics;
  readonly cpus: StaticPart<StaticCpuRules, CpuState> | null;
  readonly memory: StaticPart<null, MemoryState> | null;
  readonly topology: { readonly policy: TopologyPolicy; readonly scope: 'container' | 'pod'; readonly preferClosest: boolean; readonly numa: NumaInfo };
  readonly reconcileMs: number;
  /** `PodLevelResourceManagers`: pods may own CPUs and memory as a whole (KEP-5526). */
  readonly ofPods: boolean;
  /** Whether allocatedResourcesStatus is told (ResourceHealthStatus). */
  readonly tellsHealth: boolean;
  readonly pods: GrantedPods;
}

/** What is asked of the pods' side. */
export interface GrantedPods {
  synced(): boolean;
  list(): readonly Pod[];
  /** Whether the pod was taken and has not ended. */
  holdsResources(uid: string): boolean;
  facts(uid: string): PodFacts | undefined;
}

type Admission = Verdict | null | 'later';

/**
 * Gives pods what cannot be shared: devices of plugins, whole CPUs, memory of NUMA nodes, near to each other as the
 * topology policy says. One pod at a time; what was given is on disk before the pod is taken, and comes back when the
 * pod has ended.
 */
export class Grants {
  readonly #options: GrantsOptions;
  /** Pods that are being admitted: they hold nothing yet in the eyes of others. */
  readonly #admitting = new Set<string>();
  #turn: Promise<unknown> = Promise.resolve();
  /** By container id, the CPUs that it was last told. */
  readonly #told = new Map<string, string>();

  constructor(options: GrantsOptions) {
    this.#options = options;
    this.#count();
  }

  /**
   * Admission: first what the pod asks for is set aside, then `take` decides the rest and takes the pod. Answers at
   * once where nothing has to be set aside.
   */
  admit(pod: Pod, take: () => Admission, signal: AbortSignal): Admission | Promise<Admission> {
    if (!this.#concerns(pod)) return take();
    const turn = this.#turn.then(() => this.#admit(pod, take, signal));
    this.#turn = turn.catch(() => undefined);
    return turn;
  }

  /**
   * A pod that ran before this process. What it was given stands, whether or not the plugins are back; CPUs and memory
   * that a state file no longer knows of are given anew.
   */
  async adopt(pod: Pod): Promise<void> {
    if (!this.#concerns(pod)) return;
    const turn = this.#turn.then(() => this.#readopt(pod));
    this.#turn = turn.catch(() => undefined);
    await turn;
  }

  async #readopt(pod: Pod): Promise<void> {
    const none: Hint = { nodes: null, preferred: false };
    const refusals = this.#ownsAsPod(pod)
      ? [this.#givePod(pod, none)]
      : containersOf(pod).map((container) => this.#giveCpus(pod, container, none) ?? this.#giveMemory(pod, container, none));
    for (const refused of refusals)
      if (refused !== null) this.#options.log.warn('Resources of a running pod could not be set aside', { podUID: keyOf(pod).uid, err: refused.message });
    this.#count();
    await this.#save();
  }

  /** For a container that is about to be made. Asks device plugins that want to prepare each start. */
  async forContainer(
    pod: Pod,
    container: Container,
    signal: AbortSignal,
  ): Promise<{ readonly ok: true; readonly grants: ContainerGrants } | { readonly ok: false; readonly message: string }> {
    const { pool } = this.#options;
    const devices = await pool.grants(pod, container, signal);
    if (!devices.ok) return devices;
    const { uid } = keyOf(pod);
    const blocks = this.#options.memory?.state.given.get(uid)?.get(container.name) ?? [];
    const nodes = [...new Set(blocks.flatMap((block) => block.nodes))].toSorted((left, right) => left - right);
    return {
      ok: true,
      grants: {
        ...devices.grants,
        cpusetCpus: formatCpuSet(this.#cpusetOf(uid, container.name)),
        cpusetMems: nodes.join(','),
        hasOwnCpus: this.cpusOf(pod, container).length > 0,
      },
    };
  }

  /** The container was made and will be started: init containers before it have given up their memory. */
  made(pod: Pod, container: Container, containerId: string): void {
    const { cpus, memory, log } = this.#options;
    if (cpus !== null) this.#told.set(containerId, formatCpuSet(this.#cpusetOf(keyOf(pod).uid, container.name)));
    if (memory === null) return;
    const next = takeBackInits(memory.state, pod, container.name);
    if (next === memory.state) return;
    memory.state = next;
    memory.file.save().catch((error: unknown) => log.error('Failed to store memory state', { err: messageOf(error) }));
  }

  /** Whether the pod's cgroup is to be without a CPU quota: some of its containers own their CPUs, or all of a pod that has resources as a whole. */
  hasOwnCpus(uid: string): boolean {
    const given = this.#options.cpus?.state.given.get(uid);
    if (given === undefined || given.size === 0) return false;
    const pod = this.#options.pods.list().find((each) => keyOf(each).uid === uid);
    if (pod === undefined || !isManagedAsPod(pod, this.#options.ofPods)) return true;
    return containersOf(pod).every((container) => this.cpusOf(pod, container).length > 0);
  }

  /** CPUs that the container has for itself. */
  cpusOf(pod: Pod, container: Container): CpuSet {
    const { cpus, ofPods } = this.#options;
    if (isManagedAsPod(pod, ofPods) && exclusiveCpus(pod, container, ofPods) === 0) return [];
    return cpus?.state.given.get(keyOf(pod).uid)?.get(container.name) ?? [];
  }

  memoryOf(pod: Pod, container: Container): readonly MemoryBlock[] {
    const { memory, ofPods } = this.#options;
    if (isManagedAsPod(pod, ofPods) && pinnedMemory(pod, container, ofPods).size === 0) return [];
    return memory?.state.given.get(keyOf(pod).uid)?.get(container.name) ?? [];
  }

  /** What the pod has as a whole. */
  wholeOf(uid: string): { readonly cpus: CpuSet; readonly memory: readonly MemoryBlock[] } {
    const { cpus, memory } = this.#options;
    return { cpus: cpus?.state.pods?.get(uid) ?? [], memory: memory?.state.pods?.get(uid) ?? [] };
  }

  /** The status with the health of the devices that its containers hold (KEP-4680). */
  withHealth(uid: string, status: PodStatus): PodStatus {
    const { pool, tellsHealth } = this.#options;
    if (!tellsHealth || status.containerStatuses === undefined) return status;
    const containerStatuses = status.containerStatuses.map((each) => {
      const own = [...pool.of(uid, each.name)].map(([resource, held]) => ({
        name: resource,
        resources: heldIds(held).map((id) => ({ resourceID: id, health: pool.isHealthy(resource, id) ? 'Healthy' : 'Unhealthy' })),
      }));
      if (own.length === 0) return each;
      const others = (each.allocatedResourcesStatus ?? []).filter(({ name }) => !own.some((one) => one.name === name));
      return { ...each, allocatedResourcesStatus: [...others, ...own] };
    });
    return { ...status, containerStatuses };
  }

  /** Takes back what pods hold that have ended. */
  sweep(): void {
    const { pods, pool, cpus, memory } = this.#options;
    if (!pods.synced()) return;
    const uids = new Set([...pool.uids(), ...(cpus?.state.given.keys() ?? []), ...(memory?.state.given.keys() ?? [])]);
    for (const uid of uids) if (!pods.holdsResources(uid) && !this.#admitting.has(uid)) this.#release(uid);
  }

  /** Keeps running containers on their CPUs, as upstream does: the shared pool changes with each pod that owns some. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, reconcileMs, cpus } = this.#options;
    try {
      for (;;) {
        await clock.sleep(reconcileMs, signal);
        this.sweep();
        if (cpus !== null) await this.#reconcile(signal);
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  async #reconcile(signal: AbortSignal): Promise<void> {
    const { pods, runtime, timeoutMs, log } = this.#options;
    const running = new Set<string>();
    for (const pod of pods.list()) {
      const { uid } = keyOf(pod);
      if (!pods.holdsResources(uid)) continue;
      const names = new Set(containersOf(pod).map(({ name }) => name));
      for (const { id, name, state } of pods.facts(uid)?.containers ?? []) {
        if (state !== 'running' || !names.has(name)) continue;
        running.add(id);
        const cpus = formatCpuSet(this.#cpusetOf(uid, name));
        if (cpus === '' || this.#told.get(id) === cpus) continue;
        try {
          await runtime.updateContainerResources({ containerId: id, linux: { cpusetCpus: cpus } }, { timeoutMs, signal });
          this.#told.set(id, cpus);
        } catch (error) {
          if (signal.aborted) return;
          log.warn('ReconcileState: failed to update container', { podUID: uid, containerName: name, containerID: id, cpuSet: cpus, err: messageOf(error) });
        }
      }
    }
    for (const id of this.#told.keys()) if (!running.has(id) && !this.#isKnown(id)) this.#told.delete(id);
  }

  #isKnown(id: string): boolean {
    const { pods } = this.#options;
    return pods.list().some((pod) => pods.facts(keyOf(pod).uid)?.containers.some((container) => container.id === id) === true);
  }

  #concerns(pod: Pod): boolean {
    const { pool, cpus, memory, ofPods } = this.#options;
    if (pool.wants(pod)) return true;
    if (this.#ownsAsPod(pod) && ((cpus !== null && exclusivePodCpus(pod, true) > 0) || (memory !== null && pinnedPodMemory(pod, true).size > 0))) return true;
    const containers = containersOf(pod);
    if (cpus !== null && containers.some((container) => exclusiveCpus(pod, container, ofPods) > 0)) return true;
    return memory !== null && containers.some((container) => pinnedMemory(pod, container, ofPods).size > 0);
  }

  /** Whether the pod gets its CPUs and memory as a whole: that is what the topology's scope says. */
  #ownsAsPod(pod: Pod): boolean {
    const { ofPods, topology } = this.#options;
    return isManagedAsPod(pod, ofPods) && topology.policy !== 'none' && topology.scope === 'pod';
  }

  async #admit(pod: Pod, take: () => Admission, signal: AbortSignal): Promise<Admission> {
    const { metrics, clock } = this.#options;
    const { uid } = keyOf(pod);
    const beganMs = clock.monoMs();
    this.#admitting.add(uid);
    try {
      this.sweep();
      metrics.admissions.add({});
      const refused = await this.#allocate(pod, signal);
      metrics.admissionMs.observe({}, clock.monoMs() - beganMs);
      if (refused !== null) {
        metrics.admissionErrors.add({});
        this.#release(uid);
        return refusalVerdict(refused);
      }
      // Whoever acts on it after a crash finds it on disk.
      await this.#save();
      const verdict = take();
      if (verdict !== null && verdict !== 'later') this.#release(uid);
      return verdict;
    } catch (error) {
      this.#release(uid);
      throw error;
    } finally {
      this.#admitting.delete(uid);
      this.#count();
    }
  }

  async #allocate(pod: Pod, signal: AbortSignal): Promise<Refusal | null> {
    const { ofPods, topology } = this.#options;
    const { policy, scope } = topology;
    const asPod = isManagedAsPod(pod, ofPods);
    const refusal = asPod ? podTopologyRefusal(scope) : topologyRefusal;
    if (policy === 'none') return this.#allocateEach(pod, () => ({ nodes: null, preferred: false }), refusal, signal);
    if (scope === 'container') return this.#allocateEach(pod, (container) => this.#near(this.#hints(pod, container), 'container'), refusal, signal);
    const best = this.#near(this.#podHints(pod), 'pod');
    if (best === null) return refusal;
    const refused = asPod ? this.#givePod(pod, best) : null;
    return refused ?? this.#allocateEach(pod, () => best, refusal, signal);
  }

  async #allocateEach(pod: Pod, nodesFor: (container: Container) => Hint | null, refusal: Refusal, signal: AbortSignal): Promise<Refusal | null> {
    for (const container of containersOf(pod)) {
      const hint = nodesFor(container);
      if (hint === null) return refusal;
      const devices = await this.#options.pool.allocate(pod, container, hint.nodes, signal);
      if (!devices.ok) return { kind: 'unexpected', message: devices.message };
      if (this.#ownsAsPod(pod)) continue;
      const refused = this.#giveCpus(pod, container, hint) ?? this.#giveMemory(pod, container, hint);
      if (refused !== null) return refused;
    }
    return null;
  }

  /** What the pod has as a whole, and who of its containers has what of it. */
  #givePod(pod: Pod, hint: Hint): Refusal | null {
    const { cpus, memory, metrics } = this.#options;
    const containers = containersOf(pod);
    const tell = (resource: 'cpu' | 'memory', owns: (container: Container) => boolean): void => {
      for (const container of containers) {
        metrics.managerAllocations.add({ resource_name: resource, source: 'pod' });
        metrics.managerAssignments.add({ resource_name: resource, assignment_type: owns(container) ? 'pod_exclusive' : 'pod_shared' });
      }
    };
    if (cpus !== null && exclusivePodCpus(pod, true) > 0) {
      const owns = (container: Container): boolean => exclusiveCpus(pod, container, true) > 0;
      metrics.cpuRequests.add({}, containers.filter(owns).length);
      const outcome = givePodCpus(cpus.rules, cpus.state, pod, hint.nodes);
      if (!outcome.ok) {
        metrics.cpuErrors.add({});
        metrics.managerErrors.add({ resource_name: 'cpu', source: 'pod' });
        return outcome.refusal;
      }
      if (outcome.state !== cpus.state) tell('cpu', owns);
      cpus.state = outcome.state;
    }
    if (memory === null || pinnedPodMemory(pod, true).size === 0) return null;
    metrics.memoryRequests.add({});
    const outcome = givePodMemory(memory.state, pod, hint);
    if (!outcome.ok) {
      metrics.memoryErrors.add({});
      metrics.managerErrors.add({ resource_name: 'memory', source: 'pod' });
      return outcome.refusal;
    }
    if (outcome.state !== memory.state) tell('memory', (container) => pinnedMemory(pod, container, true).size > 0);
    memory.state = outcome.state;
    return null;
  }

  /** A container has got its own from the node, or has not. */
  #tellOwn(resource: 'cpu' | 'memory', isGiven: boolean): void {
    const { metrics, ofPods } = this.#options;
    if (!ofPods) return;
    if (!isGiven) return metrics.managerErrors.add({ resource_name: resource, source: 'node' });
    metrics.managerAllocations.add({ resource_name: resource, source: 'node' });
    metrics.managerAssignments.add({ resource_name: resource, assignment_type: 'node_exclusive' });
  }

  #giveCpus(pod: Pod, container: Container, hint: Hint): Refusal | null {
    const { cpus, metrics, ofPods } = this.#options;
    if (cpus === null || exclusiveCpus(pod, container, ofPods) === 0) return null;
    const { fullCores } = cpus.rules.options;
    const physical = { scope: 'container', boundary: 'physical_cpu' };
    metrics.cpuRequests.add({});
    const outcome = giveCpus(cpus.rules, cpus.state, pod, container, hint.nodes);
    if (!outcome.ok) {
      metrics.cpuErrors.add({});
      this.#tellOwn('cpu', false);
      if (fullCores) metrics.alignedErrors.add(physical);
      return outcome.refusal;
    }
    const isNew = outcome.state !== cpus.state;
    cpus.state = outcome.state;
    if (fullCores) metrics.aligned.add(physical);
    if (isNew) this.#tellOwn('cpu', true);
    const own = this.cpusOf(pod, container);
    if (isNew && isUncoreAligned(cpus.rules.topology, own)) metrics.aligned.add({ scope: 'container', boundary: 'uncore_cache' });
    return null;
  }

  #giveMemory(pod: Pod, container: Container, hint: Hint): Refusal | null {
    const { memory, metrics, ofPods } = this.#options;
    if (memory === null || pinnedMemory(pod, container, ofPods).size === 0) return null;
    metrics.memoryRequests.add({});
    const outcome = giveMemory(memory.state, pod, container, hint, ofPods);
    if (!outcome.ok) {
      metrics.memoryErrors.add({});
      this.#tellOwn('memory', false);
      return outcome.refusal;
    }
    if (outcome.state !== memory.state) this.#tellOwn('memory', true);
    memory.state = outcome.state;
    return null;
  }

  #hints(pod: Pod, container: Container): Hints[] {
    const { pool, cpus, memory, ofPods } = this.#options;
    return [
      pool.hints(pod, container),
      cpus === null ? new Map() : cpuHints(cpus.rules, cpus.state, pod, container),
      memory === null ? new Map() : memoryHints(memory.state, pod, container, ofPods),
    ];
  }

  #podHints(pod: Pod): Hints[] {
    const { pool, cpus, memory, ofPods } = this.#options;
    return [
      pool.podHints(pod),
      cpus === null ? new Map() : podCpuHints(cpus.rules, cpus.state, pod),
      memory === null ? new Map() : podMemoryHints(memory.state, pod, ofPods),
    ];
  }

  /** Null: the policy does not take it. */
  #near(providers: readonly Hints[], scope: 'container' | 'pod'): Hint | null {
    const { topology, metrics } = this.#options;
    const { best, admit } = mergeHints(providers, topology);
    if (topology.policy === 'single-numa-node') (admit ? metrics.aligned : metrics.alignedErrors).add({ scope, boundary: 'numa_node' });
    return admit ? best : null;
  }

  #release(uid: string): void {
    const { pool, cpus, memory, log } = this.#options;
    pool.release(uid);
    if (cpus !== null) for (const name of cpus.state.given.get(uid)?.keys() ?? []) cpus.state = takeBackCpus(cpus.state, uid, name);
    if (memory !== null) for (const name of memory.state.given.get(uid)?.keys() ?? []) memory.state = takeBackMemory(memory.state, uid, name);
    this.#count();
    this.#save().catch((error: unknown) => log.error('Failed to store what pods were given', { err: messageOf(error) }));
  }

  async #save(): Promise<void> {
    await Promise.all([this.#options.cpus?.file.save(), this.#options.memory?.file.save()]);
  }

  #cpusetOf(uid: string, name: string): CpuSet {
    const { cpus } = this.#options;
    return cpus?.state.given.get(uid)?.get(name) ?? cpus?.state.shared ?? [];
  }

  #count(): void {
    const { cpus, metrics } = this.#options;
    if (cpus === null) return;
    const own = new Set([...cpus.state.given.values()].flatMap((containers) => [...containers.values()].flat()));
    metrics.sharedPool.set({}, availableCpus(cpus.rules, cpus.state).length * 1000);
    metrics.exclusive.set({}, own.size);
    const perNode = new Map<number, number>();
    for (const [cpu, { numa }] of cpus.rules.topology.places) perNode.set(numa, (perNode.get(numa) ?? 0) + (own.has(cpu) ? 1 : 0));
    for (const [node, count] of perNode) metrics.perNuma.set({ numa_node: String(node) }, count);
  }
}
