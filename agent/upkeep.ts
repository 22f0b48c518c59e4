import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { Rng } from '../base/rng.ts';
import type { Sys } from '../base/sys/types.ts';
import type { KubeletConfiguration } from './core/config.ts';
import { durationMs } from '../base/duration.ts';
import { thresholdsOf } from './core/evict-thresholds.ts';
import type { PressureCondition } from './core/evict-thresholds.ts';
import { gateEnabled } from '../base/feature-gates.ts';
import { valueOf } from './core/quantity.ts';
import type { PodCgroups } from './io/cgroups.ts';
import type { Cri } from './io/cri.ts';
import { EvictionMeasure } from './io/evict-measure.ts';
import { NodeEviction } from './io/evict-node.ts';
import { StorageEviction } from './io/evict-storage.ts';
import { createPodFiles } from './io/files.ts';
import { Gc } from './io/gc.ts';
import type { GcOptions } from './io/gc.ts';
import { DeadContainers } from './io/gc-dead.ts';
import { LogRotation } from './io/logs-rotate.ts';
import { watchOom } from './io/oom-watch.ts';
import type { Tracer } from './io/tracer.ts';
import { keepUtilChains } from './io/iptables-chains.ts';
import type { AgentMetrics } from './io/metrics.ts';
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
  /** Of what has ended: how much stays. */
  readonly deadContainers: NonNullable<GcOptions['containers']>;
  readonly events: Events;
  readonly target: EventTarget;
  readonly cgroups: PodCgroups;
  readonly pods: PodSide;
  readonly metrics: AgentMetrics;
  readonly tracer: Tracer;
  /** Called when the node has come under a pressure or out of it. */
  readonly onPressure: () => void;
}

export interface Upkeep {
  /** What the node is short of, in the order in which it came up. */
  pressures(): readonly PressureCondition[];
  run(signal: AbortSignal): Promise<void>;
}

/** What goes on beside the pods: rotating logs, taking away what is dead, keeping pods to their limits on disk, and the node alive. */
export function openUpkeep(options: UpkeepOptions): Upkeep {
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
    workers: config.containerLogMaxWorkers,
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
    ready: () => loop.synced() && loop.pleg.listed(),
    imagesByHandler: gateEnabled(config.featureGates, 'RuntimeClassInImageCriApi'),
    node: () => options.target,
    files: createPodFiles(options.rng),
    containerLogsDir: containersLogDir,
    tracer: options.tracer,
    collected: (reason) => options.metrics.images.collected(reason),
    swept: (cleaned, failed) => options.metrics.volumes.swept(cleaned, failed),
    pruneRecords: async (imageRefs, beforeMs) => options.pods.records?.prune(imageRefs, beforeMs),
    containers: options.deadContainers,
    images: {
      highThresholdPercent: config.imageGCHighThresholdPercent,
      lowThresholdPercent: config.imageGCLowThresholdPercent,
      minAgeMs: durationMs(config.imageMinimumGCAge),
      maxAgeMs: durationMs(config.imageMaximumGCAge),
    },
  });
  const eviction = new StorageEviction({
    cri,
    sys,
    clock,
    events,
    rootDir,
    podLogsDir,
    log: log.child('eviction'),
    pods: loop,
    evicted: (limit) => options.metrics.evicted(limit),
  });
  const dead = new DeadContainers({ gc, pods: loop, log: log.child('gc') });
  const pressure = new NodeEviction({
    clock,
    events,
    log: log.child('eviction'),
    pods: loop,
    measure: new EvictionMeasure({ sys, clock, cri, cgroups, cgroupRoot: config.cgroupRoot, rootDir, podLogsDir, log: log.child('eviction') }),
    reclaim: { containers: (signal) => gc.reclaimContainers(signal), images: (signal) => gc.reclaimImages(signal) },
    node: () => options.target,
    thresholds: thresholdsOf(config),
    transitionMs: durationMs(config.evictionPressureTransitionPeriod),
    maxPodGraceSeconds: config.evictionMaxPodGracePeriod,
    onChange: options.onPressure,
    evicted: (reason) => options.metrics.evicted(reason),
    statsAge: (reason, ageMs) => options.metrics.evictedAfter(reason, ageMs),
  });
  return {
    pressures: () => pressure.conditions(),
    async run(signal) {
      await Promise.all([
        logs.run(signal),
        gc.run(signal),
        dead.run(signal),
        config.localStorageCapacityIsolation ? eviction.run(signal) : null,
        pressure.run(signal),
        watchOom({ sys, log: log.child('oom'), events, target: options.target }, signal),
        config.makeIPTablesUtilChains ? keepUtilChains({ clock, sys, log: log.child('iptables') }, signal) : null,
        cgroups.followPods({ ...loop, list: () => loop.list().map((pod) => resizes.allocatedPod(pod)) }, signal),
      ]);
    },
  };
}
