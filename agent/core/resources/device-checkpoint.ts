import { fnv1a32 } from '../hash.ts';
import { byKey, damaged, jsonObject, parseObject } from './checkpoint-text.ts';

/** What one container holds of one resource. */
export interface DeviceEntry {
  readonly uid: string;
  readonly container: string;
  readonly resource: string;
  /** Device ids by NUMA node; -1: those that do not say where they are. */
  readonly ids: ReadonlyMap<number, readonly string[]>;
  /** The plugin's ContainerAllocateResponse, on the wire. */
  readonly response: Uint8Array;
}

export interface DeviceRecord {
  readonly entries: readonly DeviceEntry[];
  /** Healthy device ids by resource. */
  readonly registered: ReadonlyMap<string, readonly string[]>;
}

const fileName = 'kubelet_internal_checkpoint';

/** `kubelet_internal_checkpoint` as upstream writes it. `base64` is the writer's, for there are no Node types here. */
export function encodeDeviceRecord(record: DeviceRecord, base64: (bytes: Uint8Array) => string): string {
  const { entries, registered } = record;
  const entryJson = ({ uid, container, resource, ids, response }: DeviceEntry): string =>
    jsonObject([
      ['PodUID', JSON.stringify(uid)],
      ['ContainerName', JSON.stringify(container)],
      ['ResourceName', JSON.stringify(resource)],
      ['DeviceIDs', jsonObject(byKey([...ids].map(([node, list]): [string, string] => [String(node), JSON.stringify(list)])))],
      ['AllocResp', JSON.stringify(base64(response))],
    ]);
  const data = jsonObject([
    ['PodDeviceEntries', entries.length === 0 ? 'null' : `[${entries.map(entryJson).join(',')}]`],
    ['RegisteredDevices', jsonObject(byKey(registered).map(([name, ids]) => [name, JSON.stringify(ids)]))],
  ]);
  return jsonObject([
    ['Data', data],
    ['Checksum', String(checksumOf(record, entries.length === 0 ? '<nil>' : undefined))],
  ]);
}

/** Reads it; no text is an empty record. Throws OpError `invalid` when it is damaged. */
export function decodeDeviceRecord(text: string, fromBase64: (text: string) => Uint8Array): DeviceRecord {
  if (text === '') return { entries: [], registered: new Map() };
  const file = parseObject(text, fileName) as {
    Data?: { PodDeviceEntries?: EntryFile[] | null; RegisteredDevices?: Record<string, string[] | null> | null };
    Checksum?: number;
  };
  const data = file.Data ?? {};
  const list = data.PodDeviceEntries ?? null;
  const record: DeviceRecord = {
    entries: (list ?? []).map((entry) => ({
      uid: entry.PodUID,
      container: entry.ContainerName,
      resource: entry.ResourceName,
      ids: new Map(Object.entries(entry.DeviceIDs ?? {}).map(([node, ids]) => [Number(node), ids ?? []])),
      response: fromBase64(entry.AllocResp ?? ''),
    })),
    registered: new Map(Object.entries(data.RegisteredDevices ?? {}).map(([name, ids]) => [name, ids ?? []])),
  };
  if (file.Checksum !== checksumOf(record, list === null ? '<nil>' : undefined, data.RegisteredDevices ?? null))
    throw damaged(fileName, 'checkpoint is corrupted');
  return record;
}

interface EntryFile {
  readonly PodUID: string;
  readonly ContainerName: string;
  readonly ResourceName: string;
  readonly DeviceIDs: Readonly<Record<string, string[] | null>> | null;
  readonly AllocResp: string | null;
}

/** Over what Go's printer makes of the struct; Go tells a list that is not there from an empty one. */
function checksumOf(record: DeviceRecord, absentEntries?: string, told?: Readonly<Record<string, readonly string[] | null>> | null): number {
  const list = (ids: readonly string[] | null | undefined): string => (ids === null || ids === undefined ? '<nil>' : `[${ids.join(' ')}]`);
  const entries = record.entries.map(({ uid, container, resource, ids, response }) => {
    const nodes = [...ids].toSorted(([left], [right]) => left - right).map(([node, each]) => `${node}:${list(each)}`);
    return `{PodUID:(string)${uid} ContainerName:(string)${container} ResourceName:(string)${resource} DeviceIDs:(checkpoint.DevicesPerNUMA)map[${nodes.join(' ')}] AllocResp:([]uint8)[${response.join(' ')}]}`;
  });
  const registered = byKey(record.registered).map(([name, ids]) => `${name}:${list(told === undefined ? ids : told?.[name])}`);
  return fnv1a32(
    `(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)${absentEntries ?? `[${entries.join(' ')}]`} RegisteredDevices:(map[string][]string)${told === null ? '<nil>' : `map[${registered.join(' ')}]`}}`,
  );
}
