import { version } from '../../base/version.ts';
import type { RecordFlags } from '../record.ts';
import type { Commands } from './command.ts';
import { reachOptions } from './reach-options.ts';
import { readDuration } from './runtime-options.ts';
import { sizeOption } from './size.ts';

export function recordCommand({ host, clock, add, done }: Commands): void {
  reachOptions(
    add('record [command...]', 'write whole calls to a file, until Ctrl-C or while a command runs', [
      'sudo ./nodelet cri record -o boot.crirec',
      'sudo ./nodelet cri record -o web.crirec -- kubectl apply -f web.yaml',
      'sudo ./nodelet cri record -o minute.crirec --for 60s --json',
    ]),
  )
    .requiredOption('-o, --output <file>', 'the recording (docs/cri-recording.md), readable by its owner only')
    .option('--append', 'add to the file when it is there', false)
    .addOption(sizeOption('--max-size <size>', 'end the recording when the file is that large; traffic goes on', '256MiB'))
    .option('--with-secrets', 'record environment values, registry credentials and raw bytes too', false)
    .option('--for <duration>', 'end after that', readDuration)
    .passThroughOptions()
    .action(async (command: string[], flags: RecordFlags) =>
      done(await (await import('../record.ts')).record(host, command, flags, clock, `nodelet ${version}`)),
    );
}
