import type { Container, PodSandbox } from '../../proto/cri/types.ts';
import type { Cri } from './cri.ts';

/** What the runtime says it has. */
export interface Lists {
  readonly sandboxes: readonly PodSandbox[];
  readonly containers: readonly Container[];
}

export interface Lister {
  /** What carries this UID; begun after the call. Throws OpError when the runtime does not answer. */
  ofPod(uid: string, signal: AbortSignal): Promise<Lists>;
  /** Everything; begun after the call. Throws as `ofPod`. */
  all(signal: AbortSignal): Promise<Lists>;
}

interface Asker {
  /** null: everything. */
  readonly uid: string | null;
  resolve(lists: Lists): void;
  reject(error: unknown): void;
}

interface Round {
  readonly askers: Set<Asker>;
  /** Ends the calls when nobody waits for them any more. */
  readonly stop: AbortController;
}

/**
 * Lists pods one round after another. Who asks while a round is under way waits for the next, which all of them share:
 * one alone gets its pod's lists, several get theirs out of one list of everything. So the number of calls does not
 * grow with the number of pods that change at once, and no answer is older than its question.
 */
export function createLister(deps: { cri: Cri; uidLabel: string; timeoutMs: number }): Lister {
  const { cri, uidLabel, timeoutMs } = deps;
  let current: Round | null = null;
  let next: Round | null = null;

  const listed = async ({ askers, stop }: Round): Promise<void> => {
    const uids = new Set([...askers].map((asker) => asker.uid));
    const [only = null] = uids;
    const request = uids.size === 1 && only !== null ? { filter: { labelSelector: { [uidLabel]: only } } } : {};
    const options = { timeoutMs, signal: stop.signal };
    try {
      const [sandboxes, containers] = await Promise.all([cri.runtime.listPodSandbox(request, options), cri.runtime.listContainers(request, options)]);
      const all = { sandboxes: sandboxes.items, containers: containers.containers };
      for (const asker of askers) asker.resolve(asker.uid === null ? all : partOf(all, uidLabel, asker.uid));
    } catch (error) {
      for (const asker of askers) asker.reject(error);
    }
  };
  const go = async (round: Round): Promise<void> => {
    current = round;
    // Those who ask in the same moment are in it too.
    await Promise.resolve();
    if (next === round) next = null;
    if (round.askers.size > 0) await listed(round);
    current = null;
    if (next !== null) void go(next);
  };

  const ask = (uid: string | null, signal: AbortSignal): Promise<Lists> =>
    new Promise((resolve, reject) => {
      if (signal.aborted) return reject(signal.reason as Error);
      const round: Round = (next ??= { askers: new Set(), stop: new AbortController() });
      const settled = (): void => {
        signal.removeEventListener('abort', stopped);
        round.askers.delete(asker);
      };
      const asker: Asker = {
        uid,
        resolve(lists) {
          settled();
          resolve(lists);
        },
        reject(error) {
          settled();
          reject(error);
        },
      };
      const stopped = (): void => {
        asker.reject(signal.reason);
        if (round.askers.size > 0) return;
        round.stop.abort(signal.reason);
        if (next === round) next = null;
      };
      signal.addEventListener('abort', stopped, { once: true });
      round.askers.add(asker);
      if (current === null) void go(round);
      return undefined;
    });

  return { ofPod: (uid, signal) => ask(uid, signal), all: (signal) => ask(null, signal) };
}

function partOf(all: Lists, uidLabel: string, uid: string): Lists {
  return {
    sandboxes: all.sandboxes.filter((each) => each.labels[uidLabel] === uid),
    containers: all.containers.filter((each) => each.labels[uidLabel] === uid),
  };
}
