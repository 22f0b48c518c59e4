import { join } from 'node:path';
import type { Clock } from '../../../base/clock.ts';
import { messageOf } from '../../../base/errors.ts';
import type { Log } from '../../../base/log.ts';
import { alpha } from '../../../base/metrics-text.ts';
import { timeText } from '../../../base/time.ts';
import type { Pod, PodStatus, PodVolumeHealth, StorageHealthCondition } from '../../../proto/kube/types.ts';
import { storageConditions, volumeConditions, withVolumeHealth } from '../../core/csi/health.ts';
import { stagePath } from '../../core/csi/paths.ts';
import { sha256 } from './disk.ts';
import type { Driver, Drivers } from './drivers.ts';
import type { CsiNodeObject } from './node-object.ts';

/** A volume that a driver was asked for. */
export interface AskedVolume {
  readonly pod: Pod;
  /** As the pod calls it. */
  readonly name: string;
  readonly driver: string;
  readonly handle: string;
  /** Where it is published; null: it is not yet. */
  readonly path: string | null;
}

export interface CsiHealthOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly rootDir: string;
  readonly drivers: Pick<Drivers, 'list' | 'find'>;
  readonly nodeObject: Pick<CsiNodeObject, 'tellHealth'>;
  readonly volumes: () => readonly AskedVolume[];
  /** Looks at a pod again soon. */
  readonly kick: (uid: string) => void;
  readonly periodMs: number;
}

const timeoutMs = 120_000;

/** `CSIVolumeHealth` (KEP-1432): what drivers say is wrong with volumes goes into the status of their pods, with storage into the CSINode. */
export class CsiHealth {
  readonly #options: CsiHealthOptions;
  /** By pod UID. */
  readonly #known = new Map<string, readonly PodVolumeHealth[]>();
  readonly #storage = new Map<string, readonly StorageHealthCondition[]>();

  constructor(options: CsiHealthOptions) {
    this.#options = options;
  }

  /** The status with what is known of the pod's volumes. */
  withHealth(uid: string, status: PodStatus): PodStatus {
    const volumeHealth = this.#known.get(uid);
    return volumeHealth === undefined ? status : { ...status, volumeHealth: [...volumeHealth] };
  }

  /** What /metrics tells. */
  text(): string {
    const metric = alpha('csi_node_storage_health_status', 'CSI node storage backend health conditions currently reported (1 = present).', 'gauge');
    for (const [driver, conditions] of this.#storage) for (const { status, reason } of conditions) metric.set({ driver_name: driver, status, reason }, 1);
    return metric.text();
  }

  /** Asks all drivers now and then until `signal` is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, periodMs } = this.#options;
    while (!signal.aborted) {
      await this.ask(signal);
      await clock.sleep(periodMs, signal).catch(() => undefined);
    }
  }

  /** Asks all drivers once. What cannot be told stays as it was. */
  async ask(signal: AbortSignal): Promise<void> {
    await Promise.all([this.#askVolumes(signal), this.#askStorage(signal)]);
  }

  async #askVolumes(signal: AbortSignal): Promise<void> {
    const { log, drivers } = this.#options;
    const volumes = this.#options.volumes();
    const uids = new Set(volumes.map(({ pod }) => pod.metadata.uid ?? ''));
    for (const uid of this.#known.keys()) if (!uids.has(uid)) this.#known.delete(uid);
    for (const volume of volumes) {
      if (signal.aborted) return;
      const driver = drivers.find(volume.driver);
      try {
        if (driver !== undefined && (await driver.capabilities({ signal })).has('GET_VOLUME_HEALTH')) await this.#askVolume(driver, volume, signal);
      } catch (error) {
        log.debug(4, 'NodeGetVolumeHealth failed; leaving previous conditions unchanged', {
          driver: volume.driver,
          volume: volume.name,
          err: messageOf(error),
        });
      }
    }
  }

  async #askVolume(driver: Driver, { pod, name, handle, path }: AskedVolume, signal: AbortSignal): Promise<void> {
    const { clock, log, rootDir, kick } = this.#options;
    const paths = path === null ? {} : { volumePublishPath: path, stagingTargetPath: join(rootDir, stagePath(driver.name, sha256(handle))) };
    const { volumeHealth } = await driver.call('NodeGetVolumeHealth', { volumeId: handle, ...paths }, { timeoutMs, signal });
    const found = volumeConditions(volumeHealth);
    if (!found.ok)
      return log.debug(4, 'NodeGetVolumeHealth failed; leaving previous conditions unchanged', { driver: driver.name, volume: name, err: found.message });
    const uid = pod.metadata.uid ?? '';
    const told = this.#known.get(uid) ?? pod.status?.volumeHealth ?? [];
    const next = withVolumeHealth(told, name, found.conditions, timeText(clock.nowMs()));
    if (next === null) return;
    this.#known.set(uid, next);
    kick(uid);
  }

  async #askStorage(signal: AbortSignal): Promise<void> {
    const { log, drivers, nodeObject } = this.#options;
    for (const driver of drivers.list()) {
      if (signal.aborted) return;
      try {
        if (!(await driver.capabilities({ signal })).has('GET_STORAGE_HEALTH')) continue;
        const { backendHealth } = await driver.call('NodeGetStorageHealth', {}, { timeoutMs, signal });
        const told = storageConditions(backendHealth);
        if (!told.ok) {
          log.debug(4, 'NodeGetStorageHealth failed; leaving previous conditions unchanged', { driver: driver.name, err: told.message });
          continue;
        }
        this.#storage.set(driver.name, told.conditions);
        await nodeObject.tellHealth(driver.name, told.conditions, signal);
      } catch (error) {
        if (!signal.aborted) log.error('Failed to update CSINode storage health', { driver: driver.name, err: messageOf(error) });
      }
    }
  }
}
