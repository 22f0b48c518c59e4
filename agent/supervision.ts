import { readFile } from 'node:fs/promises';
import type { Clock } from '../base/clock.ts';
import { OpError } from '../base/errors.ts';
import type { Host } from '../base/host.ts';
import type { Log } from '../base/log.ts';
import { replaceFile } from '../base/replace-file.ts';
import type { Sys } from '../base/sys/types.ts';
import type { KubeletConfiguration } from './core/config.ts';
import { shutdownPeriods, stateFile } from './core/node-shutdown.ts';
import { watchdogPeriodMs } from './core/watchdog.ts';
import { openLogind } from './io/logind.ts';
import type { AgentMetrics } from './io/metrics.ts';
import { NodeShutdown } from './io/shutdown.ts';
import type { Systemd } from './io/systemd.ts';
import { keepWatchdog } from './io/watchdog.ts';
import type { NodeApi } from './io/node-api.ts';
import type { PodSide } from './pods.ts';
import type { AgentSettings, Events } from './seams.ts';

export interface SupervisionOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly sys: Sys;
  readonly config: KubeletConfiguration;
  readonly settings: Pick<AgentSettings, 'wishes'>;
  readonly host: Pick<Host, 'env' | 'pid'>;
  readonly rootDir: string;
  /** Null: this machine was not booted by systemd. */
  readonly systemd: Systemd | null;
  readonly events: Events;
  readonly metrics: AgentMetrics;
  readonly node: Pick<NodeApi, 'target' | 'kick'>;
  readonly pods: Pick<PodSide, 'loop' | 'volumes'>;
}

export interface Supervision {
  readonly shutdown: NodeShutdown;
  run(signal: AbortSignal): Promise<void>;
}

/** What the machine's service manager wants to know of the agent, and tells it. Throws OpError `invalid` for a watchdog that cannot be. */
export function openSupervision(options: SupervisionOptions): Supervision {
  const { clock, log, sys, systemd, host, events, metrics, node } = options;
  const { loop, volumes } = options.pods;
  const periodMs = watchdogPeriodMs(host.env, host.pid);
  if (typeof periodMs === 'string') throw new OpError('invalid', 'keep the service manager’s watchdog', periodMs);
  const path = `${options.rootDir}/${stateFile}`;
  const uid = process.getuid?.() ?? 0;
  const shutdown = new NodeShutdown({
    clock,
    events,
    log: log.child('shutdown'),
    periods: shutdownPeriods(options.config),
    target: () => node.target,
    onChange: () => node.kick(),
    async openLogind(signal) {
      if (systemd === null) throw new OpError('unsupported', 'put shutdowns off', 'this machine was not booted by systemd');
      return openLogind({ clock, sys, systemd, uid, believeAnyone: options.settings.wishes.has('BelieveAnyShutdownSignal') }, signal);
    },
    pods: {
      list: () => loop.list(),
      mayRun: (each) => loop.mayRun(each),
      evict: (each, eviction, signal) => loop.evict(each, eviction, signal),
      isClean: async (each) => !(await volumes.uidsOnDisk()).includes(each),
    },
    state: {
      read: () => readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => (error.code === 'ENOENT' ? null : Promise.reject(error))),
      write: (text) => replaceFile(path, text, 0o644),
    },
    onState: (state) => metrics.shutdown(state),
  });
  return {
    shutdown,
    async run(signal) {
      const unhealthy = (): string | null => loop.pleg.unhealthy();
      await Promise.all([shutdown.run(signal), keepWatchdog({ clock, sys, periodMs, unhealthy, log: log.child('watchdog') }, signal)]);
    },
  };
}
