import { OpError } from '../../../base/errors.ts';
import type { ResourceRequirements } from '../../../proto/kube/types.ts';
import { fnv1a32 } from '../hash.ts';
import type { PodAllocation } from './allocation.ts';

/** By pod UID. */
export type Allocations = ReadonlyMap<string, PodAllocation>;

/**
 * A checkpoint as upstream's kubelet writes and reads it (`allocated_pods_state`, `actuated_pods_state`), so that either
 * can take a node over from the other: keys in the order of their bytes, fields in the order of Go's structs, and the
 * FNV-1a of the printed text beside it.
 */
export function encodeCheckpoint(allocations: Allocations): string {
  const entries = Object.fromEntries(
    sortedEntries(allocations).map(([uid, allocation]) => [
      uid,
      {
        ContainerResources: Object.fromEntries(sortedEntries(allocation.containers).map(([name, each]) => [name, ordered(each)])),
        PodLevelResources: allocation.pod === null ? null : ordered(allocation.pod),
        EmptyDirVolumeLimits: null,
      },
    ]),
  );
  const data = JSON.stringify(allocations.size === 0 ? {} : { entries });
  return JSON.stringify({ data, checksum: checksumOf(data) });
}

/** Reads a checkpoint; empty text is an empty one. Throws OpError `invalid` when it is damaged. */
export function decodeCheckpoint(text: string, name: string): Map<string, PodAllocation> {
  const allocations = new Map<string, PodAllocation>();
  if (text === '') return allocations;
  const invalid = (detail: string): OpError =>
    new OpError('invalid', `restore state from checkpoint ${name}`, detail, {
      advice: `Drain this node and delete the pod resource information checkpoint file ${name} before starting again.`,
    });
  let file: { data?: unknown; checksum?: unknown };
  let content: { entries?: Record<string, Entry> | null };
  try {
    file = JSON.parse(text) as typeof file;
    if (typeof file.data !== 'string' || typeof file.checksum !== 'number') throw new SyntaxError('data and checksum are expected');
    content = JSON.parse(file.data) as typeof content;
  } catch (error) {
    throw invalid(error instanceof Error ? error.message : String(error));
  }
  if (checksumOf(file.data) !== file.checksum) throw invalid('checkpoint is corrupted');
  for (const [uid, entry] of Object.entries(content.entries ?? {})) {
    allocations.set(uid, { containers: new Map(Object.entries(entry.ContainerResources ?? {})), pod: entry.PodLevelResources ?? null });
  }
  return allocations;
}

interface Entry {
  ContainerResources?: Record<string, ResourceRequirements> | null;
  PodLevelResources?: ResourceRequirements | null;
}

/** Upstream hashes what its printer makes of the text: its type in parentheses, then the text. */
function checksumOf(data: string): number {
  return fnv1a32(`(string)${data}`);
}

function ordered(resources: ResourceRequirements): ResourceRequirements {
  const list = (each: Record<string, string> | undefined): Record<string, string> | undefined =>
    each === undefined || Object.keys(each).length === 0 ? undefined : Object.fromEntries(Object.entries(each).toSorted(byName));
  const [limits, requests] = [list(resources.limits), list(resources.requests)];
  return {
    ...(limits === undefined ? {} : { limits }),
    ...(requests === undefined ? {} : { requests }),
    ...((resources.claims ?? []).length === 0 ? {} : { claims: resources.claims! }),
  };
}

function sortedEntries<V>(map: ReadonlyMap<string, V>): [string, V][] {
  return [...map].toSorted(byName);
}

function byName([left]: readonly [string, unknown], [right]: readonly [string, unknown]): number {
  return left < right ? -1 : left > right ? 1 : 0;
}
