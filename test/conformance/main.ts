import { readFile, writeFile } from 'node:fs/promises';
import { OpError } from '../../base/errors.ts';
import { findAssets } from '../assets/find.ts';
import { requireWritable, runProgram, type Program } from '../../scripts/command.ts';
import { askSpecs } from './ask.ts';
import type { Answer } from './conduct.ts';
import { runCritest } from './critest.ts';
import { checkChoice, CLUSTER_SUITES, runE2e, suiteOfCluster, type RunOptions } from './e2e.ts';
import { runE2eNode } from './e2e-node.ts';
import { FEATURE_SUITES, isFeatureSuite, isNodeSuite, NODE_SUITES, SECTION_SPECS } from './features.ts';
import { listRuns, readJournal } from './journal.ts';
import { runPolicies, type PolicyOptions } from './policies.ts';
import { keep, pathsIn, refresh, render } from './store.ts';
import { E2E_SUITES, isConformance, isJudged, isNodeConformance, select, suiteOf } from './suites.ts';

const root = new URL('../..', import.meta.url).pathname.replace(/\/$/, '');
const collect = (value: string, before: readonly string[]): string[] => [...before, value];

async function run(program: Program, options: RunOptions): Promise<number> {
  await requireWritable('--json', typeof options.json === 'string' ? options.json : undefined);
  const exact = options.names === undefined ? null : await namesFrom(options.names);
  const runs: Readonly<Record<string, () => Promise<Answer[]>>> = {
    critest: () => runCritest(program, root, options),
    ...Object.fromEntries(NODE_SUITES.map((suite) => [suite, async () => [await runE2eNode(program, root, { ...options, suite }, exact)]])),
  };
  const answers = await (runs[options.suite]?.() ?? [await runE2e(program, root, options, exact)]);
  const [first] = answers;
  const data = answers.length === 1 ? first : answers;
  if (typeof options.json === 'string') await writeFile(options.json, `${JSON.stringify(data, null, 1)}\n`);
  program.answer(options.json === true, data, answers.flatMap(summary));
  return answers.some((answer) => answer.failed > 0 || answer.notRun > 0) ? 1 : 0;
}

async function namesFrom(path: string): Promise<string[]> {
  const text = await readFile(path, 'utf8').catch((cause: Error) => {
    throw new OpError('not-found', `reading ${path}`, cause.message, { cause });
  });
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '' && !line.startsWith('#'));
}

function summary(answer: Answer): string[] {
  const failed = answer.results.filter((outcome) => outcome.result === 'failed');
  return [
    ...failed.map((outcome) => `failed: ${outcome.name}`),
    `${answer.suite} on ${answer.side}: ${answer.passed} passed, ${answer.failed} failed, ${answer.skipped} skipped, ${answer.notRun} not run of ${answer.chosen} in ${answer.seconds} s`,
    `results: ${answer.dir} (junit.xml${failed.length === 0 ? '' : ', failures/'})`,
  ];
}

interface ListOptions {
  readonly suite: string;
  readonly focus: readonly string[];
  readonly skip: readonly string[];
  readonly assets?: string;
  readonly update?: true;
  readonly json: boolean;
}

async function list(program: Program, options: ListOptions): Promise<number> {
  const { suite } = options;
  checkChoice(options, [...CLUSTER_SUITES, ...NODE_SUITES]);
  const assets = await findAssets({ env: program.host.env, dir: options.assets });
  const [binary, args] = isNodeSuite(suite) ? (['e2e_node.test', []] as const) : (['e2e.test', ['--provider=skeleton']] as const);
  const { specs } = await askSpecs(assets.require(binary, 'listing its specs'), `${root}/dist/conformance`, args, program.host.signal);
  const section = isNodeSuite(suite) || isFeatureSuite(suite) ? suite : null;
  if (options.update === true) {
    await refresh(pathsIn(root), section === null ? { e2e: specs } : { [section]: SECTION_SPECS[section](specs) });
    program.progress.note(`  ${section === null ? 'the judged specs' : `the specs of ${section}`} are those of this binary`);
  }
  const [as, from] = isNodeSuite(suite) ? (['every', SECTION_SPECS[suite](specs)] as const) : suiteOfCluster(suite, specs);
  const chosen = select(from, { ...options, suite: as });
  const counts = {
    binary: specs.length,
    judged: specs.filter(isJudged).length,
    conformance: specs.filter(isConformance).length,
    nodeConformance: specs.filter(isNodeConformance).length,
    chosen: chosen.length,
  };
  program.answer(options.json, { counts, specs: chosen.map((spec) => ({ ...spec, suite: suiteOf(spec.name) })) }, [
    ...chosen.map((spec) => spec.name),
    `${counts.chosen} chosen; of ${counts.binary} specs ${counts.conformance} are Conformance, ${counts.nodeConformance} NodeConformance, ${counts.judged} one of both`,
  ]);
  return 0;
}

/** Results of runs that were killed before they could be added, then scoreboard and page. */
async function page(program: Program, options: { check?: true; json: boolean }): Promise<number> {
  const paths = pathsIn(root);
  if (options.check === true) {
    const made = await render(paths);
    const isFresh =
      (await readFile(paths.scoreboard, 'utf8').catch(() => '')) === made.scoreboard && (await readFile(paths.page, 'utf8').catch(() => '')) === made.page;
    if (!isFresh) throw new OpError('conflict', 'checking docs/conformance.md', 'it is not what the results say', { advice: 'run: nodelet conformance page' });
    return 0;
  }
  const board = await refresh(paths);
  program.answer(options.json, { tests: Object.keys(board.tests).length, runs: Object.keys(board.runs).length }, [
    `${paths.scoreboard} and ${paths.page} say what the results say`,
  ]);
  return 0;
}

async function merge(program: Program, options: { json: boolean }, ids: readonly string[]): Promise<number> {
  const paths = pathsIn(root);
  const runs = await listRuns(`${root}/dist/conformance/runs`);
  const wanted = ids.length === 0 ? runs : ids.map((id) => runs.find((one) => one.facts.id === id) ?? missing(id));
  let added = 0;
  for (const one of wanted) {
    added += await keep(paths, one.asked.kind, one.asked.side, one.facts, await readJournal(one.dir));
  }
  program.answer(options.json, { runs: wanted.length, results: added }, [`${added} results of ${wanted.length} runs are kept`]);
  return 0;
}

function missing(id: string): never {
  throw new OpError('not-found', 'looking for a run', `there is none called ${id}`, { advice: 'they are folders of dist/conformance/runs' });
}

await runProgram('conformance', 'Kubernetes’ own suites against a cluster, and the scoreboard of their results', (program) => {
  program
    .add<RunOptions>(
      'run',
      'run a suite',
      [
        'sudo ./nodelet conformance --suite node --agent ours            a cluster of its own, gone afterwards',
        'sudo ./nodelet conformance --name CLUSTER --focus "Pods should" specs on a cluster that is there',
        'sudo ./nodelet conformance --name CLUSTER --suite all --resume  go on with a run that was stopped or killed',
        'sudo ./nodelet conformance --suite all --shard 1/4 --json FILE',
      ],
      (options) => run(program, options),
      { isDefault: true, jsonFile: true },
    )
    .option(
      '--suite <name>',
      `${E2E_SUITES.join(', ')} (every: also what the scoreboard does not count), ${FEATURE_SUITES.join(', ')}, e2e-node or node-features (e2e_node.test), or critest`,
      'all',
    )
    .option('--focus <regexp>', 'only specs whose name matches; may be given several times', collect, [])
    .option('--skip <regexp>', 'no spec whose name matches; may be given several times', collect, [])
    .option('--names <file>', 'only the specs with these names, a line each')
    .option('--parallel <count>', 'how many specs at once; those that need the cluster alone run afterwards, one by one', '8')
    .option('--shard <i/n>', 'the i-th of n parts')
    .option('--resume', 'go on with the last run of the same suite, focus, skip, shard and agent: specs without a result')
    .option('--name <cluster>', 'a cluster that runs; without it one is brought up, and taken down afterwards')
    .option('--agent <who>', 'ours or upstream; of a named cluster what it has')
    .option('--nodes <count>', 'nodes of a cluster of its own', '2')
    .option('--keep', 'leave the cluster of its own running')
    .option('--no-score', 'keep the results out of the scoreboard')
    .option('--calls', 'stand between kubelet and runtime on each node, and keep the calls of a failed spec’s namespaces')
    .option('--assets <dir>', 'where the real components are');
  program
    .add<ListOptions>('list', 'the specs of a suite by name, and how many there are', ['./nodelet conformance list --suite node'], (options) =>
      list(program, options),
    )
    .option('--suite <name>', [...CLUSTER_SUITES, ...NODE_SUITES].join(', '), 'all')
    .option('--focus <regexp>', 'only specs whose name matches', collect, [])
    .option('--skip <regexp>', 'no spec whose name matches', collect, [])
    .option('--update', 'make this binary’s specs of the suite those of the scoreboard')
    .option('--assets <dir>', 'where the real components are');
  program
    .add<PolicyOptions>(
      'policies',
      'SIG Network’s own tests of ClusterNetworkPolicy against our pod network',
      ['sudo ./nodelet conformance policies --name CLUSTER', 'sudo ./nodelet conformance policies --focus Baseline'],
      (options) => runPolicies(program, root, options),
    )
    .option('--name <cluster>', 'a cluster that runs; without it one is brought up, and taken down afterwards')
    .option('--nodes <count>', 'nodes of a cluster of its own', '2')
    .option('--focus <regexp>', 'only tests whose name matches', '')
    .option('--keep', 'leave the cluster of its own running')
    .option('--assets <dir>', 'where the real components are');
  program
    .add<{ check?: true; json: boolean }>(
      'page',
      'write scoreboard.json and docs/conformance.md from the results that are kept',
      ['./nodelet conformance page'],
      (options) => page(program, options),
    )
    .option('--check', 'write nothing; fail when they say something else');
  program.add<{ json: boolean }>(
    'merge [runs...]',
    'keep the results of runs that were killed or ran with --no-score; all of dist/conformance/runs when none is named',
    ['./nodelet conformance merge 20261129T221005Z-ours-1a2b'],
    (options, ids) => merge(program, options, ids),
  );
});
