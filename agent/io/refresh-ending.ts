import { BugError } from '../../base/assert.ts';
import type { Clock } from '../../base/clock.ts';
import type { Pod } from '../../proto/kube/types.ts';
import type { Wish } from '../core/wishes.ts';
import type { Volumes } from '../seams.ts';

export interface RefreshEndingDeps {
  readonly clock: Clock;
  readonly volumes: Pick<Volumes, 'refresh'>;
  readonly syncFrequencyMs: number;
  readonly wishes: ReadonlySet<Wish>;
}

/** Does the work of ending a pod; with the wish its volumes (tokens, ConfigMaps) follow as long as anything of it runs. */
export async function whileRefreshed<T>(deps: RefreshEndingDeps, pod: Pod, stop: AbortSignal, work: () => Promise<T>): Promise<T> {
  if (!deps.wishes.has('RefreshVolumesOfEndingPods')) return work();
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
