import { Option, type Command } from 'commander';
import type { Clock } from '../../base/clock.ts';
import type { Host } from '../../base/host.ts';

/** What each command of `nodelet cri` is made with. */
export interface Commands {
  readonly host: Host;
  readonly clock: Clock;
  /** Adds a command with `--json` and examples below its help. */
  readonly add: (usage: string, summary: string, examples: readonly string[]) => Command;
  /** Says the exit code. */
  readonly done: (code: number) => void;
}

/** The table's `add`: every command takes `--json` and shows examples. */
export function addTo(program: Command): Commands['add'] {
  return (usage, summary, examples) =>
    program
      .command(usage)
      .description(summary)
      .addOption(new Option('--json', 'one JSON object a line').default(false))
      .addHelpText('after', `\nExamples:\n${examples.map((line) => `  ${line}`).join('\n')}`);
}
