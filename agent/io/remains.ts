import type { PodFacts, PodKey } from '../core/types.ts';
import type { PodFiles } from './files.ts';
import type { StepDeps } from './step-types.ts';

export interface RemainsDeps {
  readonly steps: Pick<StepDeps, 'cri' | 'timeoutMs' | 'lines'>;
  readonly files: Pick<PodFiles, 'unlinkLog' | 'removeTree'>;
  readonly podLogDir: (key: PodKey) => string;
  readonly containersLogDir: string;
}

/** Takes what an ended pod has left out of the runtime. Its object is gone, so nobody can ask for its logs any more. */
export async function removeRemains(deps: RemainsDeps, key: PodKey, facts: PodFacts, signal: AbortSignal): Promise<void> {
  const { cri, timeoutMs, lines } = deps.steps;
  // After pods that somebody still waits for.
  using _turn = await lines.ends.take(Number.POSITIVE_INFINITY, signal);
  for (const container of facts.containers) {
    // The link first: who is killed in between finds the container again, and nobody would look for the link.
    await deps.files.unlinkLog(deps.containersLogDir, container.id);
    await cri.runtime.removeContainer({ containerId: container.id }, { timeoutMs, signal });
  }
  for (const sandbox of facts.sandboxes) await cri.runtime.removePodSandbox({ podSandboxId: sandbox.id }, { timeoutMs, signal });
  await deps.files.removeTree(deps.podLogDir({ ...key, namespace: key.namespace || facts.namespace, name: key.name || facts.name }));
}
