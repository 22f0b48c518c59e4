import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { exec, tryExec } from '../../base/exec.ts';
import type { Program } from '../../scripts/command.ts';
import type { Cluster } from './cluster.ts';

const LOOK_MS = 60_000;

/** What passes between the kubelets and runtimes of a cluster, written down while specs run. */
export interface Calls extends AsyncDisposable {
  /** The calls about pods of some namespaces on one node, a line each. */
  of(node: string, namespaces: readonly string[]): Promise<string>;
}

/** Puts the tap between kubelet and runtime on each node; disposing takes it away, and what it wrote. */
export async function recordCalls({ host, progress }: Program, root: string, cluster: Cluster): Promise<Calls> {
  await using scope = new AsyncDisposableStack();
  const folder = await mkdtemp(join(tmpdir(), 'nodelet-calls-'));
  scope.defer(() => rm(folder, { recursive: true, force: true }));
  const nodelet = (args: readonly string[], signal?: AbortSignal): ReturnType<typeof exec> =>
    exec([`${root}/nodelet`, 'cri', ...args], { doing: `nodelet cri ${args[0]}`, ...(signal === undefined ? {} : { signal }) });
  const fileOf = (node: string): string => `${folder}/${node}.crirec`;
  for (const node of cluster.nodes) {
    const there = ['--node', node, '--name', cluster.name];
    scope.defer(async () => void (await nodelet(['detach', ...there])));
    await progress.step(`tap on ${node}`, () => nodelet(['attach', ...there, '--background', '--record', fileOf(node)], host.signal));
  }
  const kept = scope.move();
  return {
    of: async (node, namespaces) => {
      const parts = await Promise.all(
        namespaces.map((namespace) =>
          tryExec([`${root}/nodelet`, 'cri', 'show', fileOf(node), '--pod', `${namespace}/*`, '--full'], { timeoutMs: LOOK_MS }).catch(() => null),
        ),
      );
      return parts.map((part) => part?.stdout ?? '').join('');
    },
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  };
}
