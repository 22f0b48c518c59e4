import type { PodVolumeHealth, StorageHealthCondition, VolumeHealthCondition } from '../../../proto/kube/types.ts';
import type { AccessModeKind, StorageBackendHealth, VolumeCapability, VolumeHealth } from '../../../proto/plugins/csi.ts';
import { utf8Bytes, utf8Text } from '../../../base/utf8.ts';

/** As many adverse conditions as an object may have. */
const maxConditions = 16;
/** Bytes of a reason and of a message, and what a reason looks like: the API server takes nothing else. */
const maxReasonBytes = 256;
const maxMessageBytes = 1024;
const reasonForm = /^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$/;

const volumeStatuses: Readonly<Record<string, string>> = { INACCESSIBLE: 'Inaccessible', DATA_LOSS: 'DataLoss', DEGRADED: 'Degraded' };
const storageStatuses: Readonly<Record<string, string>> = { STORAGE_UNREACHABLE: 'StorageUnreachable', STORAGE_DEGRADED: 'StorageDegraded' };

const accessModes: Readonly<Partial<Record<AccessModeKind, string>>> = {
  SINGLE_NODE_WRITER: 'ReadWriteOnce',
  SINGLE_NODE_READER_ONLY: 'ReadWriteOnce',
  SINGLE_NODE_MULTI_WRITER: 'ReadWriteOnce',
  SINGLE_NODE_SINGLE_WRITER: 'ReadWriteOncePod',
  MULTI_NODE_READER_ONLY: 'ReadOnlyMany',
  MULTI_NODE_SINGLE_WRITER: 'ReadWriteMany',
  MULTI_NODE_MULTI_WRITER: 'ReadWriteMany',
};

export type Conditions<T> = { readonly ok: true; readonly conditions: readonly T[] } | { readonly ok: false; readonly message: string };

/**
 * What a driver says is wrong with a volume, in Kubernetes' words; kinds that nobody knows yet are left out. What the
 * API server would refuse is no answer: with it the whole of the pod's status would be refused, each time anew.
 */
export function volumeConditions(health: VolumeHealth | null): Conditions<VolumeHealthCondition> {
  const found = new Map<string, VolumeHealthCondition>();
  for (const [index, { status, reason, message }] of (health?.healthStatuses ?? []).entries()) {
    const word = volumeStatuses[status];
    if (word === undefined) continue;
    const problem = reasonProblem(reason);
    if (problem !== null) return { ok: false, message: `NodeGetVolumeHealth condition ${index} has invalid reason: ${problem}` };
    found.set(`${word} ${reason}`, { status: word, reason, ...(message === '' ? {} : { message: shortened(message) }) });
  }
  if (found.size > maxConditions) return { ok: false, message: `NodeGetVolumeHealth returned ${found.size} conditions, maximum is ${maxConditions}` };
  return { ok: true, conditions: [...found.values()] };
}

function reasonProblem(reason: string): string | null {
  if (reason.length > maxReasonBytes) return `it is longer than ${maxReasonBytes} bytes`;
  return reasonForm.test(reason) ? null : JSON.stringify(reason);
}

/** As much of a message as an object may have, in whole characters. */
function shortened(message: string): string {
  const bytes = utf8Bytes(message);
  if (bytes.length <= maxMessageBytes) return message;
  let end = maxMessageBytes;
  while (((bytes[end] ?? 0) & 0xc0) === 0x80) end -= 1;
  return utf8Text(bytes.subarray(0, end));
}

/** The same of what lies behind all volumes of a driver. */
export function storageConditions(entries: readonly StorageBackendHealth[]): Conditions<StorageHealthCondition> {
  if (entries.length > maxConditions) return { ok: false, message: `NodeGetStorageHealth returned ${entries.length} conditions, maximum is ${maxConditions}` };
  const found = new Map<string, StorageHealthCondition>();
  for (const [index, { status, reason, message, volumeCapability }] of entries.entries()) {
    const word = storageStatuses[status];
    if (word === undefined) continue;
    const about = volumeCapability === null ? {} : kindOf(volumeCapability);
    if (typeof about === 'string') return { ok: false, message: `NodeGetStorageHealth condition ${index} has invalid volume capability: ${about}` };
    const problem = reasonProblem(reason);
    if (problem !== null) return { ok: false, message: `NodeGetStorageHealth condition ${index} has invalid reason: ${problem}` };
    const condition = { status: word, reason, ...(message === '' ? {} : { message: shortened(message) }), ...about };
    found.set(storageKey(condition), condition);
  }
  return { ok: true, conditions: [...found.values()] };
}

/** Which volumes a condition is about; a text is why that cannot be told. */
function kindOf({ block, mount, accessMode }: VolumeCapability): Pick<StorageHealthCondition, 'accessMode' | 'volumeMode'> | string {
  if (block === null && mount === null) return 'access type is required';
  if (accessMode === null) return 'access mode is required';
  const mode = accessModes[accessMode.mode];
  return mode === undefined
    ? `unsupported access mode ${JSON.stringify(accessMode.mode)}`
    : { accessMode: mode, volumeMode: block === null ? 'Filesystem' : 'Block' };
}

/** A pod's volumes with what is known of one of them now; null: nothing has changed but words. */
export function withVolumeHealth(
  told: readonly PodVolumeHealth[],
  name: string,
  conditions: readonly VolumeHealthCondition[],
  time: string,
): PodVolumeHealth[] | null {
  const before = told.find((each) => each.name === name);
  if (sameSet(before?.healthConditions ?? [], conditions, ({ status, reason }) => `${status}\u0000${reason}`)) return null;
  const entry: PodVolumeHealth = { name, ...(conditions.length === 0 ? {} : { healthConditions: [...conditions] }), lastTransitionTime: time };
  return before === undefined ? [...told, entry] : told.map((each) => (each === before ? entry : each));
}

/** Whether two lists say the same about a driver's storage, whatever their messages. */
export function sameStorageHealth(left: readonly StorageHealthCondition[], right: readonly StorageHealthCondition[]): boolean {
  return sameSet(left, right, storageKey);
}

function storageKey({ status, reason, accessMode = '', volumeMode = '' }: StorageHealthCondition): string {
  return [status, reason, accessMode, volumeMode].join('\u0000');
}

function sameSet<T>(left: readonly T[], right: readonly T[], key: (item: T) => string): boolean {
  const [one, other] = [new Set(left.map(key)), new Set(right.map(key))];
  return one.size === other.size && [...one].every((each) => other.has(each));
}
