import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import definition from '../../proto/plugins/device_plugin.json' with { type: 'json' };
import type { ContainerAllocateResponse, RecordMethods } from '../../proto/plugins/device_plugin.ts';
import type { Container, Pod } from '../../proto/kube/types.ts';
import { keyOf } from '../core/containers.ts';
import { decodeDeviceRecord, encodeDeviceRecord } from '../core/resources/device-checkpoint.ts';
import { byNode, chooseDevices, deviceHints, finishChoice, isAligned, sortedIds } from '../core/resources/devices.ts';
import type { Device } from '../core/resources/devices.ts';
import type { Hint, Hints } from '../core/resources/hints.ts';
import { allocatedIds, containerIds, grantsOf, heldIds, holdingsOf, reusableIds, withHolding, withoutPod } from '../core/resources/holdings.ts';
import type { DeviceGrants, Holding, Holdings } from '../core/resources/holdings.ts';
import type { NumaMask } from '../core/resources/numa-mask.ts';
import { containersOf, extendedPodLimits, pluginLimits } from '../core/resources/requests.ts';
import type { TextFile } from './allocation-file.ts';
import { serviceOf } from './grpc.ts';
import { StateFile } from './state-file.ts';
import { Turns } from '../../base/turns.ts';

/** A plugin that serves one resource. */
export interface PluginEndpoint {
  readonly resource: string;
  /** Path of its socket. */
  readonly path: string;
  readonly preStart: boolean;
  readonly hasPreference: boolean;
  allocate(ids: readonly string[], signal: AbortSignal): Promise<readonly ContainerAllocateResponse[]>;
  prefer(available: readonly string[], mustInclude: readonly string[], count: number, signal: AbortSignal): Promise<readonly string[]>;
  preStartContainer(ids: readonly string[], signal: AbortSignal): Promise<void>;
}

export interface DevicePoolOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly file: TextFile;
  readonly numaNodes: readonly number[];
  /** The health of a device that these pods hold has changed. */
  readonly onHealth: (uids: readonly string[]) => void;
  /** What the node has to offer has changed. */
  readonly onCapacity: () => void;
  readonly onAllocated: (resource: string, tookMs: number) => void;
}

/** A plugin that went away may come back for so long before its devices are no longer the node's. */
const graceMs = 5 * 60_000;

type Outcome = { readonly ok: true } | { readonly ok: false; readonly message: string };

interface Served {
  /** Of one resource the newest counts; the others wait for its end. */
  readonly endpoints: readonly PluginEndpoint[];
  readonly stoppedAtMs: number | null;
}

/** Devices of all plugins, and who holds which (upstream's devicemanager). What is held is on disk before it is used. */
export class DevicePool {
  readonly #options: DevicePoolOptions;
  readonly #devices = new Map<string, ReadonlyMap<string, Device>>();
  readonly #served = new Map<string, Served>();
  #holdings: Holdings = new Map();
  #isFresh = false;
  readonly #file: StateFile;
  readonly #turns = new Turns();
  readonly #codec = serviceOf<RecordMethods>(definition, 'v1beta1.Record').methods.get('Keep')!;

  private constructor(options: DevicePoolOptions) {
    this.#options = options;
    this.#file = new StateFile(options.file, () => this.#encode());
  }

  /** A damaged checkpoint is told of and left behind, as upstream does. */
  static async open(options: DevicePoolOptions): Promise<DevicePool> {
    const pool = new DevicePool(options);
    try {
      const text = await options.file.read();
      pool.#isFresh = text === '';
      pool.#restore(text);
    } catch (error) {
      options.log.error('Continue after failing to read checkpoint file. Device allocation info may NOT be up-to-date', { err: messageOf(error) });
    }
    return pool;
  }

  /** No earlier process has left anything. */
  get isFresh(): boolean {
    return this.#isFresh;
  }

  /* ---------- plugins ---------- */

  connected(endpoint: PluginEndpoint): void {
    const { resource } = endpoint;
    const others = this.#served.get(resource)?.endpoints ?? [];
    this.#served.set(resource, { endpoints: [...others, endpoint], stoppedAtMs: null });
    if (!this.#devices.has(resource)) this.#devices.set(resource, new Map());
  }

  isConnected(resource: string, path: string): boolean {
    return (this.#served.get(resource)?.endpoints ?? []).some((endpoint) => endpoint.path === path);
  }

  /** The plugin is gone: with the last of a resource all its devices are unhealthy, and after a while no more. */
  disconnected(resource: string, path: string): void {
    const before = this.#served.get(resource);
    if (before === undefined || !this.isConnected(resource, path)) return;
    const endpoints = before.endpoints.filter((endpoint) => endpoint.path !== path);
    this.#served.set(resource, { endpoints, stoppedAtMs: endpoints.length === 0 ? this.#options.clock.monoMs() : null });
    if (endpoints.length > 0) return;
    const devices = this.#devices.get(resource) ?? new Map<string, Device>();
    this.#devices.set(resource, new Map([...devices].map(([id, device]) => [id, { ...device, healthy: false }])));
    this.#options.onCapacity();
  }

  /** All devices of a resource, as its plugin told them now. */
  list(resource: string, devices: readonly Device[]): void {
    const before = this.#devices.get(resource);
    this.#devices.set(resource, new Map(devices.map((device) => [device.id, device])));
    const changed = new Set(devices.filter(({ id, healthy }) => before?.get(id)?.healthy !== healthy).map(({ id }) => id));
    const uids = new Set<string>();
    for (const { uid, resource: each, held } of holdingsOf(this.#holdings)) if (each === resource && heldIds(held).some((id) => changed.has(id))) uids.add(uid);
    this.#isFresh = false;
    this.#save();
    if (uids.size > 0) this.#options.onHealth([...uids]);
    this.#options.onCapacity();
  }

  /** What the node status says of them; resources whose plugin did not come back are taken off here. */
  capacity(): { readonly capacity: Record<string, string>; readonly allocatable: Record<string, string> } {
    const capacity: Record<string, string> = {};
    const allocatable: Record<string, string> = {};
    for (const [resource, { stoppedAtMs }] of this.#served) {
      if (stoppedAtMs !== null && this.#options.clock.monoMs() - stoppedAtMs > graceMs) {
        this.#served.delete(resource);
        this.#devices.delete(resource);
        this.#gone.add(resource);
        this.#save();
        continue;
      }
      const devices = [...(this.#devices.get(resource)?.values() ?? [])];
      capacity[resource] = String(devices.length);
      allocatable[resource] = String(devices.filter(({ healthy }) => healthy).length);
      this.#gone.delete(resource);
    }
    // Not left out: 0 tells it from a resource that is none of the node's.
    for (const resource of this.#gone) capacity[resource] = allocatable[resource] = '0';
    return { capacity, allocatable };
  }
  readonly #gone = new Set<string>();

  /* ---------- pods ---------- */

  /** Whether any of the pod's limits is one of ours. */
  wants(pod: Pod): boolean {
    return containersOf(pod).some((container) => [...pluginLimits(pod, container).keys()].some((resource) => this.#isOurs(resource)));
  }

  /** Resource to the most that is held of it: the node must not seem to have less. */
  held(): ReadonlyMap<string, number> {
    const counts = new Map<string, number>();
    for (const { resource } of holdingsOf(this.#holdings)) counts.set(resource, allocatedIds(this.#holdings, resource).size);
    return counts;
  }

  uids(): string[] {
    return [...this.#holdings.keys()];
  }

  release(uid: string): void {
    this.#holdings = withoutPod(this.#holdings, uid);
  }

  hints(pod: Pod, container: Container): Hints {
    const { uid } = keyOf(pod);
    return this.#hintsFor(pluginLimits(pod, container), (resource) => ({
      held: containerIds(this.#holdings, uid, container.name, resource) ?? [],
      reusable: reusableIds(this.#holdings, pod, container.name, resource),
    }));
  }

  podHints(pod: Pod): Hints {
    const own = [...(this.#holdings.get(keyOf(pod).uid)?.values() ?? [])];
    return this.#hintsFor(extendedPodLimits(pod), (resource) => ({
      held: sortedIds(own.flatMap((resources) => [...resources].flatMap(([each, held]) => (each === resource ? heldIds(held) : [])))),
      reusable: new Set(),
    }));
  }

  /** Gives the container its devices; what is held already stays. Messages are upstream's. */
  async allocate(pod: Pod, container: Container, nodes: NumaMask | null, signal: AbortSignal): Promise<Outcome> {
    let changed = false;
    for (const [resource, count] of pluginLimits(pod, container)) {
      if (!this.#isOurs(resource)) continue;
      // What is free is known until the plugin has answered: one pod or container after the other.
      const outcome = await this.#turns.take(resource, async () => await this.#allocateOne(pod, container, resource, count, nodes, signal));
      if (!outcome.ok) return outcome;
      changed ||= outcome.changed;
    }
    if (!changed) return { ok: true };
    try {
      await this.#file.save();
      return { ok: true };
    } catch (error) {
      return { ok: false, message: `failed to write checkpoint file "kubelet_internal_checkpoint": ${messageOf(error)}` };
    }
  }

  /** What a container that is about to be made gets with its devices; asks plugins that want to prepare each start. */
  async grants(
    pod: Pod,
    container: Container,
    signal: AbortSignal,
  ): Promise<{ readonly ok: true; readonly grants: DeviceGrants } | { readonly ok: false; readonly message: string }> {
    const { uid } = keyOf(pod);
    for (const [resource, count] of pluginLimits(pod, container)) {
      if (!this.#isOurs(resource) || count === 0) continue;
      const served = this.#served.get(resource);
      if (served === undefined) return { ok: false, message: `endpoint not found in cache for a registered resource: ${resource}` };
      const endpoint = served.endpoints.at(-1);
      const ids = containerIds(this.#holdings, uid, container.name, resource);
      if (endpoint?.preStart === true) {
        if (ids === null) {
          return { ok: false, message: `no devices found allocated in local cache for pod ${uid}, container ${container.name}, resource ${resource}` };
        }
        try {
          await endpoint.preStartContainer(ids, signal);
        } catch (error) {
          signal.throwIfAborted();
          return { ok: false, message: `device plugin PreStartContainer rpc failed with err: ${messageOf(error)}` };
        }
      }
      if (ids !== null) continue;
      const outcome = await this.allocate(pod, container, null, signal);
      if (!outcome.ok) return outcome;
    }
    return { ok: true, grants: grantsOf(this.#holdings.get(uid)?.get(container.name)) };
  }

  /** Resolves when the checkpoint is no longer being written. */
  settled(): Promise<void> {
    return this.#file.settled();
  }

  /** Devices that a container holds, by resource. */
  of(uid: string, container: string): ReadonlyMap<string, Holding> {
    return this.#holdings.get(uid)?.get(container) ?? new Map();
  }

  /** Whether a device that is held works; one that its plugin no longer tells of is taken to. */
  isHealthy(resource: string, id: string): boolean {
    return this.#devices.get(resource)?.get(id)?.healthy ?? true;
  }

  /** Healthy devices of all resources. */
  healthy(): ReadonlyMap<string, readonly Device[]> {
    return new Map([...this.#devices].map(([resource, devices]) => [resource, [...devices.values()].filter(({ healthy }) => healthy)]));
  }

  /* ---------- inside ---------- */

  #isOurs(resource: string): boolean {
    return this.#served.has(resource) || allocatedIds(this.#holdings, resource).size > 0;
  }

  #healthyIds(resource: string): string[] {
    return [...(this.#devices.get(resource)?.values() ?? [])].filter(({ healthy }) => healthy).map(({ id }) => id);
  }

  #available(resource: string): Set<string> {
    const taken = allocatedIds(this.#holdings, resource);
    return new Set(this.#healthyIds(resource).filter((id) => !taken.has(id)));
  }

  #hintsFor(limits: ReadonlyMap<string, number>, has: (resource: string) => { held: readonly string[]; reusable: ReadonlySet<string> }): Hints {
    const hints = new Map<string, readonly Hint[] | null>();
    for (const [resource, count] of limits) {
      if (!this.#isOurs(resource)) continue;
      const devices = this.#devices.get(resource) ?? new Map<string, Device>();
      const { held, reusable } = has(resource);
      const available = held.length > 0 ? new Set(held) : this.#available(resource);
      const first = held.length > 0 ? new Set<string>() : reusable;
      const possible = held.length > 0 ? held.length === count : new Set([...available, ...first]).size >= count;
      if (!isAligned(devices)) hints.set(resource, null);
      else if (!possible) hints.set(resource, []);
      else hints.set(resource, deviceHints({ devices, available, reusable: first, count, numaNodes: this.#options.numaNodes }));
    }
    return hints;
  }

  async #allocateOne(
    pod: Pod,
    container: Container,
    resource: string,
    count: number,
    nodes: NumaMask | null,
    signal: AbortSignal,
  ): Promise<{ readonly ok: true; readonly changed: boolean } | { readonly ok: false; readonly message: string }> {
    const { uid } = keyOf(pod);
    const refuse = (message: string): { readonly ok: false; readonly message: string } => ({ ok: false, message });
    const held = containerIds(this.#holdings, uid, container.name, resource);
    if (held !== null && held.length !== count) {
      return refuse(`pod "${uid}" container "${container.name}" changed request for resource "${resource}" from ${held.length} to ${count}`);
    }
    if (!this.#served.has(resource)) return refuse(`cannot allocate unregistered device ${resource}`);
    const healthy = new Set(this.#healthyIds(resource));
    if (healthy.size === 0) return refuse(`no healthy devices present; cannot allocate unhealthy devices ${resource}`);
    if ((held ?? []).some((id) => !healthy.has(id))) {
      return refuse(`previously allocated devices are no longer healthy; cannot allocate unhealthy devices ${resource}`);
    }
    if (held !== null || count === 0) return { ok: true, changed: false };
    const reusable = reusableIds(this.#holdings, pod, container.name, resource);
    const available = this.#available(resource);
    const missing = count - Math.min(count, reusable.size);
    if (available.size < missing) {
      return refuse(`requested number of devices unavailable for ${resource}. Requested: ${missing}, Available: ${available.size}`);
    }
    const endpoint = this.#served.get(resource)?.endpoints.at(-1);
    if (endpoint === undefined) return refuse(`endpoint ${resource} has been stopped`);
    const devices = this.#devices.get(resource) ?? new Map<string, Device>();
    const choice = chooseDevices({ devices, available, reusable, count, nodes });
    const { clock, onAllocated } = this.#options;
    let ids: string[];
    try {
      const asks = choice.ask !== null && endpoint.hasPreference;
      ids = finishChoice(choice, asks ? await endpoint.prefer(choice.ask.available, choice.ask.mustInclude, count, signal) : []);
    } catch (error) {
      signal.throwIfAborted();
      return refuse(`device plugin GetPreferredAllocation rpc failed with err: ${messageOf(error)}`);
    }
    const beganMs = clock.monoMs();
    try {
      const [response] = await endpoint.allocate(ids, signal);
      if (response === undefined) return refuse('no containers return in allocation response');
      this.#holdings = withHolding(this.#holdings, uid, container.name, resource, { ids: byNode(devices, ids), response });
      return { ok: true, changed: true };
    } catch (error) {
      signal.throwIfAborted();
      return refuse(messageOf(error));
    } finally {
      onAllocated(resource, clock.monoMs() - beganMs);
    }
  }

  #save(): void {
    this.#file.save().catch((error: unknown) => this.#options.log.error('Writing checkpoint encountered', { err: messageOf(error) }));
  }

  #encode(): string {
    const entries = [...holdingsOf(this.#holdings)].map(({ uid, container, resource, held }) => ({
      uid,
      container,
      resource,
      ids: held.ids,
      response: this.#codec.requestSerialize(held.response),
    }));
    const registered = new Map([...this.#served.keys()].map((resource) => [resource, this.#healthyIds(resource)]));
    return encodeDeviceRecord({ entries, registered }, (bytes) => Buffer.from(bytes).toString('base64'));
  }

  #restore(text: string): void {
    const { entries, registered } = decodeDeviceRecord(text, (base64) => Buffer.from(base64, 'base64'));
    for (const { uid, container, resource, ids, response } of entries) {
      const message = this.#codec.requestDeserialize(Buffer.from(response)) as ContainerAllocateResponse;
      this.#holdings = withHolding(this.#holdings, uid, container, resource, { ids, response: message });
    }
    for (const resource of registered.keys()) {
      this.#served.set(resource, { endpoints: [], stoppedAtMs: this.#options.clock.monoMs() });
      this.#devices.set(resource, new Map());
    }
  }
}
