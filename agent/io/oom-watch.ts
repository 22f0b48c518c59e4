import { untilAborted } from '../../base/abort.ts';
import { messageOf, OpError } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import type { Sys } from '../../base/sys/types.ts';
import { OomLog } from '../core/oom-log.ts';
import type { Events, EventTarget } from '../seams.ts';

export interface OomWatchOptions {
  readonly sys: Pick<Sys, 'followKernelLog'>;
  readonly log: Log;
  readonly events: Events;
  /** The Node. */
  readonly target: EventTarget;
}

/** Tells of processes that the kernel ends because the machine has no memory left. Runs until `signal` is aborted. */
export async function watchOom({ sys, log, events, target }: OomWatchOptions, signal: AbortSignal): Promise<void> {
  const reports = new OomLog();
  try {
    await using _followed = await sys.followKernelLog((record) => {
      const oom = reports.read(record);
      if (oom === null) return;
      log.info('The machine ran out of memory', { process: oom.process, pid: oom.pid });
      events.event(target, 'Warning', 'SystemOOM', `System OOM encountered, victim process: ${oom.process}, pid: ${oom.pid}`);
    });
    await untilAborted(signal);
  } catch (error) {
    // As in a user namespace: pods run all the same.
    if (!(error instanceof OpError)) throw error;
    log.warn('The kernel’s log cannot be followed; that the machine runs out of memory is not told', { err: messageOf(error) });
    await untilAborted(signal);
  }
}
