import { watch } from 'node:fs';
import { dirname } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import { stepAside, stepIn, whoStands } from '../core/standing.ts';
import { isAlive, type ProcessName } from './processes.ts';
import { answers } from './splice.ts';
import type { Stand } from './stand.ts';

export interface TendOptions {
  readonly clock: Clock;
  readonly say: (text: string) => void;
  /** The socket’s path, for a person. */
  readonly socket: string;
  /** The node’s first process; null for this machine. */
  readonly first: ProcessName | null;
  /** The tap has stepped in before a runtime that had bound its socket anew. */
  readonly renewed: () => void;
  /** It cannot go on; the reason. */
  readonly lost: (why: string) => void;
}

export interface Tending extends Disposable {
  /** The runtime did not take a connection. */
  unreachable(): void;
}

/** How long a runtime may refuse connections before the tap gives it its place back: it may be about to listen. */
const PATIENCE_MS = 1_000;
/** How often is looked for what no event tells. */
const LOOK_MS = 1_000;

/**
 * Keeps the tap in its place while the runtime ends, starts and binds its socket anew: steps in before each new socket,
 * and steps aside while nobody listens at the old one, so that callers are refused as they would be without a tap.
 */
export function tend(stand: Stand, options: TendOptions): Tending {
  const { clock, say, socket, first, lost } = options;
  /** The socket that the place was given back to, because nobody listened there. */
  let dead: string | null = null;
  let refusedMs: number | null = null;
  let timer: Disposable | undefined;
  let over = false;
  const enter = (): void => {
    stand.dressAs('path');
    stand.move(stepIn(stand.see()));
    dead = null;
    refusedMs = null;
    say(`the runtime listens at ${socket} anew: in its place again`);
    options.renewed();
  };
  const look = (): void => {
    if (over) return;
    try {
      const seen = stand.see();
      if (seen.own === null) lost('its own socket was removed');
      else if (whoStands(seen) === 'runtime' && seen.path !== dead) enter();
    } catch (error) {
      lost(messageOf(error));
    }
  };
  const stepAsideOrWait = async (): Promise<void> => {
    const before = stand.see().real;
    const isBack = await answers(stand.at('real'));
    const seen = stand.see();
    if (over || seen.real !== before) return;
    refusedMs = null;
    if (isBack || seen.real === null || whoStands(seen) !== 'tap') return;
    dead = seen.real;
    stand.move(stepAside(seen));
    say(`the runtime does not listen: callers are refused at ${socket} until it does`);
  };
  const tick = async (): Promise<void> => {
    if (await stand.isFolderGone()) return lost('the folder was removed');
    if (first !== null && !(await isAlive(first))) return lost('the node has ended');
    if (refusedMs !== null && clock.monoMs() - refusedMs >= PATIENCE_MS) await stepAsideOrWait();
    // It can be that socket after all: bound, and listening only now.
    if (dead !== null && stand.see().path === dead && (await answers(stand.at('path'))) && !over) enter();
  };
  const beat = (): void => {
    if (over) return;
    timer = clock.after(LOOK_MS, () => {
      void tick()
        .catch((error: unknown) => {
          if (!over) lost(messageOf(error));
        })
        .finally(beat);
    });
  };
  const watcher = watch(dirname(stand.at('path')), look);
  watcher.on('error', (error) => lost(messageOf(error)));
  look();
  beat();
  return {
    unreachable: () => {
      refusedMs ??= clock.monoMs();
    },
    [Symbol.dispose]: () => {
      over = true;
      watcher.close();
      timer?.[Symbol.dispose]();
    },
  };
}
