import { rfc3339 } from '../../base/clock.ts';
import { isApiError } from '../../base/kubeapi/errors.ts';
import type { Deployment, ReplicaSet } from '../../proto/kube/types.ts';
import { type DeploymentAction, hasTemplate, planDeployment } from '../core/controllers/deployment.ts';
import { controllerOf, controllerRef, isControlledBy, keyOf } from '../core/controllers/owners.ts';
import { selectorIsEmpty, selectorMatches } from '../core/controllers/selector.ts';
import { claim } from './claim.ts';
import { at, deploymentStore, DEPLOYMENTS, inNamespace, podStore, REPLICA_SETS, replicaSetStore } from './collections.ts';
import { type Controller, runController } from './controller.ts';
import type { ControlDeps } from './deps.ts';
import { createRecorder, type Recorder, subjectOf } from './recorder.ts';
import type { Store, Stores } from './store.ts';

/** Deployments: makes and sizes their ReplicaSets, one planned step at a time. */
export function startDeploymentController(deps: ControlDeps, stores: Stores): Controller {
  const deployments = deploymentStore(stores);
  const replicaSets = replicaSetStore(stores);
  const pods = podStore(stores);
  const recorder = createRecorder('deployment-controller', deps.api, deps.clock, deps.log, stores.signal);

  const sync = async (key: string, signal: AbortSignal): Promise<number | undefined> => {
    const deployment = deployments.get(key);
    if (deployment === undefined) return undefined;
    const owned = await claimReplicaSets(deps, deployment, replicaSets, signal);
    const nowMs = deps.clock.nowMs();
    const plan = planDeployment({
      deployment,
      replicaSets: owned,
      pods: owned.flatMap((replicaSet) => pods.by('controller', replicaSet.metadata.uid ?? '')),
      nowMs,
      now: rfc3339(nowMs),
    });
    for (const action of plan.actions) await act(deps, recorder, deployments, replicaSets, deployment, action, signal);
    return plan.checkAfterMs;
  };
  const controller = runController(deps, { name: 'deployment', needs: [deployments, replicaSets, pods] as never[], sync });

  deployments.onChange((deployment) => controller.add(keyOf(deployment)));
  replicaSets.onChange((replicaSet, before) => {
    for (const version of before === undefined ? [replicaSet] : [replicaSet, before]) {
      const owner = controllerOf(version);
      if (owner?.kind === 'Deployment') controller.add(`${version.metadata.namespace}/${owner.name}`);
    }
    if (controllerOf(replicaSet) !== undefined) return;
    for (const deployment of deployments.by('namespace', replicaSet.metadata.namespace ?? '')) {
      if (selectorMatches(deployment.spec.selector, replicaSet.metadata.labels)) controller.add(keyOf(deployment));
    }
  });
  // Recreate waits for the last old pod to be gone.
  pods.onChange((pod, _before, type) => {
    if (type !== 'gone') return;
    const owner = controllerOf(pod);
    const replicaSet = owner?.kind === 'ReplicaSet' ? replicaSets.get(`${pod.metadata.namespace}/${owner.name}`) : undefined;
    const deployment = replicaSet === undefined ? undefined : controllerOf(replicaSet);
    if (deployment !== undefined) controller.add(`${pod.metadata.namespace}/${deployment.name}`);
  });
  return controller;
}

function claimReplicaSets(deps: ControlDeps, deployment: Deployment, store: Store<ReplicaSet>, signal: AbortSignal): Promise<ReplicaSet[]> {
  const { selector } = deployment.spec;
  return claim(
    deps,
    {
      owner: deployment,
      ownerRef: DEPLOYMENTS,
      reference: controllerRef(deployment, 'apps/v1', 'Deployment'),
      store,
      candidates: store.by('namespace', deployment.metadata.namespace ?? ''),
      matches: (replicaSet) => !selectorIsEmpty(selector) && selectorMatches(selector, replicaSet.metadata.labels),
    },
    signal,
  );
}

async function act(
  deps: ControlDeps,
  recorder: Recorder,
  deployments: Store<Deployment>,
  replicaSets: Store<ReplicaSet>,
  deployment: Deployment,
  action: DeploymentAction,
  signal: AbortSignal,
): Promise<void> {
  const subject = subjectOf(deployment, 'apps/v1', 'Deployment');
  switch (action.kind) {
    case 'createReplicaSet': {
      const made = await createReplicaSet(deps, recorder, deployments, replicaSets, deployment, action.replicaSet, signal);
      if (made && action.event !== undefined) recorder.event(subject, action.event);
      return;
    }
    case 'updateReplicaSet':
      replicaSets.wrote(await deps.api.update(at(REPLICA_SETS, action.replicaSet), action.replicaSet, {}, signal));
      if (action.event !== undefined) recorder.event(subject, action.event);
      return;
    case 'deleteReplicaSet':
      try {
        replicaSets.deleting(action.replicaSet, await deps.api.delete(at(REPLICA_SETS, action.replicaSet), {}, {}, signal));
      } catch (error) {
        if (!isApiError(error, 404)) throw error;
      }
      return;
    case 'updateStatus':
      await updateStatus(deps, deployments, deployment, action, signal);
      return;
    case 'event':
      recorder.event(subject, action.event);
      return;
  }
}

/** The revision annotation goes with the status; a server that keeps metadata out of status writes gets it apart. */
async function updateStatus(
  deps: ControlDeps,
  deployments: Store<Deployment>,
  deployment: Deployment,
  action: { status: Deployment['status']; annotations: Record<string, string> },
  signal: AbortSignal,
): Promise<void> {
  const latest = deployments.get(keyOf(deployment)) ?? deployment;
  const annotations = { ...latest.metadata.annotations, ...action.annotations };
  const body: Deployment = { ...latest, metadata: { ...latest.metadata, annotations }, status: action.status };
  const written = await deps.api.update<Deployment>(at(DEPLOYMENTS, latest, 'status'), body, {}, signal);
  deployments.wrote(written);
  const missing = Object.entries(action.annotations).filter(([key, value]) => written.metadata.annotations?.[key] !== value);
  if (missing.length === 0) return;
  deployments.wrote(await deps.api.patch<Deployment>(at(DEPLOYMENTS, latest), 'merge', { metadata: { annotations: Object.fromEntries(missing) } }, {}, signal));
}

/** False when the name was taken: by ourselves earlier, or by another template with the same hash, which changes the next hash. */
async function createReplicaSet(
  deps: ControlDeps,
  recorder: Recorder,
  deployments: Store<Deployment>,
  replicaSets: Store<ReplicaSet>,
  deployment: Deployment,
  replicaSet: ReplicaSet,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    replicaSets.wrote(await deps.api.create<ReplicaSet>(inNamespace(REPLICA_SETS, deployment.metadata.namespace), replicaSet, {}, signal));
    return true;
  } catch (error) {
    if (isApiError(error, 409)) {
      const taken = await deps.api.get<ReplicaSet>(at(REPLICA_SETS, replicaSet), {}, signal);
      if (isControlledBy(taken, deployment) && hasTemplate(taken, deployment.spec.template)) {
        replicaSets.wrote(taken);
        return false;
      }
      const status = { ...deployment.status, collisionCount: (deployment.status?.collisionCount ?? 0) + 1 };
      await updateStatus(deps, deployments, deployment, { status, annotations: {} }, signal);
      throw error;
    }
    if (error instanceof Error && !isNamespaceEnding(error)) {
      const message = `Failed to create new replica set "${replicaSet.metadata.name}": ${error.message}`;
      recorder.event(subjectOf(deployment, 'apps/v1', 'Deployment'), { type: 'Warning', reason: 'ReplicaSetCreateError', message });
    }
    throw error;
  }
}

/** The server refuses creations in a namespace that is being deleted; nobody needs to be told. */
export function isNamespaceEnding(error: unknown): boolean {
  if (!isApiError(error, 403)) return false;
  const causes = (error as { details?: { causes?: { reason?: string }[] } }).details?.causes ?? [];
  return causes.some((cause) => cause.reason === 'NamespaceTerminating');
}
