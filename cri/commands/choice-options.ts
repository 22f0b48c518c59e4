import { InvalidArgumentError, type Command } from 'commander';
import { readDuration } from './runtime-options.ts';

/** A time of day, an RFC 3339 time, or a duration from the recording's start; as it is told apart by `core/time-range.ts`. */
function readTime(text: string): string {
  if (!/^(\d\d:\d\d(:\d\d(\.\d+)?)?|\d{4}-\d\d-\d\dT\S+|[+-]?\d+(\.\d+)?(ms|s|m|h))$/.test(text))
    throw new InvalidArgumentError('write a time as 12:04:01, 2026-06-01T12:04:01Z, or +90s from the recording’s start.');
  return text;
}

/** Which calls are wanted, the same for every command that shows some. */
export function choiceOptions(command: Command): Command {
  return command
    .option('--pod <namespace/name>', 'only calls about that pod; * stands for anything')
    .option('--container <name>', 'only about that container; name#1 is its second life')
    .option('--method <method>', 'only of that method, or of several: A,B')
    .option('--outcome <outcome>', 'only that ended so: ok, failed, open, or a status as NotFound')
    .option('--slower-than <duration>', 'only that took longer, as 100ms', readDuration);
}

export function timeOptions(command: Command): Command {
  return command
    .option('--since <time>', 'only under way after that: 12:04:01, an RFC 3339 time, or +90s from the recording’s start', readTime)
    .option('--until <time>', 'only under way before that', readTime);
}
