import type { Clock } from '../base/clock.ts';
import type { Host } from '../base/host.ts';
import { CallStatistics, type Numbers } from './core/call-statistics.ts';
import { choosing, type Choice } from './core/choose-calls.ts';
import { COLOURS, PLAIN } from './core/group-text.ts';
import { topText } from './core/top-text.ts';
import { reachTap, type ReachOptions } from './io/reach-tap.ts';
import { Screen } from './io/screen.ts';
import { seenAtTap, seenInFile } from './io/seen-source.ts';

export interface TopFlags extends ReachOptions, Choice {
  readonly json: boolean;
  /** Look for `for`, print, and end. */
  readonly once: boolean;
  /** Milliseconds. */
  readonly for: number;
  readonly interval: number;
}

function print(host: Host, flags: TopFlags, numbers: Numbers): void {
  if (!flags.json) return host.stdout(topText(numbers, PLAIN));
  const { fromMs, toMs, ...rest } = numbers;
  host.stdout(`${JSON.stringify({ from: new Date(fromMs).toISOString(), to: new Date(toMs).toISOString(), ...rest })}\n`);
}

/** `nodelet cri top FILE`. */
async function topOfFile(host: Host, file: string, flags: TopFlags): Promise<number> {
  const wanted = choosing(flags);
  const statistics = new CallStatistics();
  for await (const seen of seenInFile(file, host.signal)) {
    if (seen.kind === 'note') {
      if (seen.isLoss) host.stderr(`nodelet cri top: ${seen.text}\n`);
    } else if (wanted(seen)) statistics.take(seen);
  }
  print(host, flags, statistics.numbers());
  return 0;
}

/** `nodelet cri top`: how often, how long, how well, and who asks; of a recording, or of a tap as calls happen. */
export async function top(host: Host, file: string | undefined, flags: TopFlags, clock: Clock, recorder: string): Promise<number> {
  if (file !== undefined) return topOfFile(host, file, flags);
  const wanted = choosing(flags);
  const say = (text: string): void => host.stderr(`nodelet cri top: ${text}\n`);
  const over = new AbortController();
  const end = AbortSignal.any([host.signal, over.signal]);
  await using tap = await reachTap(flags, { recorder, pid: host.pid, env: host.env, signal: host.signal, clock, say });
  void tap.ended.then(() => over.abort());
  const statistics = new CallStatistics();
  const isWindow = host.isTerminal && !flags.json && !flags.once;
  if (!isWindow) say(`at ${tap.words}${flags.once ? `; looking for ${flags.for / 1000} s` : '; Ctrl-C ends it'}`);
  const screen = isWindow ? new Screen(host.stdout) : null;
  const draw = (): void => {
    const numbers = statistics.numbers(clock.nowMs());
    if (screen === null) return print(host, flags, numbers);
    const lines = [tap.words, ...topText(numbers, COLOURS).split('\n')];
    screen.draw(lines.slice(0, screen.rows));
  };
  const ticking = (async () => {
    if (flags.once) {
      await clock.sleep(flags.for, end).catch(() => {});
      over.abort();
      return;
    }
    while (!end.aborted) {
      if (screen !== null) draw();
      await clock.sleep(flags.interval, end).catch(() => {});
      if (screen === null && !end.aborted) draw();
    }
  })();
  try {
    for await (const seen of seenAtTap(tap.control, end)) {
      if (seen.kind === 'note') {
        if (seen.isLoss && screen === null) say(seen.text);
      } else if (seen.kind !== 'running' && wanted(seen)) statistics.take(seen);
    }
  } finally {
    over.abort();
    await ticking;
    screen?.[Symbol.dispose]();
  }
  // What was counted last stays.
  print(host, flags, statistics.numbers(clock.nowMs()));
  return 0;
}
