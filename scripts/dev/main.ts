import { OpError } from '../../base/errors.ts';
import { runProgram } from '../command.ts';
import { develop } from '../kind/dev.ts';
import { findPlace, setOf } from '../kind/place.ts';

const root = new URL('../..', import.meta.url).pathname.replace(/\/$/, '');

await runProgram('dev', 'Brings each change of the sources into a running node, with its pods kept.', (program) => {
  const { host } = program;
  program
    .add<{ json: boolean; kind?: string }>(
      'watch',
      'watch the sources until Ctrl-C; each saved change restarts the node’s kubelet from the new code',
      ['sudo nodelet dev --kind kind-worker'],
      async (options) => {
        if (options.kind === undefined)
          throw new OpError('invalid', 'reading the command line', 'no node is named', { advice: 'use: nodelet dev --kind NODE' });
        const place = await findPlace({ env: setOf(host.env), signal: host.signal }, options.kind);
        program.progress.note(`watching ${root}; ${place.node} restarts its kubelet when a source is saved; Ctrl-C ends this`);
        for await (const turn of develop(place, { root, signal: host.signal })) {
          const words = turn.problem === null ? `runs after ${turn.seconds.toFixed(2)} s` : `not brought: ${turn.problem}`;
          program.answer(options.json, turn, [
            `${turn.files.slice(0, 3).join(', ')}${turn.files.length > 3 ? ` and ${turn.files.length - 3} more` : ''}: ${words}`,
          ]);
        }
        return 0;
      },
      { isDefault: true },
    )
    .option('--kind <node>', 'a node of a kind cluster whose kubelet is ours');
});
