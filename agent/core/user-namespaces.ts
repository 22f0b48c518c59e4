import type { IDMappingInput, UserNamespaceInput } from '../../proto/cri/types.ts';

/** Every pod's user namespace (KEP-127) has so many IDs, or a multiple; two pods never share one. */
export const idUnit = 65_536;

/** IDs of the machine that pods may get: `slots` of `idsPerPod` each, from `firstId` on. */
export interface IdRange {
  readonly firstId: number;
  readonly idsPerPod: number;
  readonly slots: number;
}

/** What the machine keeps for a pod, as `<root>/pods/<uid>/userns` has it. */
interface MappingFile {
  readonly uidMappings: readonly Required<IDMappingInput>[];
  readonly gidMappings: readonly Required<IDMappingInput>[];
}

/** What is wrong with `userNamespaces.idsPerPod`; null: nothing. */
export function idsPerPodProblem(idsPerPod: unknown): string | null {
  const name = 'invalid configuration: userNamespaces.idsPerPod';
  if (typeof idsPerPod !== 'number' || !Number.isInteger(idsPerPod)) return `${name} must be an integer`;
  if (idsPerPod < idUnit) return `${name} must not be less than ${idUnit}`;
  if (idsPerPod % idUnit !== 0) return `${name} must be a multiple of ${idUnit}`;
  return idsPerPod > 2 ** 32 - 1 ? `${name} must not be more than ${2 ** 32 - 1}` : null;
}

/** The first ID and how many, out of `getsubids kubelet`; null for what is not one such line. */
export function readSubIds(text: string): { firstId: number; count: number } | null {
  const match = /^\d+: \S+ (\d{1,10}) (\d{1,10})\n*$/.exec(text);
  return match === null ? null : { firstId: Number(match[1]), count: Number(match[2]) };
}

/** The range for pods; a text is why there is none. `sub`: what the user kubelet was given; null: everything but the first namespace. */
export function idRange(idsPerPod: number, maxPods: number, sub: { firstId: number; count: number } | null): IdRange | string {
  const { firstId, count } = sub ?? { firstId: idsPerPod, count: 2 ** 32 - idsPerPod };
  if (firstId % idsPerPod !== 0) return `kubelet user assigned ID ${firstId} is not a multiple of ${idsPerPod}`;
  if (firstId < idsPerPod) return `kubelet user assigned ID ${firstId} must be greater or equal to ${idsPerPod}`;
  if (count % idsPerPod !== 0) return `kubelet user assigned IDs length ${count} is not a multiple of ${idsPerPod}`;
  const slots = count / idsPerPod;
  return slots < maxPods ? `kubelet user assigned IDs are not enough to support ${maxPods} pods` : { firstId, idsPerPod, slots };
}

/**
 * The first free part of the range from `from` on, and around; null: all are taken. Where to begin is left to chance,
 * as upstream does it: what a pod left on the machine under its IDs is not at once the next one's.
 */
export function freeSlot({ slots }: IdRange, taken: ReadonlySet<number>, from: number): number | null {
  for (let step = 0; step < slots; step += 1) {
    const slot = (from + step) % slots;
    if (!taken.has(slot)) return slot;
  }
  return null;
}

export function mappingText({ firstId, idsPerPod }: IdRange, slot: number): string {
  const mappings = [{ hostId: firstId + slot * idsPerPod, containerId: 0, length: idsPerPod }];
  return JSON.stringify({ uidMappings: mappings, gidMappings: mappings });
}

/** The part of the range that a file names; a text is why it cannot be used: it must be whole, of this range, and map the first ID. */
export function slotOf({ firstId, idsPerPod, slots }: IdRange, text: string): number | string {
  let file: Partial<MappingFile> | null;
  try {
    file = JSON.parse(text) as Partial<MappingFile> | null;
  } catch {
    return 'it is not JSON';
  }
  const lists = [file?.uidMappings, file?.gidMappings];
  const [uid, gid] = lists.map((list) => (Array.isArray(list) && list.length === 1 ? (list as MappingFile['uidMappings'])[0] : undefined));
  if (uid === undefined || gid === undefined) return 'it has not one mapping of users and one of groups';
  if (uid.hostId !== gid.hostId || uid.length !== gid.length) return 'it maps users and groups to different IDs';
  if (uid.containerId !== 0 || gid.containerId !== 0) return 'it does not begin with ID 0';
  if (uid.length !== idsPerPod) return `it has ${uid.length} IDs, and ${idsPerPod} are configured`;
  const slot = (uid.hostId - firstId) / idsPerPod;
  return Number.isInteger(slot) && slot >= 0 && slot < slots ? slot : `its first ID ${uid.hostId} is none of this node's`;
}

export function userNamespaceOf({ firstId, idsPerPod }: IdRange, slot: number): UserNamespaceInput {
  const mapping = (): IDMappingInput[] => [{ hostId: firstId + slot * idsPerPod, containerId: 0, length: idsPerPod }];
  return { mode: 'POD', uids: mapping(), gids: mapping() };
}
