import { Option } from 'commander';
import { OpError } from '../../base/errors.ts';
import { createContext, type Context } from '../../node/commands/context.ts';
import { down } from '../../node/commands/down.ts';
import { status } from '../../node/commands/status.ts';
import { checkUp, up } from '../../node/commands/up.ts';
import { JUDGED_DIFFERS } from '../../node/core/files.ts';
import type { AgentKind, CniKind, ProxyKind } from '../../node/core/plan.ts';
import { loadSet } from '../../node/io/state.ts';
import { runProgram, type Program } from '../../scripts/command.ts';
import { findAssets, type Assets } from '../assets/find.ts';
import { imagesCommand, imagesDir } from '../images/command.ts';
import { makeE2eImages } from '../images/make.ts';
import { join } from './join.ts';
import { chosenPrograms, containerdOf, CONTAINERDS, type ContainerdChoice } from './programs.ts';
import { walkthroughCommand } from './walkthrough/command.ts';

interface NameOptions {
  readonly name: string;
  readonly json: boolean;
}

interface UpOptions extends NameOptions {
  readonly nodes?: string;
  readonly agent?: string;
  readonly proxy?: string;
  readonly containerd?: ContainerdChoice;
  readonly audit?: true;
  readonly images: 'e2e' | 'basic';
  readonly assets?: string;
  readonly cni?: CniKind;
  readonly dualStack?: boolean;
  readonly timeout: string;
}

const AGENTS: readonly AgentKind[] = ['ours', 'upstream'];
const PROXIES: readonly ProxyKind[] = ['nftables', 'iptables', 'upstream-nftables', 'upstream-iptables'];

function listOf<T extends string>(text: string | undefined, words: readonly T[], flag: string): T[] | undefined {
  return text?.split(',').map((word) => {
    const known = words.find((one) => one === word);
    if (known === undefined) throw new OpError('invalid', `reading ${flag}`, `"${word}" is none of ${words.join(', ')}`);
    return known;
  });
}

async function clusterUp(context: Context, options: UpOptions): Promise<number> {
  const agents = listOf(options.agent, AGENTS, '--agent');
  const proxies = listOf(options.proxy, PROXIES, '--proxy');
  const previous = await loadSet(context.home, context.options.name);
  const choice = {
    ...(options.nodes === undefined ? {} : { nodes: options.nodes }),
    ...(agents === undefined ? {} : { agents }),
    ...(proxies === undefined ? {} : { proxies }),
    ...(options.audit === undefined ? {} : { audit: options.audit }),
    ...(options.cni === undefined ? {} : { cni: options.cni }),
    ...(options.dualStack === undefined ? {} : { dualStack: options.dualStack }),
    timeout: options.timeout,
  };
  checkUp(choice);
  // What a cluster runs with is remembered; only a new one looks for programs.
  if (previous !== null) {
    const had = containerdOf(previous);
    if (options.containerd !== undefined && options.containerd !== had)
      throw new OpError('conflict', 'reading --containerd', `the cluster "${options.name}" runs with ${had}`, {
        advice: `end it first with: nodelet cluster down --name ${options.name}`,
      });
    return up(context, undefined, choice);
  }
  const assets = await context.progress.step('components found', () => findAssets({ env: context.host.env, dir: options.assets }));
  const found = chosenPrograms(assets, { agents: agents ?? [], proxies: proxies ?? [], containerd: options.containerd ?? '2.4' });
  if (found.programs.coredns === undefined)
    context.progress.note('  coredns is not there: names are answered by a server of ours, and no pod is labelled k8s-app=kube-dns');
  context.progress.note(`  ${JUDGED_DIFFERS}`);
  if (options.images === 'e2e') await makeImages(context, assets);
  return up(context, undefined, { ...choice, controlPlane: 'real', join: 'token', ...found });
}

async function makeImages(context: Context, assets: Assets): Promise<void> {
  try {
    await makeE2eImages({ host: context.host, store: { dir: imagesDir() }, assets, progress: context.progress, choice: {}, build: false });
  } catch (error) {
    if (!context.host.signal.aborted) throw error;
    throw new OpError('aborted', 'making the e2e images', 'stopped by a signal', { advice: 'no cluster was started' });
  }
}

function commands(program: Program): void {
  const named = (
    usage: string,
    words: string,
    examples: readonly string[],
    run: (context: Context, options: never) => Promise<number>,
  ): ReturnType<Program['add']> =>
    program
      .add<NameOptions>(usage, words, examples, (options) => run(createContext(program.host, { name: options.name, json: options.json }), options as never))
      .option('--name <name>', 'which cluster, when several run side by side', 'cluster');
  named(
    'up',
    'a real control plane and nodes that join it by bootstrap token',
    [
      'sudo ./nodelet cluster up --agent upstream',
      'sudo ./nodelet cluster up --agent upstream,ours      # node-1 has upstream’s kubelet, node-2 ours',
      'sudo ./nodelet cluster up --nodes 2 --proxy upstream-iptables --audit',
    ],
    clusterUp,
  )
    .option('--nodes <count>', 'how many nodes; as many as --agent names when left out')
    .option('--agent <list>', `whose kubelet: ${AGENTS.join(' or ')}; one for all nodes, or one a node, with commas`)
    .option('--proxy <list>', `whose service proxy: ${PROXIES.join(', ')}; that of the kubelet’s maker with nftables when left out`)
    .addOption(
      new Option('--cni <plugins>', 'whose pod network: ours (nodelet), or the reference plugins, which it is when left out').choices(['nodelet', 'reference']),
    )
    .addOption(new Option('--containerd <version>', 'which containerd; 2.4 when left out').choices(CONTAINERDS))
    .addOption(
      new Option('--images <which>', 'images made beforehand: those of Kubernetes’ e2e tests, or pause and CoreDNS alone')
        .choices(['e2e', 'basic'])
        .default('e2e'),
    )
    .option('--assets <dir>', 'folder of components that goes before all others')
    .option('--dual-stack', 'IPv4 and IPv6 for nodes, pods and Services; IPv4 alone when left out')
    .option('--audit', 'let the API server write an audit log (hub/log/audit.log, at most 500 MB)')
    .option('--timeout <seconds>', 'how long to wait for pods; what comes before them, 60 s at 120, in proportion', '300');
  named(
    'join',
    'takes a node of ours out and lets the real kubeadm join it again, with the launcher scripts/kubelet as its kubelet',
    ['sudo ./nodelet cluster join', 'sudo ./nodelet cluster join --node node-2'],
    async (context, options: NameOptions & { node?: string; assets?: string }) =>
      join(context, await findAssets({ env: context.host.env, dir: options.assets }), options),
  )
    .option('--node <node>', 'which node; the first when left out')
    .option('--assets <dir>', 'folder of components that goes before all others');
  named('down', 'end a cluster and remove all of it', ['sudo ./nodelet cluster down'], down);
  named('status', 'what runs: nodes, processes, memory', ['./nodelet cluster status --json'], status);
  imagesCommand(program);
  walkthroughCommand(program);
}

await runProgram('cluster', 'A real Kubernetes control plane with nodes of ours or of upstream’s', commands);
