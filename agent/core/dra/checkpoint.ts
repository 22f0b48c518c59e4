import type { ClaimInfo, DriverState } from './claims.ts';

/*
 * `dra_manager_state`, byte for byte as upstream writes it: the data as JSON text inside JSON, with its CRC-32 (IEEE).
 * Another kubelet on this node reads it and knows what to take back.
 */

const head = { kind: 'DRACheckpoint', apiVersion: 'checkpoint.dra.kubelet.k8s.io/v1' };

/** What a kubelet writes that has never had a claim: no list, where it later writes an empty one. */
export function newCheckpointText(crc32: (text: string) => number): string {
  return sealed(null, crc32);
}

/** `crc32` is of the text's UTF-8. */
export function checkpointText(claims: Iterable<ClaimInfo>, crc32: (text: string) => number): string {
  const list = [...claims].map((claim) => ({
    ClaimUID: claim.uid,
    ClaimName: claim.name,
    Namespace: claim.namespace,
    PodUIDs: Object.fromEntries([...claim.podUids].toSorted().map((uid) => [uid, {}])),
    DriverState: Object.fromEntries(
      [...claim.drivers].toSorted(([left], [right]) => (left < right ? -1 : 1)).map(([driver, state]) => [driver, stateOf(state)]),
    ),
  }));
  return sealed(list, crc32);
}

function sealed(list: readonly object[] | null, crc32: (text: string) => number): string {
  const data = JSON.stringify({ ...head, ClaimInfoStateList: list });
  return JSON.stringify({ Data: data, Checksum: crc32(data) });
}

function stateOf({ devices, skips }: DriverState): object {
  return {
    Devices:
      devices.length === 0
        ? null
        : devices.map(({ poolName, deviceName, shareId, requestNames, cdiDeviceIds }) => ({
            PoolName: poolName,
            DeviceName: deviceName,
            ShareID: shareId,
            RequestNames: requestNames.length === 0 ? null : requestNames,
            CDIDeviceIDs: cdiDeviceIds.length === 0 ? null : cdiDeviceIds,
          })),
    ...(skips.length === 0 ? {} : { skipNodeOperations: skips }),
  };
}

/** What stands in such a file; null when it is damaged. */
export function readCheckpoint(text: string, crc32: (text: string) => number): ClaimInfo[] | null {
  try {
    const { Data, Checksum } = JSON.parse(text) as { Data: string; Checksum: number };
    if (typeof Data !== 'string' || crc32(Data) !== Checksum) return null;
    const { ClaimInfoStateList } = JSON.parse(Data) as { ClaimInfoStateList: StoredClaim[] | null };
    return (ClaimInfoStateList ?? []).map((claim) => ({
      uid: claim.ClaimUID,
      name: claim.ClaimName,
      namespace: claim.Namespace,
      podUids: new Set(Object.keys(claim.PodUIDs)),
      drivers: new Map(
        Object.entries(claim.DriverState).map(([driver, state]) => [
          driver,
          {
            skips: state.skipNodeOperations ?? [],
            devices: (state.Devices ?? []).map((device) => ({
              poolName: device.PoolName,
              deviceName: device.DeviceName,
              shareId: device.ShareID ?? null,
              requestNames: device.RequestNames ?? [],
              cdiDeviceIds: device.CDIDeviceIDs ?? [],
            })),
          },
        ]),
      ),
    }));
  } catch {
    return null;
  }
}

interface StoredClaim {
  readonly ClaimUID: string;
  readonly ClaimName: string;
  readonly Namespace: string;
  readonly PodUIDs: Readonly<Record<string, object>>;
  readonly DriverState: Readonly<
    Record<
      string,
      {
        readonly Devices:
          | readonly { PoolName: string; DeviceName: string; ShareID?: string | null; RequestNames: string[] | null; CDIDeviceIDs: string[] | null }[]
          | null;
        readonly skipNodeOperations?: readonly string[];
      }
    >
  >;
}
