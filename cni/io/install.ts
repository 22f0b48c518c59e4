import { access, chmod, copyFile, mkdir, rename, writeFile } from 'node:fs/promises';
import { OpError } from '../../base/errors.ts';

/** Names under which the runtime starts the one executable. */
export const PLUGINS = ['nodelet', 'loopback'] as const;

export interface InstallFrom {
  /** The built `sys/front/cni.c`. */
  readonly front: string;
  readonly node: string;
  readonly bundle: string;
  readonly sys: string;
}

const quote = (text: string): string => `'${text.replaceAll("'", String.raw`'\''`)}'`;

/** What the front becomes when the daemon is away. Beside it, so that a folder of plugins is whole. */
export function fallbackScript({ node, bundle, sys }: InstallFrom): string {
  return [
    '#!/bin/sh',
    '# The pod network without its daemon: the same work in a process of its own.',
    'unset NODE_OPTIONS NODE_PATH NODE_EXTRA_CA_CERTS',
    `NODELET_SYS=${quote(sys)} NODE_COMPILE_CACHE=${quote(`${bundle.slice(0, bundle.lastIndexOf('/'))}/cache/cni`)}`,
    'export NODELET_SYS NODE_COMPILE_CACHE',
    `exec ${quote(node)} --max-semi-space-size=2 --disable-warning=ExperimentalWarning ${quote(bundle)} cni plugin`,
    '',
  ].join('\n');
}

/** Puts the plugin into a folder that runtimes look into; each file in one step, since a runtime may start it any time. */
export async function installPlugin(folder: string, from: InstallFrom): Promise<void> {
  await access(from.front).catch((cause: unknown) => {
    throw new OpError('not-found', 'install the CNI plugin', `${from.front} is not built`, {
      cause,
      advice: 'build it: sh sys/build.sh --front dist/cni/nodelet',
    });
  });
  await mkdir(folder, { recursive: true }).catch((cause: NodeJS.ErrnoException) => {
    throw cause.code === 'EEXIST' ? new OpError('invalid', 'install the CNI plugin', `${folder} is no folder`, { cause }) : cause;
  });
  for (const name of PLUGINS) {
    if (`${folder}/${name}` === from.front) continue;
    await copyFile(from.front, `${folder}/.${name}.new`);
    await chmod(`${folder}/.${name}.new`, 0o755);
    await rename(`${folder}/.${name}.new`, `${folder}/${name}`);
  }
  await writeFile(`${folder}/.fallback.new`, fallbackScript(from), { mode: 0o755 });
  await rename(`${folder}/.fallback.new`, `${folder}/fallback`);
}
