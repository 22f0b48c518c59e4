import { messageOf } from '../../base/errors.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { inNamespace, PODS } from './collections.ts';
import { isNamespaceEnding } from './deployment.ts';
import type { ControlDeps } from './deps.ts';
import type { Recorder, Subject } from './recorder.ts';
import type { Store } from './store.ts';

/** Creates a pod for the object that owns it and tells so by an Event; in a namespace that ends nothing is made and nothing told. */
export async function createOwnedPod(
  deps: ControlDeps,
  recorder: Recorder,
  pods: Store<Pod>,
  owner: Subject,
  namespace: string | undefined,
  pod: Pod,
  signal: AbortSignal,
): Promise<void> {
  try {
    const made = await deps.api.create<Pod>(inNamespace(PODS, namespace), pod, {}, signal);
    pods.wrote(made);
    recorder.event(owner, { type: 'Normal', reason: 'SuccessfulCreate', message: `Created pod: ${made.metadata.name}` });
  } catch (error) {
    if (isNamespaceEnding(error)) return;
    recorder.event(owner, { type: 'Warning', reason: 'FailedCreate', message: `Error creating: ${messageOf(error)}` });
    throw error;
  }
}
