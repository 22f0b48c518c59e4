import { Option } from 'commander';
import type { Commands } from './command.ts';
import type { ExecFlags } from './exec-run.ts';
import { withRuntime } from './runtime-options.ts';

export function execCommand({ host, add, done }: Commands): void {
  withRuntime(
    add('exec <container> <command...>', 'run a command in a container; its exit code is passed on', [
      'sudo ./nodelet cri exec 3f1c -- ps',
      'sudo ./nodelet cri exec -it default/web/main -- sh',
      'echo hello | sudo ./nodelet cri exec -i 3f1c -- cat',
      'sudo ./nodelet cri exec --sync --timeout 5s 3f1c -- true',
    ]),
  )
    .option('-i, --stdin', 'pass standard input on', false)
    .option('-t, --tty', 'give it a terminal', false)
    .option('-s, --sync', 'by one call, ExecSync, without streams', false)
    .addOption(new Option('--transport <protocol>', 'how streams pass').choices(['spdy', 'websocket']).default('spdy'))
    .passThroughOptions()
    .action(async (container: string, command: string[], flags: ExecFlags) =>
      done(await (await import('./exec-run.ts')).exec(host, container, command, flags)),
    );
}
