import { BugError } from '../../base/assert.ts';
import type { Clock } from '../../base/clock.ts';
import type { Pod } from '../../proto/kube/types.ts';
import type { Volumes } from '../seams.ts';

export interface RefreshEndingDeps {
  readonly clock: Clock;
  readonly volumes: Pick<Volumes, 'refresh'>;
  readonly syncFrequencyMs: number;
  /** Wish: volumes (tokens, ConfigMaps) follow as long as anything of an ending pod runs. */
  readonly refreshesEnding?: boolean;
}

/** Does the work of ending a pod, and with the wish keeps its volumes up to date meanwhile. */
export async function whileRefreshed<T>(deps: RefreshEndingDeps, pod: Pod, stop: AbortSignal, work: () => Promise<T>): Promise<T> {
  if (deps.refreshesEnding !== true) return work();
  const { clock, volumes, syncFrequencyMs } = deps;
  const over = new AbortController();
  const signal = AbortSignal.any([stop, over.signal]);
  const follow = async (): Promise<void> => {
    for (;;) {
      await clock.sleep(syncFrequencyMs, signal).catch(() => undefined);
      if (signal.aborted) return;
      await volumes.refresh(pod, stop).catch((error: unknown) => {
        // What cannot be read now is tried again in a moment, and ends with the pod.
        if (error instanceof BugError) throw error;
      });
    }
  };
  const following = follow();
  try {
    return await work();
  } finally {
    over.abort();
    await following;
  }
}
