import {
  chmod,
  chown,
  constants,
  type FileHandle,
  lstat,
  mkdir,
  open,
  readdir,
  readFile,
  readlink,
  rename,
  rmdir,
  stat,
  symlink,
  unlink,
} from 'node:fs/promises';
import { errnoError, errnoOf } from './errno.ts';
import { type Links, openBeneath, PATH_ONLY } from './fallback-paths.ts';
import { pathType } from './flags.ts';
import type { FileOp, FileOpResult, FileOpsRequest } from './types.ts';

export async function closeAll(open: readonly AsyncDisposable[]): Promise<void> {
  for (const one of open) await one[Symbol.asyncDispose]();
}

/** A name that cannot be swapped for a link under our hands: the parent is held by a descriptor. */
async function holder(doing: string, request: FileOpsRequest, path: string): Promise<{ path: string } & AsyncDisposable> {
  const clean = path.replace(/\/+$/, '');
  const slash = clean.lastIndexOf('/');
  const name = clean.slice(slash + 1);
  if (name === '' || name === '.' || name === '..') throw errnoError(doing, 'EINVAL');
  const parent = slash < 0 ? '' : clean.slice(0, slash);
  if (request.links === 'follow') return { path: `${request.root}/${parent}/${name}`, async [Symbol.asyncDispose]() {} };
  const handle = await openBeneath(doing, request.root, parent, PATH_ONLY | constants.O_DIRECTORY, request.links ?? 'refuse');
  return { path: `/proc/self/fd/${handle.fd}/${name}`, [Symbol.asyncDispose]: () => handle.close() };
}

async function openExisting(doing: string, request: FileOpsRequest, path: string, flags: number): Promise<FileHandle> {
  const links: Links = request.links ?? 'refuse';
  if (links === 'follow') return await open(`${request.root}/${path}`, flags);
  return await openBeneath(doing, request.root, path, flags, links);
}

async function writeOne(path: string, op: FileOp & { op: 'write' }): Promise<void> {
  await using handle = await open(path, constants.O_WRONLY | constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK, 0o600);
  if (!(await handle.stat()).isFile()) throw errnoError('write', 'EINVAL');
  await handle.truncate(0);
  await handle.writeFile(op.data);
  if (op.uid !== undefined || op.gid !== undefined) {
    const { uid, gid } = await handle.stat();
    await handle.chown(op.uid ?? uid, op.gid ?? gid);
  }
  await handle.chmod(op.mode);
}

async function makeOne(path: string, mode: number): Promise<void> {
  try {
    await mkdir(path);
  } catch (error) {
    if (errnoOf(error) === 'EEXIST' && (await lstat(path)).isDirectory()) return;
    throw error;
  }
  await chmod(path, mode);
}

async function unlinkOne(path: string): Promise<void> {
  try {
    const found = await lstat(path);
    await (found.isDirectory() ? rmdir(path) : unlink(path));
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error;
  }
}

async function statOne(doing: string, request: FileOpsRequest, path: string): Promise<FileOpResult['stat']> {
  const refuse = (request.links ?? 'refuse') === 'refuse';
  const root = path === '' || path === '.' ? { path: request.root, async [Symbol.asyncDispose]() {} } : undefined;
  await using held = root ?? (refuse ? await holder(doing, request, path) : await target(doing, request, path));
  const found = refuse ? await lstat(held.path) : await stat(held.path);
  const table = await readFile('/proc/self/mountinfo', 'utf8');
  const full = `${request.root}/${path}`.replace(/\/+$/, '');
  const mountPoint = table.split('\n').some((line) => line.split(' ')[4] === full);
  return { type: pathType(found.mode), mode: found.mode & 0o7777, uid: found.uid, gid: found.gid, size: found.size, mountPoint };
}

async function target(doing: string, request: FileOpsRequest, path: string): Promise<{ path: string } & AsyncDisposable> {
  const handle = await openExisting(doing, request, path, PATH_ONLY);
  return { path: `/proc/self/fd/${handle.fd}`, [Symbol.asyncDispose]: () => handle.close() };
}

async function doOne(doing: string, request: FileOpsRequest, op: FileOp): Promise<FileOpResult> {
  switch (op.op) {
    case 'mkdir':
    case 'write':
    case 'symlink':
    case 'unlink':
    case 'rename':
    case 'readlink': {
      await using held = await holder(doing, request, op.path);
      if (op.op === 'mkdir') await makeOne(held.path, op.mode);
      else if (op.op === 'write') await writeOne(held.path, op);
      else if (op.op === 'symlink') await symlink(op.target, held.path);
      else if (op.op === 'unlink') await unlinkOne(held.path);
      else if (op.op === 'readlink') return { errno: '', target: await readlink(held.path) };
      else {
        await using to = await holder(doing, request, op.to);
        await rename(held.path, to.path);
      }
      return { errno: '' };
    }
    case 'chmod':
    case 'chown': {
      await using handle = await openExisting(doing, request, op.path, PATH_ONLY);
      const path = `/proc/self/fd/${handle.fd}`;
      if (op.op === 'chmod') await chmod(path, op.mode);
      else await chown(path, op.uid, op.gid);
      return { errno: '' };
    }
    case 'read': {
      await using handle = await openExisting(doing, request, op.path, constants.O_RDONLY | constants.O_NONBLOCK);
      const found = await handle.stat();
      if (!found.isFile()) throw errnoError(doing, found.isDirectory() ? 'EISDIR' : 'EINVAL');
      const { buffer, bytesRead } = await handle.read({ buffer: Buffer.alloc(Math.min(op.maxBytes, found.size)), position: 0 });
      return { errno: '', data: buffer.subarray(0, bytesRead) };
    }
    case 'list': {
      await using handle = await openExisting(doing, request, op.path, constants.O_RDONLY | constants.O_DIRECTORY);
      return { errno: '', names: await readdir(`/proc/self/fd/${handle.fd}`) };
    }
    case 'stat':
      return { errno: '', stat: await statOne(doing, request, op.path) };
  }
}

/** `Sys.fileOps` by node:fs, through /proc/self/fd, which is openat(2) for a Node that has none. */
export async function runFileOps(request: FileOpsRequest): Promise<FileOpResult[]> {
  const doing = `work on files in ${request.root}`;
  const deadline = performance.now() + request.timeoutMs;
  try {
    await (await open(request.root, PATH_ONLY | constants.O_DIRECTORY)).close();
  } catch (error) {
    throw errnoError(doing, errnoOf(error), 'open root');
  }
  const results: FileOpResult[] = [];
  for (const op of request.ops) {
    if (performance.now() > deadline) throw errnoError(doing, 'ETIMEDOUT');
    try {
      results.push(await doOne(doing, request, op));
    } catch (error) {
      results.push({ errno: errnoOf(error) });
      break;
    }
  }
  return results;
}
