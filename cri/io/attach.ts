import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { rfc3339, type Clock } from '../../base/clock.ts';
import { messageOf, OpError } from '../../base/errors.ts';
import { stepIn, undo } from '../core/standing.ts';
import { claim, readState, removeState, statePath, untilGuardDone, writeState, type AttachState } from './attach-state.ts';
import { startGuard } from './guard.ts';
import { findPlace, type Place, type Where } from './place.ts';
import { isAlive, processOf } from './processes.ts';
import { connectionsTo, renew, untilThrough, type Reconnect, type Renewal } from './renew.ts';
import { openStand, type Stand } from './stand.ts';
import { REGISTRY } from './tap-registry.ts';
import { tend, type Tending } from './tend.ts';
import { openTap, type Tap, type TapOptions } from './tap.ts';

export interface AttachOptions {
  readonly where: Where;
  /** `auto` when absent. */
  readonly reconnect?: Reconnect;
  /** What the tap does besides passing on. */
  readonly tap: Omit<TapOptions, 'listen' | 'upstream' | 'through' | 'unreachable' | 'control' | 'clock' | 'say'>;
  /** The program `sys`. */
  readonly sys: string;
  /** Folder of the sets of ours. */
  readonly stateHome: string;
  /** Where running taps write themselves down; /run/nodelet/cri when absent. */
  readonly registry?: string;
  /** This process. */
  readonly pid: number;
  /** The file that gets what it says, where that is one of ours: taken away when this process is killed. */
  readonly log?: string | undefined;
  readonly clock: Clock;
  /** Gets what there is to say: where it stands, what was done, what changes. */
  readonly say: (text: string) => void;
}

export interface Attached extends AsyncDisposable {
  /** The tap's control socket. */
  readonly control: string;
  /** As the node sees it. */
  readonly socket: string;
  readonly place: Place;
  readonly tap: Tap;
  /** What was done about the kubelet's old connection; null when there is no kubelet. */
  readonly renewal: Renewal | null;
  /** Resolves when it cannot go on, with the reason, or was told to end, with null: its owner disposes it then. */
  readonly ended: Promise<string | null>;
}

/** Takes back what a killed one left in the folder; true when there was something. */
export function mend(stand: Stand): boolean {
  const moves = undo(stand.see());
  stand.move(moves);
  return moves.length > 0;
}

/** Waits for the guard of a killed one, which may be at it this moment, then mends what is left. */
async function mendLeft(stand: Stand, registry: string, options: { clock: Clock; say: (text: string) => void; signal: AbortSignal }): Promise<void> {
  const left = await readState(registry, stand.key);
  if (left !== null) await untilGuardDone(registry, left, options);
  if (mend(stand)) options.say('put back what a killed one had left');
  if (left?.log !== undefined) await rm(left.log, { force: true });
  await removeState(registry, stand.key);
  const { real } = stand.see();
  if (real !== null)
    throw new OpError('exists', 'attaching', 'there is already something at the name that the runtime’s socket would get', {
      advice: `move it away: ${stand.outside('real')}`,
    });
}

/**
 * Puts a tap between a kubelet and its runtime, without a change to either's configuration: the tap takes the place of the
 * runtime's socket, which stays reachable under another name, and the kubelet's connection is renewed. Disposing undoes
 * it; a guard does when this process is killed. When `signal` is aborted meanwhile all is undone and OpError `aborted`
 * thrown. Throws OpError when there is no kubelet or runtime, when another one is attached (`conflict`), or when the
 * folder cannot be changed; nothing is changed then.
 */
export async function attach(options: AttachOptions, signal: AbortSignal): Promise<Attached> {
  const { clock, say, sys, registry = REGISTRY } = options;
  const undoing: (() => Promise<unknown>)[] = [];
  const closing = new AbortController();
  const undoAll = async (): Promise<void> => {
    closing.abort();
    const failures: unknown[] = [];
    for (const one of undoing.splice(0).toReversed()) await one().catch((error: unknown) => failures.push(error));
    if (failures.length > 0) throw failures[0];
  };
  try {
    const place = await findPlace(options.where, options.stateHome, signal);
    const { kubelet, socket } = place;
    const stand = await openStand(place.folder, place.name, options.pid);
    undoing.push(async () => stand[Symbol.asyncDispose]());
    const claimed = await claim(registry, stand.key, socket);
    undoing.push(async () => claimed[Symbol.asyncDispose]());
    await mendLeft(stand, registry, { clock, say, signal });
    const self = await processOf(options.pid);
    if (self === null) throw new OpError('failed', 'attaching', 'this process cannot see itself in /proc');
    const control = join(registry, `${stand.key}.tap`);
    const guard = await startGuard({
      sys,
      folder: stand.outside('folder'),
      name: place.name,
      remove: [control, statePath(registry, stand.key), ...(options.log === undefined ? [] : [options.log])],
      lost: () => say('its guard has ended: if this process is killed now, nodelet cri detach puts everything back'),
    });
    undoing.push(async () => guard.release());
    const state: AttachState = {
      ...{ version: 1, key: stand.key, process: self, guard: guard.pid, folder: place.folder, name: place.name, socket, place: place.words, control },
      ...{ log: options.log, since: rfc3339(clock.nowMs()), settled: false },
    };
    undoing.push(async () => removeState(registry, stand.key));
    await writeState(registry, state);
    const ended = Promise.withResolvers<string | null>();
    let tended: Tending | undefined;
    const { signal: lasting } = closing;
    const tap = await openTap({
      ...options.tap,
      listen: `${place.folder}/${place.name}`,
      upstream: `${place.folder}/${place.name}.real`,
      through: { bind: stand.outside('own'), connect: stand.outside('real') },
      control: { path: control, registry, pid: options.pid },
      unreachable: () => tended?.unreachable(),
      clock,
      say,
    });
    undoing.push(async () => tap.stop());
    void tap.stopAsked.then(ended.resolve);
    undoing.push(async () => mend(stand));
    stand.dressAs('path');
    stand.move(stepIn(stand.see()));
    say(`in the place of ${socket} (${place.words}); the runtime’s own socket is ${place.name}.real beside it`);
    const how = options.reconnect ?? 'auto';
    // Between its start and our step a caller can have reached the runtime itself.
    const slipped = async (): Promise<void> => {
      if (how === 'never' || how === 'restart') return;
      // The kubelet may be another process by now.
      const now =
        kubelet !== null && (await isAlive(kubelet.process))
          ? kubelet
          : (await findPlace({ ...options.where, pid: undefined }, options.stateHome, lasting)).kubelet;
      if (now !== null) await connectionsTo(sys, now.process.pid, stand.outside('real'), { shut: true, signal: lasting });
    };
    tended = tend(stand, { clock, say, socket, first: place.first, renewed: () => void slipped().catch(() => {}), lost: ended.resolve });
    undoing.push(async () => tended?.[Symbol.dispose]());
    const renewal = kubelet === null ? null : await renew(kubelet, how, { sys, socket: stand.outside('real'), signal });
    say(renewal?.words ?? 'no kubelet was found that calls there: callers are seen as they connect');
    if (kubelet !== null && renewal !== null && renewal.did !== 'nothing')
      say(await untilThrough(kubelet, renewal.did, { sys, socket: stand.outside('own'), opened: () => tap.counts.opened, clock, signal }));
    await writeState(registry, { ...state, settled: true });
    signal.throwIfAborted();
    return { control, socket, place, tap, renewal, ended: ended.promise, [Symbol.asyncDispose]: undoAll };
  } catch (error) {
    await undoAll().catch((failure: unknown) => say(`undoing: ${messageOf(failure)}`));
    if (signal.aborted) throw new OpError('aborted', 'attaching', 'stopped by the caller', { cause: error });
    throw error;
  }
}
