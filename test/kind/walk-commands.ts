import { Option } from 'commander';
import type { Engine } from '../../scripts/kind/place.ts';
import type { Program } from '../../scripts/command.ts';
import { findAssets } from '../assets/find.ts';
import { upkeep, WORKS, type Work } from './upkeep.ts';
import { PARTS, walk, type Part } from './walk.ts';
import { stepLines, type Step } from './walk-steps.ts';

interface WalkWords {
  readonly json: boolean;
  readonly part?: readonly Part[];
  readonly lose?: string;
}

/** Adds the commands that walk the documents' steps, and what people do to keep a node. */
export function addWalks(program: Program, engine: () => Promise<Engine>): void {
  const told = (step: Step): void => {
    for (const line of stepLines(step)) program.progress.note(line);
  };
  const answered = (json: boolean, data: object, steps: readonly Step[]): number => {
    const bad = steps.filter(({ problems }) => problems.length > 0).length;
    program.answer(json, { ...data, bad }, [...steps.flatMap(stepLines), `${steps.length - bad} of ${steps.length} good`]);
    return bad === 0 ? 0 : 1;
  };
  program
    .add<WalkWords>(
      'walk <cluster>',
      'walk the documents’ steps 2.1 to 2.14, 3.7 and 4.10 to 4.14 on a cluster with two workers: one is lost and comes back, then all',
      ['sudo nodelet kind walk kind', 'sudo nodelet kind walk kind --part lost --lose kind-worker2 --json'],
      async (options, [name = '']) => {
        const choice = { name, parts: options.part ?? PARTS, lose: options.lose ?? null };
        const walked = await walk(program, await findAssets({ env: program.host.env }), await engine(), choice, told);
        return answered(options.json, walked, walked.steps);
      },
    )
    .addOption(
      new Option('--part <name...>', 'only these: what a new cluster is, pods on two workers, a lost worker, several lost, all lost').choices([...PARTS]),
    )
    .option('--lose <node>', 'the worker that is lost; left out: the one with the fewest web pods');
  program
    .add<{ json: boolean; only?: readonly Work[] }>(
      'upkeep <node>',
      'do to a worker what people do to keep it: cordon, drain, delete and join, reboot, renew certificates',
      ['sudo nodelet kind upkeep kind-worker', 'sudo nodelet kind upkeep kind-worker --only drain reboot --json'],
      async (options, [node = '']) => {
        const kept = await upkeep(await engine(), { node, works: options.only ?? WORKS }, told);
        return answered(options.json, kept, kept.steps);
      },
    )
    .addOption(new Option('--only <work...>', 'only these').choices([...WORKS]));
}
