import type { ShowOptions } from '../show.ts';
import { choiceOptions, timeOptions } from './choice-options.ts';
import type { Commands } from './command.ts';

export function showCommand({ host, add, done }: Commands): void {
  const command = add('show <file>', 'the calls of a recording, one a line', [
    './nodelet cri show boot.crirec',
    './nodelet cri show boot.crirec --pod default/web --method CreateContainer --json',
    './nodelet cri show boot.crirec --outcome failed --full',
    './nodelet cri show boot.crirec --slower-than 100ms --since +10s --until +30s',
  ]);
  timeOptions(choiceOptions(command))
    .option('--full', 'both messages below each line', false)
    .action(async (file: string, flags: ShowOptions) => done(await (await import('../show.ts')).show(host, file, flags)));
}
