import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { Sys } from '../base/sys/types.ts';
import type { KubeletConfiguration } from './core/config.ts';
import { gateEnabled } from '../base/feature-gates.ts';
import type { MachineFacts } from './core/node-status.ts';
import { CgroupReader } from './io/cgroup-usage.ts';
import type { PodCgroups } from './io/cgroups.ts';
import type { Cri } from './io/cri.ts';
import { createStats, type Stats } from './io/stats.ts';
import type { PodSide } from './pods.ts';
import type { AgentSettings } from './seams.ts';

export interface MeasuringOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly sys: Sys;
  readonly cri: Cri;
  readonly config: KubeletConfiguration;
  readonly machine: MachineFacts;
  readonly settings: AgentSettings;
  readonly cgroups: PodCgroups;
  readonly pods: PodSide;
  readonly rootDir: string;
}

/** What pods and the node use, from the runtime, cgroups and disks. */
export function openStats(options: MeasuringOptions): Stats {
  const { log, cri, config, settings, pods } = options;
  const system = { kubelet: config.kubeletCgroups, runtime: settings.runtimeCgroups ?? '', misc: config.systemCgroups };
  const groups = new CgroupReader({ ...options, cgroupRoot: config.cgroupRoot, system });
  return createStats({
    ...options,
    ...cri,
    groups,
    fromCri: gateEnabled(config.featureGates, 'PodAndContainerStatsFromCRI'),
    log: log.child('stats'),
    pods: pods.loop,
    nodeName: settings.nodeName,
    podLogsDir: config.podLogsDir,
    volumes: pods.volumeStats,
    timeoutMs: settings.runtimeRequestTimeoutMs,
  });
}
