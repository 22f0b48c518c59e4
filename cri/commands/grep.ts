import type { GrepFlags } from '../grep.ts';
import { choiceOptions } from './choice-options.ts';
import type { Commands } from './command.ts';

export function grepCommand({ host, add, done }: Commands): void {
  choiceOptions(
    add('grep <pattern> <file...>', 'calls of recordings with a field that matches a regular expression', [
      "./nodelet cri grep 'pause:3' boot.crirec",
      "./nodelet cri grep 'cgroupParent=.*burstable' boot.crirec --method RunPodSandbox",
      "./nodelet cri grep -i 'not found' *.crirec --outcome failed --full",
    ]),
  )
    .option('-i, --ignore-case', 'large and small letters are the same', false)
    .option('--full', 'whole calls, in place of the fields that match', false)
    .option('-c, --count', 'how many calls match', false)
    .action(async (pattern: string, files: string[], flags: GrepFlags) => done(await (await import('../grep.ts')).grep(host, pattern, files, flags)));
}
