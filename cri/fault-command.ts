import { once } from 'node:events';
import type { Clock } from '../base/clock.ts';
import { OpError } from '../base/errors.ts';
import type { Host } from '../base/host.ts';
import { seededRng } from '../base/rng.ts';
import type { FaultRule } from './core/fault-rules.ts';
import { parseRule, printRule } from './core/fault-text.ts';
import { readRules } from './io/fault-file.ts';
import { askTap } from './io/feed.ts';
import { reachTap, type ReachOptions } from './io/reach-tap.ts';
import { runningTaps } from './io/tap-registry.ts';
import type { FaultState } from './io/tap-faults.ts';

export interface FaultFlags extends ReachOptions {
  readonly file?: string;
  readonly list: boolean;
  readonly clear: boolean;
  readonly add: boolean;
  readonly seed?: number;
  readonly json: boolean;
}

function print(host: Host, { rules, connections }: FaultState, json: boolean): void {
  if (json) {
    host.stdout(`${JSON.stringify({ rules: rules.map((state, at) => ({ number: at + 1, ...state })), connections })}\n`);
    return;
  }
  if (rules.length === 0) host.stdout('no rule is armed\n');
  for (const [at, { text, matched, fired }] of rules.entries()) host.stdout(`${at + 1}  ${text}    fits ${matched} calls so far, done to ${fired}\n`);
  if (rules.length > 0 && connections.outside > 0)
    host.stdout(`${connections.outside} connections from before are still open: what is open on them goes past the rules\n`);
}

/** What is wrong with the command line; null when nothing is. */
function contradiction(lines: readonly string[], { file, list, clear, add }: FaultFlags): string | null {
  const arms = lines.length > 0 || file !== undefined;
  const ways = [arms, list, clear].filter(Boolean).length;
  if (ways === 0) return 'say which rule, or --file, --list or --clear';
  if (ways > 1) return 'rules, --list and --clear each stand alone';
  return add && !arms ? '--add goes with rules' : null;
}

/** `nodelet cri fault`: arms rules in a tap, lists or clears them; in a tap of its own until it is told to end. */
export async function fault(host: Host, lines: readonly string[], flags: FaultFlags, clock: Clock, recorder: string): Promise<number> {
  const say = (text: string): void => host.stderr(`nodelet cri fault: ${text}\n`);
  const wrong = contradiction(lines, flags);
  if (wrong !== null) {
    say(`${wrong} (--help shows how)`);
    return 2;
  }
  let rules: FaultRule[];
  try {
    rules = [...(flags.file === undefined ? [] : await readRules(flags.file)), ...lines.map(parseRule)];
  } catch (error) {
    if (!(error instanceof OpError) || error.code !== 'invalid') throw error;
    say(`${error.message}; ${error.advice}`);
    return 2;
  }
  const looks = flags.list || flags.clear;
  if (looks && flags.tap === undefined && (await runningTaps()).length === 0)
    throw new OpError('not-found', 'looking for fault rules', 'no tap runs here', { advice: 'name its control socket with --tap if it is not written down' });
  const draw = flags.seed === undefined ? undefined : seededRng(flags.seed);
  await using tap = await reachTap(flags, {
    ...{ recorder, pid: host.pid, env: host.env, signal: host.signal, clock, say },
    ...(looks ? {} : { rules }),
    ...(draw === undefined ? {} : { draw: () => draw.float() }),
  });
  if (!tap.isFound) {
    say(`armed at ${tap.words}; Ctrl-C ends it`);
    // Ctrl-C ends the wait, not these answers.
    const tell = async (): Promise<void> => print(host, (await askTap(tap.control, { do: 'faults' }, AbortSignal.timeout(5_000))) as FaultState, flags.json);
    await tell();
    if (!host.signal.aborted) await Promise.race([once(host.signal, 'abort'), tap.ended]);
    await tell();
    return 0;
  }
  if (draw !== undefined) say('--seed is for a tap that this command starts: the tap that runs has its own chance');
  const request = flags.list ? { do: 'faults' } : { do: 'fault', rules: rules.map(printRule), add: flags.add };
  print(host, (await askTap(tap.control, request, host.signal)) as FaultState, flags.json);
  if (!looks) say(`armed at ${tap.words}, until nodelet cri fault --clear or the end of that tap`);
  return 0;
}
