import { messageOf } from '../../base/errors.ts';
import { isApiError } from '../../base/kubeapi/errors.ts';
import type { DaemonSet, Pod } from '../../proto/kube/types.ts';
import { planDaemonSet } from '../core/controllers/daemonset.ts';
import { controllerOf, controllerRef, keyOf } from '../core/controllers/owners.ts';
import { selectorIsEmpty, selectorMatches } from '../core/controllers/selector.ts';
import { claim } from './claim.ts';
import { at, DAEMON_SETS, daemonSetStore, nodeStore, podStore, PODS } from './collections.ts';
import { type Controller, runController } from './controller.ts';
import type { ControlDeps } from './deps.ts';
import { createOwnedPod } from './owned-pods.ts';
import { createRecorder, type Recorder, subjectOf } from './recorder.ts';
import type { Store, Stores } from './store.ts';

/** DaemonSets: one pod on each node that may run it. */
export function startDaemonSetController(deps: ControlDeps, stores: Stores): Controller {
  const daemonSets = daemonSetStore(stores);
  const pods = podStore(stores);
  const nodes = nodeStore(stores);
  const recorder = createRecorder('daemonset-controller', deps.api, deps.clock, deps.log, stores.signal);

  const sync = async (key: string, signal: AbortSignal): Promise<number | undefined> => {
    const daemonSet = daemonSets.get(key);
    if (daemonSet === undefined) return undefined;
    const { selector } = daemonSet.spec;
    const owned = await claim(
      deps,
      {
        owner: daemonSet,
        ownerRef: DAEMON_SETS,
        reference: controllerRef(daemonSet, 'apps/v1', 'DaemonSet'),
        store: pods,
        candidates: [...pods.by('controller', daemonSet.metadata.uid ?? ''), ...pods.by('controller', `orphan/${daemonSet.metadata.namespace ?? ''}`)],
        matches: (pod) => !selectorIsEmpty(selector) && selectorMatches(selector, pod.metadata.labels),
      },
      signal,
    );
    const plan = planDaemonSet({ daemonSet, nodes: nodes.values(), pods: owned, nowMs: deps.clock.nowMs() });
    for (const pod of plan.create) await create(deps, recorder, pods, daemonSet, pod, signal);
    for (const { pod, failed } of plan.remove) {
      if (failed) {
        const message = `Found failed daemon pod ${keyOf(pod)} on node ${pod.spec.nodeName}, will try to kill it`;
        recorder.event(subjectOf(daemonSet, 'apps/v1', 'DaemonSet'), { type: 'Warning', reason: 'FailedDaemonPod', message });
      }
      await remove(deps, recorder, pods, daemonSet, pod, signal);
    }
    if (plan.status !== undefined) {
      daemonSets.wrote(await deps.api.update<DaemonSet>(at(DAEMON_SETS, daemonSet, 'status'), { ...daemonSet, status: plan.status }, {}, signal));
    }
    // A ready pod becomes available without any further event.
    const { minReadySeconds = 0 } = daemonSet.spec;
    return minReadySeconds > 0 && ((plan.status ?? daemonSet.status)?.numberUnavailable ?? 0) > 0 ? minReadySeconds * 1000 : undefined;
  };
  const controller = runController(deps, { name: 'daemonset', needs: [daemonSets, pods, nodes] as never[], sync });

  daemonSets.onChange((daemonSet) => controller.add(keyOf(daemonSet)));
  pods.onChange((pod, before) => {
    for (const version of before === undefined ? [pod] : [pod, before]) {
      const owner = controllerOf(version);
      if (owner?.kind === 'DaemonSet') controller.add(`${version.metadata.namespace}/${owner.name}`);
    }
  });
  nodes.onChange((node, before, type) => {
    const isSame =
      type === 'changed' && before !== undefined && JSON.stringify([before.metadata.labels, before.spec]) === JSON.stringify([node.metadata.labels, node.spec]);
    if (!isSame) for (const daemonSet of daemonSets.values()) controller.add(keyOf(daemonSet));
  });
  return controller;
}

async function create(deps: ControlDeps, recorder: Recorder, pods: Store<Pod>, daemonSet: DaemonSet, pod: Pod, signal: AbortSignal): Promise<void> {
  await createOwnedPod(deps, recorder, pods, subjectOf(daemonSet, 'apps/v1', 'DaemonSet'), daemonSet.metadata.namespace, pod, signal);
}

async function remove(deps: ControlDeps, recorder: Recorder, pods: Store<Pod>, daemonSet: DaemonSet, pod: Pod, signal: AbortSignal): Promise<void> {
  const subject = subjectOf(daemonSet, 'apps/v1', 'DaemonSet');
  try {
    pods.deleting(pod, await deps.api.delete(at(PODS, pod), { preconditions: { uid: pod.metadata.uid ?? '' } }, {}, signal));
    recorder.event(subject, { type: 'Normal', reason: 'SuccessfulDelete', message: `Deleted pod: ${pod.metadata.name}` });
  } catch (error) {
    if (isApiError(error, 404) || isApiError(error, 409)) return pods.vanished(pod);
    recorder.event(subject, { type: 'Warning', reason: 'FailedDelete', message: `Error deleting: ${messageOf(error)}` });
    throw error;
  }
}
