import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import type { Sys } from '../../base/sys/types.ts';
import { processesOfExec, readProcess, type SeenProcess } from '../core/wishes.ts';
import type { Cri } from './cri.ts';

export interface ExecKillDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly sys: Pick<Sys, 'readFiles'>;
  readonly runtime: Pick<Cri['runtime'], 'containerStatus'>;
}

/** Ends a command that was executed in a container, with everything it started. */
export type ExecKill = (containerId: string, cmd: readonly string[], beganMs: number, signal: AbortSignal) => Promise<void>;

const statusMs = 5_000;
/** Linux counts process times in these, whatever its own tick is. */
const ticksPerSecond = 100;
/** A process that was started just when the probe began. */
const slackTicks = 20;

/**
 * Wish: a runtime ends only the one process of an exec that takes too long. This finds it while it lives, below the
 * container's cgroup, and kills it and its descendants.
 */
export function createExecKill({ clock, log, sys, runtime }: ExecKillDeps): ExecKill {
  const texts = async (paths: readonly string[]): Promise<string[]> =>
    (await sys.readFiles(paths)).map((bytes) => (bytes === null ? '' : Buffer.from(bytes).toString()));

  const processes = async (pids: readonly number[]): Promise<SeenProcess[]> => {
    const files = await texts(pids.flatMap((pid) => [`/proc/${pid}/stat`, `/proc/${pid}/cmdline`]));
    return pids.flatMap((pid, at) => readProcess(pid, files[at * 2] ?? '', files[at * 2 + 1] ?? '') ?? []);
  };

  return async (containerId, cmd, beganMs, signal) => {
    try {
      const { info } = await runtime.containerStatus({ containerId, verbose: true }, { timeoutMs: statusMs, signal });
      const first = (JSON.parse(info['info'] ?? '{}') as { pid?: number }).pid ?? 0;
      if (!Number.isInteger(first) || first <= 1) return;
      const [cgroups = '', uptime = ''] = await texts([`/proc/${first}/cgroup`, '/proc/uptime']);
      const lists = cgroupFolders(cgroups).map((folder) => `${folder}/cgroup.procs`);
      const pids = [...new Set((await texts(lists)).flatMap((text) => text.split('\n')).map(Number))].filter((pid) => pid > 1);
      const agoTicks = ((clock.monoMs() - beganMs) / 1000) * ticksPerSecond;
      const sinceTicks = Number(uptime.split(' ')[0]) * ticksPerSecond - agoTicks - slackTicks;
      const found = processesOfExec(await processes(pids), first, cmd, sinceTicks);
      // Looked at once more: a pid may have been given to another process meanwhile.
      const still = await processes(found.map(({ pid }) => pid));
      for (const { pid, startTicks } of still) if (found.some((each) => each.pid === pid && each.startTicks === startTicks)) process.kill(pid, 'SIGKILL');
      if (still.length > 0) log.info('Killed what a timed-out exec probe had started', { containerID: containerId, count: still.length });
    } catch (error) {
      if (!signal.aborted) log.warn('What a timed-out exec probe started could not be killed', { containerID: containerId, err: messageOf(error) });
    }
  };
}

/** The folders of a process's cgroup: v2's, and v1's of the pids or memory controller. */
function cgroupFolders(text: string): string[] {
  return text.split('\n').flatMap((line) => {
    const [id, controllers = '', ...path] = line.split(':');
    if (path.length === 0) return [];
    const whole = path.join(':');
    if (id === '0') return [`/sys/fs/cgroup${whole}`, `/sys/fs/cgroup/unified${whole}`];
    const named = controllers.split(',').find((each) => each === 'pids' || each === 'memory');
    return named === undefined ? [] : [`/sys/fs/cgroup/${controllers}${whole}`];
  });
}
