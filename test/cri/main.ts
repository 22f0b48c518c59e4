import { Option } from 'commander';
import { runProgram } from '../../scripts/command.ts';
import { CONTAINERDS } from '../cluster/programs.ts';
import { verify, type VerifyOptions } from './verify.ts';

const collect = (value: string, before: string[]): string[] => [...before, value];

await runProgram('cri', 'Whether the tap changes anything', (program) => {
  program
    .add<VerifyOptions>(
      'verify',
      'critest straight and through the tap, on a node whose kubelet stands still: which specs end differently',
      [
        'sudo ./nodelet cri verify --critest',
        'sudo ./nodelet cri verify --critest --containerd distro --spdy --json',
        'sudo ./nodelet cri verify --critest --name mine --focus "Streaming"      # on a cluster that runs',
      ],
      (options) => verify(program, options),
    )
    .option('--critest', 'with critest, which is all there is', false)
    .addOption(new Option('--containerd <version>', 'which containerd; 2.4 when left out').choices(CONTAINERDS))
    .option('--spdy', 'only with streams by SPDY', false)
    .option('--websocket', 'only with streams by websocket: exec, attach and port-forward', false)
    .option('--focus <pattern>', 'only specs whose name matches; may be said more than once', collect, [])
    .option('--skip <pattern>', 'no specs whose name matches; may be said more than once', collect, [])
    .option('--parallel <count>', 'how many specs at once', '4')
    .option('--name <name>', 'a cluster that runs, brought up by: nodelet cluster up --agent upstream')
    .option('--keep', 'leave the cluster that was made', false);
});
