import type { CallFlags } from './call-run.ts';
import type { Commands } from './command.ts';
import { readCount, withRuntime } from './runtime-options.ts';

export function callCommand({ host, add, done }: Commands): void {
  withRuntime(
    add('call [method] [request]', 'make one call: the request as JSON, @FILE, or - for standard input', [
      'sudo ./nodelet cri call Version',
      `sudo ./nodelet cri call ListContainers '{"filter": {"state": {"state": "CONTAINER_RUNNING"}}}'`,
      './nodelet cri call CreateContainer --template > create.json, then: sudo ./nodelet cri call CreateContainer @create.json',
      'sudo ./nodelet cri call GetContainerEvents --count 10 --json',
      './nodelet cri call --list',
    ]),
  )
    .option('--list', 'print the methods', false)
    .option('--template', 'print an empty request of the method', false)
    .option('--count <messages>', 'end a stream after that many', readCount)
    .action(async (method: string | undefined, request: string | undefined, flags: CallFlags) =>
      done(await (await import('./call-run.ts')).call(host, method, request, flags)),
    );
}
