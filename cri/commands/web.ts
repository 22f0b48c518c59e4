import { version } from '../../base/version.ts';
import type { WebFlags } from '../web-command.ts';
import { whereOptions } from './attach.ts';
import type { Commands } from './command.ts';

export function webCommand({ host, clock, add, done }: Commands): void {
  whereOptions(
    add('web [file]', 'the timeline in a browser: of a recording, or of a tap as calls happen', [
      './nodelet cri web boot.crirec',
      'sudo ./nodelet cri web                                  of the tap that runs here; faults can be armed there',
      'sudo ./nodelet cri web --listen 127.0.0.1:8080 --tap-listen /run/tap.sock --upstream /run/containerd/containerd.sock',
    ]),
  )
    .option('--listen <address:port>', 'where browsers connect to; port 0 is any that is free', '127.0.0.1:0')
    .option('--open', 'open it with the desktop’s browser, too', false)
    .option('--tap <socket>', 'the control socket of a running tap; else the only one that runs here, else one is attached for as long as this runs')
    .option('--tap-listen <socket>', 'start a tap that listens here, for as long as this runs')
    .option('--upstream <socket>', 'the runtime that it passes on to')
    .action(async (file: string | undefined, flags: WebFlags) =>
      done(await (await import('../web-command.ts')).web(host, file, flags, clock, `nodelet ${version}`)),
    );
}
