import { mkdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { release } from 'node:os';
import { dirname } from 'node:path';
import { exec } from '../../../base/exec.ts';
import { OpError } from '../../../base/errors.ts';
import { version as ourVersion } from '../../../base/version.ts';
import { runProgram, type Program } from '../../../scripts/command.ts';
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
const OUR_KUBELET = `${FOLDER}/our-kubelet`;
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

/**
 * Our kubelet without `nodelet`'s look at the sources, which takes seconds here. Specs look for a process of its name, and V8's
 * threads only take turns on the one processor.
 */
const ourKubelet = `#!/bin/bash
export NODELET_ROOT=${ROOT} NODELET_SYS=${ROOT}/dist/sys
exec -a "$0" ${process.execPath} --single-threaded --max-semi-space-size=2 --disable-warning=ExperimentalWarning ${ROOT}/dist/nodelet.mjs agent "$@"
`;

const collect = (value: string, before: readonly string[]): string[] => [...before, value];

/** The components of the host, with the versions that their list says: to ask each of them takes minutes here. */
async function readAssets(folder: string): Promise<{ readonly path: (name: string) => string; readonly version: (name: string) => string }> {
  const { programs } = JSON.parse(await readFile(`${folder}/assets.json`, 'utf8')) as { programs: Readonly<Record<string, { readonly version: string }>> };
  const path = (name: string): string => {
    if (Object.keys(programs).some((one) => one === name || one.startsWith(`${name}/`))) return `${folder}/${name}`;
    throw new OpError('not-found', FOR_WHAT, `there is no ${name} in ${folder}`, { advice: 'run nodelet assets build on the host' });
  };
  return { path, version: (name) => programs[name]?.version ?? '' };
}

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
  const { path, version } = await readAssets(host.env['NODELET_ASSETS'] ?? '/assets');
  const [binary, ginkgo, runc, programs, plugins] = [path(NODE_BINARY), path('ginkgo'), path('runc'), path('containerd-2.4'), path('cni')];
  const kubelet = side === 'upstream' ? path('kubelet') : OUR_KUBELET;
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
  if (side === 'ours') await writeFile(OUR_KUBELET, ourKubelet, { mode: 0o755 });
  await fillPlace(PLACE, { binary, kubelet, configuration });
  await writeFile(`${FOLDER}/system.json`, JSON.stringify(SYSTEM));
  const versions = {
    kubernetes: `v${version(NODE_BINARY)}`,
    agent: `${side} ${side === 'upstream' ? `v${version('kubelet')}` : ourVersion}`,
    containerd: version('containerd-2.4/containerd'),
    runc: version('runc'),
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
