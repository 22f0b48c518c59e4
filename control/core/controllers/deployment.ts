import type { Deployment, DeploymentStatus, LabelSelector, Pod, PodTemplateSpec, ReplicaSet } from '../../../proto/kube/types.ts';
import {
  deploymentCondition,
  hasProgressDeadline,
  isComplete,
  progressCheckAfterMs,
  progressStatus,
  UNLIMITED,
  withCondition,
  withReplicaFailure,
} from './deployment-conditions.ts';
import {
  availableOf,
  byAge,
  DESIRED_REPLICAS,
  isRolling,
  isSaturated,
  isScalingEvent,
  MAX_REPLICAS,
  maxSurge,
  maxUnavailable,
  newSize,
  proportionalSizes,
  REVISION,
  REVISION_HISTORY,
  shrinkOld,
  sizeOf,
  sumOf,
  wantedOf,
} from './deployment-scale.ts';
import { semanticEqual, withoutZeros } from './equal.ts';
import { templateHash } from './hash.ts';
import { controllerRef } from './owners.ts';
import { isPodTerminal } from './pods.ts';
import { selectorIsEmpty } from './selector.ts';

export interface DeploymentObserved {
  deployment: Deployment;
  /** Those the Deployment controls. */
  replicaSets: readonly ReplicaSet[];
  /** Pods of those ReplicaSets; only Recreate asks for them. */
  pods: readonly Pod[];
  nowMs: number;
  /** `nowMs` as metav1.Time prints it. */
  now: string;
}

export interface EventText {
  type: 'Normal' | 'Warning';
  reason: string;
  message: string;
}

export type DeploymentAction =
  | { kind: 'createReplicaSet'; replicaSet: ReplicaSet; event?: EventText }
  | { kind: 'updateReplicaSet'; replicaSet: ReplicaSet; event?: EventText }
  | { kind: 'deleteReplicaSet'; replicaSet: ReplicaSet }
  | { kind: 'updateStatus'; status: DeploymentStatus; annotations: Record<string, string> }
  | { kind: 'event'; event: EventText };

export interface DeploymentPlan {
  actions: DeploymentAction[];
  /** When to look again although nothing changed. */
  checkAfterMs?: number;
}

const HASH_LABEL = 'pod-template-hash';
const SKIPPED_ANNOTATIONS = new Set([
  'kubectl.kubernetes.io/last-applied-configuration',
  REVISION,
  REVISION_HISTORY,
  DESIRED_REPLICAS,
  MAX_REPLICAS,
  'deprecated.deployment.rollback.to',
]);
const REVISION_HISTORY_LIMIT_CHARS = 2000;

/**
 * One step of a Deployment: what to write now so that its ReplicaSets come nearer to what it says. The writes wake it
 * again, so a step never waits for the next.
 */
export function planDeployment(observed: DeploymentObserved): DeploymentPlan {
  return new Step(observed).plan();
}

/** Whether a ReplicaSet was made from this pod template. */
export function hasTemplate(replicaSet: ReplicaSet, template: PodTemplateSpec): boolean {
  return semanticEqual(withoutHash(replicaSet.spec.template ?? {}), withoutHash(template));
}

function withoutHash(template: PodTemplateSpec): PodTemplateSpec {
  const { [HASH_LABEL]: _hash, ...labels } = template.metadata?.labels ?? {};
  return { ...template, metadata: { ...template.metadata, labels } };
}

export function revisionOf(replicaSet: ReplicaSet): number {
  const text = replicaSet.metadata.annotations?.[REVISION] ?? '';
  return /^\d+$/.test(text) ? Number(text) : 0;
}

/** The ReplicaSet a Deployment makes for its template, with nothing in it yet. */
export function newReplicaSet(deployment: Deployment): ReplicaSet {
  const hash = templateHash(deployment.spec.template, deployment.status?.collisionCount);
  const template = deployment.spec.template;
  const labels = { ...template.metadata?.labels, [HASH_LABEL]: hash };
  const selector: LabelSelector = { ...deployment.spec.selector, matchLabels: { ...deployment.spec.selector.matchLabels, [HASH_LABEL]: hash } };
  const base = (deployment.metadata.name ?? '').slice(0, 253 - 1 - hash.length);
  return {
    apiVersion: 'apps/v1',
    kind: 'ReplicaSet',
    metadata: {
      name: `${base}-${hash}`,
      namespace: deployment.metadata.namespace,
      labels,
      ownerReferences: [controllerRef(deployment, 'apps/v1', 'Deployment')],
    },
    spec: {
      replicas: 0,
      ...(deployment.spec.minReadySeconds ? { minReadySeconds: deployment.spec.minReadySeconds } : {}),
      selector,
      template: { ...template, metadata: { ...template.metadata, labels } },
    },
  };
}

class Step {
  readonly #observed: DeploymentObserved;
  readonly #actions: DeploymentAction[] = [];
  /** The Deployment with the conditions this step has already decided on. */
  #deployment: Deployment;
  #annotations: Record<string, string> = {};
  #fresh: ReplicaSet | undefined;
  #old: ReplicaSet[];

  constructor(observed: DeploymentObserved) {
    this.#observed = observed;
    this.#deployment = { ...observed.deployment, status: observed.deployment.status ?? {} };
    const sorted = observed.replicaSets.toSorted(byAge);
    this.#fresh = sorted.find((replicaSet) => hasTemplate(replicaSet, observed.deployment.spec.template));
    this.#old = sorted.filter((replicaSet) => replicaSet !== this.#fresh);
  }

  plan(): DeploymentPlan {
    const deployment = this.#deployment;
    if (selectorIsEmpty(deployment.spec.selector)) return this.#selectingAll();
    if (this.#syncFresh()) return { actions: this.#actions };
    if (deployment.metadata.deletionTimestamp) return this.#finish(this.#countedStatus());
    this.#notePause();
    if (deployment.spec.paused === true || isScalingEvent(deployment, this.#all())) {
      this.#scaleAll();
      if (deployment.spec.paused === true) this.#cleanUp();
      return this.#finish(this.#countedStatus());
    }
    return isRolling(deployment) ? this.#roll() : this.#recreate();
  }

  #all(): ReplicaSet[] {
    return this.#fresh === undefined ? this.#old : [...this.#old, this.#fresh];
  }

  #selectingAll(): DeploymentPlan {
    const { status, metadata } = this.#deployment;
    const message = 'This deployment is selecting all pods. A non-empty selector is required.';
    this.#actions.push({ kind: 'event', event: { type: 'Warning', reason: 'SelectingAll', message } });
    if ((status?.observedGeneration ?? 0) < (metadata.generation ?? 0)) {
      this.#actions.push({ kind: 'updateStatus', status: { ...status, observedGeneration: metadata.generation }, annotations: {} });
    }
    return { actions: this.#actions };
  }

  /** Keeps the new ReplicaSet's annotations right; true when it had to be written, which ends the step. */
  #syncFresh(): boolean {
    const fresh = this.#fresh;
    if (fresh === undefined) return false;
    const annotations = this.#annotationsFor(fresh);
    const minReadySeconds = this.#deployment.spec.minReadySeconds ?? 0;
    if (!semanticEqual(annotations, fresh.metadata.annotations) || (fresh.spec.minReadySeconds ?? 0) !== minReadySeconds) {
      this.#actions.push({
        kind: 'updateReplicaSet',
        replicaSet: { ...fresh, metadata: { ...fresh.metadata, annotations }, spec: { ...fresh.spec, minReadySeconds } },
      });
      return true;
    }
    this.#annotations = { [REVISION]: annotations[REVISION] ?? '' };
    const status = this.#deployment.status ?? {};
    if (hasProgressDeadline(this.#deployment) && deploymentCondition(status, 'Progressing') === undefined) {
      this.#setCondition('True', 'FoundNewReplicaSet', `Found new replica set "${fresh.metadata.name}"`);
    }
    return false;
  }

  /** The Deployment's annotations, the next revision, and the revisions this ReplicaSet had before. */
  #annotationsFor(replicaSet: ReplicaSet): Record<string, string> {
    const annotations = { ...replicaSet.metadata.annotations };
    for (const [key, value] of Object.entries(this.#deployment.metadata.annotations ?? {})) {
      if (!SKIPPED_ANNOTATIONS.has(key)) annotations[key] = value;
    }
    const had = annotations[REVISION];
    if (had !== undefined && had !== '' && !/^\d+$/.test(had)) return annotations;
    const next = Math.max(0, ...this.#old.map(revisionOf)) + 1;
    if (Number(had ?? 0) >= next) return annotations;
    annotations[REVISION] = String(next);
    if (had !== undefined && had !== '') {
      const history = (annotations[REVISION_HISTORY] ?? '').split(',').filter((entry) => entry !== '');
      history.push(had);
      while (history.join(',').length > REVISION_HISTORY_LIMIT_CHARS) history.shift();
      annotations[REVISION_HISTORY] = history.join(',');
    }
    return annotations;
  }

  #setCondition(status: 'True' | 'False' | 'Unknown', reason: string, message: string): void {
    this.#deployment = {
      ...this.#deployment,
      status: withCondition(this.#deployment.status ?? {}, 'Progressing', { status, reason, message }, this.#observed.now),
    };
  }

  /** A pause stops the progress clock; a resume starts it anew. */
  #notePause(): void {
    const deployment = this.#deployment;
    if (!hasProgressDeadline(deployment)) return;
    const reason = deploymentCondition(deployment.status ?? {}, 'Progressing')?.reason;
    if (reason === 'ProgressDeadlineExceeded') return;
    const wasPaused = reason === 'DeploymentPaused';
    if (deployment.spec.paused === true && !wasPaused) this.#setCondition('Unknown', 'DeploymentPaused', 'Deployment is paused');
    if (deployment.spec.paused !== true && wasPaused) this.#setCondition('Unknown', 'DeploymentResumed', 'Deployment is resumed');
  }

  #roll(): DeploymentPlan {
    const fresh = this.#fresh;
    if (fresh === undefined) return this.#create();
    const wanted = wantedOf(this.#deployment);
    const size = sizeOf(fresh) > wanted ? wanted : newSize(this.#deployment, this.#all(), sizeOf(fresh));
    if (size !== sizeOf(fresh)) {
      this.#resize(fresh, size);
      return this.#finish(this.#progressedStatus());
    }
    const shrunk = shrinkOld(
      this.#deployment,
      this.#old.filter((replicaSet) => sizeOf(replicaSet) > 0),
      fresh,
    );
    for (const [replicaSet, smaller] of shrunk) this.#resize(replicaSet, smaller);
    if (shrunk.size === 0 && isComplete(this.#deployment, this.#deployment.status ?? {})) this.#cleanUp();
    return this.#finish(this.#progressedStatus());
  }

  #recreate(): DeploymentPlan {
    const active = this.#old.filter((replicaSet) => sizeOf(replicaSet) > 0);
    for (const replicaSet of active) this.#resize(replicaSet, 0);
    if (active.length > 0 || this.#oldPodsRun()) return this.#finish(this.#progressedStatus());
    const fresh = this.#fresh;
    if (fresh === undefined) return this.#create();
    if (sizeOf(fresh) !== wantedOf(this.#deployment)) this.#resize(fresh, wantedOf(this.#deployment));
    if (isComplete(this.#deployment, this.#deployment.status ?? {})) this.#cleanUp();
    return this.#finish(this.#progressedStatus());
  }

  #oldPodsRun(): boolean {
    if (sumOf(this.#old, (replicaSet) => replicaSet.status?.replicas ?? 0) > 0) return true;
    const freshUid = this.#fresh?.metadata.uid;
    return this.#observed.pods.some(
      (pod) => !isPodTerminal(pod) && !pod.metadata.ownerReferences?.some((owner) => owner.controller === true && owner.uid === freshUid),
    );
  }

  #create(): DeploymentPlan {
    const deployment = this.#deployment;
    const empty = newReplicaSet(deployment);
    const size = newSize(deployment, this.#old, 0);
    const annotations = this.#withSizes(this.#annotationsFor(empty));
    const replicaSet: ReplicaSet = { ...empty, metadata: { ...empty.metadata, annotations }, spec: { ...empty.spec, replicas: size } };
    const name = replicaSet.metadata.name ?? '';
    const event: EventText = { type: 'Normal', reason: 'ScalingReplicaSet', message: `Scaled up replica set ${name} from 0 to ${size}` };
    this.#actions.push({ kind: 'createReplicaSet', replicaSet, ...(size > 0 ? { event } : {}) });
    if (hasProgressDeadline(deployment)) this.#setCondition('True', 'NewReplicaSetCreated', `Created new replica set "${name}"`);
    this.#actions.push({ kind: 'updateStatus', status: this.#deployment.status ?? {}, annotations: { [REVISION]: annotations[REVISION] ?? '' } });
    return { actions: this.#actions };
  }

  #withSizes(annotations: Record<string, string>): Record<string, string> {
    const wanted = wantedOf(this.#deployment);
    return { ...annotations, [DESIRED_REPLICAS]: String(wanted), [MAX_REPLICAS]: String(wanted + maxSurge(this.#deployment)) };
  }

  /** Writes a new size, and the sizes of the whole Deployment beside it. */
  #resize(replicaSet: ReplicaSet, size: number): void {
    const before = sizeOf(replicaSet);
    const annotations = this.#withSizes(replicaSet.metadata.annotations ?? {});
    if (before === size && semanticEqual(annotations, replicaSet.metadata.annotations)) return;
    const resized: ReplicaSet = { ...replicaSet, metadata: { ...replicaSet.metadata, annotations }, spec: { ...replicaSet.spec, replicas: size } };
    const message = `Scaled ${before < size ? 'up' : 'down'} replica set ${replicaSet.metadata.name} from ${before} to ${size}`;
    this.#actions.push({
      kind: 'updateReplicaSet',
      replicaSet: resized,
      ...(before === size ? {} : { event: { type: 'Normal', reason: 'ScalingReplicaSet', message } }),
    });
    if (this.#fresh === replicaSet) this.#fresh = resized;
    this.#old = this.#old.map((old) => (old === replicaSet ? resized : old));
  }

  /** The user changed the number of replicas: no rollout, only sizes. */
  #scaleAll(): void {
    const active = this.#all().filter((replicaSet) => sizeOf(replicaSet) > 0);
    const wanted = wantedOf(this.#deployment);
    const only = active.length === 1 ? active[0] : active.length === 0 ? (this.#fresh ?? this.#old.at(-1)) : undefined;
    if (only !== undefined) {
      if (sizeOf(only) !== wanted) this.#resize(only, wanted);
      return;
    }
    if (isSaturated(this.#deployment, this.#fresh)) {
      for (const replicaSet of active) if (replicaSet !== this.#fresh) this.#resize(replicaSet, 0);
      return;
    }
    if (!isRolling(this.#deployment)) return;
    for (const [replicaSet, size] of proportionalSizes(this.#deployment, active)) this.#resize(replicaSet, size);
  }

  #cleanUp(): void {
    const limit = this.#deployment.spec.revisionHistoryLimit;
    if (limit === undefined || limit === null || limit === UNLIMITED) return;
    const alive = this.#old.filter((replicaSet) => !replicaSet.metadata.deletionTimestamp).toSorted((a, b) => revisionOf(a) - revisionOf(b) || byAge(a, b));
    for (const replicaSet of alive.slice(0, Math.max(0, alive.length - limit))) {
      const seen = (replicaSet.metadata.generation ?? 0) <= (replicaSet.status?.observedGeneration ?? 0);
      if ((replicaSet.status?.replicas ?? 0) === 0 && sizeOf(replicaSet) === 0 && seen) this.#actions.push({ kind: 'deleteReplicaSet', replicaSet });
    }
  }

  #countedStatus(): DeploymentStatus {
    const deployment = this.#deployment;
    const all = this.#all();
    const available = sumOf(all, availableOf);
    const terminating = all.map((replicaSet) => (replicaSet.status?.observedGeneration === undefined ? 0 : replicaSet.status.terminatingReplicas));
    const before = deployment.status ?? {};
    const status: DeploymentStatus = {
      observedGeneration: deployment.metadata.generation,
      replicas: sumOf(all, (replicaSet) => replicaSet.status?.replicas ?? 0),
      updatedReplicas: this.#fresh?.status?.replicas ?? 0,
      readyReplicas: sumOf(all, (replicaSet) => replicaSet.status?.readyReplicas ?? 0),
      availableReplicas: available,
      unavailableReplicas: Math.max(0, sumOf(all, sizeOf) - available),
      ...(before.collisionCount === undefined ? {} : { collisionCount: before.collisionCount }),
      ...(terminating.some((count) => count === undefined) ? {} : { terminatingReplicas: terminating.reduce<number>((sum, count) => sum + (count ?? 0), 0) }),
      conditions: before.conditions ?? [],
    };
    const enough = available >= wantedOf(deployment) - maxUnavailable(deployment);
    return enough
      ? withCondition(
          status,
          'Available',
          { status: 'True', reason: 'MinimumReplicasAvailable', message: 'Deployment has minimum availability.' },
          this.#observed.now,
        )
      : withCondition(
          status,
          'Available',
          { status: 'False', reason: 'MinimumReplicasUnavailable', message: 'Deployment does not have minimum availability.' },
          this.#observed.now,
        );
  }

  #progressedStatus(): DeploymentStatus {
    const status = progressStatus(this.#deployment, this.#countedStatus(), this.#fresh, this.#observed.nowMs, this.#observed.now);
    return withReplicaFailure(status, this.#all(), this.#fresh);
  }

  #finish(status: DeploymentStatus): DeploymentPlan {
    const before = this.#observed.deployment;
    const annotationsChanged = Object.entries(this.#annotations).some(([key, value]) => before.metadata.annotations?.[key] !== value);
    if (annotationsChanged || !sameStatus(before.status ?? {}, status))
      this.#actions.push({ kind: 'updateStatus', status: withoutZeros(status, COUNTS), annotations: this.#annotations });
    const checkAfterMs = progressCheckAfterMs(before, status, this.#observed.nowMs);
    return { actions: this.#actions, ...(checkAfterMs === undefined ? {} : { checkAfterMs }) };
  }
}

const COUNTS = ['replicas', 'updatedReplicas', 'readyReplicas', 'availableReplicas', 'unavailableReplicas'] as const;

/** Zero and absent are the same number here; terminatingReplicas alone tells them apart. */
function sameStatus(a: DeploymentStatus, b: DeploymentStatus): boolean {
  const counts = (status: DeploymentStatus): (number | undefined)[] => [
    status.observedGeneration ?? 0,
    status.replicas ?? 0,
    status.updatedReplicas ?? 0,
    status.readyReplicas ?? 0,
    status.availableReplicas ?? 0,
    status.unavailableReplicas ?? 0,
    status.terminatingReplicas ?? 0,
    status.collisionCount,
  ];
  return semanticEqual(counts(a), counts(b)) && semanticEqual(a.conditions, b.conditions);
}
