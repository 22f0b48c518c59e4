import { version } from '../../base/version.ts';
import type { WatchFlags } from '../watch.ts';
import { choiceOptions } from './choice-options.ts';
import type { Commands } from './command.ts';
import { reachOptions } from './reach-options.ts';

export function watchCommand({ host, clock, add, done }: Commands): void {
  const command = add('watch [pod-or-file]', 'calls as they happen, by pod, with bars on a common axis; or those of a recording', [
    'sudo ./nodelet cri watch',
    'sudo ./nodelet cri watch pod/default/web --container main',
    'sudo ./nodelet cri watch --outcome failed --lines',
    'sudo ./nodelet cri watch --listen /run/tap.sock --upstream /run/containerd/containerd.sock',
    './nodelet cri watch boot.crirec --pod "kube-system/*"',
  ]);
  choiceOptions(reachOptions(command))
    .option('--lines', 'a line a call, on a terminal too', false)
    .option('--metrics <url>', 'the runtime’s metrics (containerd: http://127.0.0.1:1338/v1/metrics): time in the network plugin is read there')
    .action(async (what: string | undefined, flags: WatchFlags) =>
      done(await (await import('../watch.ts')).watchWhat(host, what, flags, clock, `nodelet ${version}`)),
    );
}
