import { Option } from 'commander';
import type { Commands } from './command.ts';
import type { PodsFlags } from './list-run.ts';
import { collectLabel, readCount, withRuntime } from './runtime-options.ts';

export function podsCommand({ host, clock, add, done }: Commands): void {
  withRuntime(
    add('pods', 'the runtime’s pod sandboxes', [
      'sudo ./nodelet cri pods',
      'sudo ./nodelet cri pods --state ready --namespace ^default$',
      'sudo ./nodelet cri pods --json',
    ]),
  )
    .option('--id <id>', 'only of that id, or beginning of one')
    .option('--name <pattern>', 'only whose name matches')
    .option('--namespace <pattern>', 'only whose namespace matches')
    .option('--label <key=value>', 'only with that label; may be said more than once', collectLabel, {})
    .addOption(new Option('-s, --state <state>', 'only in that state').choices(['ready', 'notready']))
    .option('-l, --latest', 'only the one made last', false)
    .option('-n, --last <count>', 'only so many that were made last', readCount)
    .option('-q, --quiet', 'only ids', false)
    .option('--no-trunc', 'whole ids')
    .action(async (flags: PodsFlags) => done(await (await import('./list-run.ts')).pods(host, clock, flags)));
}
