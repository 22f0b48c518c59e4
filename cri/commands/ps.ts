import { Option } from 'commander';
import type { Commands } from './command.ts';
import type { PsFlags } from './list-run.ts';
import { collectLabel, readCount, withRuntime } from './runtime-options.ts';

export function psCommand({ host, clock, add, done }: Commands): void {
  withRuntime(
    add('ps', 'the runtime’s containers: those that run, or all with --all', [
      'sudo ./nodelet cri ps',
      'sudo ./nodelet cri ps --all --namespace ^kube-system$',
      'sudo ./nodelet cri ps --quiet --name etcd',
    ]),
  )
    .option('-a, --all', 'those that ended too', false)
    .option('--id <id>', 'only of that id, or beginning of one')
    .option('--name <pattern>', 'only whose name matches')
    .option('-p, --pod <id>', 'only of that sandbox')
    .option('--namespace <pattern>', 'only of pods whose namespace matches')
    .option('--image <image>', 'only of that image')
    .option('--label <key=value>', 'only with that label; may be said more than once', collectLabel, {})
    .addOption(new Option('-s, --state <state>', 'only in that state').choices(['created', 'running', 'exited', 'unknown']))
    .option('-l, --latest', 'only the one made last, in whatever state', false)
    .option('-n, --last <count>', 'only so many that were made last, in whatever state', readCount)
    .option('-q, --quiet', 'only ids', false)
    .option('--no-trunc', 'whole ids')
    .action(async (flags: PsFlags) => done(await (await import('./list-run.ts')).ps(host, clock, flags)));
}
