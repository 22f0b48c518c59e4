import { rfc3339 } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import { isApiError } from '../../base/kubeapi/errors.ts';
import type { KubeObject } from '../../base/kubeapi/types.ts';
import type { LabelSelector, Node, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass } from '../../proto/kube/types.ts';
import {
  at,
  CLAIMS,
  claimStore,
  dropManagedFields,
  namespaceStore,
  nodeStore,
  podStore,
  PODS,
  replicaSetStore,
  serviceStore,
} from '../controllers/collections.ts';
import type { ControlDeps } from '../controllers/deps.ts';
import { endWith } from '../controllers/end.ts';
import { createRecorder, type Recorder, subjectOf } from '../controllers/recorder.ts';
import { type Store, Stores } from '../controllers/store.ts';
import { semanticEqual } from '../core/controllers/equal.ts';
import { controllerOf } from '../core/controllers/owners.ts';
import { isPodTerminal, podCondition } from '../core/controllers/pods.ts';
import { mapMatches } from '../core/controllers/selector.ts';
import { hasAffinity } from '../core/scheduler/pod-affinity.ts';
import { SchedulingQueue } from '../core/scheduler/queue.ts';
import { schedule } from '../core/scheduler/schedule.ts';
import { ClusterState } from '../core/scheduler/state.ts';

const SCHEDULER_NAME = 'default-scheduler';
/** After so many decisions in a row other work gets its turn. */
const DECISIONS_PER_TURN = 16;

/** Gives every pod that asks for the default scheduler a node. */
export function startScheduler(deps: ControlDeps): AsyncDisposable {
  const scheduler = new Scheduler(deps);
  return endWith(deps.signal, () => scheduler[Symbol.asyncDispose]());
}

class Scheduler implements AsyncDisposable {
  readonly #deps: ControlDeps;
  readonly #stores: Stores;
  readonly #recorder: Recorder;
  readonly #state = new ClusterState();
  readonly #queue = new SchedulingQueue();
  readonly #pods: Store<Pod>;
  readonly #nodes: Store<Node>;
  readonly #claims: Store<PersistentVolumeClaim>;
  readonly #volumes: Store<PersistentVolume>;
  readonly #classes: Store<StorageClass>;
  readonly #groups: GroupSelectors;
  readonly #binding = new Set<Promise<void>>();
  #timer: Disposable | undefined;
  #ready = false;

  constructor(deps: ControlDeps) {
    this.#deps = deps;
    this.#stores = new Stores(deps.api, deps.clock, deps.log, deps.signal);
    this.#recorder = createRecorder(SCHEDULER_NAME, deps.api, deps.clock, deps.log, this.#stores.signal);
    this.#nodes = nodeStore(this.#stores);
    this.#pods = podStore(this.#stores);
    this.#claims = claimStore(this.#stores);
    this.#volumes = this.#stores.of<PersistentVolume>({ group: '', version: 'v1', resource: 'persistentvolumes' }, { trim: dropManagedFields });
    this.#classes = this.#stores.of<StorageClass>({ group: 'storage.k8s.io', version: 'v1', resource: 'storageclasses' }, { trim: dropManagedFields });
    this.#groups = new GroupSelectors(this.#stores);
    this.#nodes.onChange((node, before, type) => this.#onNode(node, before, type === 'gone'));
    this.#pods.onChange((pod, _before, type) => this.#onPod(pod, type === 'gone'));
    this.#claims.onChange(() => this.#wake());
    // The optional collections (claims, volumes, classes) may not be served everywhere, so nothing waits for them.
    void Promise.all([this.#nodes.synced, this.#pods.synced, this.#groups.synced]).then(() => {
      this.#ready = true;
      this.#arm();
    });
  }

  #onNode(node: Node, before: Node | undefined, isGone: boolean): void {
    if (isGone) return this.#state.removeNode(node.metadata.name ?? '');
    this.#state.setNode(node);
    if (before === undefined || mayHelp(before, node)) this.#wake();
  }

  #onPod(pod: Pod, isGone: boolean): void {
    const uid = pod.metadata.uid ?? '';
    const wasPlaced = this.#state.isPlaced(uid);
    if (isGone) this.#state.removePod(uid);
    else this.#state.setPod(pod);
    const waits = !isGone && !pod.spec.nodeName && !pod.metadata.deletionTimestamp && !isPodTerminal(pod) && (pod.spec.schedulingGates ?? []).length === 0;
    if (waits && (pod.spec.schedulerName ?? SCHEDULER_NAME) === SCHEDULER_NAME && !this.#state.isPlaced(uid)) {
      this.#queue.put(pod, this.#deps.clock.monoMs());
      this.#arm();
      return;
    }
    this.#queue.remove(uid);
    // A pod that went leaves room; one that came matters only to those who look at their neighbours.
    if (wasPlaced && !this.#state.isPlaced(uid)) this.#wake();
    if (!wasPlaced && this.#state.isPlaced(uid)) this.#wake(looksAtNeighbours);
  }

  #wake(concerns?: (pod: Pod) => boolean): void {
    this.#queue.wake(concerns);
    this.#arm();
  }

  #arm(): void {
    this.#timer?.[Symbol.dispose]();
    this.#timer = undefined;
    const dueAtMs = this.#queue.dueAtMs();
    if (!this.#ready || dueAtMs === undefined || this.#stores.signal.aborted) return;
    this.#timer = this.#deps.clock.after(Math.max(0, dueAtMs - this.#deps.clock.monoMs()), () => this.#turn());
  }

  #turn(): void {
    for (let count = 0; count < DECISIONS_PER_TURN; count++) {
      const next = this.#queue.next(this.#deps.clock.monoMs());
      if (next === undefined) break;
      this.#decide(next.pod, next.attempts);
    }
    this.#arm();
  }

  #decide(pod: Pod, attempts: number): void {
    const decision = schedule(
      pod,
      {
        nodes: this.#state.nodes(),
        namespaces: this.#groups.namespaceLabels(),
        groupSelectors: this.#groups.of(pod),
        claim: (namespace, name) => this.#claims.get(`${namespace}/${name}`),
        volume: (name) => this.#volumes.get(name),
        storageClass: (name) => this.#classes.get(name),
      },
      this.#deps.rng.float(),
    );
    if (decision.kind === 'unschedulable') {
      this.#queue.failed(pod, attempts, true, this.#deps.clock.monoMs());
      this.#track(this.#refuse(pod, 'Unschedulable', decision.message));
      return;
    }
    if (decision.claims.length > 0) {
      this.#queue.failed(pod, attempts, true, this.#deps.clock.monoMs());
      this.#track(this.#selectNode(decision.claims, decision.node));
      return;
    }
    this.#state.assume(pod, decision.node);
    this.#track(this.#bind(pod, attempts, decision.node));
  }

  #track(work: Promise<void>): void {
    const guarded = work.catch((error: unknown) => {
      if (!this.#stores.signal.aborted) this.#deps.log.warn('scheduling write failed', { err: messageOf(error) });
    });
    this.#binding.add(guarded);
    void guarded.finally(() => this.#binding.delete(guarded));
  }

  async #bind(pod: Pod, attempts: number, node: string): Promise<void> {
    const { name, namespace, uid = '' } = pod.metadata;
    const binding = {
      apiVersion: 'v1',
      kind: 'Binding',
      metadata: { name, namespace, uid },
      target: { apiVersion: 'v1', kind: 'Node', name: node },
    };
    try {
      await this.#deps.api.create<KubeObject>(at(PODS, pod, 'binding'), binding, {}, this.#stores.signal);
    } catch (error) {
      this.#state.forget(uid);
      if (this.#stores.signal.aborted || isApiError(error, 404)) return;
      const current = this.#pods.get(`${namespace}/${name}`);
      if (current?.metadata.uid !== uid || current.spec.nodeName) return;
      this.#queue.failed(pod, attempts, false, this.#deps.clock.monoMs());
      this.#arm();
      await this.#refuse(pod, 'SchedulerError', `binding rejected: ${messageOf(error)}`);
      return;
    }
    this.#recorder.event(subjectOf(pod, 'v1', 'Pod'), {
      type: 'Normal',
      reason: 'Scheduled',
      message: `Successfully assigned ${namespace}/${name} to ${node}`,
    });
  }

  /** Says why in an Event and in the pod's condition; the condition is only written when it changes. */
  async #refuse(pod: Pod, reason: string, message: string): Promise<void> {
    this.#recorder.event(subjectOf(pod, 'v1', 'Pod'), { type: 'Warning', reason: 'FailedScheduling', message });
    const before = podCondition(pod, 'PodScheduled');
    if (before?.status === 'False' && before.reason === reason && before.message === message) return;
    const lastTransitionTime = before?.status === 'False' ? before.lastTransitionTime : rfc3339(this.#deps.clock.nowMs());
    const condition = {
      type: 'PodScheduled',
      status: 'False',
      reason,
      message,
      lastProbeTime: null,
      lastTransitionTime,
      ...(pod.metadata.generation === undefined ? {} : { observedGeneration: pod.metadata.generation }),
    };
    const patch = { metadata: { uid: pod.metadata.uid }, status: { conditions: [condition] } };
    try {
      await this.#deps.api.patch<Pod>(at(PODS, pod, 'status'), 'strategic', patch, {}, this.#stores.signal);
    } catch (error) {
      if (!isApiError(error, 404) && !isApiError(error, 409)) throw error;
    }
  }

  /** Volumes that are made where their first user runs: says where; the pod goes on when they are bound. */
  async #selectNode(claims: readonly PersistentVolumeClaim[], node: string): Promise<void> {
    const key = 'volume.kubernetes.io/selected-node';
    for (const claim of claims) {
      if (claim.metadata.annotations?.[key] === node) continue;
      await this.#deps.api.patch(at(CLAIMS, claim), 'merge', { metadata: { annotations: { [key]: node } } }, {}, this.#stores.signal);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#timer?.[Symbol.dispose]();
    await this.#stores[Symbol.asyncDispose]();
    await Promise.all(this.#binding);
  }
}

function looksAtNeighbours(pod: Pod): boolean {
  return hasAffinity(pod) || (pod.spec.topologySpreadConstraints ?? []).length > 0;
}

/** Whether a node's change can make room or lift a refusal; its heartbeat cannot. */
function mayHelp(before: Node, after: Node): boolean {
  return !(
    semanticEqual(before.spec, after.spec) &&
    semanticEqual(before.metadata.labels, after.metadata.labels) &&
    semanticEqual(before.status?.allocatable, after.status?.allocatable)
  );
}

/** What belongs together, for spreading: the Services and the ReplicaSet that select a pod. */
class GroupSelectors {
  readonly #services;
  readonly #replicaSets;
  readonly #namespaces;

  constructor(stores: Stores) {
    this.#services = serviceStore(stores);
    this.#replicaSets = replicaSetStore(stores);
    this.#namespaces = namespaceStore(stores);
  }

  get synced(): Promise<unknown> {
    return Promise.all([this.#services.synced, this.#replicaSets.synced, this.#namespaces.synced]);
  }

  of(pod: Pod): LabelSelector[] {
    const namespace = pod.metadata.namespace ?? '';
    const services = this.#services.by('namespace', namespace).flatMap(({ spec }) => {
      const selector = spec.selector ?? {};
      return Object.keys(selector).length > 0 && mapMatches(selector, pod.metadata.labels) ? [{ matchLabels: selector }] : [];
    });
    const owner = controllerOf(pod);
    const replicaSet = owner?.kind === 'ReplicaSet' ? this.#replicaSets.get(`${namespace}/${owner.name}`) : undefined;
    return replicaSet === undefined ? services : [...services, replicaSet.spec.selector];
  }

  namespaceLabels(): Map<string, Record<string, string>> {
    return new Map(this.#namespaces.values().map((namespace) => [namespace.metadata.name ?? '', namespace.metadata.labels ?? {}]));
  }
}
