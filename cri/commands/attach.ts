import { InvalidArgumentError, Option, type Command } from 'commander';
import { version } from '../../base/version.ts';
import type { AttachFlags, WhereFlags } from '../attach-command.ts';
import type { Commands } from './command.ts';
import { sizeOption } from './size.ts';

function readPid(text: string): number {
  const pid = Number(text);
  if (!Number.isSafeInteger(pid) || pid < 1) throw new InvalidArgumentError('write the number of a process.');
  return pid;
}

/** How commands that attach are told where. */
export function whereOptions(command: Command): Command {
  return command
    .option('--socket <socket>', 'the runtime’s socket, as the node sees it; the kubelet’s own words say it otherwise')
    .option('--pid <pid>', 'the kubelet’s process', readPid)
    .option('--kind <node>', 'a kind node: a container of docker, podman or nerdctl')
    .option('--node <node>', 'a node of a set of ours')
    .option('--name <set>', 'which set; default when left out');
}

export function attachCommand({ host, clock, add, done }: Commands): void {
  whereOptions(
    add('attach', 'put the tap between a kubelet and its runtime, without a change to either’s configuration', [
      'sudo ./nodelet cri attach                      the kubelet of this machine',
      'sudo ./nodelet cri attach --kind kind-worker   the one in a kind node',
      'sudo ./nodelet cri attach --node node-1        the one in a node of nodelet up',
      'sudo ./nodelet cri attach --background --record boot.crirec',
      'sudo ./nodelet cri attach --reconnect never    touch no connection: what connects from now on is seen',
    ]),
  )
    .addOption(
      new Option('--reconnect <how>', 'end the kubelet’s old connection: close it, restart the kubelet, auto (close, else restart), or never')
        .choices(['auto', 'close', 'restart', 'never'])
        .default('auto'),
    )
    .option('--record <file>', 'write whole calls to this file (docs/cri-recording.md), readable by its owner only')
    .option('--append', 'add to the file when it is there', false)
    .addOption(sizeOption('--max-size <size>', 'end the recording when the file is that large; traffic goes on', '256MiB'))
    .option('--with-secrets', 'record environment values, registry credentials and raw bytes too', false)
    .option('-b, --background', 'return when it stands; detach ends it', false)
    .action(async (flags: AttachFlags) => done(await (await import('../attach-command.ts')).attachUntilStopped(host, flags, clock, `nodelet ${version}`)));
}

export function detachCommand({ host, clock, add, done }: Commands): void {
  whereOptions(
    add('detach', 'end what attach put there, and put back what a killed one left', [
      'sudo ./nodelet cri detach',
      'sudo ./nodelet cri detach --kind kind-worker',
      'sudo ./nodelet cri detach --all',
    ]),
  )
    .option('--all', 'all that there are', false)
    .action(async (flags: WhereFlags & { all: boolean; json: boolean }) => done(await (await import('../detach-command.ts')).detach(host, flags, clock)));
}
