import { readdir, readFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { OpError } from '../../base/errors.ts';
import { IMAGE_PORT, PROXY_PORT } from '../egress.ts';
import type { Machine } from './machine.ts';

/** Holds one name until it is disposed or the process ends, or null when another process has it. */
async function bind(where: { path: string } | { host: string; port: number }): Promise<AsyncDisposable | null> {
  const server = createServer();
  const bound = await new Promise<boolean>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => (error.code === 'EADDRINUSE' ? resolve(false) : reject(error)));
    server.listen(where, () => resolve(true));
  });
  if (!bound) return null;
  server.unref();
  return { [Symbol.asyncDispose]: () => new Promise<void>((resolve) => server.close(() => resolve())) };
}

/**
 * Holds the number of a set while a command starts it, or null when another command has it. An abstract socket: like the
 * set's link and addresses it belongs to the network namespace, so that sets of other state folders are seen too.
 */
export const claimNumber = (index: number): Promise<AsyncDisposable | null> => bind({ path: `\0nodelet-set-${index}` });

/** Refuses a machine where another program listens on every address at a port that a set needs on its own. */
export async function requirePorts(): Promise<void> {
  for (const port of [IMAGE_PORT, PROXY_PORT]) {
    // A listener on every address has this one too; listeners of other sets do not.
    const probe = await bind({ host: '127.89.0.254', port });
    if (probe === null)
      throw new OpError('conflict', 'looking at ports', `another program listens at port ${port} on every address`, {
        advice: `nothing was started; find it with: ss -ltnp 'sport = :${port}'`,
      });
    await probe[Symbol.asyncDispose]();
  }
}

/** A process in a cgroup or below it, or null: a set of the same name whose state is elsewhere or was deleted. */
export async function processIn(cgroups: NonNullable<Machine['cgroup']>, path: string): Promise<number | null> {
  for (const hierarchy of cgroups.hierarchies) {
    const dirs = await readdir(`${hierarchy}${path}`, { recursive: true, withFileTypes: true }).catch(() => []);
    for (const file of dirs) {
      if (file.name !== 'cgroup.procs') continue;
      const pid = (await readFile(`${file.parentPath}/cgroup.procs`, 'utf8').catch(() => '')).split('\n')[0] ?? '';
      if (pid !== '' && pid !== '0') return Number(pid);
    }
  }
  return null;
}
