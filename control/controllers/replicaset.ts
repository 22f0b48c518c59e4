import { rfc3339 } from '../../base/clock.ts';
import { isApiError } from '../../base/kubeapi/errors.ts';
import { messageOf } from '../../base/errors.ts';
import type { Pod, ReplicaSet } from '../../proto/kube/types.ts';
import { controllerOf, controllerRef, keyOf } from '../core/controllers/owners.ts';
import { isPodActive } from '../core/controllers/pods.ts';
import { planReplicas, planReplicaSetStatus, type ReplicaFailure } from '../core/controllers/replicaset.ts';
import { selectorIsEmpty, selectorMatches } from '../core/controllers/selector.ts';
import { claim } from './claim.ts';
import { at, podStore, PODS, REPLICA_SETS, replicaSetStore } from './collections.ts';
import { type Controller, runController } from './controller.ts';
import type { ControlDeps } from './deps.ts';
import { createOwnedPod } from './owned-pods.ts';
import { createRecorder, type Recorder, subjectOf } from './recorder.ts';
import type { Store, Stores } from './store.ts';

/** ReplicaSets: as many pods as they say, no more and no fewer. */
export function startReplicaSetController(deps: ControlDeps, stores: Stores): Controller {
  const replicaSets = replicaSetStore(stores);
  const pods = podStore(stores);
  const recorder = createRecorder('replicaset-controller', deps.api, deps.clock, deps.log, stores.signal);

  const sync = async (key: string, signal: AbortSignal): Promise<number | undefined> => {
    const replicaSet = replicaSets.get(key);
    if (replicaSet === undefined) return undefined;
    const owned = await claimPods(deps, replicaSet, pods, signal);
    const nowMs = deps.clock.nowMs();
    const plan = planReplicas({ replicaSet, pods: owned, related: relatedPods(replicaSet, replicaSets, pods), nowMs });
    const failure = await makeAndRemove(deps, recorder, pods, replicaSet, plan, signal);
    // Counted as upstream does: what this step has just made or removed shows in the next one.
    const latest = replicaSets.get(key);
    if (latest === undefined || latest.metadata.uid !== replicaSet.metadata.uid) return undefined;
    const status = planReplicaSetStatus(latest, owned, failure?.failure, nowMs, rfc3339(nowMs));
    if (status.status !== undefined) {
      replicaSets.wrote(await deps.api.update<ReplicaSet>(at(REPLICA_SETS, latest, 'status'), { ...latest, status: status.status }, {}, signal));
    }
    if (failure !== undefined) throw failure.cause;
    return status.checkAfterMs;
  };
  const controller = runController(deps, { name: 'replicaset', needs: [replicaSets, pods] as never[], sync });

  replicaSets.onChange((replicaSet) => controller.add(keyOf(replicaSet)));
  pods.onChange((pod, before) => {
    for (const version of before === undefined ? [pod] : [pod, before]) {
      const owner = controllerOf(version);
      if (owner?.kind === 'ReplicaSet') controller.add(`${version.metadata.namespace}/${owner.name}`);
    }
    if (controllerOf(pod) !== undefined) return;
    for (const replicaSet of replicaSets.by('namespace', pod.metadata.namespace ?? '')) {
      if (selectorMatches(replicaSet.spec.selector, pod.metadata.labels)) controller.add(keyOf(replicaSet));
    }
  });
  return controller;
}

/** Active pods may be adopted and released; ending ones are only counted. */
async function claimPods(deps: ControlDeps, replicaSet: ReplicaSet, pods: Store<Pod>, signal: AbortSignal): Promise<Pod[]> {
  const { selector } = replicaSet.spec;
  const mine = pods.by('controller', replicaSet.metadata.uid ?? '');
  const orphans = pods.by('controller', `orphan/${replicaSet.metadata.namespace ?? ''}`);
  const matches = (pod: Pod): boolean => !selectorIsEmpty(selector) && selectorMatches(selector, pod.metadata.labels);
  const active = await claim(
    deps,
    {
      owner: replicaSet,
      ownerRef: REPLICA_SETS,
      reference: controllerRef(replicaSet, 'apps/v1', 'ReplicaSet'),
      store: pods,
      candidates: [...mine, ...orphans].filter(isPodActive),
      matches,
    },
    signal,
  );
  return [...active, ...mine.filter((pod) => !isPodActive(pod) && matches(pod))];
}

/** Pods of the ReplicaSets that have the same owner. */
function relatedPods(replicaSet: ReplicaSet, replicaSets: Store<ReplicaSet>, pods: Store<Pod>): Pod[] {
  const owner = controllerOf(replicaSet)?.uid;
  const family = owner === undefined ? [replicaSet] : replicaSets.by('controller', owner);
  return family.flatMap((relative) => pods.by('controller', relative.metadata.uid ?? ''));
}

interface Failure {
  failure: ReplicaFailure;
  cause: unknown;
}

async function makeAndRemove(
  deps: ControlDeps,
  recorder: Recorder,
  pods: Store<Pod>,
  replicaSet: ReplicaSet,
  plan: { create: number; remove: readonly Pod[] },
  signal: AbortSignal,
): Promise<Failure | undefined> {
  try {
    if (plan.create > 0) await inGrowingBatches(plan.create, () => createPod(deps, recorder, pods, replicaSet, signal));
  } catch (cause) {
    return { failure: { reason: 'FailedCreate', message: messageOf(cause) }, cause };
  }
  const removals = await Promise.allSettled(plan.remove.map((pod) => deletePod(deps, recorder, pods, replicaSet, pod, signal)));
  const failed = removals.find((removal) => removal.status === 'rejected');
  return failed === undefined ? undefined : { failure: { reason: 'FailedDelete', message: messageOf(failed.reason) }, cause: failed.reason };
}

/** 1, 2, 4 … at once, and no further batch after a failure: what fails once would fail for all. */
async function inGrowingBatches(count: number, work: () => Promise<void>): Promise<void> {
  for (let left = count, size = 1; left > 0; size *= 2) {
    const batch = Math.min(size, left);
    const results = await Promise.allSettled(Array.from({ length: batch }, work));
    const failed = results.find((result) => result.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
    left -= batch;
  }
}

async function createPod(deps: ControlDeps, recorder: Recorder, pods: Store<Pod>, replicaSet: ReplicaSet, signal: AbortSignal): Promise<void> {
  const template = replicaSet.spec.template;
  const name = replicaSet.metadata.name ?? '';
  const prefix = `${name}-`;
  const body = {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: {
      generateName: prefix.length > 253 ? name : prefix,
      namespace: replicaSet.metadata.namespace,
      labels: { ...template?.metadata?.labels },
      ...(template?.metadata?.annotations === undefined ? {} : { annotations: template.metadata.annotations }),
      ...(template?.metadata?.finalizers === undefined ? {} : { finalizers: template.metadata.finalizers }),
      ownerReferences: [controllerRef(replicaSet, 'apps/v1', 'ReplicaSet')],
    },
    spec: template?.spec,
  } as Pod;
  await createOwnedPod(deps, recorder, pods, subjectOf(replicaSet, 'apps/v1', 'ReplicaSet'), replicaSet.metadata.namespace, body, signal);
}

async function deletePod(deps: ControlDeps, recorder: Recorder, pods: Store<Pod>, replicaSet: ReplicaSet, pod: Pod, signal: AbortSignal): Promise<void> {
  const subject = subjectOf(replicaSet, 'apps/v1', 'ReplicaSet');
  try {
    const preconditions = pod.metadata.uid === undefined ? {} : { preconditions: { uid: pod.metadata.uid } };
    pods.deleting(pod, await deps.api.delete(at(PODS, pod), preconditions, {}, signal));
  } catch (error) {
    if (isApiError(error, 404) || isApiError(error, 409)) return pods.vanished(pod);
    recorder.event(subject, { type: 'Warning', reason: 'FailedDelete', message: `Error deleting: ${messageOf(error)}` });
    throw error;
  }
  recorder.event(subject, { type: 'Normal', reason: 'SuccessfulDelete', message: `Deleted pod: ${pod.metadata.name}` });
}
