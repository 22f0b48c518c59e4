import { Option } from 'commander';
import type { Commands } from './command.ts';
import type { InspectFlags } from './inspect-run.ts';
import { withRuntime } from './runtime-options.ts';

export function inspectCommand({ host, add, done }: Commands): void {
  withRuntime(
    add('inspect <name...>', 'all that the runtime says of a container, a sandbox or an image, by name or id', [
      'sudo ./nodelet cri inspect 3f1c',
      'sudo ./nodelet cri inspect default/web',
      'sudo ./nodelet cri inspect --kind image busybox:1.37 --json',
    ]),
  )
    .addOption(new Option('--kind <kind>', 'look only among these').choices(['container', 'sandbox', 'image']))
    .action(async (names: string[], flags: InspectFlags) => done(await (await import('./inspect-run.ts')).inspect(host, names, flags)));
}
