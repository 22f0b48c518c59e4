import { mkdir, writeFile } from 'node:fs/promises';
import { OpError } from '../../base/errors.ts';
import { findAssets } from '../assets/find.ts';
import { useCluster } from '../cluster/own.ts';
import type { ContainerdChoice } from '../cluster/programs.ts';
import type { Program } from '../../scripts/command.ts';
import { askSpecs } from '../conformance/ask.ts';
import { bareNode } from '../conformance/bare.ts';
import { openCluster } from '../conformance/cluster.ts';
import { SOCKET, WAYS } from '../conformance/critest.ts';
import { patternProblem, select } from '../conformance/suites.ts';
import { Critest, type Results } from './critest-run.ts';
import { startTap } from './tap-inside.ts';
import { compareRuns, count, type Difference } from './verify-compare.ts';

export interface VerifyOptions {
  readonly json: boolean;
  readonly critest: boolean;
  readonly containerd?: ContainerdChoice;
  readonly spdy: boolean;
  readonly websocket: boolean;
  readonly focus: readonly string[];
  readonly skip: readonly string[];
  readonly parallel: string;
  readonly name?: string;
  readonly keep: boolean;
}

type Way = keyof typeof WAYS;

interface Counts {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

interface WayAnswer {
  readonly way: Way;
  readonly direct: Counts;
  readonly tapped: Counts;
  readonly differences: readonly Difference[];
  readonly failedInBoth: readonly string[];
  /** The tap's last words: connections, bytes, calls. */
  readonly tap: string;
}

const ROOT = new URL('../..', import.meta.url).pathname.replace(/\/$/, '');
const TAPPED = '/run/nodelet-verify.sock';
const OWN = 'cri-verify';

function checked(options: VerifyOptions): { readonly parallel: number; readonly ways: readonly Way[] } {
  if (!options.critest) throw new OpError('invalid', 'choosing a suite', 'none is named', { advice: 'write: nodelet cri verify --critest' });
  for (const pattern of [...options.focus, ...options.skip]) {
    const problem = patternProblem(pattern);
    if (problem !== null) throw new OpError('invalid', 'choosing specs', problem);
  }
  if (options.name !== undefined && options.containerd !== undefined)
    throw new OpError('invalid', 'choosing a runtime', 'a cluster that runs has its own', { advice: 'leave --containerd or --name away' });
  const parallel = Number(options.parallel);
  if (!Number.isInteger(parallel) || parallel < 1 || parallel > 64)
    throw new OpError('invalid', 'reading --parallel', `"${options.parallel}" is no number from 1 to 64`);
  if (process.geteuid?.() !== 0) throw new OpError('denied', 'running critest', 'this needs root', { advice: 'run it with sudo' });
  const all: readonly Way[] = ['spdy', 'websocket'];
  return { parallel, ways: options.spdy === options.websocket ? all : all.filter((way) => options[way]) };
}

function sum(answers: readonly WayAnswer[], side: 'direct' | 'tapped'): Counts {
  const add = (key: keyof Counts): number => answers.reduce((total, answer) => total + answer[side][key], 0);
  return { passed: add('passed'), failed: add('failed'), skipped: add('skipped') };
}

/**
 * `nodelet cri verify --critest`: the same specs straight and through the tap, by SPDY and by websocket. A spec that ends
 * differently is run alone, three times on each side in turn: it differs only when neither side ever ends as the other.
 */
export async function verify(program: Program, options: VerifyOptions): Promise<number> {
  const { host, progress } = program;
  const { parallel, ways } = checked(options);
  const assets = await findAssets({ env: host.env });
  const [critest, ginkgo, kubectl] = (['critest', 'ginkgo', 'kubectl'] as const).map((name) => assets.require(name, 'testing a runtime'));
  if (critest === undefined || ginkgo === undefined || kubectl === undefined) return 1;
  const home = `${ROOT}/dist/conformance`;
  const { description, specs } = await progress.step('list the specs', () => askSpecs(critest, home, [], host.signal));
  const chosen = select(
    specs.filter(({ name }) => !name.includes('benchmark')),
    { suite: 'every', focus: options.focus, skip: options.skip },
  );
  if (chosen.length === 0) throw new OpError('invalid', 'choosing specs', 'no spec of the suite matches');
  await using used = await useCluster(program, {
    root: ROOT,
    name: options.name,
    ownName: OWN,
    up: ['--agent', 'upstream', '--nodes', '1', '--containerd', options.containerd ?? '2.4', '--images', 'e2e'],
    keep: options.keep,
  });
  const cluster = await openCluster({ env: host.env, name: used.name, side: null, kubectl, signal: host.signal });
  await using node = await bareNode(ROOT, `${cluster.state}/nodes/${cluster.nodes[0]}`, host.signal);
  const work = `${ROOT}/dist/cri-verify/${new Date().toISOString().replaceAll(/[-:]|\.\d+/g, '')}-${cluster.versions['containerd']}`;
  await mkdir(work, { recursive: true });
  const answers: WayAnswer[] = [];
  for (const way of ways) {
    const runner = new Critest({ critest, ginkgo, node, specs, description, flags: WAYS[way], work, host, progress });
    const direct: Results = await runner.run(`${way}, straight`, SOCKET, chosen, parallel);
    const tap = await startTap(ROOT, node, { listen: TAPPED, upstream: SOCKET.slice('unix://'.length), record: `${work}/${way}.crirec` });
    try {
      const tapped: Results = await runner.run(`${way}, through the tap`, `unix://${TAPPED}`, chosen, parallel);
      const again = async (name: string, side: 'direct' | 'tapped'): Promise<string> => {
        const spec = chosen.filter((each) => each.name === name);
        return (await runner.run(`${side}: ${name}`, side === 'direct' ? SOCKET : `unix://${TAPPED}`, spec, 1)).get(name)?.result ?? 'none';
      };
      const { differences, failedInBoth } = await compareRuns(direct, tapped, again);
      answers.push({ way, direct: count(direct), tapped: count(tapped), differences, failedInBoth, tap: await tap.stop() });
    } finally {
      await tap.stop();
    }
  }
  const answer = {
    versions: { ...cluster.versions, critest: assets.versions().critest?.version ?? '' },
    direct: sum(answers, 'direct'),
    tapped: sum(answers, 'tapped'),
    differs: answers.flatMap(({ way, differences }) => differences.filter(({ verdict }) => verdict === 'differs').map(({ name }) => `${way}: ${name}`)),
    ways: answers,
  };
  await writeFile(`${work}/answer.json`, `${JSON.stringify(answer, null, 2)}\n`);
  const side = ({ passed, failed, skipped }: Counts): string => `${passed} passed, ${failed} failed, ${skipped} skipped`;
  program.answer(options.json, answer, [
    `containerd ${cluster.versions['containerd']}, critest ${answer.versions.critest}`,
    ...answers.flatMap(({ way, direct, tapped, differences, tap }) => [
      `${way.padEnd(10)} straight         ${side(direct)}`,
      `${way.padEnd(10)} through the tap  ${side(tapped)}`,
      `${way.padEnd(10)} ${tap}`,
      ...differences.map(
        (each) =>
          `${way.padEnd(10)} ${each.verdict === 'flake' ? 'flake  ' : 'DIFFERS'} ${each.name}: straight ${each.direct.join(', ')}; through the tap ${each.tapped.join(', ')}${each.reason === '' ? '' : `\n             ${each.reason}`}`,
      ),
    ]),
    answer.differs.length === 0 ? 'no spec differs' : `${answer.differs.length} specs differ`,
  ]);
  return answer.differs.length === 0 ? 0 : 1;
}
