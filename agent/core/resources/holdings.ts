import type { CDIDevice, ContainerAllocateResponse, DeviceSpec, Mount } from '../../../proto/plugins/device_plugin.ts';
import type { Pod } from '../../../proto/kube/types.ts';
import { keyOf } from '../containers.ts';
import { sortedIds } from './devices.ts';
import { containersOf, isRegularInit } from './requests.ts';

/** What one container holds of one resource, and what the plugin gave with it. */
export interface Holding {
  /** Device ids by NUMA node, -1: those that do not say. */
  readonly ids: ReadonlyMap<number, readonly string[]>;
  readonly response: ContainerAllocateResponse;
}

type ByResource = ReadonlyMap<string, Holding>;

/** By pod UID, container and resource. */
export type Holdings = ReadonlyMap<string, ReadonlyMap<string, ByResource>>;

export function heldIds({ ids }: Holding): string[] {
  return sortedIds([...ids.values()].flat());
}

/** All of a resource that somebody holds. */
export function allocatedIds(holdings: Holdings, resource: string): Set<string> {
  const ids = new Set<string>();
  for (const { held, resource: each } of holdingsOf(holdings)) if (each === resource) for (const id of heldIds(held)) ids.add(id);
  return ids;
}

/** Every holding with whose it is. */
export function* holdingsOf(holdings: Holdings): Generator<{ uid: string; container: string; resource: string; held: Holding }> {
  for (const [uid, containers] of holdings)
    for (const [container, resources] of containers) for (const [resource, held] of resources) yield { uid, container, resource, held };
}

/** Null: it holds none. */
export function containerIds(holdings: Holdings, uid: string, container: string, resource: string): string[] | null {
  const held = holdings.get(uid)?.get(container)?.get(resource);
  return held === undefined ? null : heldIds(held);
}

/** What init containers before this one hold that nobody after them took. */
export function reusableIds(holdings: Holdings, pod: Pod, name: string, resource: string): Set<string> {
  const reusable = new Set<string>();
  for (const container of containersOf(pod)) {
    if (container.name === name) break;
    const isInit = isRegularInit(pod, container.name);
    for (const id of containerIds(holdings, keyOf(pod).uid, container.name, resource) ?? []) {
      if (isInit) reusable.add(id);
      else reusable.delete(id);
    }
  }
  return reusable;
}

export function withHolding(holdings: Holdings, uid: string, container: string, resource: string, held: Holding): Holdings {
  const containers = holdings.get(uid) ?? new Map<string, ByResource>();
  const own = new Map([...(containers.get(container) ?? []), [resource, held]]);
  return new Map([...holdings, [uid, new Map([...containers, [container, own]])]]);
}

export function withoutPod(holdings: Holdings, uid: string): Holdings {
  if (!holdings.has(uid)) return holdings;
  return new Map([...holdings].filter(([each]) => each !== uid));
}

/** What a container finds besides its own: of two that claim one place the first is taken. */
export interface DeviceGrants {
  readonly envs: readonly { readonly name: string; readonly value: string }[];
  readonly mounts: readonly Mount[];
  readonly devices: readonly DeviceSpec[];
  readonly annotations: Readonly<Record<string, string>>;
  readonly cdiDevices: readonly CDIDevice[];
}

export function grantsOf(resources: ByResource | undefined): DeviceGrants {
  const responses = [...(resources ?? [])].toSorted(([left], [right]) => (left < right ? -1 : 1)).map(([, { response }]) => response);
  const first = <T>(items: readonly T[], key: (item: T) => string): T[] =>
    [...new Map(items.toReversed().map((item) => [key(item), item])).values()].toReversed();
  const pairs = (pick: (response: ContainerAllocateResponse) => Record<string, string>): [string, string][] =>
    first(
      responses.flatMap((response) => Object.entries(pick(response))),
      ([name]) => name,
    );
  return {
    envs: pairs(({ envs }) => envs).map(([name, value]) => ({ name, value })),
    annotations: Object.fromEntries(pairs(({ annotations }) => annotations)),
    mounts: first(
      responses.flatMap(({ mounts }) => mounts),
      ({ containerPath }) => containerPath,
    ),
    devices: first(
      responses.flatMap(({ devices }) => devices),
      ({ containerPath }) => containerPath,
    ),
    cdiDevices: first(
      responses.flatMap(({ cdiDevices }) => cdiDevices),
      ({ name }) => name,
    ),
  };
}
