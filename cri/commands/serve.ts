import { InvalidArgumentError, Option } from 'commander';
import type { ServeFlags } from '../serve.ts';
import type { Commands } from './command.ts';

/** `1`, `0.5`, `10x`; `max` is without any waiting. */
export function readSpeed(text: string): number {
  const speed = text === 'max' ? Infinity : Number(text.replace(/x$/, ''));
  if (!(speed > 0)) throw new InvalidArgumentError('write a number as 2, or max.');
  return speed;
}

export function serveCommand({ host, clock, add, done }: Commands): void {
  add('serve <file>', 'a runtime made of a recording, for a kubelet or crictl to call', [
    'sudo ./nodelet cri serve boot.crirec --listen unix:///run/played.sock',
    'then: kubelet --container-runtime-endpoint unix:///run/played.sock, or crictl -r unix:///run/played.sock ps',
    './nodelet cri serve boot.crirec --listen unix:///tmp/played.sock --begin end --speed max    # look at what was there',
  ])
    .requiredOption('--listen <socket>', 'where callers connect to')
    .option('--speed <factor>', 'how much faster than recorded; max: nothing takes time', readSpeed, 1)
    .option('--strict', 'refuse calls that the recording does not have, in place of answering as a small runtime would', false)
    .addOption(
      new Option('--begin <when>', 'what is there at first: what was there at the recording’s start or end, or nothing')
        .choices(['start', 'end', 'empty'])
        .default('start'),
    )
    .option('--any-image', 'every image can be pulled, not only those that the recording names', false)
    .option('--no-logs', 'write no container logs')
    .option('-q, --quiet', 'no line for each call', false)
    .action(async (file: string, flags: ServeFlags) => done(await (await import('../serve.ts')).serve(host, file, flags, clock)));
}
