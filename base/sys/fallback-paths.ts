import { constants, type FileHandle, mkdir, open, realpath } from 'node:fs/promises';
import { relative } from 'node:path';
import { errnoError, errnoOf } from './errno.ts';

/** O_PATH and O_CLOEXEC, which node:fs does not name; the same on every Linux we run on. */
export const PATH_ONLY = 0o10000000;
const directory = constants.O_DIRECTORY | constants.O_NOFOLLOW;

export type Links = 'refuse' | 'beneath' | 'follow';

/** The parts of a path below a root; EXDEV where it tries to leave it. */
function partsOf(doing: string, path: string): string[] {
  const parts = path.split('/').filter((part) => part !== '' && part !== '.');
  if (path.startsWith('/') || parts.includes('..')) throw errnoError(doing, 'EXDEV');
  return parts;
}

/** With `beneath`: where the path leads once its links are followed, if that is still inside. */
async function withoutLinks(doing: string, root: string, path: string, links: Links): Promise<{ root: string; path: string }> {
  if (links === 'refuse') return { root, path };
  try {
    const real = await realpath(root);
    const inside = relative(real, await realpath(`${root}/${path}`));
    if (inside === '..' || inside.startsWith('../')) throw errnoError(doing, 'EXDEV');
    return { root: real, path: inside };
  } catch (error) {
    throw errnoError(doing, errnoOf(error));
  }
}

/** A handle of one name in a directory handle, which is openat(2): what the name means cannot change in between. */
async function openAt(doing: string, at: FileHandle, name: string, flags: number): Promise<FileHandle> {
  try {
    return await open(`/proc/self/fd/${at.fd}/${name}`, flags);
  } catch (error) {
    const errno = errnoOf(error);
    // O_DIRECTORY speaks before O_NOFOLLOW; the kernel's own openat2 says ELOOP.
    throw errnoError(doing, errno === 'ENOTDIR' && (await isLink(at, name)) ? 'ELOOP' : errno);
  }
}

async function isLink(at: FileHandle, name: string): Promise<boolean> {
  try {
    await using handle = await open(`/proc/self/fd/${at.fd}/${name}`, PATH_ONLY | constants.O_NOFOLLOW);
    return (await handle.stat()).isSymbolicLink();
  } catch {
    return false;
  }
}

/**
 * Opens `path` below `root` step by step, each step held by a descriptor, so that a directory swapped for a link
 * meanwhile is met with ELOOP and not followed.
 */
export async function openBeneath(doing: string, root: string, path: string, flags: number, links: 'refuse' | 'beneath' = 'refuse'): Promise<FileHandle> {
  if (links === 'beneath') partsOf(doing, path);
  const plain = await withoutLinks(doing, root, path, links);
  const parts = partsOf(doing, plain.path);
  let at: FileHandle;
  try {
    at = await open(plain.root, PATH_ONLY | constants.O_DIRECTORY);
  } catch (error) {
    throw errnoError(doing, errnoOf(error), 'open root');
  }
  for (const [index, name] of parts.entries()) {
    const here = at;
    try {
      at = await openAt(doing, here, name, index === parts.length - 1 ? flags | constants.O_NOFOLLOW : PATH_ONLY | directory);
    } finally {
      await here.close();
    }
  }
  if (flags !== PATH_ONLY && parts.length === 0) {
    const here = at;
    try {
      at = await openAt(doing, here, '.', flags);
    } finally {
      await here.close();
    }
  }
  if (flags === PATH_ONLY && links === 'refuse' && (await at.stat()).isSymbolicLink()) {
    await at.close();
    throw errnoError(doing, 'ELOOP');
  }
  return at;
}

/** mkdir -p below a root, one level after the other from the root. */
export async function makeBeneath(doing: string, root: string, path: string, mode: number, links: 'refuse' | 'beneath'): Promise<void> {
  const parts = partsOf(doing, path);
  for (let depth = 1; depth <= parts.length; depth += 1) {
    await using at = await openBeneath(doing, root, parts.slice(0, depth - 1).join('/'), PATH_ONLY | constants.O_DIRECTORY, links);
    let made = true;
    try {
      await mkdir(`/proc/self/fd/${at.fd}/${parts[depth - 1]}`);
    } catch (error) {
      made = false;
      if (errnoOf(error) !== 'EEXIST') throw errnoError(doing, errnoOf(error));
    }
    await using here = await openBeneath(doing, root, parts.slice(0, depth).join('/'), constants.O_RDONLY | constants.O_DIRECTORY, links);
    if (made) await here.chmod(mode);
  }
}
