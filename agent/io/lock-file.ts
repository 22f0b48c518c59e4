import type { Clock } from '../../base/clock.ts';
import { hasCode } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import type { Sys } from '../../base/sys/types.ts';

export interface LockFileOptions {
  readonly sys: Pick<Sys, 'lock'>;
  readonly clock: Clock;
  readonly log: Log;
  /** `--lock-file`; empty: there is none. */
  readonly path: string;
  /** `--exit-on-lock-contention`: called when somebody else opens the file or has the lock; null: nobody wants to know. */
  readonly onContention: (() => void) | null;
}

const askAgainMs = 1000;

/** The lock of `--lock-file`, which is waited for while somebody else has it. */
export async function takeLockFile({ sys, clock, log, path, onContention }: LockFileOptions, signal: AbortSignal): Promise<AsyncDisposable | null> {
  if (path === '') return null;
  log.info('Acquiring file lock', { path });
  const wanted = (): void => {
    log.info('The lock file was opened by somebody else', { path });
    onContention?.();
  };
  // Whoever opened the file while `sys` was away was not seen.
  const lost = (error: unknown): void => {
    log.error('The lock was lost', { path, err: error });
    onContention?.();
  };
  for (;;) {
    signal.throwIfAborted();
    try {
      return await sys.lock(path, lost, onContention === null ? undefined : wanted);
    } catch (error) {
      if (!hasCode(error, 'conflict')) throw error;
    }
    await clock.sleep(askAgainMs, signal);
  }
}
