import { Buffer } from 'node:buffer';
import { isIPv6 } from 'node:net';
import { OpError } from '../../base/errors.ts';
import { errnoError } from '../../base/sys/errno.ts';
import type { Sys } from '../../base/sys/types.ts';
import { parentsOf, podPaths, volumeDir } from '../core/volumes-paths.ts';
import type { NfsExport } from '../core/volumes-plan.ts';

export interface LocalVolume {
  readonly specName: string;
  readonly path: string;
  readonly isBlock: boolean;
  readonly readOnly: boolean;
  readonly options: readonly string[];
}

const timeoutMs = 10_000;
/** A server that does not answer costs this much, and only this pod. */
const nfsTimeoutMs = 60_000;
const ownershipTimeoutMs = 3600_000;

/** Volumes that are a mount of something else: exports of NFS servers and directories of this node's own disks. */
export class MountedVolumes {
  readonly #sys: Sys;
  readonly #rootDir: string;
  readonly #remember: (uid: string, target: string) => void;

  /** `remember` is told of each mount that is about to be made below a pod's directory. */
  constructor(sys: Sys, rootDir: string, remember: (uid: string, target: string) => void) {
    this.#sys = sys;
    this.#rootDir = rootDir;
    this.#remember = remember;
  }

  /** Mounts an export and answers where. Throws OpError with mount's own words. */
  async nfs(uid: string, nfs: NfsExport, signal: AbortSignal): Promise<string> {
    const dir = volumeDir('nfs', nfs.specName);
    const target = `${podPaths(this.#rootDir, uid).pod}/${dir}`;
    if (await this.#isMounted(uid, dir)) return target;
    await this.#mkdir(uid, dir);
    this.#remember(uid, target);
    const options = [...new Set([...nfs.options, ...(nfs.readOnly ? ['ro'] : [])])].toSorted();
    const source = `${isIPv6(nfs.server) ? `[${nfs.server}]` : nfs.server}:${nfs.path}`;
    const flags = ['-t', 'nfs', ...(options.length === 0 ? [] : ['-o', options.join(',')])];
    const args = [...flags, source, target];
    // A pod names the server: what begins with a dash is a name, too, and no option of mount(8).
    const result = await this.#sys.run({ argv: ['mount', ...flags, '--', source, target], timeoutMs: nfsTimeoutMs }, signal);
    if (result.code === 0) return target;
    const output = Buffer.concat([result.stdout, result.stderr]).toString('utf8');
    const how = result.timedOut ? `no answer within ${nfsTimeoutMs / 1000} s` : `exit status ${result.code ?? `signal ${result.signal}`}`;
    throw new OpError('failed', 'mount failed', `${how}\nMounting command: mount\nMounting arguments: ${args.join(' ')}\nOutput: ${output}\n`);
  }

  /** Binds a directory of this node into the pod's, or answers the device itself. Throws OpError. */
  async local(uid: string, local: LocalVolume, fsGroup: number | null, onRootMismatch: boolean): Promise<string> {
    const [found] = await this.#sys.fileOps({ root: '/', ops: [{ op: 'stat', path: local.path.slice(1) }], links: 'follow', timeoutMs });
    if (found?.errno === 'ENOENT') throw new OpError('not-found', `path "${local.path}"`, 'does not exist');
    if (found?.errno !== '' || found.stat === undefined) throw errnoError(`look at ${local.path}`, found?.errno ?? 'EIO');
    if (local.isBlock) {
      if (found.stat.type !== 'block') throw new OpError('invalid', `path "${local.path}"`, 'it is not a block device');
      return local.path;
    }
    if (found.stat.type !== 'dir') throw new OpError('unsupported', `path "${local.path}"`, 'only directories are used as file systems');
    const dir = volumeDir('local-volume', local.specName);
    const target = `${podPaths(this.#rootDir, uid).pod}/${dir}`;
    if (!(await this.#isMounted(uid, dir))) {
      await this.#mkdir(uid, dir);
      this.#remember(uid, target);
      await this.#sys.bind({ source: local.path, target, ...(local.readOnly ? { readOnly: true } : {}) });
    }
    if (fsGroup !== null && !local.readOnly) await this.#own(target, fsGroup, onRootMismatch);
    return target;
  }

  async #own(target: string, gid: number, onRootMismatch: boolean): Promise<void> {
    if (onRootMismatch) {
      const [found] = await this.#sys.fileOps({ root: target, ops: [{ op: 'stat', path: '' }], timeoutMs });
      if (found?.stat?.gid === gid && (found.stat.mode & 0o2770) === 0o2770) return;
    }
    await this.#sys.chownTree(target, { gid, orMode: 0o660, orDirMode: 0o2770, timeoutMs: ownershipTimeoutMs });
  }

  async #isMounted(uid: string, dir: string): Promise<boolean> {
    const [found] = await this.#sys.fileOps({ root: podPaths(this.#rootDir, uid).pod, ops: [{ op: 'stat', path: dir }], timeoutMs });
    return found?.errno === '' && found.stat?.mountPoint === true;
  }

  async #mkdir(uid: string, dir: string): Promise<void> {
    const root = podPaths(this.#rootDir, uid).pod;
    const results = await this.#sys.fileOps({ root, ops: parentsOf(dir).map((path) => ({ op: 'mkdir', path, mode: 0o750 })), timeoutMs });
    const last = results.at(-1);
    if (last !== undefined && last.errno !== '') throw errnoError(`mkdir ${root}/${dir}`, last.errno);
  }
}
