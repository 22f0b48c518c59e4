import { lstat, readlink } from 'node:fs/promises';
import { posix } from 'node:path';
import { OpError } from '../../base/errors.ts';

/** As many as the kernel follows. */
const MAX_LINKS = 40;

/**
 * Where a path leads inside another root (`/proc/PID/root`, or empty for ours), all symbolic links followed as the
 * processes there see them: the kernel would follow an absolute one from our own root. What is not there stays as it is
 * written. Throws OpError `invalid` for a loop.
 */
export async function resolveIn(root: string, path: string): Promise<string> {
  const rest = path.split('/');
  let at = '/';
  for (let links = 0; rest.length > 0;) {
    const part = rest.shift() ?? '';
    if (part === '' || part === '.') continue;
    const next = posix.join(at, part);
    const isLink = part !== '..' && (await lstat(root + next).catch(() => null))?.isSymbolicLink() === true;
    if (!isLink) {
      at = next;
      continue;
    }
    if (++links > MAX_LINKS) throw new OpError('invalid', `finding ${path}`, 'its symbolic links go round in a circle');
    const target = await readlink(root + next);
    if (target.startsWith('/')) at = '/';
    rest.unshift(...target.split('/'));
  }
  return at;
}
