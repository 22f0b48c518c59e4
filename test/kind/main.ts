import { stat } from 'node:fs/promises';
import { Option } from 'commander';
import { exec } from '../../base/exec.ts';
import { OpError } from '../../base/errors.ts';
import { findPlace, type Engine } from '../../scripts/kind/place.ts';
import { restore, swap, type Swapped } from '../../scripts/kind/swap.ts';
import { requireWritable, runProgram, type Program } from '../../scripts/command.ts';
import { findAssets } from '../assets/find.ts';
import { addCompare } from './compare.ts';
import { addConformance } from './conformance.ts';
import { breakSwaps, type Broken } from './breaks.ts';
import { endDocker, openDocker } from './docker.ts';
import { makeNodeImage } from './node-image.ts';
import { makeProxyImage, PROXY_IMAGE, writeProxyArchive } from './proxy-image.ts';
import { loadAgnhost, prove, type Round } from './prove.ts';
import { addSuite } from './suite.ts';
import { createCluster, deleteCluster } from './up.ts';
import { addWalks } from './walk-commands.ts';

const root = new URL('../..', import.meta.url).pathname.replace(/\/$/, '');

interface SwapWords {
  readonly json: boolean;
  readonly proxy?: 'nftables' | 'iptables';
  readonly release?: string;
}

interface UpWords {
  readonly json: boolean;
  readonly name: string;
  readonly workers: string;
  readonly agent: 'ours' | 'upstream';
  readonly image?: string;
  readonly release?: string;
}

const PROXY = new Option('--proxy <mode>', 'replace the node’s kube-proxy pod too; left out: it stays').choices(['nftables', 'iptables']);
const RELEASE = new Option('--release <file>', 'a release that was made before; left out: it is made');

await runProgram('kind', 'Nodes of kind clusters: ours from the start, swapped and put back.', (program) => {
  program
    .add<UpWords>(
      'up',
      'make a kind cluster, its workers ours or upstream’s',
      ['sudo nodelet kind up --workers 2', 'sudo nodelet kind up --agent upstream --image made'],
      (options) => up(program, options),
    )
    .option('--name <name>', 'the cluster’s name', 'kind')
    .option('--workers <n>', 'how many workers', '1')
    .addOption(new Option('--agent <whose>', 'whose kubelet the workers have').choices(['ours', 'upstream']).default('ours'))
    .option('--image <image>', 'a node image; "made" makes one here; left out: kind’s own')
    .addOption(RELEASE);
  program
    .add<{ json: boolean; name: string }>('down', 'delete a kind cluster', ['sudo nodelet kind down --name kind'], async (options) => {
      const { name } = options;
      const isGone = await deleteCluster(program, await openDocker(program), await findAssets({ env: program.host.env }), {
        name,
        folder: stateOf(program, name),
      });
      program.answer(options.json, { deleted: isGone ? name : null }, [isGone ? `${name} deleted` : `no cluster of the name ${name} is in this engine`]);
      return 0;
    })
    .option('--name <name>', 'the cluster’s name', 'kind');
  program
    .add<SwapWords>(
      'swap <node>',
      'put our kubelet in the place of a node’s own; its pods run on',
      ['sudo nodelet kind swap kind-worker', 'sudo nodelet kind swap kind-worker --proxy nftables', 'sudo nodelet kind swap kind-worker --json'],
      async (options, [node = '']) => {
        const place = await findPlace(await engine(program), node);
        const release = (): Promise<string> => releaseFile(program, options.release);
        return tell(program, options.json, 'swap', await swap(place, { proxy: options.proxy ?? null, release, progress: program.progress }));
      },
    )
    .addOption(PROXY)
    .addOption(new Option('--keep-proxy', 'leave the node’s kube-proxy pod as it is, which is meant anyway').conflicts('proxy'))
    .addOption(RELEASE);
  program.add<SwapWords>(
    'restore <node>',
    'put a node’s own kubelet and proxy back; its pods run on',
    ['sudo nodelet kind restore kind-worker'],
    async (options, [node = '']) =>
      tell(program, options.json, 'restore', await restore(await findPlace(await engine(program), node), { progress: program.progress })),
  );
  program
    .add<SwapWords & { rounds: string }>(
      'prove <node>',
      'swap and restore a node again and again, with pods on it and clients outside it, and look for what they felt',
      ['sudo nodelet kind prove kind-worker', 'sudo nodelet kind prove kind-worker --rounds 10 --proxy nftables --json'],
      (options, [node = '']) => proved(program, options, node),
    )
    .option('--rounds <n>', 'how many times there and back', '1')
    .addOption(PROXY)
    .addOption(RELEASE);
  program
    .add<SwapWords>(
      'break <node>',
      'break swaps and restores of a node in every way there is a test for, and look for what they leave',
      ['sudo nodelet kind break kind-worker', 'sudo nodelet kind break kind-worker --release FILE --json'],
      (options, [node = '']) => broken(program, options, node),
    )
    .addOption(RELEASE);
  addCompare(program, root, () => engine(program));
  addConformance(program, root, () => engine(program));
  addWalks(program, () => engine(program));
  addSuite(program, root);
  program
    .add<{ json: boolean; refresh: boolean; assets?: string }>(
      'node-image',
      'make a node image for kind from the distribution’s packages and the components of nodelet assets',
      ['sudo nodelet kind node-image', 'sudo nodelet kind node-image --refresh'],
      async (options) => {
        const assets = await findAssets({ env: program.host.env, dir: options.assets });
        const image = await makeNodeImage(program, await openDocker(program), assets, options.refresh);
        program.answer(options.json, image, [`${image.name} ${image.state}: ${image.id}`, `kind create cluster --image ${image.name}`]);
        return 0;
      },
    )
    .option('--refresh', 'with today’s packages', false)
    .option('--assets <dir>', 'folder of the real components; else as: nodelet assets');
  program
    .add<{ json: boolean; output: string }>(
      'proxy-image',
      'make the image of our proxy for the DaemonSet of examples/kube-proxy.yaml, as an archive',
      ['nodelet kind proxy-image -o proxy.tar', 'kind load image-archive proxy.tar && kubectl apply -f examples/kube-proxy.yaml'],
      async (options) => {
        await requireWritable('--output', options.output);
        const made = await makeProxyImage(program, await findAssets({ env: program.host.env }), root);
        await writeProxyArchive(options.output);
        program.answer(options.json, { ...made, file: options.output }, [`${options.output}: ${PROXY_IMAGE}, ${(made.size / 1e6).toFixed(0)} MB`]);
        return 0;
      },
    )
    .requiredOption('-o, --output <file>', 'the archive');
  program.add<{ json: boolean }>(
    'docker-stop',
    'end the Docker Engine that these commands started; one that ran before is left alone',
    ['sudo nodelet kind docker-stop'],
    async (options) => {
      const done = await endDocker(program);
      const left = `${done.bridges.length} bridges and ${done.rules} rules and chains of it removed`;
      program.answer(options.json, done, [done.ended ? `ended; ${left}` : 'none of ours runs']);
      return 0;
    },
  );
});

async function engine(program: Program): Promise<Engine> {
  return { env: (await openDocker(program)).env, signal: program.host.signal };
}

/** The release that goes into nodes: the one that was named, or one of the sources as they are. */
async function releaseFile(program: Program, named: string | undefined): Promise<string> {
  if (named !== undefined) {
    if ((await stat(named).catch(() => null))?.isFile() !== true) throw new OpError('invalid', 'reading --release', `${named} is no file`);
    return named;
  }
  return program.progress.step('release made', async () => {
    const made = await exec([`${root}/nodelet`, 'release', 'make', '--json'], { signal: program.host.signal, doing: 'making a release' });
    return (JSON.parse(made.stdout) as { file: string }).file;
  });
}

/** Where the files of a cluster lie. */
function stateOf({ host: { env } }: Program, cluster: string): string {
  return `${env['XDG_STATE_HOME'] ?? `${env['HOME'] ?? '/root'}/.local/state`}/nodelet/kind/${cluster}`;
}

async function up(program: Program, words: UpWords): Promise<number> {
  const workers = Number(words.workers);
  if (!Number.isInteger(workers) || workers < 0 || workers > 20)
    throw new OpError('invalid', 'reading --workers', `${words.workers} is not a number from 0 to 20`);
  const docker = await openDocker(program);
  const assets = await findAssets({ env: program.host.env });
  const image = words.image === 'made' ? (await makeNodeImage(program, docker, assets)).name : (words.image ?? null);
  const release = words.agent === 'ours' ? await releaseFile(program, words.release) : '';
  const kubeconfig = await createCluster(program, docker, assets, {
    name: words.name,
    workers,
    agent: words.agent,
    image,
    release,
    folder: stateOf(program, words.name),
  });
  program.answer(words.json, { name: words.name, workers, agent: words.agent, image: image ?? 'kind’s own', kubeconfig }, [
    `cluster "${words.name}" with ${workers} workers (${words.agent === 'ours' ? 'ours' : 'upstream’s'})`,
    `export KUBECONFIG=${kubeconfig}${docker.env['DOCKER_HOST'] === undefined ? '' : ` DOCKER_HOST=${docker.env['DOCKER_HOST']}`}`,
  ]);
  return 0;
}

async function proved(program: Program, options: SwapWords & { rounds: string }, node: string): Promise<number> {
  const rounds = Number(options.rounds);
  if (!Number.isInteger(rounds) || rounds < 1) throw new OpError('invalid', 'reading --rounds', `${options.rounds} is not a number from 1`);
  const reach = await engine(program);
  const release = await releaseFile(program, options.release);
  const place = await findPlace(reach, node);
  await loadAgnhost(program, await findAssets({ env: program.host.env }), reach, place.cluster);
  const line = ({ what, done, served, restarted, isGood }: Round): string =>
    `${isGood ? 'good' : 'BAD '} ${what.padEnd(7)} gap ${done.gapSeconds.toFixed(1)} s, Lease ${done.leaseGapSeconds.toFixed(1)} s, Ready ${done.isReadyThroughout ? 'kept' : 'LOST'}, ${done.containers.kept} containers kept, ${done.containers.lost.length} lost, ${restarted.length} restarted; ${served.requests} requests, ${served.failures.length} failed, slowest ${served.slowestMs.toFixed(0)} ms`;
  const all = await prove(program, reach, { node, rounds, proxy: options.proxy ?? null, release }, (round) => {
    program.progress.note(line(round));
    for (const text of [...round.served.failures.slice(0, 5), ...round.restarted, ...round.done.containers.lost]) program.progress.note(`       ${text}`);
  });
  const bad = all.filter(({ isGood }) => !isGood).length;
  program.answer(options.json, { rounds: all, bad }, [...all.map(line), `${all.length - bad} of ${all.length} good`]);
  return bad === 0 ? 0 : 1;
}

async function broken(program: Program, options: SwapWords, node: string): Promise<number> {
  const release = await releaseFile(program, options.release);
  const line = ({ how, isGood, words, seconds }: Broken): string => `${isGood ? 'good' : 'BAD '} ${how} (${seconds.toFixed(0)} s): ${words.join('; ')}`;
  const all = await breakSwaps(program, await engine(program), { root, node, release }, (one) => program.progress.note(line(one)));
  const bad = all.filter(({ isGood }) => !isGood).length;
  program.answer(options.json, { all, bad }, [...all.map(line), `${all.length - bad} of ${all.length} good`]);
  return bad === 0 ? 0 : 1;
}

function tell(program: Program, json: boolean, what: 'swap' | 'restore', done: Swapped): number {
  const { containers, proxy } = done;
  program.answer(json, done, [
    `${done.node}: ${done.from} -> ${done.to}`,
    `the other kubelet's first word after ${done.gapSeconds.toFixed(1)} s; Ready ${done.isReadyThroughout ? 'was True throughout' : 'was not True throughout'}; Lease renewed after ${done.leaseGapSeconds.toFixed(1)} s`,
    `${containers.kept} containers run on${containers.lost.length === 0 ? '' : `; ended: ${containers.lost.join(', ')}`}${containers.added.length === 0 ? '' : `; new: ${containers.added.join(', ')}`}`,
    ...(proxy === null
      ? []
      : [
          what === 'swap'
            ? `proxy: ours in ${proxy.mode} mode; what was changed in the cluster, and is taken back by restore:`
            : 'proxy: the node’s own again; what was changed in the cluster was taken back:',
          ...proxy.commands.map((line) => `  ${line}`),
        ]),
  ]);
  return done.isReadyThroughout && containers.lost.length === 0 ? 0 : 1;
}
