import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import type { Sys } from '../../base/sys/types.ts';
import { alphaHistogram, metricText } from '../../base/metrics-text.ts';
import type { VolumeStatsFacts } from '../core/stats.ts';
import type { Drivers } from './csi/drivers.ts';

/** A volume that is set up, and how what is in it is measured. */
export interface MeasuredVolume {
  readonly uid: string;
  readonly name: string;
  /** `walk`: counted file by file; `once`: the same, and as files of the agent's own hardly change not again; `fs`: it is a file system of its own; `csi`: its driver says. */
  readonly how: 'walk' | 'once' | 'fs' | 'csi';
  readonly path: string;
  readonly claim: { readonly namespace: string; readonly name: string } | null;
  readonly csi: { readonly driver: string; readonly handle: string } | null;
}

export interface VolumeStatsOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly sys: Pick<Sys, 'statfs' | 'diskUsage'>;
  readonly drivers: Pick<Drivers, 'find'>;
  readonly volumes: () => readonly MeasuredVolume[];
  /** `volumeStatsAggPeriod`; not above 0: nothing is measured. */
  readonly periodMs: number;
}

const timeoutMs = 10_000;

/** How full volumes are, measured now and then, one after another; who asks gets what was measured last. */
export class VolumeStats {
  readonly #options: VolumeStatsOptions;
  #measured = new Map<string, VolumeStatsFacts[]>();
  readonly #took = alphaHistogram('kubelet_volume_metric_collection_duration_seconds', 'Duration in seconds to calculate volume stats');

  constructor(options: VolumeStatsOptions) {
    this.#options = options;
  }

  of(uid: string): readonly VolumeStatsFacts[] {
    return this.#measured.get(uid) ?? [];
  }

  /** `kubelet_volume_stats_*`, of claims; one that several pods use is told once. And how long measuring took. */
  text(): string {
    return this.#claimsText() + this.#took.text();
  }

  #claimsText(): string {
    const claims = new Map<string, VolumeStatsFacts>();
    for (const volumes of this.#measured.values())
      for (const each of volumes) if (each.claim !== null) claims.set(`${each.claim.namespace}/${each.claim.name}`, each);
    const gauge = (name: string, help: string, pick: (facts: VolumeStatsFacts) => number | null): string =>
      metricText(
        `kubelet_volume_stats_${name}`,
        'gauge',
        `[ALPHA] ${help}`,
        [...claims.values()].flatMap((facts) => {
          const value = pick(facts);
          return value === null ? [] : [{ labels: { namespace: facts.claim?.namespace ?? '', persistentvolumeclaim: facts.claim?.name ?? '' }, value }];
        }),
      );
    if (claims.size === 0) return '';
    return [
      gauge('capacity_bytes', 'Capacity in bytes of the volume', (facts) => facts.capacityBytes),
      gauge('available_bytes', 'Number of available bytes in the volume', (facts) => facts.availableBytes),
      gauge('used_bytes', 'Number of used bytes in the volume', (facts) => facts.usedBytes),
      gauge('inodes', 'Maximum number of inodes in the volume', (facts) => facts.inodes),
      gauge('inodes_free', 'Number of free inodes in the volume', (facts) => facts.inodesFree),
      gauge('inodes_used', 'Number of used inodes in the volume', (facts) => facts.inodesUsed),
    ].join('');
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, periodMs, log } = this.#options;
    if (periodMs <= 0) return log.info('Volume stats collection disabled');
    while (!signal.aborted) {
      await clock.sleep(periodMs, signal).catch(() => undefined);
      if (!signal.aborted) await this.measure(signal);
    }
  }

  /** Measures all volumes now. One that cannot be measured is left out. */
  async measure(signal: AbortSignal): Promise<void> {
    const { log, volumes } = this.#options;
    const next = new Map<string, VolumeStatsFacts[]>();
    for (const volume of volumes()) {
      if (signal.aborted) return;
      try {
        const before = volume.how === 'once' ? this.of(volume.uid).find(({ name }) => name === volume.name) : undefined;
        const facts = before ?? (await this.#timed(volume, signal));
        if (facts !== null) next.set(volume.uid, [...(next.get(volume.uid) ?? []), facts]);
      } catch (error) {
        log.debug(2, 'Failed to calculate volume metrics', { podUID: volume.uid, volume: volume.name, err: messageOf(error) });
      }
    }
    this.#measured = next;
  }

  async #timed(volume: MeasuredVolume, signal: AbortSignal): Promise<VolumeStatsFacts | null> {
    const { clock } = this.#options;
    const beganMs = clock.monoMs();
    try {
      return await this.#measure(volume, signal);
    } finally {
      const source = volume.how === 'csi' ? (volume.csi?.driver ?? '') : volume.how === 'fs' ? 'statfs' : 'du';
      this.#took.observe({ metric_source: source }, (clock.monoMs() - beganMs) / 1000);
    }
  }

  async #measure(volume: MeasuredVolume, signal: AbortSignal): Promise<VolumeStatsFacts | null> {
    const { clock, sys } = this.#options;
    const { name, path, claim } = volume;
    const told = { name, claim, atMs: clock.nowMs() };
    if (volume.how === 'csi') return await this.#ask(volume, told);
    const fs = await sys.statfs(path, { timeoutMs });
    const whole = { ...told, capacityBytes: fs.totalBytes, availableBytes: fs.availableBytes, inodes: fs.inodes, inodesFree: fs.inodesFree };
    if (volume.how === 'fs') return { ...whole, usedBytes: fs.totalBytes - fs.freeBytes, inodesUsed: fs.inodes - fs.inodesFree };
    const used = await sys.diskUsage(path, { timeoutMs }, signal);
    return { ...whole, usedBytes: used.bytes, inodesUsed: used.inodes };
  }

  async #ask({ csi, path }: MeasuredVolume, told: Pick<VolumeStatsFacts, 'name' | 'claim' | 'atMs'>): Promise<VolumeStatsFacts | null> {
    const driver = csi === null ? undefined : this.#options.drivers.find(csi.driver);
    if (csi === null || driver === undefined || !(await driver.capabilities()).has('GET_VOLUME_STATS')) return null;
    const { usage } = await driver.call('NodeGetVolumeStats', { volumeId: csi.handle, volumePath: path }, { timeoutMs });
    const [bytes, inodes] = [usage.find(({ unit }) => unit === 'BYTES'), usage.find(({ unit }) => unit === 'INODES')];
    return {
      ...told,
      capacityBytes: Number(bytes?.total ?? 0),
      availableBytes: Number(bytes?.available ?? 0),
      usedBytes: Number(bytes?.used ?? 0),
      inodes: Number(inodes?.total ?? 0),
      inodesFree: Number(inodes?.available ?? 0),
      inodesUsed: Number(inodes?.used ?? 0),
    };
  }
}
