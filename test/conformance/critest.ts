import { dirname } from 'node:path';
import { findAssets } from '../assets/find.ts';
import type { Program } from '../../scripts/command.ts';
import { askSpecs } from './ask.ts';
import { bareNode } from './bare.ts';
import { commitOf } from './cluster.ts';
import { saveNodeFailure } from './collect.ts';
import { conduct, type Answer } from './conduct.ts';
import { checkOptions, clusterFor, type RunOptions } from './e2e.ts';
import type { Target } from './run.ts';
import { pathsIn } from './store.ts';

export const SOCKET = 'unix:///run/containerd/containerd.sock';
/** How streams are asked for; each way is judged for itself. */
export const WAYS = {
  spdy: [],
  websocket: ['-websocket-exec', '-websocket-attach', '-websocket-portforward'],
} as const;

/** critest's command line against a socket: Ginkgo's `words` without its prefix, `report` for its results when `procs` is one. */
export function critestArgv(critest: string, socket: string, procs: number, report: string, words: readonly string[], flags: readonly string[]): string[] {
  return [
    critest,
    ...words.map((word) => word.replace(/^--?/, '--ginkgo.')),
    // In parallel critest starts Ginkgo itself, which would write it elsewhere.
    // `-parallel` of one is refused by Ginkgo.
    ...(procs === 1 ? [`--ginkgo.json-report=${report}`] : [`-parallel=${procs}`]),
    `-runtime-endpoint=${socket}`,
    `-image-endpoint=${socket}`,
    ...flags,
  ];
}

/** `--suite critest`: the runtime of a cluster's first node, whose kubelet stands still meanwhile, by SPDY and by websocket. */
export async function runCritest(program: Program, root: string, options: RunOptions): Promise<Answer[]> {
  const { host, progress } = program;
  const checked = checkOptions(options);
  const assets = await findAssets({ env: host.env, dir: options.assets });
  const critest = assets.require('critest', 'testing a runtime');
  const ginkgo = assets.require('ginkgo', 'testing a runtime');
  const kubectl = assets.require('kubectl', 'testing a runtime');
  const home = `${root}/dist/conformance`;
  const { description, specs } = await progress.step('list the specs', () => askSpecs(critest, home, [], host.signal));
  await using made = await clusterFor(program, root, options, { ...checked, kubectl });
  const { cluster } = made;
  await using node = await bareNode(root, `${cluster.state}/nodes/${cluster.nodes[0]}`, host.signal);
  const runtime = `containerd-${(cluster.versions['containerd'] ?? '').split('.').slice(0, 2).join('.')}`;
  const chosen = checked.select(
    'every',
    specs.filter(({ name }) => !name.includes('benchmark')),
  );
  const answers: Answer[] = [];
  for (const [way, flags] of Object.entries(WAYS)) {
    const target: Target = {
      argv: ({ procs, dir, report, ginkgo: words }) => node.inside(critestArgv(critest, SOCKET, procs, `${dir}/${report}`, words, flags)),
      // critest starts Ginkgo's command by its name when it runs in parallel.
      env: { PATH: `${dirname(ginkgo)}:${host.env['PATH'] ?? ''}` },
      isReady: () => Promise.resolve(true),
      collect: (failures, outcome, output) => saveNodeFailure(failures, outcome, output, []),
    };
    const side = way === 'spdy' ? runtime : `${runtime}-${way}`;
    answers.push(
      await conduct(program, {
        home: `${home}/runs`,
        asked: { kind: 'critest', side, suite: 'critest', focus: options.focus, skip: options.skip, shard: options.shard ?? '' },
        facts: { commit: await commitOf(root), versions: cluster.versions, nodes: 1, parallel: checked.parallel },
        description,
        specs,
        chosen,
        isResumed: options.resume === true,
        target,
        paths: options.score ? pathsIn(root) : null,
        tidy: () => Promise.resolve('nothing else'),
      }),
    );
  }
  return answers;
}
