import { writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { OpError } from '../../base/errors.ts';
import { findPlace, type Engine, type Place } from '../../scripts/kind/place.ts';
import type { Program } from '../../scripts/command.ts';
import { findAssets } from '../assets/find.ts';
import { askSpecs } from '../conformance/ask.ts';
import { commitOf } from '../conformance/cluster.ts';
import { collectFailure, removeNamespaces } from '../conformance/collect.ts';
import { conduct, type Answer } from '../conformance/conduct.ts';
import { E2E_SUITES, parseShard, patternProblem, select, type Spec } from '../conformance/suites.ts';
import { imagesDir } from '../images/command.ts';
import { makeE2eImages } from '../images/make.ts';
import { loadImages } from './images.ts';
import { nodeObjects, onlyOn, openKindCluster } from './judge.ts';

export interface ConformanceWords {
  readonly suite: string;
  readonly focus: readonly string[];
  readonly skip: readonly string[];
  readonly parallel: string;
  readonly shard?: string;
  readonly spread: boolean;
  readonly resume?: true;
  readonly json: boolean | string;
}

/** Images that critest alone asks for. */
const OF_CRITEST = /\/k8s-staging-cri-tools\//;
/** A wide timeout of the system's pods: a node image made here has none that could be late. */
const PODS_LATE = '5m';

function chosenOf(words: ConformanceWords, specs: readonly Spec[]): Spec[] {
  const { suite, focus, skip } = words;
  if (!(E2E_SUITES as readonly string[]).includes(suite))
    throw new OpError('invalid', 'reading --suite', `there is no suite "${suite}"`, { advice: `use one of: ${E2E_SUITES.join(', ')}` });
  for (const text of [...focus, ...skip]) {
    const problem = patternProblem(text);
    if (problem !== null) throw new OpError('invalid', 'reading --focus and --skip', problem);
  }
  const shard = words.shard === undefined ? null : parseShard(words.shard);
  if (words.shard !== undefined && shard === null) throw new OpError('invalid', 'reading --shard', `"${words.shard}" is not of the form i/n`);
  const chosen = select(specs, { suite, focus, skip, ...(shard === null ? {} : { shard }) });
  if (chosen.length === 0) throw new OpError('invalid', 'choosing specs', 'no spec of the suite matches');
  return chosen;
}

/** Kubernetes' suites against a kind cluster, its specs on one node alone or spread over the workers. */
export async function judge(program: Program, engine: Engine, root: string, node: string, words: ConformanceWords): Promise<Answer> {
  const { host, progress } = program;
  const parallel = Number(words.parallel);
  if (!Number.isInteger(parallel) || parallel < 1 || parallel > 64)
    throw new OpError('invalid', 'reading --parallel', `${words.parallel} is no number from 1 to 64`);
  const assets = await findAssets({ env: host.env });
  const e2e = assets.require('e2e.test', 'running Kubernetes’ e2e suites');
  const ginkgo = assets.require('ginkgo', 'running Kubernetes’ e2e suites');
  const kubectl = assets.require('kubectl', 'running Kubernetes’ e2e suites');
  const place = await findPlace(engine, node);
  const home = `${root}/dist/conformance`;
  const { description, specs } = await progress.step('list the specs', () => askSpecs(e2e, home, ['--provider=skeleton'], host.signal));
  const chosen = chosenOf(words, specs);
  const tested = words.spread ? await schedulable(place) : [node];
  await loadE2eImages(program, place, tested);
  const cluster = await openKindCluster(place, assets, `${home}/kind-${place.cluster}`, tested);
  await using _alone = words.spread ? null : await onlyOn(place, node);
  return await conduct(program, {
    home: `${home}/runs`,
    asked: { kind: 'e2e', side: cluster.side, suite: words.suite, focus: words.focus, skip: words.skip, shard: words.shard ?? '' },
    facts: { commit: await commitOf(root), versions: cluster.versions, nodes: tested.length, parallel },
    description,
    specs,
    chosen,
    isResumed: words.resume === true,
    target: {
      argv: ({ procs, dir, report, ginkgo: further }) => [
        ...([ginkgo, `--procs=${procs}`, `--json-report=${report}`, `--output-dir=${dir}`, ...further, e2e, '--'] as [string, ...string[]]),
        ...[`--kubeconfig=${cluster.kubeconfig}`, '--provider=skeleton', `--num-nodes=${tested.length}`, `--kubectl-path=${kubectl}`],
        ...['--delete-namespace-on-failure=false', '--disable-log-dump', `--system-pods-startup-timeout=${PODS_LATE}`, `--e2e-output-dir=${dir}`],
      ],
      env: { KUBECONFIG: cluster.kubeconfig, PATH: `${dirname(kubectl)}:${host.env['PATH'] ?? ''}` },
      isReady: () => cluster.isReady(),
      collect: (failures, outcome, output) => collectFailure(cluster, failures, outcome, output, null),
    },
    // The scoreboard counts clusters of `nodelet cluster`, which are all made alike.
    paths: null,
    tidy: async () => `${await removeNamespaces(cluster)} namespaces`,
  });
}

async function schedulable(place: Place): Promise<string[]> {
  const objects = await nodeObjects(place);
  return objects.filter(({ spec }) => spec.unschedulable !== true && (spec.taints ?? []).length === 0).map(({ metadata }) => metadata.name);
}

async function loadE2eImages(program: Program, place: Place, nodes: readonly string[]): Promise<void> {
  const { host, progress } = program;
  const assets = await findAssets({ env: host.env });
  const made = await makeE2eImages({ host, store: { dir: imagesDir() }, assets, progress, choice: {}, build: false });
  await loadImages(program, assets, place.engine, {
    cluster: place.cluster,
    nodes,
    images: made.images.map(({ name }) => name).filter((name) => !OF_CRITEST.test(name)),
  });
}

/** Adds `nodelet kind conformance`. */
export function addConformance(program: Program, root: string, engine: () => Promise<Engine>): void {
  const collect = (value: string, before: readonly string[]): string[] => [...before, value];
  program
    .add<ConformanceWords>(
      'conformance <node>',
      'Kubernetes’ own suites with their pods on this node alone, or spread over the cluster’s workers',
      [
        'sudo nodelet kind conformance kind-worker --suite network',
        'sudo nodelet kind conformance kind-worker --suite node --shard 1/4 --json node.json',
        'sudo nodelet kind conformance kind-worker --suite network --spread',
      ],
      async (words, [node = '']) => {
        const answer = await judge(program, await engine(), root, node, words);
        const failed = answer.results.filter(({ result }) => result === 'failed');
        if (typeof words.json === 'string') await writeFile(words.json, `${JSON.stringify(answer, null, 1)}\n`);
        program.answer(words.json === true, answer, [
          ...failed.map(({ name }) => `failed: ${name}`),
          `${answer.suite} on ${node}, ${answer.side}: ${answer.passed} passed, ${answer.failed} failed, ${answer.skipped} skipped, ${answer.notRun} not run of ${answer.chosen} in ${answer.seconds} s`,
          `results: ${answer.dir}`,
        ]);
        return answer.failed > 0 || answer.notRun > 0 ? 1 : 0;
      },
      { jsonFile: true },
    )
    .option('--suite <name>', E2E_SUITES.join(', '), 'network')
    .option('--focus <regexp>', 'only specs whose name matches; may be given several times', collect, [])
    .option('--skip <regexp>', 'no spec whose name matches; may be given several times', collect, [])
    .option('--parallel <count>', 'how many specs at once', '4')
    .option('--shard <i/n>', 'the i-th of n parts')
    .option('--spread', 'on all workers; left out: the others are cordoned meanwhile', false)
    .option('--resume', 'go on with the last run of the same suite, focus, skip, shard and agent: specs without a result');
}
