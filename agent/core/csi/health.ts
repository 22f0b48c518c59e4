import type { PodVolumeHealth, StorageHealthCondition, VolumeHealthCondition } from '../../../proto/kube/types.ts';
import type { AccessModeKind, StorageBackendHealth, VolumeCapability, VolumeHealth } from '../../../proto/plugins/csi.ts';

/** As many adverse conditions as an object may have. */
const maxConditions = 16;

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

/** What a driver says is wrong with a volume, in Kubernetes' words; kinds that nobody knows yet are left out. */
export function volumeConditions(health: VolumeHealth | null): VolumeHealthCondition[] {
  return (health?.healthStatuses ?? []).flatMap(({ status, reason, message }) => {
    const word = volumeStatuses[status];
    return word === undefined ? [] : [{ status: word, reason, ...(message === '' ? {} : { message }) }];
  });
}

export type StorageConditions =
  | { readonly ok: true; readonly conditions: readonly StorageHealthCondition[] }
  | { readonly ok: false; readonly message: string };

/** The same of what lies behind all volumes of a driver. */
export function storageConditions(entries: readonly StorageBackendHealth[]): StorageConditions {
  if (entries.length > maxConditions) return { ok: false, message: `NodeGetStorageHealth returned ${entries.length} conditions, maximum is ${maxConditions}` };
  const conditions: StorageHealthCondition[] = [];
  for (const [index, { status, reason, message, volumeCapability }] of entries.entries()) {
    const word = storageStatuses[status];
    if (word === undefined) continue;
    const about = volumeCapability === null ? {} : kindOf(volumeCapability);
    if (typeof about === 'string') return { ok: false, message: `NodeGetStorageHealth condition ${index} has invalid volume capability: ${about}` };
    conditions.push({ status: word, reason, ...(message === '' ? {} : { message }), ...about });
  }
  return { ok: true, conditions };
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
  return sameSet(left, right, ({ status, reason, accessMode = '', volumeMode = '' }) => [status, reason, accessMode, volumeMode].join('\u0000'));
}

function sameSet<T>(left: readonly T[], right: readonly T[], key: (item: T) => string): boolean {
  const [one, other] = [new Set(left.map(key)), new Set(right.map(key))];
  return one.size === other.size && [...one].every((each) => other.has(each));
}
