import { copyFile, mkdir, mkdtemp, readdir, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { createReadStream, createWriteStream } from 'node:fs';
import { dirname } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import { exec, tryExec } from '../../base/exec.ts';
import { KERNEL_WANTED } from '../../node/core/kubelet.ts';
import { cgroupOf } from '../../node/core/plan.ts';
import { findAssets } from '../assets/find.ts';
import type { Program } from '../../scripts/command.ts';
import { askSpecs } from './ask.ts';
import { bareNode, type BareNode } from './bare.ts';
import { commitOf, type Cluster } from './cluster.ts';
import { saveNodeFailure } from './collect.ts';
import { conduct, type Answer } from './conduct.ts';
import { checkOptions, clusterFor, namedSpecs, type RunOptions } from './e2e.ts';
import { SECTION_SPECS, type NodeSuite } from './features.ts';
import type { Target } from './run.ts';
import type { Side } from './scoreboard.ts';
import { pathsIn, refresh } from './store.ts';

/** The suite's program. */
export const NODE_BINARY = 'e2e_node.test';
const SOCKET = 'unix:///run/containerd/containerd.sock';
/** Where the suite's own API server listens, in the node's network namespace. */
const SERVER_PORT = 6443;
const INTERNAL_IP = 'jsonpath={.status.addresses[?(@.type=="InternalIP")].address}';
const LOOK_MS = 20_000;
/** Longer than the stand-in for systemctl waits before it kills. */
const STOP_MS = 60_000;
/** Of the suite's default of two minutes a busy machine takes too much. */
const SERVER_START = '5m';
const SEARCHED = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin'];
/** With one of these the suite takes for granted that systemd is PID 1, and starts its kubelet as a unit. */
const HIDDEN = /^(systemd-run|systemctl|journalctl|sudo)$/;
/** Programs of the same names that keep the kubelet as a unit by a file and a process, so that specs can stop and start it. */
const UNITS = new URL('units', import.meta.url).pathname;

/** The suite's own base configuration, and what a cgroup v1 machine without CAP_SYS_RESOURCE, shared with others, needs beside it. */
export function kubeletConfiguration(cgroup: string, resolvConf: string): object {
  return {
    apiVersion: 'kubelet.config.k8s.io/v1beta1',
    kind: 'KubeletConfiguration',
    podCIDR: '10.100.0.0/24',
    volumeStatsAggPeriod: '10s',
    fileCheckFrequency: '10s',
    evictionPressureTransitionPeriod: '30s',
    evictionHard: { 'memory.available': '250Mi', 'nodefs.available': '10%', 'nodefs.inodesFree': '5%' },
    evictionMinimumReclaim: { 'nodefs.available': '5%', 'nodefs.inodesFree': '5%' },
    serializeImagePulls: false,
    cgroupDriver: 'cgroupfs',
    cgroupRoot: cgroup,
    failCgroupV1: false,
    failSwapOn: false,
    oomScoreAdj: 0,
    resolvConf,
  };
}

/** The folder that the suite runs in: it starts the `kubelet` that lies beside it, and writes everything there. */
interface Place extends AsyncDisposable {
  readonly dir: string;
  readonly path: string;
}

interface Made {
  readonly home: string;
  readonly binary: string;
  readonly kubelet: string;
  readonly configuration: object;
  /** Folders of programs that go before the machine's. */
  readonly programs: readonly string[];
}

/** Puts what the suite looks for beside itself into a folder: its programs, the kubelet and that one's configuration. */
export async function fillPlace(dir: string, { binary, kubelet, configuration }: Pick<Made, 'binary' | 'kubelet' | 'configuration'>): Promise<void> {
  for (const name of [NODE_BINARY, 'mounter', 'gcp-credential-provider']) await symlink(binary, `${dir}/${name}`);
  await symlink(kubelet, `${dir}/kubelet`);
  await writeFile(`${dir}/kubeletconfig.yaml`, `${JSON.stringify(configuration, null, 1)}\n`);
}

async function makePlace({ home, binary, kubelet, configuration, programs }: Made): Promise<Place> {
  await mkdir(home, { recursive: true });
  const dir = await mkdtemp(`${home}/e2e-node-`);
  await fillPlace(dir, { binary, kubelet, configuration });
  await mkdir(`${dir}/kernel`);
  for (const [setting, value] of Object.entries(KERNEL_WANTED)) await writeFile(`${dir}/kernel/${setting.replaceAll('/', '.')}`, `${value}\n`);
  await mkdir(`${dir}/path`);
  const seen = new Set<string>();
  await mkdir(`${dir}/units`);
  for (const name of await readdir(UNITS)) await copyFile(`${UNITS}/${name}`, `${dir}/units/${name}`);
  for (const folder of SEARCHED) {
    for (const name of await readdir(folder).catch(() => [] as string[])) {
      if (HIDDEN.test(name) || seen.has(name)) continue;
      seen.add(name);
      await symlink(`${folder}/${name}`, `${dir}/path/${name}`);
    }
  }
  return { dir, path: [`${dir}/units`, ...programs, `${dir}/path`].join(':'), [Symbol.asyncDispose]: () => rm(dir, { recursive: true, force: true }) };
}

/** A command that sees settings of the kernel as upstream's kubelet wants them, instead of making them the whole machine's. */
function withKernel(dir: string, argv: readonly string[]): string[] {
  const binds = Object.keys(KERNEL_WANTED).map((setting) => `mount --bind '${dir}/kernel/${setting.replaceAll('/', '.')}' /proc/sys/${setting}`);
  return [
    'unshare',
    '--mount',
    '--propagation',
    'unchanged',
    '/bin/sh',
    '-c',
    ['set -e', 'mount --make-rprivate /proc', ...binds, 'exec "$@"'].join('; '),
    'sh',
    ...argv,
  ];
}

/** `--suite e2e-node` or `node-features`: specs of e2e_node.test, with a kubelet of its own on a node whose kubelet stands still. */
export async function runE2eNode(
  program: Program,
  root: string,
  options: RunOptions & { readonly suite: NodeSuite },
  exact: readonly string[] | null,
): Promise<Answer> {
  const { host, progress } = program;
  const checked = checkOptions(options);
  const assets = await findAssets({ env: host.env, dir: options.assets });
  const need = (name: 'e2e_node.test' | 'ginkgo' | 'kubectl' | 'kubelet'): string => assets.require(name, 'running the node e2e suite');
  const [binary, ginkgo, kubectl] = [need(NODE_BINARY), need('ginkgo'), need('kubectl')];
  const home = `${root}/dist/conformance`;
  const { description, specs } = await progress.step('list the specs', () => askSpecs(binary, home, [], host.signal));
  const { suite } = options;
  const counted = SECTION_SPECS[suite](specs);
  const chosen = checked.select('every', exact === null ? counted : namedSpecs(specs, exact, NODE_BINARY));
  const paths = options.score ? pathsIn(root) : null;
  if (paths !== null) await refresh(paths, { [suite]: counted });
  await using made = await clusterFor(
    program,
    root,
    { ...options, nodes: '1' },
    { wanted: options.name === undefined ? checked.wanted : null, nodes: 1, kubectl },
  );
  const { cluster } = made;
  const side: Side = checked.wanted ?? cluster.side;
  const name = cluster.nodes[0] ?? '';
  const nodeDir = `${cluster.state}/nodes/${name}`;
  const cgroup = `${cgroupOf(cluster.name)}/${name}`;
  const address = (await cluster.kubectl(['get', 'node', name, '-o', INTERNAL_IP])).trim();
  const kubelet = side === 'upstream' ? need('kubelet') : `${root}/scripts/kubelet`;
  await using place = await makePlace({
    home,
    binary,
    kubelet,
    configuration: kubeletConfiguration(cgroup, `${nodeDir}/resolv.conf`),
    programs: [dirname(ginkgo)],
  });
  await using node = await progress.step(`${name} without its kubelet`, () => bareNode(root, nodeDir, host.signal));
  await using _ = { [Symbol.asyncDispose]: () => endUnits(node, place) };
  const version = await versionOf(node, place);
  const answer = await conduct(program, {
    home: `${home}/runs`,
    asked: {
      kind: suite,
      side,
      suite: exact === null ? suite : 'names',
      focus: options.focus,
      skip: options.skip,
      shard: options.shard ?? '',
    },
    facts: { commit: await commitOf(root), versions: versionsOf(cluster, side, version), nodes: 1, parallel: checked.parallel },
    description,
    specs,
    chosen,
    isResumed: options.resume === true,
    target: targetOf({ node, place, ginkgo, cgroup, address }),
    paths,
    tidy: () => Promise.resolve('nothing else'),
  });
  await keepLogs(place, answer.dir);
  return answer;
}

/** A kubelet that a spec has started anew is nobody's child, and would outlive the suite. */
async function endUnits(node: BareNode, place: Place): Promise<void> {
  for (const unit of await readdir(`${place.dir}/units/state`).catch(() => [] as string[]))
    await tryExec(node.inside(['env', `PATH=${place.path}`, `${place.dir}/units/systemctl`, 'stop', unit]), { timeoutMs: STOP_MS }).catch(() => null);
}

async function versionOf(node: BareNode, place: Place): Promise<string> {
  const { stdout } = await exec(node.inside(['env', `PATH=${place.path}`, `${place.dir}/kubelet`, '--version']), {
    doing: 'asking the kubelet for its version',
    timeoutMs: LOOK_MS,
  });
  return stdout.trim().replace(/^Kubernetes /, '');
}

/** As of a cluster: the API server is part of the suite, and no proxy takes part. */
function versionsOf(cluster: Cluster, side: Side, version: string): Record<string, string> {
  const { containerd = '', runc = '', kernel = '', cgroup = '', kubernetes = '' } = cluster.versions;
  return { kubernetes, agent: `${side} ${version}`, containerd, runc, kernel, cgroup };
}

/** The suite's program with its arguments, as they stand behind Ginkgo's: of the folder that `fillPlace` filled. */
export function suiteArguments(dir: string, kubeletFlags: string): string[] {
  return [
    `${dir}/${NODE_BINARY}`,
    '--',
    `--container-runtime-endpoint=${SOCKET}`,
    `--image-service-endpoint=${SOCKET}`,
    `--kubelet-config-file=${dir}/kubeletconfig.yaml`,
    `--kubelet-flags=${kubeletFlags}`,
    '--prepull-images=false',
    `--server-start-timeout=${SERVER_START}`,
    // A spec reads the kubelet’s log there.
    `--report-dir=${dir}`,
  ];
}

function targetOf(own: { node: BareNode; place: Place; ginkgo: string; cgroup: string; address: string }): Target {
  const { node, place, ginkgo, cgroup, address } = own;
  // What its tests start and the kubelet itself stay below the node's cgroup: without this they are put beside everybody's.
  const cgroups = `--kubelet-cgroups=${cgroup}/kubelet --system-cgroups= --runtime-cgroups=`;
  // Without an address a kubelet asks DNS for its node's name. A server that cannot be reached costs ten seconds, in which
  // upstream's kubelet gives up making its CSINode, and is not ready for longer than the suite waits.
  const kubeletFlags = `${cgroups} --node-ip=${address}`;
  return {
    argv: ({ procs, dir, report, ginkgo: words }) =>
      node.inside(
        withKernel(place.dir, [
          ginkgo,
          `--procs=${procs}`,
          `--json-report=${report}`,
          `--output-dir=${dir}`,
          ...words,
          ...suiteArguments(place.dir, kubeletFlags),
        ]),
      ),
    env: { PATH: place.path, KUBECONFIG: '' },
    isReady: async () => {
      const looked = await tryExec(node.inside(['/bin/bash', '-c', `exec 3<>/dev/tcp/127.0.0.1/${SERVER_PORT}`]), { timeoutMs: LOOK_MS }).catch(() => null);
      return looked?.code === 0;
    },
    collect: (failures, outcome, output) => saveNodeFailure(failures, outcome, output, [`${place.dir}/kubelet.log`]),
  };
}

/** The logs of the last kubelet and of the API server beside it, compressed, to the run's folder. */
export async function keepLogs(place: { readonly dir: string }, dir: string): Promise<void> {
  for (const name of ['kubelet.log', 'services.log']) {
    const to = `${dir}/${name}.gz`;
    await pipeline(createReadStream(`${place.dir}/${name}`), createGzip(), createWriteStream(`${to}.tmp`)).catch(() => undefined);
    await rename(`${to}.tmp`, to).catch(() => undefined);
  }
}
