import { dirname } from 'node:path';
import { OpError } from '../../base/errors.ts';
import { findAssets } from '../assets/find.ts';
import { useCluster } from '../cluster/own.ts';
import type { Program } from '../../scripts/command.ts';
import { askSpecs } from './ask.ts';
import { commitOf, openCluster, type Cluster } from './cluster.ts';
import { recordCalls, type Calls } from './calls.ts';
import { collectFailure, removeNamespaces } from './collect.ts';
import { conduct, type Answer } from './conduct.ts';
import { FEATURE_SUITES, isFeatureSuite, NODE_SUITES, SECTION_SPECS } from './features.ts';
import type { Target } from './run.ts';
import type { Side } from './scoreboard.ts';
import { isSide, pathsIn, refresh } from './store.ts';
import { E2E_SUITES, parseShard, patternProblem, select, type Spec } from './suites.ts';

export interface RunOptions {
  readonly suite: string;
  readonly focus: readonly string[];
  readonly skip: readonly string[];
  readonly names?: string;
  readonly parallel: string;
  readonly shard?: string;
  readonly resume?: true;
  readonly name?: string;
  readonly agent?: string;
  readonly nodes: string;
  readonly assets?: string;
  readonly json?: string | boolean;
  readonly keep?: true;
  readonly score: boolean;
  readonly calls?: true;
}

interface Programs {
  readonly ginkgo: string;
  readonly e2e: string;
  readonly kubectl: string;
}

function wholeNumber(text: string, flag: string, least: number, most: number): number {
  if (/^\d{1,6}$/.test(text) && Number(text) >= least && Number(text) <= most) return Number(text);
  throw new OpError('invalid', `reading ${flag}`, `"${text}" is no number from ${least} to ${most}`);
}

function sideOf(text: string | undefined): Side | null {
  if (text === undefined || isSide(text)) return text ?? null;
  throw new OpError('invalid', 'reading --agent', `"${text}" is neither ours nor upstream`);
}

/** Options that are whole, read. Throws OpError `invalid` on the first that is not. */
export interface Checked {
  readonly parallel: number;
  readonly nodes: number;
  readonly wanted: Side | null;
  /** The specs of a suite that focus, skip and shard leave. */
  select(suite: string, specs: readonly Spec[]): Spec[];
}

/** What `--suite` takes for e2e.test. */
export const CLUSTER_SUITES = [...E2E_SUITES, ...FEATURE_SUITES] as const;

/** Refuses a suite that there is not, and patterns that are none: OpError `invalid`. */
export function checkChoice({ suite, focus, skip }: Pick<RunOptions, 'suite' | 'focus' | 'skip'>, known: readonly string[] = CLUSTER_SUITES): void {
  if (!known.includes(suite)) throw new OpError('invalid', 'reading --suite', `there is no suite "${suite}"`, { advice: `use one of: ${known.join(', ')}` });
  checkPatterns(focus, skip);
}

/** The specs of e2e.test that a suite has before focus and skip: what `select` takes, and as which suite. */
export function suiteOfCluster(suite: string, specs: readonly Spec[]): [string, readonly Spec[]] {
  return isFeatureSuite(suite) ? ['every', SECTION_SPECS[suite](specs)] : [suite, specs];
}

function checkPatterns(focus: readonly string[], skip: readonly string[]): void {
  for (const [flag, texts] of Object.entries({ '--focus': focus, '--skip': skip })) {
    for (const text of texts) {
      const problem = patternProblem(text);
      if (problem !== null) throw new OpError('invalid', `reading ${flag}`, problem);
    }
  }
}

export function checkOptions(options: RunOptions): Checked {
  const { focus, skip } = options;
  checkPatterns(focus, skip);
  const shard = options.shard === undefined ? null : parseShard(options.shard);
  if (options.shard !== undefined && shard === null) throw new OpError('invalid', 'reading --shard', `"${options.shard}" is not of the form i/n, such as 1/4`);
  return {
    parallel: wholeNumber(options.parallel, '--parallel', 1, 64),
    nodes: wholeNumber(options.nodes, '--nodes', 1, 20),
    wanted: sideOf(options.agent),
    select(suite, specs) {
      const chosen = select(specs, { suite, focus, skip, ...(shard === null ? {} : { shard }) });
      if (chosen.length === 0)
        throw new OpError('invalid', 'choosing specs', 'no spec of the suite matches', { advice: 'nodelet conformance list shows the names of e2e.test’s' });
      return chosen;
    },
  };
}

/** `--suite node|…|all|every`. */
export async function runE2e(program: Program, root: string, options: RunOptions, exact: readonly string[] | null): Promise<Answer> {
  const { host, progress } = program;
  checkChoice(options, [...CLUSTER_SUITES, ...NODE_SUITES, 'critest']);
  const checked = checkOptions(options);
  const assets = await findAssets({ env: host.env, dir: options.assets });
  const programs = {
    e2e: assets.require('e2e.test', 'running Kubernetes’ e2e suites'),
    ginkgo: assets.require('ginkgo', 'running Kubernetes’ e2e suites'),
    kubectl: assets.require('kubectl', 'running Kubernetes’ e2e suites'),
  };
  const home = `${root}/dist/conformance`;
  const { description, specs } = await progress.step('list the specs', () => askSpecs(programs.e2e, home, ['--provider=skeleton'], host.signal));
  const chosen = exact === null ? checked.select(...suiteOfCluster(options.suite, specs)) : checked.select('every', namedSpecs(specs, exact, 'e2e.test'));
  const paths = options.score ? pathsIn(root) : null;
  const kind = isFeatureSuite(options.suite) ? options.suite : 'e2e';
  if (kind !== 'e2e' && paths !== null) await refresh(paths, { [kind]: SECTION_SPECS[kind](specs) });
  await using cluster = await clusterFor(program, root, options, { ...checked, kubectl: programs.kubectl });
  const opened = cluster.cluster;
  await using calls = options.calls === true ? await recordCalls(program, root, opened) : null;
  return await conduct(program, {
    home: `${home}/runs`,
    asked: {
      kind,
      side: opened.side,
      suite: exact === null ? options.suite : 'names',
      focus: options.focus,
      skip: options.skip,
      shard: options.shard ?? '',
    },
    facts: { commit: await commitOf(root), versions: opened.versions, nodes: opened.nodes.length, parallel: checked.parallel },
    description,
    specs,
    chosen,
    isResumed: options.resume === true,
    target: targetOf(opened, programs, calls),
    paths,
    tidy: async () => `${await removeNamespaces(opened)} namespaces`,
  });
}

/** Ginkgo's parallel runner with the unchanged e2e.test. */
function targetOf(cluster: Cluster, programs: Programs, calls: Calls | null): Target {
  return {
    argv: ({ procs, dir, report, ginkgo }) => [
      programs.ginkgo,
      `--procs=${procs}`,
      `--json-report=${report}`,
      `--output-dir=${dir}`,
      ...ginkgo,
      programs.e2e,
      '--',
      `--kubeconfig=${cluster.kubeconfig}`,
      '--provider=skeleton',
      `--num-nodes=${cluster.nodes.length}`,
      `--kubectl-path=${programs.kubectl}`,
      // What is left of a failed spec is looked at first, and removed then.
      '--delete-namespace-on-failure=false',
      '--disable-log-dump',
      '--system-pods-startup-timeout=5m',
      `--e2e-output-dir=${dir}`,
    ],
    env: { KUBECONFIG: cluster.kubeconfig, PATH: `${dirname(programs.kubectl)}:${process.env['PATH'] ?? ''}` },
    isReady: () => cluster.isReady(),
    collect: (failures, outcome, output) => collectFailure(cluster, failures, outcome, output, calls),
  };
}

/** The specs with these names; throws when `binary` has no such one. */
export function namedSpecs(specs: readonly Spec[], exact: readonly string[], binary: string): Spec[] {
  const names = new Set(specs.map((spec) => spec.name));
  const unknown = exact.find((name) => !names.has(name));
  if (unknown !== undefined) throw new OpError('invalid', 'choosing specs', `${binary} has no spec "${unknown}"`);
  const wanted = new Set(exact);
  return specs.filter((spec) => wanted.has(spec.name));
}

/** What a suite about the network needs: both families, and our pod network where the agent is ours. */
const networkOf = (suite: string, side: Side): readonly string[] =>
  ['network-features', 'policies'].includes(suite) ? ['--dual-stack', ...(side === 'ours' ? ['--cni', 'nodelet'] : [])] : [];

/** The cluster that was named, or one of its own that goes when it is disposed; nobody else runs specs on it meanwhile. */
export async function clusterFor(
  program: Program,
  root: string,
  options: RunOptions,
  want: { wanted: Side | null; nodes: number; kubectl: string },
): Promise<AsyncDisposable & { cluster: Cluster }> {
  const { host } = program;
  const side = want.wanted ?? 'ours';
  const assets = options.assets === undefined ? [] : ['--assets', options.assets];
  await using scope = new AsyncDisposableStack();
  const { name } = scope.use(
    await useCluster(program, {
      root,
      name: options.name,
      ownName: `conformance-${side}`,
      up: ['--agent', side, '--nodes', String(want.nodes), '--images', 'e2e', '--audit', ...assets, ...networkOf(options.suite, side)],
      keep: options.keep === true,
    }),
  );
  const cluster = await openCluster({ env: host.env, name, side: want.wanted, kubectl: want.kubectl, signal: host.signal });
  const kept = scope.move();
  return { cluster, [Symbol.asyncDispose]: () => kept.disposeAsync() };
}
