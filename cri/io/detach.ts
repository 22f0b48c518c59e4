import { rm } from 'node:fs/promises';
import type { Clock } from '../../base/clock.ts';
import { hasCode, OpError } from '../../base/errors.ts';
import { mend } from './attach.ts';
import { readState, removeState, untilGuardDone, type AttachState } from './attach-state.ts';
import { isAlive } from './processes.ts';
import { openStand } from './stand.ts';

const STOP_MS = 15_000;
const LOOK_MS = 50;

/**
 * Ends one that stands and waits until it has put everything back; does that itself where the process was killed and its
 * guard with it. Resolves to what was done, in words. Throws OpError `deadline` when it does not end.
 */
export async function detachOne(state: AttachState, registry: string, options: { pid: number; clock: Clock; signal: AbortSignal }): Promise<string> {
  const { clock, signal } = options;
  const isThere = async (): Promise<boolean> => (await readState(registry, state.key))?.since === state.since;
  const startMs = clock.monoMs();
  const wasAlive = await isAlive(state.process);
  if (wasAlive) process.kill(state.process.pid, 'SIGTERM');
  while ((await isThere()) && (await isAlive(state.process))) {
    if (clock.monoMs() - startMs > STOP_MS)
      throw new OpError('deadline', 'detaching', `process ${state.process.pid} does not end`, {
        advice: `kill -9 ${state.process.pid} and its guard puts everything back`,
      });
    await clock.sleep(LOOK_MS, signal);
  }
  await untilGuardDone(registry, state, { clock, signal });
  if (!(await isThere())) return wasAlive ? `process ${state.process.pid} ended, and everything is back in its place` : 'everything is back in its place';
  let did = 'its folder is gone, and there is nothing to put back';
  try {
    await using stand = await openStand(state.folder, state.name, options.pid);
    // The way to the folder can lead elsewhere by now: another process has its number.
    if (stand.key === state.key) did = mend(stand) ? 'put back what a killed one had left' : 'nothing was left to put back';
  } catch (error) {
    if (!hasCode(error, 'not-found')) throw error;
  }
  for (const left of [state.control, state.log]) if (left !== undefined) await rm(left, { force: true });
  await removeState(registry, state.key);
  return did;
}
