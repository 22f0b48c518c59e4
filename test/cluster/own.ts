import { rmdir } from 'node:fs/promises';
import { OpError } from '../../base/errors.ts';
import { exec } from '../../base/exec.ts';
import { nameProblem } from '../../node/core/plan.ts';
import { lockFile } from '../../node/io/lock.ts';
import { loadSet, stateHome } from '../../node/io/state.ts';
import type { Program } from '../../scripts/command.ts';

type Env = Readonly<Record<string, string | undefined>>;

const HELD = '/run/nodelet-conformance';

/** Holds a cluster for one command that works in it: OpError `conflict` while another has it, `invalid` for what is no name. */
export async function holdCluster(name: string, folder = HELD): Promise<AsyncDisposable> {
  const problem = nameProblem(name);
  if (problem !== null) throw new OpError('invalid', 'reading --name', problem);
  const lock = await lockFile(`${folder}/${name}`, `working in the cluster "${name}"`, 0);
  return {
    async [Symbol.asyncDispose]() {
      await lock[Symbol.asyncDispose]();
      await rmdir(folder).catch(() => undefined);
    },
  };
}

/** As `holdCluster`, for a cluster that the command starts and ends: one that is there already is somebody's, and is not taken down. */
export async function claimCluster(env: Env, name: string, folder = HELD): Promise<AsyncDisposable> {
  const held = await holdCluster(name, folder);
  try {
    if ((await loadSet(stateHome(env), name)) === null) return held;
    throw new OpError('conflict', `choosing the name "${name}"`, 'there is a cluster of that name, and this command would end it', {
      advice: `choose another with --name, or end it with: nodelet cluster down --name ${name}`,
    });
  } catch (error) {
    await held[Symbol.asyncDispose]();
    throw error;
  }
}

export interface OwnCluster {
  readonly root: string;
  /** A cluster that runs; one of its own when left out. */
  readonly name: string | undefined;
  readonly ownName: string;
  /** Options of `nodelet cluster up` for one of its own. */
  readonly up: readonly string[];
  readonly keep: boolean;
}

/** Holds the cluster that was named, or starts one of its own that goes when it is disposed. */
export async function useCluster(
  { host, progress }: Program,
  { root, name, ownName, up, keep }: OwnCluster,
): Promise<AsyncDisposable & { readonly name: string }> {
  const used = name ?? ownName;
  // Before it is started: whoever comes second must not end what the first works in.
  await using scope = new AsyncDisposableStack();
  scope.use(await holdCluster(used));
  if (name === undefined) {
    const nodelet = (args: readonly string[], signal?: AbortSignal): Promise<unknown> =>
      exec([`${root}/nodelet`, 'cluster', ...args, '--name', used], {
        doing: `nodelet cluster ${args[0]}`,
        onLine: (line) => progress.note(line),
        ...(signal === undefined ? {} : { signal }),
      });
    let isUp = false;
    scope.defer(async () => {
      if (!isUp) await nodelet(['down']).catch(() => undefined);
      else if (keep) progress.note(`  the cluster stays; end it with: nodelet cluster down --name ${used}`);
      else await nodelet(['down']);
    });
    await nodelet(['up', ...up], host.signal);
    isUp = true;
  }
  const kept = scope.move();
  return { name: used, [Symbol.asyncDispose]: () => kept.disposeAsync() };
}
