import type { ShowOptions } from '../show.ts';
import type { Commands } from './command.ts';

export function showCommand({ host, add, done }: Commands): void {
  add('show <file>', 'the calls of a recording, one a line', [
    './nodelet cri show boot.crirec',
    './nodelet cri show boot.crirec --pod default/web --method CreateContainer --json',
  ])
    .option('--pod <namespace/name>', 'only calls about that pod’s sandboxes and containers')
    .option('--method <method>', 'only calls of that method')
    .option('--full', 'both messages below each line', false)
    .action(async (file: string, flags: ShowOptions) => done(await (await import('../show.ts')).show(host, file, flags)));
}
