import { OpError } from '../errors.ts';
import { ErrnoError, errnoError } from './errno.ts';
import { type FakeLinks, type FakeMount, type FakeNode, fakeNode, FakeTree, hasMountBelow, inside, mayChange, type Place } from './fake-tree.ts';
import type {
  BindRequest,
  ChownTreeOptions,
  FileOp,
  FileOpResult,
  FileOpsRequest,
  FsFacts,
  MountRequest,
  OpFailure,
  RunRequest,
  RunResult,
  Sys,
} from './types.ts';

type NetlinkRequest = Parameters<Sys['netlink']>[0];

const blockBytes = 4096;
const tmpfsMagic = 0x01021994;

function errnoOf(error: unknown): string {
  if (!(error instanceof ErrnoError)) throw error;
  return error.errno;
}

/** What a scripted program answers: fields left out mean success without output. */
export function fakeRunResult(fields: Partial<Omit<RunResult, 'stdout' | 'stderr'>> & { stdout?: string; stderr?: string } = {}): RunResult {
  return {
    code: 0,
    signal: null,
    truncated: false,
    timedOut: false,
    ...fields,
    stdout: Buffer.from(fields.stdout ?? ''),
    stderr: Buffer.from(fields.stderr ?? ''),
  };
}

/** `Sys` in memory: a tree of files with mounts; programs and netlink are scripted by the test. */
export class FakeSys implements Sys {
  readonly #tree = new FakeTree();
  readonly #locks = new Map<string, { readonly onWanted: (() => void) | undefined }>();
  readonly #followers = new Set<(record: string) => void>();
  /** Everything that is mounted, in order. */
  readonly mounts: FakeMount[] = [];
  /** Every program that was asked for. */
  readonly runs: RunRequest[] = [];
  readonly notified: string[] = [];
  onRun: (request: RunRequest, signal?: AbortSignal) => RunResult | Promise<RunResult> = () => fakeRunResult();
  onNetlink: (request: NetlinkRequest) => Uint8Array[] | Promise<Uint8Array[]> = () => {
    throw new OpError('unsupported', 'netlink', 'not scripted');
  };
  /** Called before each call with its name and path; what it throws is what the call throws. Return a promise to hang. */
  fault: (call: keyof Sys & string, path: string) => void | Promise<void> = () => {};

  /** Puts a file there (or a directory: null), with the directories above it. */
  put(path: string, content: string | Uint8Array | null): void {
    const parts = path.split('/').filter((part) => part !== '');
    let node = this.#tree.find('/').node;
    for (const [index, part] of parts.entries()) {
      const isFile = index === parts.length - 1 && content !== null;
      const next = node.children.get(part) ?? fakeNode(isFile ? 'file' : 'dir', isFile ? 0o644 : 0o755);
      node.children.set(part, next);
      node = this.#tree.find(`/${parts.slice(0, index + 1).join('/')}`).node;
    }
    if (content !== null) node.data = Buffer.from(content);
  }

  /** A file's content, or null where there is none. */
  get(path: string): string | null {
    try {
      const { node } = this.#tree.find(path);
      return node.type === 'file' ? node.data.toString() : null;
    } catch {
      return null;
    }
  }

  /** The kernel says something. */
  kernelSays(record: string): void {
    for (const follower of this.#followers) follower(record);
  }

  async run(request: RunRequest, signal?: AbortSignal): Promise<RunResult> {
    await this.fault('run', request.argv[0] ?? '');
    if (signal?.aborted === true) throw new OpError('aborted', `run ${request.argv[0]}`, 'stopped by the caller');
    this.runs.push(request);
    return await this.onRun(request, signal);
  }

  async mount(request: MountRequest): Promise<void> {
    await this.fault('mount', request.target);
    const flags = request.flags ?? [];
    const readOnly = flags.includes('ro');
    const existing = this.mounts.findLast(({ target }) => target === request.target);
    const propagation = (['private', 'slave', 'shared'] as const).find((flag) => flags.includes(flag));
    if (flags.includes('remount') || (propagation !== undefined && !flags.includes('bind'))) {
      if (existing === undefined) throw errnoError(`mount ${request.target}`, 'EINVAL');
      if (flags.includes('remount')) existing.readOnly = readOnly;
      if (propagation !== undefined) existing.propagation = `${flags.includes('rec') ? 'r' : ''}${propagation}`;
      return;
    }
    const bound = flags.includes('bind') ? this.#tree.find(request.source) : undefined;
    this.#attach(request.target, () => {
      const root = bound?.node ?? fakeNode('dir', Number.parseInt(/(?:^|,)mode=([0-7]+)/.exec(request.data ?? '')?.[1] ?? '1777', 8));
      const recursive = bound === undefined || flags.includes('rec');
      return {
        source: request.source,
        fstype: bound === undefined ? request.fstype : 'bind',
        data: request.data ?? '',
        readOnly: bound === undefined && readOnly,
        recursive,
        allReadOnly: false,
        propagation: '',
        root,
      };
    });
  }

  #attach(target: string, make: (over: Place) => Omit<FakeMount, 'target'>): void {
    this.mounts.push(this.#tree.mount(target, make));
  }

  async umount(target: string): Promise<'unmounted' | 'not-mounted'> {
    await this.fault('umount', target);
    const mount = this.#tree.unmount(target);
    if (mount === undefined) return 'not-mounted';
    this.mounts.splice(this.mounts.indexOf(mount), 1);
    return 'unmounted';
  }

  async bind(request: BindRequest): Promise<void> {
    await this.fault('bind', request.target);
    const source =
      request.beneath === undefined ? this.#tree.find(request.source) : this.#tree.below(request.beneath, request.source, request.links ?? 'refuse', true);
    this.#attach(request.target, (over) => {
      if ((over.node.type === 'dir') !== (source.node.type === 'dir')) throw errnoError(`bind ${request.target}`, 'ENOTDIR');
      const shown = request.beneath === undefined ? request.source : `${request.beneath}/${request.source}`;
      const readOnly = request.readOnly === true || request.recursiveReadOnly === true;
      return {
        source: shown,
        fstype: 'bind',
        data: '',
        readOnly,
        recursive: request.recursive === true,
        allReadOnly: request.recursiveReadOnly === true,
        propagation: request.propagation ?? '',
        root: source.node,
      };
    });
  }

  async readBeneath(root: string, path: string, options: { maxBytes: number; fromEnd?: boolean }): Promise<Uint8Array> {
    await this.fault('readBeneath', `${root}/${path}`);
    const { node } = this.#tree.below(root, path, 'refuse', true);
    if (node.type !== 'file') throw errnoError(`read ${path} in ${root}`, node.type === 'dir' ? 'EISDIR' : 'EINVAL');
    return options.fromEnd === true ? node.data.subarray(Math.max(0, node.data.length - options.maxBytes)) : node.data.subarray(0, options.maxBytes);
  }

  async mkdirBeneath(root: string, path: string, mode: number, options: { links?: 'refuse' | 'beneath' } = {}): Promise<void> {
    await this.fault('mkdirBeneath', `${root}/${path}`);
    const parts = path.split('/').filter((part) => part !== '' && part !== '.');
    for (let depth = 1; depth <= parts.length; depth += 1) {
      const name = parts[depth - 1] ?? '';
      const above = this.#tree.below(root, parts.slice(0, depth - 1).join('/'), options.links ?? 'refuse', true);
      if (name !== '..' && !above.node.children.has(name)) {
        mayChange(above);
        above.node.children.set(name, fakeNode('dir', mode));
      }
      const here = this.#tree.below(root, parts.slice(0, depth).join('/'), options.links ?? 'refuse', true);
      if (here.node.type !== 'dir') throw errnoError(`make directory ${path} in ${root}`, 'ENOTDIR');
    }
  }

  async fileOps(request: FileOpsRequest): Promise<FileOpResult[]> {
    await this.fault('fileOps', request.root);
    const links = request.links ?? 'refuse';
    this.#tree.find(request.root);
    const results: FileOpResult[] = [];
    for (const op of request.ops) {
      try {
        results.push(this.#fileOp(request.root, op, links));
      } catch (error) {
        results.push({ errno: errnoOf(error) });
        break;
      }
    }
    return results;
  }

  #fileOp(root: string, op: FileOp, links: FakeLinks): FileOpResult {
    switch (op.op) {
      case 'mkdir':
      case 'write':
      case 'symlink':
      case 'unlink':
        this.#changeName(root, op, links);
        return { errno: '' };
      case 'rename': {
        const from = this.#tree.holder(root, op.path, links);
        const to = this.#tree.holder(root, op.to, links);
        mayChange(from.dir);
        mayChange(to.dir);
        const node = from.dir.node.children.get(from.name);
        if (node === undefined) throw errnoError('rename', 'ENOENT');
        if ((to.dir.node.children.get(to.name)?.children.size ?? 0) > 0) throw errnoError('rename', 'ENOTEMPTY');
        from.dir.node.children.delete(from.name);
        to.dir.node.children.set(to.name, node);
        return { errno: '' };
      }
      case 'readlink': {
        const { node } = this.#tree.below(root, op.path, links, false);
        if (node.type !== 'link') throw errnoError('readlink', 'EINVAL');
        return { errno: '', target: node.target };
      }
      default: {
        const place = this.#tree.below(root, op.path, links, op.op === 'read' || op.op === 'list' || links !== 'refuse');
        return this.#onPlace(op, place);
      }
    }
  }

  #onPlace(op: FileOp & { op: 'chmod' | 'chown' | 'read' | 'list' | 'stat' }, place: Place): FileOpResult {
    const { node } = place;
    switch (op.op) {
      case 'chmod':
        mayChange(place);
        if (node.type === 'link') throw errnoError('chmod', 'ELOOP');
        node.mode = op.mode & 0o7777;
        return { errno: '' };
      case 'chown':
        mayChange(place);
        node.uid = op.uid;
        node.gid = op.gid;
        return { errno: '' };
      case 'read':
        if (node.type !== 'file') throw errnoError('read', node.type === 'dir' ? 'EISDIR' : 'EINVAL');
        return { errno: '', data: node.data.subarray(0, op.maxBytes) };
      case 'list':
        if (node.type !== 'dir') throw errnoError('list', 'ENOTDIR');
        return { errno: '', names: [...node.children.keys()] };
      case 'stat':
        return {
          errno: '',
          stat: {
            type: node.type,
            mode: node.mode,
            uid: node.uid,
            gid: node.gid,
            size: node.type === 'link' ? node.target.length : node.data.length,
            mountPoint: place.mountPoint,
          },
        };
    }
  }

  #changeName(root: string, op: FileOp & { op: 'mkdir' | 'write' | 'symlink' | 'unlink' }, links: FakeLinks): void {
    const { dir, name } = this.#tree.holder(root, op.path, links);
    const { children } = dir.node;
    const there = children.get(name);
    if (op.op === 'unlink') {
      if (there === undefined) return;
      mayChange(dir);
      if (there.mounted.length > 0) throw errnoError('unlink', 'EBUSY');
      if (there.children.size > 0) throw errnoError('unlink', 'ENOTEMPTY');
      children.delete(name);
      return;
    }
    if (op.op === 'mkdir' && there?.type === 'dir') return;
    if (op.op !== 'write' && there !== undefined) throw errnoError(op.op, 'EEXIST');
    mayChange(dir);
    if (op.op === 'mkdir') children.set(name, fakeNode('dir', op.mode));
    else if (op.op === 'symlink') children.set(name, { ...fakeNode('link', 0o777), target: op.target });
    else this.#write(there ?? fakeNode('file', op.mode), op, (node) => children.set(name, node));
  }

  #write(node: FakeNode, op: FileOp & { op: 'write' }, keep: (node: FakeNode) => void): void {
    const shown = node.mounted.at(-1)?.root ?? node;
    if (shown.type !== 'file') throw errnoError('write', shown.type === 'link' ? 'ELOOP' : 'EISDIR');
    shown.data = Buffer.from(op.data);
    shown.mode = op.mode & 0o7777;
    shown.uid = op.uid ?? shown.uid;
    shown.gid = op.gid ?? shown.gid;
    keep(node);
  }

  async removeTree(path: string): Promise<void> {
    await this.fault('removeTree', path);
    const parts = path.split('/').filter((part) => part !== '');
    const name = parts.pop() ?? '';
    let above: Place;
    try {
      above = this.#tree.find(`/${parts.join('/')}`);
    } catch {
      return;
    }
    const node = above.node.children.get(name);
    if (node === undefined) return;
    mayChange(above);
    if (node.mounted.length > 0 || hasMountBelow(node)) throw errnoError(`remove ${path}`, 'EBUSY');
    above.node.children.delete(name);
  }

  async chownTree(path: string, options: ChownTreeOptions): Promise<void> {
    await this.fault('chownTree', path);
    const top = this.#tree.find(path, false);
    mayChange(top);
    for (const node of inside(top)) {
      node.uid = options.uid ?? node.uid;
      node.gid = options.gid ?? node.gid;
      if (node.type !== 'link') node.mode |= (node.type === 'dir' ? options.orDirMode : options.orMode) ?? 0;
    }
  }

  async diskUsage(path: string): Promise<{ bytes: number; inodes: number }> {
    await this.fault('diskUsage', path);
    const nodes = [...inside(this.#tree.find(path, false))];
    return { bytes: nodes.reduce((bytes, node) => bytes + Math.ceil(node.data.length / blockBytes) * blockBytes, 0), inodes: nodes.length };
  }

  async statfs(path: string): Promise<FsFacts> {
    await this.fault('statfs', path);
    const mount = this.#tree.find(path).mounts.at(-1);
    const totalBytes = Number(/(?:^|,)size=(\d+)/.exec(mount?.data ?? '')?.[1] ?? 100 * 2 ** 30);
    return {
      totalBytes,
      freeBytes: totalBytes / 2,
      availableBytes: totalBytes / 2,
      inodes: 1_000_000,
      inodesFree: 900_000,
      magic: mount?.fstype === 'tmpfs' ? tmpfsMagic : 0xef53,
    };
  }

  async netlink(request: NetlinkRequest): Promise<Uint8Array[]> {
    await this.fault('netlink', request.netns ?? '');
    return await this.onNetlink(request);
  }

  async readFiles(paths: readonly string[], options: { maxBytesEach?: number } = {}): Promise<(Uint8Array | null)[]> {
    await this.fault('readFiles', paths[0] ?? '');
    return paths.map((path) => {
      try {
        const { node } = this.#tree.find(path);
        return node.type === 'file' ? node.data.subarray(0, options.maxBytesEach ?? 256 * 1024) : null;
      } catch {
        return null;
      }
    });
  }

  async writeFiles(writes: readonly { path: string; data: string }[]): Promise<(OpFailure | null)[]> {
    await this.fault('writeFiles', writes[0]?.path ?? '');
    return writes.map(({ path, data }) => {
      try {
        const place = this.#tree.find(path);
        mayChange(place);
        if (place.node.type !== 'file') throw errnoError('write', 'EISDIR');
        place.node.data = Buffer.from(data);
        return null;
      } catch (error) {
        return { errno: errnoOf(error), message: `write ${path}: ${errnoOf(error)}` };
      }
    });
  }

  async followKernelLog(onRecord: (record: string) => void): Promise<AsyncDisposable> {
    await this.fault('followKernelLog', '');
    this.#followers.add(onRecord);
    return { [Symbol.asyncDispose]: async () => void this.#followers.delete(onRecord) };
  }

  async notify(state: string): Promise<void> {
    await this.fault('notify', state);
    this.notified.push(state);
  }

  /** What is held, by the bytes it was asked for with. */
  readonly descriptors = new Set<Uint8Array>();
  async holdDescriptor(request: { path: string; bytes: Uint8Array }): Promise<AsyncDisposable> {
    await this.fault('holdDescriptor', request.path);
    if (this.get(request.path) === null) throw errnoError(`hold a descriptor of ${request.path}`, 'ENOENT');
    this.descriptors.add(request.bytes);
    return { [Symbol.asyncDispose]: async () => void this.descriptors.delete(request.bytes) };
  }

  async lock(path: string, _onLost?: (error: unknown) => void, onWanted?: () => void): Promise<AsyncDisposable> {
    await this.fault('lock', path);
    const held = this.#locks.get(path);
    held?.onWanted?.();
    if (held !== undefined) throw errnoError(`lock ${path}`, 'EALREADY');
    this.#locks.set(path, { onWanted });
    return { [Symbol.asyncDispose]: async () => void this.#locks.delete(path) };
  }

  async [Symbol.asyncDispose](): Promise<void> {}
}

export function createFakeSys(): FakeSys {
  return new FakeSys();
}
