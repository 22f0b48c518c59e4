import { atMost } from '../../base/abort.ts';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { findContainer } from '../core/containers.ts';
import { minGraceSeconds } from '../core/plan-kill.ts';
import type { Kill } from '../core/step.ts';
import type { EventText } from '../core/types.ts';
import type { Hooks } from '../seams.ts';
import { isNotFound } from './cri.ts';
import type { Cri } from './cri.ts';

export interface KillDeps {
  readonly cri: Cri;
  readonly clock: Clock;
  readonly log: Log;
  readonly hooks: Hooks;
  /** What a call to the runtime may take beyond the grace it was given. */
  readonly timeoutMs: number;
}

export interface KillContext {
  readonly pod: Pod;
  readonly podIPs: readonly string[];
  readonly tell: (event: EventText) => void;
  /** Containers whose preStop hook has been begun: none runs twice for one end. */
  readonly preStopBegun: Set<string>;
}

/**
 * Stops containers all at once, each in its turn: hook, wait for those that must end first, then the runtime's stop
 * with what is left of the grace. The first error is thrown when all are through.
 */
export async function killContainers(deps: KillDeps, context: KillContext, kills: readonly Kill[], signal: AbortSignal): Promise<void> {
  const ends = new Map<string, Promise<unknown>>();
  // All promises exist before the first kill looks for the ones it has to wait for.
  const { promise: opened, resolve: open } = Promise.withResolvers<void>();
  const all = kills.map((kill) => {
    const done = opened.then(() => killOne(deps, context, kill, ends, signal));
    ends.set(kill.name, done);
    return done;
  });
  open();
  const results = await Promise.allSettled(all);
  const failed = results.find((result) => result.status === 'rejected');
  if (failed !== undefined) throw failed.reason;
}

async function killOne(deps: KillDeps, context: KillContext, kill: Kill, ends: ReadonlyMap<string, Promise<unknown>>, signal: AbortSignal): Promise<void> {
  const { cri, clock, log } = deps;
  context.tell({ type: 'Normal', reason: 'Killing', message: kill.message, container: kill.name });
  const beganMs = clock.monoMs();
  // Grace periods are whole seconds; time that was used is cut down to them, as upstream does.
  const left = (): number => kill.graceSeconds - Math.floor((clock.monoMs() - beganMs) / 1000);
  await preStop(deps, context, kill, signal);
  const others = kill.after.map((name) => ends.get(name)).filter((end) => end !== undefined);
  if (others.length > 0 && left() > 0) await atMost(clock, Promise.allSettled(others), left() * 1000, signal);
  const graceSeconds = Math.max(minGraceSeconds, left());
  log.debug(2, 'Killing container with a grace period', { containerName: kill.name, containerID: kill.containerId, gracePeriod: graceSeconds });
  try {
    await cri.runtime.stopContainer({ containerId: kill.containerId, timeout: graceSeconds }, { signal, timeoutMs: graceSeconds * 1000 + deps.timeoutMs });
  } catch (error) {
    if (!isNotFound(error)) throw error;
  }
}

async function preStop(deps: KillDeps, context: KillContext, kill: Kill, signal: AbortSignal): Promise<void> {
  const { pod, podIPs, preStopBegun } = context;
  const container = findContainer(pod.spec, kill.name)?.container;
  const hook = container?.lifecycle?.preStop;
  if (!kill.preStop || container === undefined || hook === undefined || kill.graceSeconds <= 0 || preStopBegun.has(kill.containerId)) return;
  preStopBegun.add(kill.containerId);
  const run = new AbortController();
  // A command is not told of the deadline: the runtime would end it, and it may run until its container ends.
  const stop = hook.exec === undefined ? AbortSignal.any([signal, run.signal]) : signal;
  const outcome = deps.hooks.run(pod, container, kill.containerId, podIPs, hook, 0, stop).then((result) => {
    if (result.ok || stop.aborted) return;
    deps.log.info('PreStop hook failed', { containerName: kill.name, message: result.message });
    // The text stays in the log: it may carry what a server answered.
    context.tell({ type: 'Warning', reason: 'FailedPreStopHook', message: 'PreStopHook failed', container: kill.name });
  });
  const inTime = await atMost(deps.clock, outcome, kill.graceSeconds * 1000, signal);
  if (inTime) return;
  deps.log.info('PreStop hook not completed in grace period', { containerName: kill.name, gracePeriod: kill.graceSeconds });
  run.abort();
}
