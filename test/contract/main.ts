import { Option } from 'commander';
import { OpError } from '../../base/errors.ts';
import { findAssets } from '../assets/find.ts';
import { claimCluster, holdCluster } from '../cluster/own.ts';
import { requireWritable, runProgram, type Program } from '../../scripts/command.ts';
import { benchTap } from './tap-bench.ts';
import type { Difference } from '../../cri/core/differences.ts';
import { judge } from '../../cri/core/expected.ts';
import { compareContracts, CONTRACTS, readContracts, readKnown } from './upstream/compare.ts';
import { Lab } from './upstream/lab.ts';
import { PAGES, recordPages } from './upstream/pages.ts';
import { recordPods } from './upstream/record.ts';

interface RecordOptions {
  readonly json: boolean;
  readonly name: string;
  readonly agent: 'ours' | 'upstream';
  readonly out?: string;
  readonly keep?: string;
  readonly calls?: string;
  readonly running: boolean;
}

async function record(program: Program, options: RecordOptions): Promise<number> {
  if (process.geteuid?.() !== 0) throw new OpError('denied', 'recording', 'this needs root', { advice: 'run it with sudo' });
  const { progress, host } = program;
  const out = options.out ?? (options.agent === 'upstream' ? new URL('upstream', import.meta.url).pathname : '');
  if (out === '') throw new OpError('invalid', 'recording our agent', 'there is no folder for it', { advice: 'name one with --out' });
  for (const [flag, file] of [
    ['--keep', options.keep],
    ['--calls', options.calls],
  ] as const)
    await requireWritable(flag, file);
  const assets = await findAssets({ env: host.env });
  await using _held = await (options.running ? holdCluster(options.name) : claimCluster(host.env, options.name));
  const lab = new Lab(options.name, assets.path('kubectl') ?? 'kubectl', host.signal);
  try {
    await (options.running
      ? lab.find()
      : progress.step(`cluster with ${options.agent === 'ours' ? 'our agent' : 'upstream’s kubelet'}`, () => lab.up(options.agent)));
    const written = await recordPods(lab, options.agent, out, progress, options);
    program.answer(options.json, { written }, written);
    return 0;
  } finally {
    if (!options.running) await progress.step('cluster taken down', () => lab.down());
  }
}

interface PagesOptions {
  readonly json: boolean;
  readonly name: string;
  readonly out: string;
  readonly keep?: string;
}

async function pages(program: Program, options: PagesOptions): Promise<number> {
  if (process.geteuid?.() !== 0) throw new OpError('denied', 'recording', 'this needs root', { advice: 'run it with sudo' });
  const { progress, host } = program;
  const assets = await findAssets({ env: host.env });
  await using _held = await claimCluster(host.env, options.name);
  const lab = new Lab(options.name, assets.path('kubectl') ?? 'kubectl', host.signal);
  try {
    await progress.step('cluster with a kubelet of each kind', () => lab.up('upstream,ours'));
    const missing = await recordPages(lab, options.out, options.keep, progress);
    program.answer(options.json, { missing }, missing.length === 0 ? ['ours has all that upstream’s has'] : missing);
    return missing.length === 0 ? 0 : 1;
  } finally {
    await progress.step('cluster taken down', () => lab.down());
  }
}

interface CompareOptions {
  readonly json: boolean;
}

/** Every difference between two folders of recordings, those with a known reason counted only. */
async function compare(program: Program, options: CompareOptions, [ours = '']: readonly string[]): Promise<number> {
  const upstream = await readContracts(CONTRACTS);
  const seen = await readContracts(ours);
  const found = new Map<string, Difference[]>();
  for (const [pod, contract] of upstream) {
    const other = seen.get(pod);
    if (other === undefined) throw new OpError('not-found', `compare with ${ours}`, `${pod}.json is not there`, { advice: 'record all six pods' });
    found.set(pod, compareContracts(contract, other));
  }
  const { judged, stale } = judge(found, await readKnown('known.json'));
  const unknown = judged.filter(({ reason }) => reason === null);
  const short = (value: unknown): string => (value === undefined ? '–' : JSON.stringify(value).slice(0, 200));
  program.answer(options.json, { unknown, known: judged.length - unknown.length, stale }, [
    ...unknown.map(({ pod, difference }) => `${pod}: ${difference.path}\n    upstream ${short(difference.a)}\n    ours     ${short(difference.b)}`),
    ...stale.map(({ pod, path }) => `known, but no more: ${pod} ${path}`),
    `${unknown.length} differences without a reason, ${judged.length - unknown.length} with one, ${stale.length} reasons for nothing`,
  ]);
  return unknown.length === 0 && stale.length === 0 ? 0 : 1;
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
    .option('--keep <file>', 'keep the recording of all calls there, secrets and all')
    .option('--calls <file>', 'write the calls about the six pods there, without secrets (test/cri/recordings)')
    .option('--name <name>', 'the cluster’s name', 'contract')
    .option('--running', 'use a cluster of that name, brought up with --audit, and leave it', false);
  program
    .add<PagesOptions>(
      'pages',
      'write down which statistics upstream’s kubelet tells (/metrics/cadvisor, /metrics/resource, /metrics/probes, /stats/summary), and what ours lacks',
      ['sudo ./nodelet contract pages'],
      (options) => pages(program, options),
    )
    .option('--out <folder>', 'where the files go', PAGES)
    .option('--keep <folder>', 'keep the pages themselves there')
    .option('--name <name>', 'the cluster’s name', 'contract');
  program.add<CompareOptions>(
    'compare <folder>',
    'compare recordings with upstream’s: what differs without a known reason (test/contract/upstream/known.json) is an error',
    ['./nodelet contract compare /tmp/ours', './nodelet contract compare /tmp/ours --json'],
    (options, args) => compare(program, options, args),
  );
  program
    .add<{ json: boolean; calls: string }>(
      'bench',
      'what the tap adds to a call, beside socat where that is there, in one run',
      ['./nodelet contract bench', './nodelet contract bench --calls 2000 --json'],
      async ({ json, calls }) => {
        if (!/^[1-9]\d{0,6}$/.test(calls)) throw new OpError('invalid', 'reading --calls', `"${calls}" is not a number of calls`);
        const bundle = new URL('../../dist/nodelet.mjs', import.meta.url).pathname;
        const result = await program.progress.step('calls made', () => benchTap(Number(calls), bundle, program.host.signal));
        const ms = (value: number): string => `${value.toFixed(3)} ms`.padStart(12);
        program.answer(json, result, [
          ...result.rows.map(
            ({ call, way, p50Ms, p99Ms, addedP50Ms, addedP99Ms }) =>
              `${call.padEnd(22)} ${way.padEnd(15)} p50${ms(p50Ms)} p99${ms(p99Ms)}   added p50${ms(addedP50Ms)} p99${ms(addedP99Ms)}`,
          ),
          ...Object.entries(result.processes).map(([name, { cpuSeconds, rssMiB }]) => `${name.padEnd(15)} ${cpuSeconds.toFixed(2)} s of CPU, ${rssMiB} MiB`),
          `load average ${result.loadAverage}`,
        ]);
        return 0;
      },
    )
    .option('--calls <count>', 'how many of each kind each way', '500');
});
