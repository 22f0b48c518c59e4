import { mkdir, rm, symlink, writeFile } from 'node:fs/promises';
import { release } from 'node:os';
import { dirname } from 'node:path';
import { exec } from '../../../base/exec.ts';
import { OpError } from '../../../base/errors.ts';
import { runProgram, type Program } from '../../../scripts/command.ts';
import { findAssets } from '../../assets/find.ts';
import { askSpecs } from '../../conformance/ask.ts';
import { saveNodeFailure } from '../../conformance/collect.ts';
import { conduct } from '../../conformance/conduct.ts';
import { checkOptions, type RunOptions } from '../../conformance/e2e.ts';
import { fillPlace, keepLogs, kubeletConfiguration, NODE_BINARY, suiteArguments } from '../../conformance/e2e-node.ts';
import { isNodeSuite, SECTION_SPECS } from '../../conformance/features.ts';
import type { Target } from '../../conformance/run.ts';
import type { Side } from '../../conformance/scoreboard.ts';
import type { Driver } from './node.ts';
import { ADDRESS, listens, startRuntimeUnit } from './units.ts';

/*
 * In the machine (`nodelet machine run e2e-node`): specs of e2e_node.test with either kubelet, on cgroup v2 and below a systemd
 * that is process 1 and has the suite's kubelet and containerd as units. What came out goes to /exchange/out/runs: a folder
 * for each run, which `nodelet conformance merge` takes from dist/conformance/runs.
 */

const ROOT = new URL('../../..', import.meta.url).pathname.replace(/\/$/, '');
const OUT = '/exchange/out/runs';
const FOLDER = '/var/lib/lone-e2e';
const PLACE = `${FOLDER}/place`;
const SERVER_PORT = 6443;
const FOR_WHAT = 'running the node e2e suite';
/** Who tells of a shutdown in these specs is the suite, not logind. */
const OURS = '--wishes=BelieveAnyShutdownSignal';

/**
 * What the suite asks of the system before it starts. Its own list has cpuset, which the user-mode kernel lacks; specs that
 * need it say so themselves.
 */
const SYSTEM = { os: 'Linux', kernelSpec: { versions: [String.raw`[6-9]\.\d+.*`] }, cgroupsV2: ['cpu', 'io', 'memory', 'pids'] };

interface Options extends RunOptions {
  readonly driver: string;
}

function driverOf(text: string): Driver {
  if (text === 'systemd' || text === 'cgroupfs') return text;
  throw new OpError('invalid', 'reading --driver', `"${text}" is neither systemd nor cgroupfs`);
}

const collect = (value: string, before: readonly string[]): string[] => [...before, value];

async function versionOf(argv: readonly [string, ...string[]], pattern: RegExp): Promise<string> {
  const { stdout } = await exec(argv, { doing: 'asking for versions', timeoutMs: 60_000 });
  return pattern.exec(stdout)?.[1] ?? '';
}

function targetOf(ginkgo: string, side: Side): Target {
  return {
    argv: ({ procs, dir, report, ginkgo: words }) => [
      ginkgo,
      `--procs=${procs}`,
      `--json-report=${report}`,
      `--output-dir=${dir}`,
      ...words,
      ...suiteArguments(PLACE, [`--node-ip=${ADDRESS}`, ...(side === 'ours' ? [OURS] : [])].join(' ')),
      `--system-spec-file=${FOLDER}/system.json`,
    ],
    env: { PATH: [`${FOLDER}/path`, dirname(ginkgo), process.env['PATH'] ?? ''].join(':'), KUBECONFIG: '' },
    isReady: () => listens(SERVER_PORT),
    collect: (failures, outcome, output) => saveNodeFailure(failures, outcome, output, [`${PLACE}/kubelet.log`]),
  };
}

async function run(program: Program, options: Options): Promise<number> {
  const { host, progress } = program;
  const { suite } = options;
  if (!isNodeSuite(suite)) throw new OpError('invalid', 'choosing a suite', `"${suite}" is none of e2e_node.test`, { advice: 'e2e-node or node-features' });
  const checked = checkOptions(options);
  const side = checked.wanted ?? 'ours';
  const driver = driverOf(options.driver);
  const assets = await findAssets({ env: host.env });
  const [binary, ginkgo, runc] = ([NODE_BINARY, 'ginkgo', 'runc'] as const).map((name) => assets.require(name, FOR_WHAT)) as [string, string, string];
  const [programs, plugins] = [assets.requireDir('containerd-2.4', FOR_WHAT), assets.requireDir('cni', FOR_WHAT)];
  const kubelet = side === 'upstream' ? assets.require('kubelet', FOR_WHAT) : `${ROOT}/scripts/kubelet`;
  const { description, specs } = await progress.step('list the specs', () => askSpecs(binary, FOLDER, [], host.signal));
  const chosen = checked.select('every', SECTION_SPECS[suite](specs));
  await progress.step('containerd and images', () =>
    startRuntimeUnit({ folder: FOLDER, programs, runc, plugins, images: '/images', bundle: `${ROOT}/dist/nodelet.mjs`, driver }),
  );
  for (const folder of [PLACE, `${FOLDER}/path`]) {
    await rm(folder, { recursive: true, force: true });
    await mkdir(folder, { recursive: true });
  }
  // All is root's here, and the suite says sudo.
  await symlink(`${ROOT}/test/conformance/units/sudo`, `${FOLDER}/path/sudo`);
  const configuration = { ...kubeletConfiguration('/', `${FOLDER}/resolv.conf`), cgroupDriver: driver, oomScoreAdj: -999 };
  await fillPlace(PLACE, { binary, kubelet, configuration });
  await writeFile(`${FOLDER}/system.json`, JSON.stringify(SYSTEM));
  const kubernetes = await versionOf([`${PLACE}/kubelet`, '--version'], /^Kubernetes (\S+)/m);
  const versions = {
    kubernetes: await versionOf([assets.require('kube-apiserver', FOR_WHAT), '--version'], /^Kubernetes (\S+)/m),
    agent: `${side} ${kubernetes}`,
    containerd: await versionOf([`${programs}/containerd`, '--version'], /\sv?(\d+\.\d+\.\d+\S*)/),
    runc: await versionOf([runc, '--version'], /^runc version (\S+)/m),
    kernel: release(),
    cgroup: 'v2',
    driver,
    systemd: await versionOf(['systemctl', '--version'], /^systemd (\S+)/m),
  };
  const answer = await conduct(program, {
    home: OUT,
    asked: { kind: suite, side, suite, focus: options.focus, skip: options.skip, shard: '' },
    facts: { commit: host.env['NODELET_COMMIT'] ?? 'unknown', versions, nodes: 1, parallel: checked.parallel },
    description,
    specs,
    chosen,
    isResumed: false,
    target: targetOf(ginkgo, side),
    paths: null,
    tidy: () => Promise.resolve('nothing else'),
  });
  await keepLogs({ dir: PLACE }, answer.dir);
  const { passed, failed, skipped, notRun } = answer;
  for (const { name, result, reason } of answer.results) host.stdout(`${result}: ${name}${reason === '' ? '' : `\n  ${reason}`}\n`);
  host.stdout(`${suite} on ${side}: ${passed} passed, ${failed} failed, ${skipped} skipped, ${notRun} not run of ${answer.chosen}\n`);
  return failed > 0 || notRun > 0 ? 1 : 0;
}

await runProgram('e2e-node', 'Specs of e2e_node.test in a machine that systemd booted', (program) => {
  program
    .add<Options>('run', 'run specs', ['e2e-node.ts --suite node-features --focus GracefulNodeShutdown'], (options) => run(program, options), {
      isDefault: true,
    })
    .option('--suite <name>', 'e2e-node or node-features', 'e2e-node')
    .option('--agent <who>', 'ours or upstream', 'ours')
    .option('--focus <regexp>', 'only specs whose name matches; may be given several times', collect, [])
    .option('--skip <regexp>', 'no spec whose name matches; may be given several times', collect, [])
    .option('--driver <name>', 'cgroup driver of the kubelet and of containerd: systemd or cgroupfs', 'systemd')
    // User-mode-linux has one processor, and each start of the suite takes a minute.
    .option('--parallel <count>', 'how many specs at once', '1')
    .option('--nodes <count>', 'always 1', '1');
});
