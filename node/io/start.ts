import { constants, copyFile, mkdir, rm, writeFile } from 'node:fs/promises';
import { setPriority } from 'node:os';
import { dirname } from 'node:path';
import { OpError } from '../../base/errors.ts';
import { conflist, installPlugin, readDaemonConfig } from '../../cni/mod.ts';
import type { Context } from '../commands/context.ts';
import { IMAGE_PORT, PROXY_PORT } from '../egress.ts';
import { agentConfig, CNI_CONF, cniConfig, cniDaemonConfig, cniFolder, containerdConfig, mirrorHosts, proxyConfig, type NodeFacts } from '../core/files.ts';
import type { Place } from '../core/launch.ts';
import { KERNEL_WANTED, kernelFile } from '../core/kubelet.ts';
import { cgroupOf, type NodePlan, type SetPlan } from '../core/plan.ts';
import { auditPolicy, type RealPrograms } from '../core/real.ts';
import { AHEAD, hubServices, nodeServices, type ProgramPaths } from '../core/services.ts';
import { createCgroup } from './cgroup.ts';
import { writeCredentials } from './credentials.ts';
import { launch } from './launch.ts';
import type { Machine } from './machine.ts';
import { connectHub, connectNode, routeHub } from './network.ts';
import type { HostProcess } from './processes.ts';
import { firstProcess } from './running.ts';
import type { SavedSet } from './state.ts';

export const PAUSE_IMAGE = 'registry.k8s.io/pause:3.10.2';
/** Where the node's own view of a folder hides the host's. */
const HIDDEN = ['/var/lib/', '/var/log/', '/run/'];

export interface StartOptions {
  readonly context: Pick<Context, 'progress' | 'root'>;
  readonly plan: SetPlan;
  readonly saved: SavedSet;
  readonly machine: Machine;
  /** Programs that are not ours; null for a set that needs none. */
  readonly real: RealPrograms | null;
  /** Done once the hub runs and before any node starts; nodes start beside the hub when absent. */
  readonly beforeNodes?: () => Promise<void>;
  /** Nodes to start; all of the plan's when absent. */
  readonly only?: readonly NodePlan[];
}

/** Starts what of a set does not run: certificates and files, hub, nodes, and the links between them. */
export async function startSet(options: StartOptions): Promise<void> {
  const { context, plan, machine } = options;
  const cgroups = machine.cgroup;
  if (cgroups === null) throw new OpError('unsupported', 'starting the set', 'no cgroups');
  aheadOfDaemons();
  const paths = programPaths(options);
  const nodes = options.only ?? plan.nodes;
  await context.progress.step('certificates and files', async () => {
    await Promise.all([writeCredentials(plan), copyBundles(options)]);
    if (plan.cni === 'nodelet') await installPlugin(cniFolder(plan), { front: `${context.root}/dist/cni/nodelet`, ...paths });
    await mkdir(plan.hub.dir, { recursive: true });
    if (plan.audit) await writeFile(`${plan.hub.dir}/audit-policy.json`, auditPolicy());
    await Promise.all(nodes.map((node) => writeNodeFiles(plan, node, options)));
  });
  // All at once: what takes time is the programs' own start, and each of them waits for what it needs of the others.
  const launchAll = (): ReturnType<typeof launchNode>[] =>
    nodes.map((node) => {
      const launching = launchNode(plan, node, paths, cgroups, options.real);
      // It can fail while the control plane is still waited for: it is told when its turn comes.
      launching.catch(() => undefined);
      return launching;
    });
  let launched = options.beforeNodes === undefined ? launchAll() : [];
  try {
    const hub = await context.progress.step('control plane started', async () => {
      const running = await firstProcess(plan.hub.dir);
      if (running !== null) return { process: running, fresh: false };
      const process = await launch(paths.sys, hubPlace(plan, paths, await createCgroup(cgroups, `${cgroupOf(plan.name)}/hub`), options.real));
      await connectHub(plan, process.pid);
      return { process, fresh: true };
    });
    if (options.beforeNodes !== undefined) {
      await options.beforeNodes();
      launched = launchAll();
    }
    await context.progress.step(nodes.length === 1 ? `${nodes[0]?.name} started` : `${nodes.length} nodes started`, () =>
      Promise.all(
        nodes.map(async (node, at) => {
          const started = await launched[at];
          // A new hub has taken the old link with it; a node that ran already runs on.
          if (started !== undefined && (started.fresh || hub.fresh)) await connectNode(plan, node, hub.process.pid, started.process.pid);
        }),
      ),
    );
    const running = await runningNodes(plan);
    if (hub.fresh)
      await relink(
        plan,
        hub.process,
        running.filter((node) => !nodes.includes(node)),
      );
    await routeHub(plan, running, hub.process.pid);
  } finally {
    // A failure takes back all that was started: nothing may start behind it.
    await Promise.allSettled(launched);
  }
}

/** Nodes that were not asked for lost their links too when the old hub went. */
async function relink(plan: SetPlan, hub: HostProcess, others: readonly NodePlan[]): Promise<void> {
  await Promise.all(
    others.map(async (node) => {
      const first = await firstProcess(node.dir);
      if (first !== null) await connectNode(plan, node, hub.pid, first.pid);
    }),
  );
}

/** The links are what everything that starts waits for; the daemons, which run ahead of others, would delay them. PID 1 of each gives its programs their own. */
function aheadOfDaemons(): void {
  try {
    setPriority(AHEAD - 1);
  } catch {
    // Refused in some containers: it takes longer then.
  }
}

async function launchNode(
  plan: SetPlan,
  node: NodePlan,
  paths: ProgramPaths,
  cgroups: NonNullable<Machine['cgroup']>,
  real: RealPrograms | null,
): Promise<{ process: HostProcess; fresh: boolean }> {
  const running = await firstProcess(node.dir);
  if (running !== null) return { process: running, fresh: false };
  return { process: await launch(paths.sys, nodePlace(plan, node, paths, await createCgroup(cgroups, node.cgroup), real)), fresh: true };
}

/** Nodes whose first process lives. */
export async function runningNodes(plan: SetPlan): Promise<NodePlan[]> {
  const firsts = await Promise.all(plan.nodes.map((node) => firstProcess(node.dir)));
  return plan.nodes.filter((_, at) => firsts[at] !== null);
}

/** What is judged runs one build from its first start to its last, whatever is built meanwhile. */
const BUNDLES = ['nodelet.mjs', 'netfilter.cjs'] as const;

async function copyBundles({ context, plan }: StartOptions): Promise<void> {
  if (plan.join !== 'token') return;
  for (const file of BUNDLES)
    await copyFile(`${context.root}/dist/${file}`, `${plan.state}/${file}`, constants.COPYFILE_EXCL).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error;
    });
}

function programPaths(options: StartOptions): ProgramPaths {
  const { context, machine, real } = options;
  const { containerd } = machine.programs;
  const runc = real?.runc ?? machine.programs.runc;
  if (containerd === undefined || runc === undefined)
    throw new OpError('not-found', 'starting a node', 'containerd or runc is missing', { advice: 'see: nodelet doctor' });
  const bundles = options.plan.join === 'token' ? options.plan.state : `${context.root}/dist`;
  const folders = [...new Set([dirname(containerd), dirname(runc), '/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin'])];
  return {
    node: process.execPath,
    bundle: `${bundles}/nodelet.mjs`,
    proxy: `${bundles}/netfilter.cjs`,
    sys: `${context.root}/dist/sys`,
    containerd,
    path: folders.join(':'),
    images: `${context.root}/dist/images`,
  };
}

async function writeNodeFiles(plan: SetPlan, node: NodePlan, { machine, real }: StartOptions): Promise<void> {
  const facts: NodeFacts = {
    containerdMajor: machine.containerdMajor ?? 1,
    cniBinDir: plan.cni === 'nodelet' ? cniFolder(plan) : (real?.cni ?? machine.cniBinDir ?? '/opt/cni/bin'),
    cgroupVersion: machine.cgroup?.version ?? 2,
    mayLowerOomScore: machine.mayLowerOomScore,
  };
  await mkdir(`${node.dir}/certs.d/_default`, { recursive: true });
  await mkdir(`${node.dir}/lib/cni/net.d`, { recursive: true });
  const files: [string, string][] = [
    ['containerd.toml', containerdConfig(node, PAUSE_IMAGE, facts)],
    ['certs.d/_default/hosts.toml', mirrorHosts(`http://${plan.hub.hostIp}:${IMAGE_PORT}`)],
    ...networkFiles(plan, node, facts),
    ['agent.json', agentConfig(plan, node, facts)],
    ['proxy.json', proxyConfig(plan, node)],
    ['resolv.conf', `nameserver ${plan.hub.hostIp}\n`],
  ];
  if (node.agent === 'upstream') {
    await mkdir(`${node.dir}/kernel`, { recursive: true });
    for (const [setting, value] of Object.entries(KERNEL_WANTED)) await writeFile(kernelFile(node, setting), `${value}\n`);
  }
  if (plan.join === 'token') await mkdir(`${node.dir}/manifests`, { recursive: true });
  for (const [name, text] of files) await writeFile(`${node.dir}/${name}`, text);
}

/** Our daemon writes the runtime's file itself, too; there from the start, pods need not wait for the daemon. */
function networkFiles(plan: SetPlan, node: NodePlan, facts: NodeFacts): [string, string][] {
  if (plan.cni === 'reference') return [[CNI_CONF, cniConfig(node)]];
  const given = cniDaemonConfig(plan, node, facts);
  const { config } = readDaemonConfig(given);
  return [
    [CNI_CONF, conflist(config, config.podCIDRs, config.mtu)],
    ['cni.json', `${JSON.stringify(given, null, 2)}\n`],
  ];
}

function hubPlace(plan: SetPlan, paths: ProgramPaths, cgroupDirs: readonly string[], real: RealPrograms | null): Place {
  const netns = `${plan.hub.dir}/host-net`;
  return {
    hostname: plan.name === 'default' ? 'nodelet-hub' : `${plan.name}-hub`,
    dir: plan.hub.dir,
    folders: [`${plan.hub.dir}/data`],
    files: [netns],
    cgroupDirs,
    // A file that stands for the host's network namespace: what needs the host's network enters it from inside.
    binds: [{ from: `/proc/${process.pid}/ns/net`, to: netns }],
    tmpfs: [],
    services: hubServices(plan, paths, netns, real),
  };
}

function nodePlace(plan: SetPlan, node: NodePlan, paths: ProgramPaths, cgroupDirs: readonly string[], real: RealPrograms | null): Place {
  const others = [real?.cni, ...[real?.kubelet, real?.kubeProxy, real?.runc].map((path) => path && dirname(path))].filter((path) => path !== undefined);
  const folders = [...new Set([dirname(dirname(paths.bundle)), paths.node, dirname(paths.containerd), ...others])];
  const visible = [plan.state, ...folders.filter((path) => HIDDEN.some((prefix) => path.startsWith(prefix)))];
  const lib = `${node.dir}/lib`;
  return {
    hostname: node.name,
    dir: node.dir,
    folders: [
      `${lib}/kubelet`,
      `${lib}/containerd`,
      `${lib}/cni`,
      `${node.dir}/varlog/pods`,
      ...visible.filter((path) => path.startsWith('/var/lib/')).map((path) => `${lib}${path.slice('/var/lib'.length)}`),
    ],
    files: [],
    cgroupDirs,
    binds: [
      ...visible.filter((path) => path.startsWith('/var/lib/')).map((path) => ({ from: path, to: `${lib}${path.slice('/var/lib'.length)}` })),
      { from: `${node.dir}/varlog`, to: '/var/log' },
      { from: lib, to: '/var/lib' },
    ],
    tmpfs: ['/run'],
    services: nodeServices(plan, node, paths, { proxy: PROXY_PORT }, real),
  };
}

/** What a node leaves on disk that a power loss would have taken from memory. */
export async function forgetVolatile(node: NodePlan): Promise<void> {
  for (const name of ['init.pid', 'init.state']) await rm(`${node.dir}/${name}`, { force: true });
}
