import { once } from 'node:events';
import type { Clock } from '../base/clock.ts';
import type { Host } from '../base/host.ts';
import { parseRule } from './core/fault-text.ts';
import { sysProgram } from './io/our-paths.ts';
import { openTap } from './io/tap.ts';
import { REGISTRY } from './io/tap-registry.ts';

export interface TapFlags {
  readonly listen: string;
  readonly upstream: string;
  readonly record?: string;
  readonly append: boolean;
  readonly maxSize: number;
  readonly buffer: number;
  readonly withSecrets: boolean;
  readonly quiet: boolean;
  readonly json: boolean;
  readonly control: boolean;
  readonly fault: readonly string[];
  readonly faults?: string;
}

/** `nodelet cri tap`: until it is told to end. Words about itself go to standard error, calls to standard output. */
export async function tap(host: Host, flags: TapFlags, clock: Clock, recorder: string): Promise<number> {
  const say = (text: string): void => host.stderr(`nodelet cri tap: ${text}\n`);
  const rules = [...(flags.faults === undefined ? [] : await (await import('./io/fault-file.ts')).readRules(flags.faults)), ...flags.fault.map(parseRule)];
  const running = await openTap({
    listen: flags.listen,
    upstream: flags.upstream,
    record: flags.record === undefined ? undefined : { path: flags.record, maxBytes: flags.maxSize, append: flags.append },
    withSecrets: flags.withSecrets,
    output: flags.quiet ? 'none' : flags.json ? 'json' : 'lines',
    bufferBytes: flags.buffer,
    ...(flags.control ? { control: { registry: REGISTRY, pid: host.pid } } : {}),
    ...(rules.length === 0 ? {} : { rules }),
    recorder,
    sys: sysProgram(host.env),
    clock,
    say,
  });
  say(`listening at ${flags.listen}, passing on to ${flags.upstream}${flags.record === undefined ? '' : `, recording to ${flags.record}`}; Ctrl-C ends it`);
  const why = host.signal.aborted ? null : await Promise.race([once(host.signal, 'abort').then(() => null), running.stopAsked]);
  const { opened, bytes } = running.counts;
  const totals = await running.stop();
  const words = [`${opened} connections, ${bytes} bytes`];
  if (totals !== null) {
    words.push(`${totals.calls} calls`);
    if (totals.blindConnections > 0) words.push(`${totals.blindConnections} connections not followed to their end`);
    if (totals.linesLost > 0) words.push(`${totals.linesLost} lines lost on a slow reader`);
    if (flags.record !== undefined) words.push(`${totals.fileBytes} bytes recorded`);
  }
  say(`${why === null ? '' : `ended, because ${why}; `}${words.join(', ')}`);
  return why === null ? 0 : 1;
}
