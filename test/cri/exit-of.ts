import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';

/** How a process ended; it may have ended before anybody asks. */
export async function exitOf(child: ChildProcess): Promise<unknown[]> {
  return child.exitCode === null && child.signalCode === null ? await once(child, 'exit') : [child.exitCode, child.signalCode];
}
