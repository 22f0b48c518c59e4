import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { Rng } from '../base/rng.ts';
import type { Sys } from '../base/sys/types.ts';
import type { KubeletConfiguration } from './core/config.ts';
import { durationMs } from '../base/duration.ts';
import { valueOf } from './core/quantity.ts';
import type { PodCgroups } from './io/cgroups.ts';
import type { Cri } from './io/cri.ts';
import { StorageEviction } from './io/evict-storage.ts';
import { createPodFiles } from './io/files.ts';
import { Gc } from './io/gc.ts';
import { LogRotation } from './io/logs-rotate.ts';
import { containersLogDir } from './pods.ts';
import type { PodSide } from './pods.ts';
import type { EventTarget, Events } from './seams.ts';

export interface UpkeepOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly rng: Rng;
  readonly sys: Sys;
  readonly cri: Cri;
  readonly config: KubeletConfiguration;
  readonly rootDir: string;
  readonly events: Events;
  readonly target: EventTarget;
  readonly cgroups: PodCgroups;
  readonly pods: PodSide;
}

/** What goes on beside the pods: rotating logs, taking away what is dead, keeping pods to their limits on disk. */
export function openUpkeep(options: UpkeepOptions): (signal: AbortSignal) => Promise<void> {
  const { clock, log, sys, cri, config, rootDir, events, cgroups } = options;
  const { loop, volumes, resizes } = options.pods;
  const { podLogsDir } = config;
  const logs = new LogRotation({
    cri,
    sys,
    clock,
    podLogsDir,
    log: log.child('logs'),
    maxBytes: Number(valueOf(config.containerLogMaxSize)),
    maxFiles: config.containerLogMaxFiles,
    periodMs: durationMs(config.containerLogMonitorInterval),
    facts: () => loop.allFacts(),
  });
  const gc = new Gc({
    cri,
    sys,
    clock,
    volumes,
    cgroups,
    events,
    logs,
    podLogsDir,
    log: log.child('gc'),
    pods: loop,
    node: () => options.target,
    files: createPodFiles(options.rng),
    containerLogsDir: containersLogDir,
    images: {
      highThresholdPercent: config.imageGCHighThresholdPercent,
      lowThresholdPercent: config.imageGCLowThresholdPercent,
      minAgeMs: durationMs(config.imageMinimumGCAge),
      maxAgeMs: durationMs(config.imageMaximumGCAge),
    },
  });
  const eviction = new StorageEviction({ cri, sys, clock, events, rootDir, podLogsDir, log: log.child('eviction'), pods: loop });
  return async (signal) => {
    await Promise.all([
      logs.run(signal),
      gc.run(signal),
      eviction.run(signal),
      cgroups.followPods({ ...loop, list: () => loop.list().map((pod) => resizes.allocatedPod(pod)) }, signal),
    ]);
  };
}
