import type { Commands } from './command.ts';
import type { LogsFlags } from './logs-run.ts';
import { readCount, withRuntime } from './runtime-options.ts';

export function logsCommand({ host, clock, add, done }: Commands): void {
  withRuntime(
    add('logs <container>', 'what a container wrote, from the file that the runtime keeps on this machine', [
      'sudo ./nodelet cri logs 3f1c',
      'sudo ./nodelet cri logs -f --tail 20 default/web/main',
      'sudo ./nodelet cri logs --previous default/web/main',
      'sudo ./nodelet cri logs --since 10m --timestamps --stream stderr 3f1c',
    ]),
  )
    .option('-f, --follow', 'go on until the container has ended, over rotations', false)
    .option('--tail <lines>', 'only so many from the end', readCount)
    .option('-p, --previous', 'of the attempt before', false)
    .option('--since <time>', 'only what is younger: 10m, or 2026-01-31T12:00:00Z')
    .option('-t, --timestamps', 'the time before each line', false)
    .option('--limit-bytes <bytes>', 'end after so many', readCount)
    .option('--stream <stream>', 'only stdout or stderr', 'all')
    .action(async (container: string, flags: LogsFlags) => done(await (await import('./logs-run.ts')).logs(host, clock, container, flags)));
}
