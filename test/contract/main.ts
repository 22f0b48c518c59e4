import { Option } from 'commander';
import { OpError } from '../../base/errors.ts';
import { findAssets } from '../assets/find.ts';
import { runProgram, type Program } from '../command.ts';
import { Lab } from './upstream/lab.ts';
import { recordPods } from './upstream/record.ts';

interface RecordOptions {
  readonly json: boolean;
  readonly name: string;
  readonly agent: 'ours' | 'upstream';
  readonly out?: string;
  readonly keep?: string;
  readonly running: boolean;
}

async function record(program: Program, options: RecordOptions): Promise<number> {
  if (process.geteuid?.() !== 0) throw new OpError('denied', 'recording', 'this needs root', { advice: 'run it with sudo' });
  const { progress, host } = program;
  const out = options.out ?? (options.agent === 'upstream' ? new URL('upstream', import.meta.url).pathname : '');
  if (out === '') throw new OpError('invalid', 'recording our agent', 'there is no folder for it', { advice: 'name one with --out' });
  const assets = await findAssets({ env: host.env });
  const lab = new Lab(options.name, assets.path('kubectl') ?? 'kubectl', host.signal);
  try {
    await (options.running
      ? lab.find()
      : progress.step(`cluster with ${options.agent === 'ours' ? 'our agent' : 'upstream’s kubelet'}`, () => lab.up(options.agent)));
    const written = await recordPods(lab, options.agent, out, progress, options.keep);
    program.answer(options.json, { written }, written);
    return 0;
  } finally {
    if (!options.running) await progress.step('cluster taken down', () => lab.down());
  }
}

await runProgram('contract', 'What upstream’s kubelet does for six pods, and whether ours does the same', (program) => {
  program
    .add<RecordOptions>(
      'record',
      'run the six pods and write down calls, files, cgroups, API writes and Events',
      [
        'sudo ./nodelet contract record                                  # upstream, into test/contract/upstream',
        'sudo ./nodelet contract record --agent ours --out /tmp/ours',
      ],
      (options) => record(program, options),
    )
    .addOption(new Option('--agent <whose>', 'whose kubelet').choices(['ours', 'upstream']).default('upstream'))
    .option('--out <folder>', 'where the files go')
    .option('--keep <file>', 'keep the recording of all calls there')
    .option('--name <name>', 'the cluster’s name', 'contract')
    .option('--running', 'use a cluster of that name, brought up with --audit, and leave it', false);
});
