import type { ContainerFacts, PodFacts, SandboxFacts } from './types.ts';

/** What is to be taken out of the runtime, in this order. */
export interface ContainerGcPlan {
  readonly containers: readonly { readonly id: string; readonly uid: string; readonly stopFirst: boolean }[];
  readonly sandboxes: readonly { readonly id: string; readonly uid: string }[];
}

export interface ContainerGcInput {
  readonly pods: readonly PodFacts[];
  /** Dead containers that are kept of each container of a pod; negative keeps all. */
  readonly maxPerPodContainer: number;
  /** Dead containers that are kept on the node; negative keeps all. */
  readonly maxContainers: number;
  readonly minAgeMs: number;
  readonly nowMs: number;
  /** Whether nobody has a duty for the pod any more: nothing of it is kept. */
  readonly isGone: (uid: string) => boolean;
}

type Dead = ContainerFacts & { readonly uid: string };

/**
 * Which dead containers and sandboxes go, the oldest first: what is left tells of the pod meanwhile. Of each container
 * the newest dead ones stay for `kubectl logs -p`; a sandbox goes when it is not ready, is empty after this round and is
 * not its pod's newest.
 */
export function planContainerGc(input: ContainerGcInput): ContainerGcPlan {
  const removed = new Map<string, Dead>();
  const kept: Dead[][] = [];
  for (const group of deadContainers(input)) {
    const uid = group[0]?.uid ?? '';
    const keep = input.isGone(uid) ? 0 : input.maxPerPodContainer;
    const stays = keep < 0 ? group.length : keep;
    for (const each of group.slice(stays).toReversed()) removed.set(each.id, each);
    if (stays > 0) kept.push(group.slice(0, stays));
  }
  for (const each of overTotal(kept, input.maxContainers)) removed.set(each.id, each);
  return {
    containers: [...removed.values()].map(({ id, uid, state }) => ({ id, uid, stopFirst: state === 'unknown' })),
    sandboxes: input.pods.flatMap((pod) => deadSandboxes(pod, removed, input.isGone(pod.uid)).map(({ id, uid }) => ({ id, uid }))),
  };
}

/** Dead containers by pod and name, newest first. */
function deadContainers(input: ContainerGcInput): Dead[][] {
  const groups = new Map<string, Dead[]>();
  for (const pod of input.pods) {
    for (const container of pod.containers) {
      if (container.state === 'running' || container.createdAtMs > input.nowMs - input.minAgeMs) continue;
      const key = `${pod.uid}/${container.name}`;
      const group = groups.get(key) ?? [];
      group.push({ ...container, uid: pod.uid });
      groups.set(key, group);
    }
  }
  return [...groups.values()].map((group) => group.sort(latestFirst));
}

/** What goes so that at most `max` stay: first an equal share for each container, then the oldest of all. */
function overTotal(groups: readonly (readonly Dead[])[], max: number): Dead[] {
  const total = groups.reduce((sum, group) => sum + group.length, 0);
  if (max < 0 || total <= max || groups.length === 0) return [];
  const share = Math.max(1, Math.floor(max / groups.length));
  const gone = groups.flatMap((group) => group.slice(share).toReversed());
  const left = groups.flatMap((group) => group.slice(0, share)).sort(newestFirst);
  return [...gone, ...left.slice(max).toReversed()];
}

function deadSandboxes(pod: PodFacts, removed: ReadonlyMap<string, unknown>, isGone: boolean): SandboxFacts[] {
  const inUse = new Set(pod.containers.filter((container) => !removed.has(container.id)).map((container) => container.sandboxId));
  const sandboxes = [...pod.sandboxes].sort(latestFirst);
  return sandboxes.slice(isGone ? 0 : 1).filter((sandbox) => !sandbox.ready && !inUse.has(sandbox.id));
}

/** By number before age, as facts are: the wall clock may have been set back between two runs. */
function latestFirst(left: { attempt: number; createdAtMs: number }, right: { attempt: number; createdAtMs: number }): number {
  return right.attempt - left.attempt || newestFirst(left, right);
}

function newestFirst(left: { createdAtMs: number }, right: { createdAtMs: number }): number {
  return right.createdAtMs - left.createdAtMs;
}

/** Ids in the names of links to logs, `<pod>_<namespace>_<container>-<id>.log`, of containers that are not there. */
export function unknownLogLinks(names: readonly string[], isKnown: (containerId: string) => boolean): { readonly name: string; readonly id: string }[] {
  return names.flatMap((name) => {
    const id = /^[^_]+_[^_]+_.*-([0-9a-zA-Z]+)\.log$/.exec(name)?.[1];
    return id === undefined || isKnown(id) ? [] : [{ name, id }];
  });
}

/** Directories in podLogsDir of pods that are gone: `<namespace>_<name>_<uid>`. */
export function goneLogDirs(names: readonly string[], isGone: (uid: string) => boolean): string[] {
  return names.filter((name) => {
    const uid = /^[^_]+_[^_]+_([^_]+)$/.exec(name)?.[1];
    return uid !== undefined && isGone(uid);
  });
}
