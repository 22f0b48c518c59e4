import type { Clock } from '../../base/clock.ts';
import { OpError } from '../../base/errors.ts';
import { errnoError } from '../../base/sys/errno.ts';
import type { FileOp, Sys } from '../../base/sys/types.ts';
import { childCgroups } from '../core/cgroups.ts';

export interface CgroupRemovalOptions {
  readonly sys: Pick<Sys, 'fileOps' | 'readFiles'>;
  readonly clock: Clock;
  readonly kill?: (pid: number) => void;
}

const killWaitMs = 50;
const killTries = 200;

/** Takes directories of cgroups away, whatever still runs in them. */
export class CgroupRemoval {
  readonly #options: CgroupRemovalOptions;

  constructor(options: CgroupRemovalOptions) {
    this.#options = options;
  }

  /** Removes cgroups, with what is left inside killed. Throws OpError `deadline` for what will not go. */
  async remove(directories: readonly string[], signal: AbortSignal): Promise<void> {
    let left = [...directories];
    for (let attempt = 0; attempt < killTries; attempt += 1) {
      const stuck: string[] = [];
      // Each batch stops at the first directory that is not empty; that one is emptied, the rest goes on.
      while (left.length > 0) {
        const ops = left.map((path): FileOp => ({ op: 'unlink', path: path.slice(1) }));
        const results = await this.#options.sys.fileOps({ root: '/', ops, timeoutMs: 10_000 });
        const last = results.at(-1);
        if (results.length === ops.length && last?.errno === '') break;
        const failed = left[results.length - 1];
        if (failed === undefined || last === undefined || !['EBUSY', 'ENOTEMPTY', 'ENOENT', 'ENODEV'].includes(last.errno))
          throw errnoError(`remove the cgroup ${failed ?? ''}`, last?.errno ?? 'EIO');
        if (last.errno === 'EBUSY' || last.errno === 'ENOTEMPTY') stuck.push(failed);
        left = left.slice(results.length);
      }
      if (stuck.length === 0) return;
      for (const directory of stuck) await this.empty(directory);
      await this.#options.clock.sleep(killWaitMs, signal);
      left = stuck;
    }
    throw new OpError('deadline', "remove a pod's cgroup", `${left.join(', ')} still holds processes`);
  }

  /** Kills what runs in a cgroup and below it, and removes the children that are empty. */
  async empty(directory: string): Promise<void> {
    for (const child of await this.children(directory)) await this.empty(`${directory}/${child}`);
    const [bytes] = await this.#options.sys.readFiles([`${directory}/cgroup.procs`]);
    const kill = this.#options.kill ?? killHard;
    for (const line of Buffer.from(bytes ?? [])
      .toString('utf8')
      .split('\n')) {
      const pid = Number(line);
      // 0 is a process of another PID namespace; 1 is the node's own first.
      if (Number.isSafeInteger(pid) && pid > 1 && pid !== process.pid) kill(pid);
    }
    const names = await this.children(directory);
    if (names.length === 0) return;
    for (const child of names)
      await this.#options.sys.fileOps({ root: '/', ops: [{ op: 'unlink', path: `${directory}/${child}`.slice(1) }], timeoutMs: 10_000 });
  }

  /** The cgroups in one; none where it is not there. */
  async children(directory: string): Promise<string[]> {
    const [result] = await this.#options.sys.fileOps({ root: '/', ops: [{ op: 'list', path: directory.slice(1) }], timeoutMs: 10_000 });
    return result?.errno === '' ? childCgroups(result.names ?? []) : [];
  }
}

function killHard(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It ended by itself meanwhile; what could not be killed shows at the next attempt.
  }
}
