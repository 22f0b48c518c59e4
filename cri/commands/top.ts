import { version } from '../../base/version.ts';
import type { TopFlags } from '../top.ts';
import { choiceOptions } from './choice-options.ts';
import type { Commands } from './command.ts';
import { reachOptions } from './reach-options.ts';
import { durationOption } from './runtime-options.ts';

export function topCommand({ host, clock, add, done }: Commands): void {
  const command = add('top [file]', 'calls a minute, how long they take, errors, and who asks: of a tap as they happen, or of a recording', [
    'sudo ./nodelet cri top',
    'sudo ./nodelet cri top --once --for 60s --json',
    './nodelet cri top boot.crirec --method ListContainers',
  ]);
  choiceOptions(reachOptions(command))
    .option('--once', 'look for a while, print, and end', false)
    .addOption(durationOption('--for <duration>', 'how long --once looks', '10s'))
    .addOption(durationOption('--interval <duration>', 'how often it is drawn, or printed where there is no terminal', '2s'))
    .action(async (file: string | undefined, flags: TopFlags) => done(await (await import('../top.ts')).top(host, file, flags, clock, `nodelet ${version}`)));
}
