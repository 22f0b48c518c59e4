import type { ReplayFlags } from '../replay.ts';
import type { Commands } from './command.ts';
import { readSpeed } from './serve.ts';

export function replayCommand({ host, clock, add, done }: Commands): void {
  add('replay <file>', 'the calls of a recording made again, to a real runtime, and compared', [
    'sudo ./nodelet cri replay boot.crirec --upstream unix:///run/containerd/containerd.sock',
    'sudo ./nodelet cri replay boot.crirec --upstream unix:///run/containerd/containerd.sock --speed max --pod default/web --json',
  ])
    .requiredOption('--upstream <socket>', 'the runtime’s socket; a kubelet that uses it would take away what it does not know')
    .option('--speed <factor>', 'how much faster than recorded; max: each call as soon as those before it have ended', readSpeed, 1)
    .option('--pod <namespace/name>', 'only calls about that pod, and about the whole runtime')
    .option('--namespace <namespace>', 'in place of the recorded namespaces')
    .option('--cgroup-parent <parent>', 'where the pods’ cgroups are made; else one of the replay’s own')
    .option('--folder <folder>', 'for logs and mounted files, seen by the runtime at the same path; else one of the replay’s own in /tmp')
    .option('--no-pull', 'make no PullImage')
    .option('--keep', 'leave what was made', false)
    .option(
      '--trust',
      'give containers this machine’s files and devices and make them privileged, where the recording says so; it runs what it says as root',
      false,
    )
    .action(async (file: string, flags: ReplayFlags) => done(await (await import('../replay.ts')).replay(host, file, flags, clock)));
}
