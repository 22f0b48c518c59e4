import { Buffer } from 'node:buffer';
import { hasCode, OpError } from '../../base/errors.ts';
import { errnoError } from '../../base/sys/errno.ts';
import type { FileOp, FileOpResult, Sys } from '../../base/sys/types.ts';
import { mountsBelow, parseMountinfo } from '../core/mountinfo.ts';
import type { MountEntry } from '../core/mountinfo.ts';
import type { PayloadFile } from '../core/volumes-payload.ts';
import { parentsOf, podPaths } from '../core/volumes-paths.ts';
import { checkHostPath } from '../core/volumes-plan.ts';
import type { HostPathFound, HostPathType, VolumeBase } from '../core/volumes-plan.ts';
import { planAtomicWrite, planLinks } from '../core/volumes-writer.ts';
import type { WriterOp, WriterState } from '../core/volumes-writer.ts';

export interface VolumeDiskOptions {
  readonly sys: Sys;
  readonly rootDir: string;
  /** Bound of one batch of file operations. */
  readonly timeoutMs: number;
  /** Name of a new data directory of the atomic writer; never the same twice. */
  readonly stamp: () => string;
}

const removeTimeoutMs = 60_000;
const emptyState: WriterState = { names: [], dataTarget: null, dataNames: [] };

/**
 * What volumes do on this node's file systems, each step through Sys: nothing here runs on Node's own threads, and
 * nothing decides. Every operation can be repeated.
 */
export class VolumeDisk {
  readonly #sys: Sys;
  readonly #rootDir: string;
  readonly #timeoutMs: number;
  readonly #stamp: () => string;
  /** Pods that had a directory before this process made any. */
  #found: Set<string> | undefined;
  /** What this process mounted, by pod, in order. */
  readonly #mounted = new Map<string, Set<string>>();
  /** Kernels before 6.4 do not know it. */
  #tmpfsTakesNoswap = true;

  constructor(options: VolumeDiskOptions) {
    this.#sys = options.sys;
    this.#rootDir = options.rootDir;
    this.#timeoutMs = options.timeoutMs;
    this.#stamp = options.stamp;
  }

  /**
   * Makes the pod's directory, and for a pod that is new the directories of its volumes in the same batch. Says
   * whether it was there before this process: only then can mounts be in it that are not known here.
   */
  async ensurePodDir(uid: string, bases: readonly VolumeBase[]): Promise<{ existed: boolean }> {
    const { pods } = podPaths(this.#rootDir, uid);
    this.#found ??= await this.#findPods();
    const existed = this.#found.has(uid);
    const ops: FileOp[] = ['', '/volumes', '/plugins', '/containers'].map((name) => ({ op: 'mkdir', path: `${uid}${name}`, mode: 0o750 }));
    if (!existed) for (const base of bases) ops.push(...below(uid, baseOps(base)));
    await this.ops(pods, ops);
    return { existed };
  }

  async #findPods(): Promise<Set<string>> {
    await this.ops(
      '/',
      parentsOf(`${this.#rootDir.slice(1)}/pods`).map((path) => ({ op: 'mkdir', path, mode: 0o750 })),
      'follow',
    );
    return new Set(await this.uids());
  }

  /** Mount points at or below the pod's directory, those that come off first in front. */
  async mountsOf(uid: string): Promise<string[]> {
    return mountsBelow(await this.#mountTable(), podPaths(this.#rootDir, uid).pod);
  }

  /** Whether what is mounted at `path` has an SELinux label for each file, and not one for all. */
  async labels(path: string): Promise<boolean> {
    return (
      (await this.#mountTable())
        .findLast(({ target }) => target === path)
        ?.superOptions.split(',')
        .includes('seclabel') ?? false
    );
  }

  async #mountTable(): Promise<MountEntry[]> {
    const [bytes] = await this.#sys.readFiles(['/proc/self/mountinfo'], { maxBytesEach: 16 << 20 });
    if (bytes === null || bytes === undefined) throw new OpError('unavailable', 'read the mount table', '/proc/self/mountinfo cannot be read');
    return parseMountinfo(Buffer.from(bytes).toString('utf8'));
  }

  /** Makes, marks and mounts the directory of a volume. `mounted` holds what is mounted for the pod already. */
  async setUpBase(uid: string, base: VolumeBase, state: { existed: boolean; mounted: ReadonlySet<string> }): Promise<'made' | 'was there'> {
    const { pod } = podPaths(this.#rootDir, uid);
    const target = `${pod}/${base.dir}`;
    const isMounted = state.mounted.has(target);
    if (state.existed) {
      if ((base.medium.kind === 'disk' || isMounted) && (await this.stat(pod, base.marker, 'refuse')) !== null) return 'was there';
      await this.ops(pod, baseOps(base));
    }
    if (base.medium.kind === 'disk') return 'made';
    if (!isMounted) await this.#mountMedium(target, base.medium);
    this.remember(uid, target);
    // On the root of the mount, which covers the directory that baseOps treated.
    await this.ops(pod, groupOps(base.dir, base.fsGroup, 0o1777));
    return 'made';
  }

  /** Something is about to be mounted below the pod's directory. */
  remember(uid: string, target: string): void {
    const own = this.#mounted.get(uid) ?? new Set<string>();
    own.add(target);
    this.#mounted.set(uid, own);
  }

  async #mountMedium(target: string, medium: Exclude<VolumeBase['medium'], { kind: 'disk' }>): Promise<void> {
    if (medium.kind === 'hugetlbfs') return await this.#sys.mount({ source: 'nodev', target, fstype: 'hugetlbfs', data: `pagesize=${medium.pageSize}` });
    const size = medium.sizeBytes === null ? [] : [`size=${medium.sizeBytes}`];
    const request = (options: string[]) => ({ source: 'tmpfs', target, fstype: 'tmpfs', data: options.join(',') });
    if (this.#tmpfsTakesNoswap) {
      try {
        return await this.#sys.mount(request([...size, 'noswap']));
      } catch (error) {
        if (!hasCode(error, 'invalid')) throw error;
        this.#tmpfsTakesNoswap = false;
      }
    }
    await this.#sys.mount(request(size));
  }

  /** What the atomic writer left in a volume's directory. */
  async readWriterState(dir: string): Promise<WriterState> {
    const [listed, link] = await this.#sys.fileOps({
      root: dir,
      ops: [
        { op: 'list', path: '' },
        { op: 'readlink', path: '..data' },
      ],
      timeoutMs: this.#timeoutMs,
    });
    if (listed === undefined || listed.errno !== '') throw errnoError(`list ${dir}`, listed?.errno ?? 'EIO');
    const names = listed.names ?? [];
    const target = link?.errno === '' ? (link.target ?? null) : null;
    if (target === null || target.includes('/')) return { ...emptyState, names };
    const [inside] = await this.#sys.fileOps({ root: dir, ops: [{ op: 'list', path: target }], timeoutMs: this.#timeoutMs });
    return { names, dataTarget: target, dataNames: inside?.names ?? [] };
  }

  /** Whether the files of the volume are exactly these: after a restart nothing is written that is right already. */
  async holds(dir: string, state: WriterState, files: readonly PayloadFile[]): Promise<boolean> {
    const { dataTarget } = state;
    if (dataTarget === null) return false;
    const tops = new Set(files.map((file) => file.path.split('/')[0]));
    if (tops.size !== state.dataNames.length || !state.dataNames.every((name) => tops.has(name))) return false;
    if (files.length === 0) return true;
    const contents = files.map(decode);
    const ops = files.map((file, index): FileOp => ({ op: 'read', path: `${dataTarget}/${file.path}`, maxBytes: (contents[index]?.length ?? 0) + 1 }));
    const results = await this.#sys.fileOps({ root: dir, ops, timeoutMs: this.#timeoutMs });
    return (
      results.length === ops.length && results.every((result, index) => result.errno === '' && contents[index]?.equals(result.data ?? Buffer.alloc(0)) === true)
    );
  }

  /** Swaps the files of a volume; answers what then lies there. */
  async swap(dir: string, state: WriterState, files: readonly PayloadFile[], fsGroup: number | null): Promise<WriterState> {
    const stamp = this.#stamp();
    const plan = planAtomicWrite(state, files, stamp, fsGroup);
    await this.ops(dir, plan.ops.map(toFileOp));
    for (const name of plan.stale) await this.#sys.removeTree(`${dir}/${name}`, { timeoutMs: this.#timeoutMs });
    const tops = [...new Set(files.map((file) => file.path.split('/')[0] ?? ''))];
    return { names: ['..data', stamp, ...tops], dataTarget: stamp, dataNames: tops };
  }

  /** Completes the names that containers see, where the data is right already. */
  async link(dir: string, state: WriterState, files: readonly PayloadFile[]): Promise<void> {
    const ops = planLinks(state, files);
    if (ops.length > 0) await this.ops(dir, ops.map(toFileOp));
  }

  /** Checks a host path and makes it where its type says so; null is fine, else why not. */
  async hostPath(path: string, type: HostPathType): Promise<string | null> {
    if (type === '') return null;
    const found: HostPathFound = (await this.stat('/', path.slice(1), 'follow'))?.type ?? 'absent';
    const answer = checkHostPath(path, type, found);
    if (answer.verdict === 'makeDir')
      await this.ops(
        '/',
        (await this.#missing(path)).map((each) => ({ op: 'mkdir', path: each, mode: 0o755 })),
        'follow',
      );
    if (answer.verdict === 'makeFile') await this.ops('/', [{ op: 'write', path: path.slice(1), data: '', mode: 0o644 }], 'follow');
    return answer.verdict === 'refuse' ? answer.message : null;
  }

  /** The directories down to `path` that are yet to be made; what a link leads to is there, as it is for mkdir -p. */
  async #missing(path: string): Promise<string[]> {
    const parents = parentsOf(path);
    const ops = parents.map((each): FileOp => ({ op: 'stat', path: each }));
    const found = await this.#sys.fileOps({ root: '/', ops, links: 'follow', timeoutMs: this.#timeoutMs });
    return parents.slice(found.filter(({ errno }) => errno === '').length);
  }

  /**
   * Binds a subPath beside the volume and answers the bind's path, or null when the path leads out of the volume.
   * A bind of an earlier container of the same name is replaced: the file behind it may be another one by now.
   */
  async bindSubPath(uid: string, mount: { volume: string; container: string; index: number; volumePath: string; subPath: string }): Promise<string | null> {
    const { pod } = podPaths(this.#rootDir, uid);
    let found = await this.#beneath(mount.volumePath, mount.subPath);
    if (found === 'outside') return null;
    if (found === 'absent') {
      const mode = ((await this.stat(mount.volumePath, '', 'beneath'))?.mode ?? 0o750) & 0o7777;
      await this.#sys.mkdirBeneath(mount.volumePath, mount.subPath, mode, { links: 'beneath' });
      found = 'dir';
    }
    const dir = `volume-subpaths/${mount.volume}/${mount.container}`;
    const name = `${dir}/${mount.index}`;
    const target = `${pod}/${name}`;
    await this.#unmountAll(target);
    await this.ops(
      pod,
      parentsOf(dir).map((path) => ({ op: 'mkdir', path, mode: 0o750 })),
    );
    const before = await this.stat(pod, name, 'refuse');
    if (before !== null && (before.type === 'dir') !== (found === 'dir')) await this.ops(pod, [{ op: 'unlink', path: name }]);
    await this.ops(pod, [found === 'dir' ? { op: 'mkdir', path: name, mode: 0o750 } : { op: 'write', path: name, data: '', mode: 0o640 }]);
    this.remember(uid, target);
    await this.#sys.bind({ source: mount.subPath, beneath: mount.volumePath, links: 'beneath', target });
    return target;
  }

  async #beneath(root: string, path: string): Promise<'absent' | 'outside' | 'dir' | 'other'> {
    const [result] = await this.#sys.fileOps({ root, ops: [{ op: 'stat', path }], links: 'beneath', timeoutMs: this.#timeoutMs });
    if (result?.errno === '') return result.stat?.type === 'dir' ? 'dir' : 'other';
    if (result?.errno === 'ENOENT') return 'absent';
    if (result?.errno === 'EXDEV' || result?.errno === 'ELOOP') return 'outside';
    throw errnoError(`look at ${root}/${path}`, result?.errno ?? 'EIO');
  }

  /** Writes the pod's /etc/hosts in place: containers that run have this very file mounted. */
  async writeHosts(uid: string, text: string): Promise<void> {
    await this.ops(podPaths(this.#rootDir, uid).pod, [{ op: 'write', path: 'etc-hosts', data: text, mode: 0o644 }]);
  }

  /**
   * Takes all mounts off the pod's directory, then the directory. What this process mounted it knows; where more is
   * found, the mount table is read. Throws OpError while a mount stays: nothing in it has been removed then.
   */
  async tearDown(uid: string, signal: AbortSignal): Promise<void> {
    const { pod } = podPaths(this.#rootDir, uid);
    const known = this.#found?.has(uid) === false ? [...(this.#mounted.get(uid) ?? [])].reverse() : await this.mountsOf(uid);
    for (const target of known) await this.#unmountAll(target);
    try {
      await this.#sys.removeTree(pod, { timeoutMs: removeTimeoutMs }, signal);
    } catch (error) {
      const rest = await this.mountsOf(uid);
      if (rest.length === 0) throw error;
      for (const target of rest) await this.#unmountAll(target);
      await this.#sys.removeTree(pod, { timeoutMs: removeTimeoutMs }, signal);
    }
    this.#mounted.delete(uid);
    this.#found?.delete(uid);
  }

  /** A mount point that is busy is detached: it leaves the tree at once and its user keeps what it has open. */
  async #unmountAll(target: string): Promise<void> {
    for (let attempt = 0; attempt < 32; attempt += 1) {
      let outcome: 'unmounted' | 'not-mounted';
      try {
        outcome = await this.#sys.umount(target);
      } catch (error) {
        if (!(error instanceof OpError) || error.code === 'denied') throw error;
        outcome = await this.#sys.umount(target, { lazy: true });
      }
      if (outcome === 'not-mounted') return;
    }
  }

  async uids(): Promise<string[]> {
    const [result] = await this.#sys.fileOps({
      root: '/',
      ops: [{ op: 'list', path: `${this.#rootDir}/pods`.slice(1) }],
      links: 'follow',
      timeoutMs: this.#timeoutMs,
    });
    if (result?.errno === 'ENOENT') return [];
    if (result === undefined || result.errno !== '') throw errnoError(`list ${this.#rootDir}/pods`, result?.errno ?? 'EIO');
    return result.names ?? [];
  }

  async stat(root: string, path: string, links: 'refuse' | 'beneath' | 'follow'): Promise<NonNullable<FileOpResult['stat']> | null> {
    const [result] = await this.#sys.fileOps({ root, ops: [{ op: 'stat', path }], links, timeoutMs: this.#timeoutMs });
    if (result?.errno === '') return result.stat ?? null;
    if (result?.errno === 'ENOENT' || result?.errno === 'ENOTDIR') return null;
    throw errnoError(`look at ${root}/${path}`, result?.errno ?? 'EIO');
  }

  /** Runs all of `ops`; throws an OpError that names the one that failed. */
  async ops(root: string, ops: readonly FileOp[], links: 'refuse' | 'beneath' | 'follow' = 'refuse'): Promise<void> {
    if (ops.length === 0) return;
    const results = await this.#sys.fileOps({ root, ops, links, timeoutMs: this.#timeoutMs });
    const last = results.at(-1);
    if (results.length === ops.length && (last === undefined || last.errno === '')) return;
    const failed = ops[results.length - 1];
    throw errnoError(`${failed?.op ?? 'write'} ${root}/${failed?.path ?? ''}`, last?.errno ?? 'EIO');
  }
}

/** The directory of a volume on the pod's own disk, with its mark. A tmpfs that is marked but not mounted counts as not there. */
function baseOps(base: VolumeBase): FileOp[] {
  const plugin = base.dir.slice(0, base.dir.lastIndexOf('/'));
  const ops: FileOp[] = [
    { op: 'mkdir', path: plugin, mode: 0o755 },
    { op: 'mkdir', path: base.dir, mode: 0o777 },
  ];
  if (base.mode !== undefined) ops.push({ op: 'chmod', path: base.dir, mode: base.mode });
  if (base.medium.kind === 'disk') ops.push(...groupOps(base.dir, base.fsGroup, base.mode ?? 0o777));
  for (const path of parentsOf(base.marker.slice(0, base.marker.lastIndexOf('/')))) ops.push({ op: 'mkdir', path, mode: 0o750 });
  return [...ops, { op: 'write', path: base.marker, data: '', mode: 0o644 }];
}

/** The same operations, seen from the directory above. */
function below(dir: string, ops: readonly FileOp[]): FileOp[] {
  return ops.map((op) => ({ ...op, path: `${dir}/${op.path}` }));
}

/** What fsGroup does to the root of a volume: group, setgid and group access. */
function groupOps(path: string, fsGroup: number | null, mode: number): FileOp[] {
  if (fsGroup === null) return [];
  return [
    { op: 'chown', path, uid: 0, gid: fsGroup },
    { op: 'chmod', path, mode: mode | 0o2770 },
  ];
}

function decode(file: PayloadFile): Buffer {
  return Buffer.from(file.text, file.encoding);
}

function toFileOp(op: WriterOp): FileOp {
  if (op.op !== 'write') return op;
  const { file, ...rest } = op;
  return { ...rest, data: file.encoding === 'utf8' ? file.text : decode(file) };
}
