import { constants, type FileHandle, open, readFile } from 'node:fs/promises';
import { uptime } from 'node:os';
import { execa } from 'execa';
import { OpError } from '../errors.ts';
import type { Log } from '../log.ts';
import { errnoError, errnoOf } from './errno.ts';
import { closeAll, runFileOps } from './fallback-files.ts';
import { makeBeneath, openBeneath, PATH_ONLY } from './fallback-paths.ts';
import { runGroup } from './fallback-run.ts';
import type { BindRequest, ChownTreeOptions, FileOpResult, FileOpsRequest, FsFacts, MountRequest, OpFailure, RunRequest, RunResult, Sys } from './types.ts';

export interface FallbackOptions {
  log: Log;
  /** $NOTIFY_SOCKET, when a service manager set it. */
  notifySocket?: string;
}

const shortMs = 30_000;
const flockConflict = 75;

/** Mount points at `path` and below it, deepest last. */
async function mountsBelow(path: string): Promise<string[]> {
  const table = await readFile('/proc/self/mountinfo', 'utf8');
  const points = table
    .split('\n')
    .map((line) => (line.split(' ')[4] ?? '').replaceAll(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8))));
  return points.filter((point) => point === path || point.startsWith(`${path}/`)).sort();
}

/** A path as find's -path takes it literally. */
function literal(path: string): string {
  return path.replaceAll(/[\\*?[\]]/g, (character) => `\\${character}`);
}

class FallbackSys implements Sys {
  readonly #options: FallbackOptions;
  readonly #open = new Set<AsyncDisposable>();

  constructor(options: FallbackOptions) {
    this.#options = options;
  }

  run(request: RunRequest, signal?: AbortSignal): Promise<RunResult> {
    return runGroup(request, signal);
  }

  /** Runs a tool of util-linux or coreutils; its refusal becomes an OpError with the tool's own words. */
  async #tool(doing: string, argv: readonly string[], timeoutMs: number, signal?: AbortSignal): Promise<string> {
    const result = await runGroup({ argv, timeoutMs, env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C' } }, signal);
    if (result.timedOut) throw errnoError(doing, 'ETIMEDOUT');
    if (result.code !== 0)
      throw new OpError('failed', doing, Buffer.from(result.stderr).toString().trim() || `${argv[0]} ended with ${result.code ?? `signal ${result.signal}`}`);
    return Buffer.from(result.stdout).toString();
  }

  async mount(request: MountRequest): Promise<void> {
    const flags = new Set(request.flags ?? []);
    const argv = ['mount'];
    for (const propagation of ['private', 'slave', 'shared'] as const) {
      if (flags.has(propagation)) argv.push(`--make-${flags.has('rec') ? 'r' : ''}${propagation}`);
    }
    if (flags.has('bind') && !flags.has('remount')) argv.push(flags.has('rec') ? '--rbind' : '--bind');
    const words: string[] = [...flags].filter((flag) => ['ro', 'nosuid', 'nodev', 'noexec', 'noatime', 'remount'].includes(flag));
    if (flags.has('bind') && flags.has('remount')) words.push('bind');
    if (request.data !== undefined && request.data !== '') words.push(request.data);
    if (request.fstype !== '') argv.push('-t', request.fstype);
    if (words.length > 0) argv.push('-o', words.join(','));
    if (request.source !== '' && !argv.some((word) => word.startsWith('--make-'))) argv.push(request.source);
    await this.#tool(`mount ${request.target}`, [...argv, request.target], request.timeoutMs ?? shortMs);
  }

  async umount(target: string, options: { lazy?: boolean; force?: boolean; timeoutMs?: number } = {}): Promise<'unmounted' | 'not-mounted'> {
    const timeoutMs = options.timeoutMs ?? shortMs;
    const probe = await runGroup({ argv: ['mountpoint', '-q', '--nofollow', target], timeoutMs });
    if (probe.code === 1 || probe.code === 32) return 'not-mounted';
    await this.#tool(
      `unmount ${target}`,
      ['umount', ...(options.lazy === true ? ['--lazy'] : []), ...(options.force === true ? ['--force'] : []), target],
      timeoutMs,
    );
    return 'unmounted';
  }

  async bind(request: BindRequest): Promise<void> {
    const doing = `bind ${request.target}`;
    const timeoutMs = request.timeoutMs ?? shortMs;
    const handle = request.beneath === undefined ? undefined : await openBeneath(doing, request.beneath, request.source, PATH_ONLY, request.links);
    try {
      const source = handle === undefined ? request.source : `/proc/${process.pid}/fd/${handle.fd}`;
      await this.#tool(doing, ['mount', '--no-canonicalize', request.recursive === true ? '--rbind' : '--bind', source, request.target], timeoutMs);
    } finally {
      await handle?.close();
    }
    const readOnly = request.recursiveReadOnly === true ? await mountsBelow(request.target) : request.readOnly === true ? [request.target] : [];
    for (const point of readOnly) await this.#tool(doing, ['mount', '-o', 'remount,bind,ro', point], timeoutMs);
    if (request.propagation !== undefined) await this.#tool(doing, ['mount', `--make-${request.propagation}`, request.target], timeoutMs);
  }

  async readBeneath(root: string, path: string, options: { maxBytes: number; fromEnd?: boolean }): Promise<Uint8Array> {
    const doing = `read ${path} in ${root}`;
    const handle = await openBeneath(doing, root, path, constants.O_RDONLY | constants.O_NONBLOCK, 'refuse');
    try {
      const stat = await handle.stat();
      if (!stat.isFile()) throw errnoError(doing, stat.isDirectory() ? 'EISDIR' : 'EINVAL');
      const from = options.fromEnd === true ? Math.max(0, stat.size - options.maxBytes) : 0;
      return await readUpTo(handle, options.maxBytes, from);
    } finally {
      await handle.close();
    }
  }

  async mkdirBeneath(root: string, path: string, mode: number, options: { links?: 'refuse' | 'beneath' } = {}): Promise<void> {
    await makeBeneath(`make directory ${path} in ${root}`, root, path, mode, options.links ?? 'refuse');
  }

  fileOps(request: FileOpsRequest): Promise<FileOpResult[]> {
    return runFileOps(request);
  }

  async removeTree(path: string, options: { timeoutMs: number }, signal?: AbortSignal): Promise<void> {
    const doing = `remove ${path}`;
    if ((await mountsBelow(path)).length > 0) throw errnoError(doing, 'EBUSY');
    await this.#tool(doing, ['rm', '-rf', '--one-file-system', '--', path], options.timeoutMs, signal);
  }

  async chownTree(path: string, options: ChownTreeOptions, signal?: AbortSignal): Promise<void> {
    const doing = `change owner of ${path}`;
    const inside = (await mountsBelow(path)).filter((point) => point !== path);
    const find = ['find', path, '-xdev', ...inside.flatMap((point) => ['-path', literal(point), '-prune', '-o'])];
    const owner = `${options.uid ?? ''}:${options.gid ?? ''}`;
    if (owner !== ':') await this.#tool(doing, [...find, '-exec', 'chown', '-h', owner, '{}', '+'], options.timeoutMs, signal);
    const chmod = (bits: number): string[] => ['-exec', 'chmod', `+${bits.toString(8).padStart(4, '0')}`, '{}', '+'];
    if ((options.orDirMode ?? 0) !== 0) await this.#tool(doing, [...find, '-type', 'd', ...chmod(options.orDirMode ?? 0)], options.timeoutMs, signal);
    if ((options.orMode ?? 0) !== 0)
      await this.#tool(doing, [...find, '-not', '-type', 'd', '-not', '-type', 'l', ...chmod(options.orMode ?? 0)], options.timeoutMs, signal);
  }

  async diskUsage(path: string, options: { timeoutMs: number }, signal?: AbortSignal): Promise<{ bytes: number; inodes: number }> {
    const measure = async (what: string): Promise<number> =>
      Number.parseInt(await this.#tool(`measure ${path}`, ['du', '-sx', what, '--', path], options.timeoutMs, signal), 10);
    return { bytes: await measure('--block-size=1'), inodes: await measure('--inodes') };
  }

  async statfs(path: string, options: { timeoutMs: number }): Promise<FsFacts> {
    const answer = await this.#tool(`statfs ${path}`, ['stat', '-f', '-c', '%S %b %f %a %c %d %t', '--', path], options.timeoutMs);
    const [size = 0, total = 0, free = 0, available = 0, inodes = 0, inodesFree = 0] = answer.split(' ').map(Number);
    return {
      totalBytes: total * size,
      freeBytes: free * size,
      availableBytes: available * size,
      inodes,
      inodesFree,
      magic: Number.parseInt(answer.trim().split(' ')[6] ?? '0', 16),
    };
  }

  netlink(): Promise<Uint8Array[]> {
    return Promise.reject(new OpError('unsupported', 'netlink', 'needs the sys program', { advice: 'Build it with sys/build.sh and name it in NODELET_SYS.' }));
  }

  async readFiles(paths: readonly string[], options: { maxBytesEach?: number } = {}): Promise<(Uint8Array | null)[]> {
    const readOne = async (path: string): Promise<Uint8Array | null> => {
      let handle: FileHandle | undefined;
      try {
        handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
        return await readUpTo(handle, options.maxBytesEach ?? 256 * 1024, null);
      } catch {
        return null;
      } finally {
        await handle?.close();
      }
    };
    return await Promise.all(paths.map(readOne));
  }

  async writeFiles(writes: readonly { path: string; data: string }[]): Promise<(OpFailure | null)[]> {
    const writeOne = async ({ path, data }: { path: string; data: string }): Promise<OpFailure | null> => {
      let handle: FileHandle | undefined;
      try {
        handle = await open(path, constants.O_WRONLY | constants.O_TRUNC);
        await handle.writeFile(data);
        return null;
      } catch (error) {
        return { errno: errnoOf(error), message: `write ${path}: ${errnoOf(error)}` };
      } finally {
        await handle?.close();
      }
    };
    const results: (OpFailure | null)[] = [];
    for (const write of writes) results.push(await writeOne(write));
    return results;
  }

  /** Keeps what `start` opened until it or the whole is disposed. */
  #keep(close: () => Promise<void>): AsyncDisposable {
    const kept: AsyncDisposable = {
      [Symbol.asyncDispose]: async () => {
        this.#open.delete(kept);
        await close();
      },
    };
    this.#open.add(kept);
    return kept;
  }

  async followKernelLog(onRecord: (record: string) => void): Promise<AsyncDisposable> {
    // The device is read from its oldest record on; what is older than now is left out by its time.
    const fromMicroseconds = uptime() * 1_000_000;
    const reader = execa('dd', ['if=/dev/kmsg', 'bs=8192', 'status=none'], { reject: false, buffer: false, stdin: 'ignore', stderr: 'ignore' });
    let rest = '';
    reader.stdout.on('data', (chunk: Buffer) => {
      const lines = (rest + chunk.toString()).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) {
        if (!line.startsWith(' ') && Number(line.split(',')[2]) >= fromMicroseconds) onRecord(`${line}\n`);
      }
    });
    return this.#keep(async () => {
      reader.kill('SIGKILL');
      await reader;
    });
  }

  async notify(state: string): Promise<void> {
    const socket = this.#options.notifySocket ?? '';
    if (socket === '') return;
    const result = await runGroup({
      argv: ['systemd-notify', ...state.split('\n')],
      env: { PATH: '/usr/bin:/bin', NOTIFY_SOCKET: socket },
      timeoutMs: shortMs,
    });
    if (result.code !== 0) throw new OpError('failed', 'notify the service manager', Buffer.from(result.stderr).toString().trim());
  }

  async lock(path: string, onLost?: (error: unknown) => void, onWanted?: () => void): Promise<AsyncDisposable> {
    const doing = `lock ${path}`;
    if (onWanted !== undefined) throw new OpError('unsupported', doing, 'who else opens it cannot be seen without the program sys');
    // The holder ends when its input does, so that the lock cannot outlive this process.
    const holder = execa(
      'flock',
      ['--nonblock', '--conflict-exit-code', String(flockConflict), '--no-fork', path, 'sh', '-c', 'echo held; exec cat >/dev/null'],
      { reject: false, buffer: false, stderr: 'ignore' },
    );
    let released = false;
    const held = await new Promise<boolean>((resolve) => {
      holder.stdout.once('data', () => resolve(true));
      holder.nodeChildProcess.once('exit', () => resolve(false));
      holder.nodeChildProcess.once('error', () => resolve(false));
    });
    if (!held) {
      const result = await holder;
      if (result.exitCode === flockConflict) throw errnoError(doing, 'EALREADY', 'held by another process');
      throw new OpError('failed', doing, `flock ended with ${result.exitCode ?? result.code ?? 'no code'}`);
    }
    void holder.then((result) => {
      if (released) return;
      const error = new OpError('unavailable', doing, `the lock's holder ended with ${result.exitCode ?? result.signal}`);
      if (onLost === undefined) this.#options.log.error('a lock was lost', { path, err: error });
      else onLost(error);
    });
    return this.#keep(async () => {
      released = true;
      holder.stdin.end();
      await holder;
    });
  }

  async holdDescriptor({ path }: { path: string }): Promise<AsyncDisposable> {
    throw new OpError('unsupported', `hold a descriptor of ${path}`, 'no program of the distribution receives descriptors', {
      advice: 'Start with NODELET_SYS, the path of the program that sys/build.sh builds.',
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await closeAll([...this.#open]);
  }
}

async function readUpTo(handle: FileHandle, maxBytes: number, from: number | null): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  let length = 0;
  while (length < maxBytes) {
    const { bytesRead, buffer } = await handle.read({
      buffer: Buffer.alloc(Math.min(65_536, maxBytes - length)),
      position: from === null ? null : from + length,
    });
    if (bytesRead === 0) break;
    pieces.push(buffer.subarray(0, bytesRead));
    length += bytesRead;
  }
  return Buffer.concat(pieces);
}

/**
 * `Sys` by util-linux, coreutils and Node's own file calls, for machines where the C program could not be built. Slower,
 * and a file system that hangs can hold Node's threads; netlink is not there.
 */
export function createFallbackSys(options: FallbackOptions): Sys {
  return new FallbackSys(options);
}
