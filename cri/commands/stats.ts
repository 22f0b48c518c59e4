import type { Commands } from './command.ts';
import { collectLabel, durationOption, withRuntime } from './runtime-options.ts';
import type { StatsFlags } from './stats-run.ts';

export function statsCommand({ host, clock, add, done }: Commands): void {
  withRuntime(
    add('stats [container]', 'CPU, memory and disk of containers, or of sandboxes with --pods', [
      'sudo ./nodelet cri stats',
      'sudo ./nodelet cri stats --watch --every 5s',
      'sudo ./nodelet cri stats --pods --json',
    ]),
  )
    .option('--pods', 'of sandboxes', false)
    .option('-p, --pod <id>', 'only of that sandbox')
    .option('--label <key=value>', 'only with that label; may be said more than once', collectLabel, {})
    .option('-w, --watch', 'again and again until Ctrl-C', false)
    .addOption(durationOption('--every <duration>', 'between two samples; CPU is what was used between them', '1s'))
    .option('-q, --quiet', 'only ids', false)
    .option('--no-trunc', 'whole ids')
    .action(async (container: string | undefined, flags: StatsFlags) => done(await (await import('./stats-run.ts')).stats(host, clock, container, flags)));
}
