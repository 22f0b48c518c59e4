import type { Clock } from '../../base/clock.ts';
import type { Host } from '../../base/host.ts';
import { OpError } from '../../base/errors.ts';
import { stateHome, sysProgram } from './our-paths.ts';
import { runningTaps, type RegisteredTap } from './tap-registry.ts';
import { openTap, type TapOptions } from './tap.ts';

/** Which tap a command means; `commands/reach-options.ts` reads it from a command line. */
export interface ReachOptions {
  /** The control socket of a running one. */
  readonly tap?: string | undefined;
  /** To start one between these two. */
  readonly listen?: string | undefined;
  readonly upstream?: string | undefined;
  /** To put one between a kubelet and its runtime: which, as `attach` is told. */
  readonly socket?: string | undefined;
  readonly pid?: number | undefined;
  readonly kind?: string | undefined;
  readonly node?: string | undefined;
  readonly name?: string | undefined;
}

/** What a tap that is started for the command does besides passing on. */
export interface ReachContext {
  readonly recorder: string;
  /** This process. */
  readonly pid: number;
  readonly env: Host['env'];
  /** Ends attaching. */
  readonly signal: AbortSignal;
  readonly clock: Clock;
  readonly record?: TapOptions['record'];
  readonly withSecrets?: boolean;
  readonly rules?: TapOptions['rules'];
  readonly draw?: TapOptions['draw'];
  readonly say: (text: string) => void;
}

export interface ReachedTap extends AsyncDisposable {
  readonly control: string;
  /** Whether it was there before; else it was started for the command and ends when this is disposed. */
  readonly isFound: boolean;
  /** One sentence part: where it stands. */
  readonly words: string;
  /** Resolves when a tap of this command's own was asked to end. */
  readonly ended: Promise<unknown>;
}

const never = new Promise<never>(() => {});

function found(tap: RegisteredTap): ReachedTap {
  return { control: tap.control, isFound: true, words: `${tap.listen}, before ${tap.upstream}`, ended: never, [Symbol.asyncDispose]: () => Promise.resolve() };
}

async function started(listen: string, upstream: string, context: ReachContext): Promise<ReachedTap> {
  const { record, withSecrets = false, rules, draw, recorder, clock, pid, env, say } = context;
  const tap = await openTap({
    listen,
    upstream,
    record,
    withSecrets,
    ...(rules === undefined ? {} : { rules }),
    ...(draw === undefined ? {} : { draw }),
    recorder,
    sys: sysProgram(env),
    clock,
    say,
    control: { pid },
  });
  return {
    control: tap.control ?? `${listen}.tap`,
    isFound: false,
    words: `${listen}, before ${upstream}, for as long as this runs`,
    ended: tap.stopAsked,
    [Symbol.asyncDispose]: async () => void (await tap.stop()),
  };
}

async function attached(options: ReachOptions, context: ReachContext): Promise<ReachedTap> {
  const { record, withSecrets = false, rules, draw, recorder, clock, pid, say, env, signal } = context;
  const { attach } = await import('./attach.ts');
  const { socket, pid: kubelet, kind, node, name: set } = options;
  const stands = await attach(
    {
      where: { socket, pid: kubelet, kind, node, set },
      tap: { record, withSecrets, ...(rules === undefined ? {} : { rules }), ...(draw === undefined ? {} : { draw }), recorder, sys: sysProgram(env) },
      ...{ sys: sysProgram(env), stateHome: stateHome(env), pid, clock, say },
    },
    signal,
  );
  return {
    control: stands.control,
    isFound: false,
    words: `${stands.socket} (${stands.place.words}), for as long as this runs`,
    ended: stands.ended.then((why) => {
      if (why !== null) say(`the tap has ended, because ${why}`);
    }),
    [Symbol.asyncDispose]: async () => stands[Symbol.asyncDispose](),
  };
}

/**
 * Gets at a tap: the one that is named, one between `listen` and `upstream` that is started for as long as the command
 * runs, one that is attached so where it is said where, or the only one that runs here; without any, one that is attached
 * to the only kubelet here. Throws OpError `invalid` when it is not said which, and as `openTap` and `attach`.
 */
export async function reachTap(options: ReachOptions, context: ReachContext): Promise<ReachedTap> {
  const { tap, listen, upstream } = options;
  const doing = 'choosing a tap';
  if ((listen === undefined) !== (upstream === undefined)) throw new OpError('invalid', doing, '--listen and --upstream go together');
  if (listen !== undefined && upstream !== undefined) {
    if (tap !== undefined) throw new OpError('invalid', doing, '--tap names one that runs, --listen starts one', { advice: 'use one of them' });
    return started(listen, upstream, context);
  }
  const { socket, pid, kind, node, name } = options;
  if ([socket, pid, kind, node, name].some((said) => said !== undefined)) {
    if (tap !== undefined) throw new OpError('invalid', doing, 'it is said both which tap and where to attach one', { advice: 'use --tap alone' });
    return attached(options, context);
  }
  const running = await runningTaps();
  if (tap !== undefined)
    return found(
      running.find(({ control, listen: at }) => control === tap || at === tap) ?? { pid: 0, control: tap, listen: tap, upstream: 'a runtime', startedAt: '' },
    );
  const [only, ...others] = running;
  if (only === undefined) {
    if (process.geteuid?.() !== 0)
      throw new OpError('not-found', doing, 'none runs here that can be reached', {
        advice: 'use sudo, or start one between two sockets with --listen and --upstream',
      });
    context.say('no tap runs here: attaching one');
    return attached(options, context);
  }
  if (others.length > 0)
    throw new OpError('invalid', doing, `${running.length} run here: ${running.map(({ control }) => control).join(', ')}`, { advice: 'name one with --tap' });
  return found(only);
}
