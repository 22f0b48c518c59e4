import { isIPv6 } from 'node:net';
import { OpError } from '../../base/errors.ts';
import { errnoError } from '../../base/sys/errno.ts';
import type { FileOpResult, RunResult, Sys } from '../../base/sys/types.ts';
import { Turns } from '../../base/turns.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { parentsOf, podPaths, volumeDir } from '../core/volumes-paths.ts';
import type { NfsExport } from '../core/volumes-plan.ts';
import type { Events } from '../seams.ts';
import { LocalDisks, LocalFailure, mountsInPods, mountWords } from './local-disks.ts';
import type { LocalDisk } from './local-disks.ts';
import type { Ownership } from './ownership.ts';

export interface LocalVolume extends LocalDisk {
  readonly isBlock: boolean;
}

export interface MountedVolumesOptions {
  readonly sys: Sys;
  readonly rootDir: string;
  /** Told of each mount that is about to be made below a pod's directory. */
  readonly remember: (uid: string, target: string) => void;
  readonly ownership: Pick<Ownership, 'give'>;
  readonly events: Events;
}

const timeoutMs = 10_000;
/** A server that does not answer costs this much, and only this pod. */
const nfsTimeoutMs = 60_000;

/** Volumes that are a mount of something else: exports of NFS servers and directories of this node's own disks. */
export class MountedVolumes {
  readonly #sys: Sys;
  readonly #rootDir: string;
  readonly #remember: MountedVolumesOptions['remember'];
  readonly #ownership: Pick<Ownership, 'give'>;
  readonly #events: Events;
  readonly #disks: LocalDisks;
  readonly #turns = new Turns();
  /** Mounts of which the files are still to go to the pod's group. */
  readonly #ungiven = new Set<string>();

  constructor({ sys, rootDir, remember, ownership, events }: MountedVolumesOptions) {
    this.#sys = sys;
    this.#rootDir = rootDir;
    this.#remember = remember;
    this.#ownership = ownership;
    this.#events = events;
    this.#disks = new LocalDisks(sys, rootDir);
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
    throw mountFailed(result, args);
  }

  /**
   * Binds a directory of this node, or the file system of a device, into the pod's, or answers the device itself. Its files go to the pod's group with the
   * first pod that has it mounted; a further one of another group is told. Throws OpError.
   */
  async local(pod: Pod, local: LocalVolume): Promise<string> {
    const { type } = await this.#look(local);
    if (local.isBlock) {
      if (type !== 'block') throw new LocalFailure('MapVolume.MapBlockVolume failed', local.specName, `${local.path} is not a block device`, 'FailedMapVolume');
      return local.path;
    }
    if (type !== 'dir' && type !== 'block')
      throw new LocalFailure('MountVolume.NewMounter initialization failed', local.specName, 'only directory and block device are supported');
    const target = `${podPaths(this.#rootDir, pod.metadata.uid ?? '').pod}/${volumeDir('local-volume', local.specName)}`;
    // Of two pods that come at once one is the first.
    await this.#turns.take(local.specName, async () => {
      const path = type === 'block' ? await this.#disks.mount(local) : local.path;
      await this.#bindLocal(pod, { ...local, path }, target);
    });
    return target;
  }

  /** A pod has ended, and its volumes are taken off. */
  async ended(uid: string): Promise<void> {
    for (const target of this.#ungiven) if (target.startsWith(`${podPaths(this.#rootDir, uid).pod}/`)) this.#ungiven.delete(target);
    await this.sweep();
  }

  /** Takes file systems of devices off that no pod has mounted any more; one that is busy is left to the next time. */
  async sweep(): Promise<void> {
    for (const specName of await this.#disks.unused()) {
      // Somebody makes a file system there, or gives its files away, which may take an hour: this pod has nothing to do with it.
      if (this.#turns.isTaken(specName)) continue;
      await this.#turns.take(specName, async () => {
        try {
          await this.#disks.release(specName);
        } catch (error) {
          if (!(error instanceof OpError)) throw error;
        }
      });
    }
  }

  async #bindLocal(pod: Pod, local: LocalVolume, target: string): Promise<void> {
    const { uid = '' } = pod.metadata;
    const { fsGroup, fsGroupChangePolicy } = pod.spec.securityContext ?? {};
    const dir = volumeDir('local-volume', local.specName);
    if (!(await this.#isMounted(uid, dir))) {
      const others = fsGroup === undefined ? [] : await mountsInPods(this.#sys, this.#rootDir, local.path);
      if (others.length > 0) await this.#tellOtherGroup(pod, local, fsGroup ?? 0);
      await this.#mkdir(uid, dir);
      this.#remember(uid, target);
      await this.#sys.bind({ source: local.path, target, ...(local.readOnly ? { readOnly: true } : {}) });
      if (local.options.length > 0) await this.#remount(local, target);
      if (!local.readOnly && others.length === 0) this.#ungiven.add(target);
    }
    if (!this.#ungiven.has(target)) return;
    if (fsGroup !== undefined)
      await this.#ownership.give(pod, target, { gid: fsGroup, readOnly: false, onRootMismatch: fsGroupChangePolicy === 'OnRootMismatch' });
    this.#ungiven.delete(target);
  }

  async #look({ path, specName, isBlock }: LocalVolume): Promise<NonNullable<FileOpResult['stat']>> {
    const [found] = await this.#sys.fileOps({ root: '/', ops: [{ op: 'stat', path: path.slice(1) }], links: 'follow', timeoutMs });
    if (found?.errno === 'ENOENT' && isBlock)
      throw new LocalFailure('MapVolume.EvalHostSymlinks failed', specName, `lstat ${path}: no such file or directory`, 'FailedMapVolume');
    if (found?.errno === 'ENOENT') throw new LocalFailure('MountVolume.NewMounter initialization failed', specName, `path "${path}" does not exist`);
    if (found?.errno !== '' || found.stat === undefined) throw errnoError(`look at ${path}`, found?.errno ?? 'EIO');
    return found.stat;
  }

  /** What a bind mount takes besides `ro` can only be set on it afterwards. */
  async #remount(local: LocalVolume, target: string): Promise<void> {
    const options = [...new Set(['bind', 'remount', ...(local.readOnly ? ['ro'] : []), ...local.options])].join(',');
    const result = await this.#sys.run({ argv: ['mount', '-o', options, '--', local.path, target], timeoutMs: nfsTimeoutMs });
    if (result.code === 0) return;
    await this.#sys.umount(target);
    throw mountFailed(result, ['-o', options, local.path, target]);
  }

  async #tellOtherGroup({ metadata }: Pod, local: LocalVolume, fsGroup: number): Promise<void> {
    const { gid } = await this.#look(local);
    if (gid === fsGroup) return;
    const { namespace = '', name = '', uid = '' } = metadata;
    this.#events.event(
      { apiVersion: 'v1', kind: 'Pod', namespace, name, uid },
      'Warning',
      'AlreadyMountedVolume',
      `The requested fsGroup is ${fsGroup}, but the volume ${local.specName} has GID ${gid}. The volume may not be shareable.`,
    );
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

function mountFailed(result: RunResult, args: readonly string[]): OpError {
  return new OpError('failed', 'mount failed', mountWords(result, args, nfsTimeoutMs));
}
