import { Buffer } from 'node:buffer';
import { createHash } from 'node:crypto';
import { errnoError } from '../../../base/sys/errno.ts';
import { hasCode, OpError } from '../../../base/errors.ts';
import type { FileOp, FileOpResult, Sys } from '../../../base/sys/types.ts';
import { blockPaths, blockVolumes, dataFile, podPluginDir, publishDir, publishPath, stageDir, stagedVolumes } from '../../core/csi/paths.ts';
import { readData } from '../../core/csi/data.ts';
import type { VolumeData } from '../../core/csi/data.ts';

export function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** How `csi-` and the hash of volume, driver and node name a VolumeAttachment. */
export function attachmentName(handle: string, driver: string, nodeName: string): string {
  return `csi-${sha256(`${handle}${driver}${nodeName}`)}`;
}

const timeoutMs = 10_000;
const maxDataBytes = 64 * 1024;

/** The node's files about CSI volumes, each step through Sys. Paths are relative to the kubelet's root directory. */
export class CsiDisk {
  readonly #sys: Sys;
  readonly root: string;

  constructor(sys: Sys, root: string) {
    this.#sys = sys;
    this.root = root;
  }

  absolute(path: string): string {
    return `${this.root}/${path}`;
  }

  async mkdir(path: string): Promise<void> {
    await this.#sys.mkdirBeneath(this.root, path, 0o750);
  }

  async write(path: string, data: string): Promise<void> {
    await this.#must([{ op: 'write', path, data, mode: 0o644 }]);
  }

  /** Writes the data of a volume in one step: who starts after a crash must be able to read it. */
  async keep(dir: string, data: string): Promise<void> {
    const path = `${dir}/${dataFile}`;
    await this.#must([
      { op: 'write', path: `${path}.new`, data, mode: 0o644 },
      { op: 'rename', path: `${path}.new`, to: path },
    ]);
  }

  /** The data of a volume; null when the file is not there. Throws OpError `invalid` when it cannot be read. */
  async data(dir: string): Promise<VolumeData | null> {
    const [result] = await this.#ops([{ op: 'read', path: `${dir}/${dataFile}`, maxBytes: maxDataBytes }]);
    if (isAbsent(result)) return null;
    if (result?.errno !== '') throw errnoError(`read ${dir}/${dataFile}`, result?.errno ?? 'EIO');
    const data = readData(Buffer.from(result.data ?? Buffer.alloc(0)).toString('utf8'));
    if (data === null) throw new OpError('invalid', `read ${dir}/${dataFile}`, 'it does not describe a volume');
    return data;
  }

  async stat(path: string, links: 'refuse' | 'follow' = 'refuse'): Promise<NonNullable<FileOpResult['stat']> | null> {
    const [result] = await this.#sys.fileOps({ root: this.root, ops: [{ op: 'stat', path }], links, timeoutMs });
    if (isAbsent(result)) return null;
    if (result?.errno !== '') throw errnoError(`look at ${path}`, result?.errno ?? 'EIO');
    return result.stat ?? null;
  }

  async list(path: string): Promise<readonly string[]> {
    const [result] = await this.#ops([{ op: 'list', path }]);
    if (isAbsent(result)) return [];
    if (result?.errno !== '') throw errnoError(`list ${path}`, result?.errno ?? 'EIO');
    return result.names ?? [];
  }

  /** Removes files and empty directories, in order; what is not there is fine. */
  async remove(paths: readonly string[]): Promise<void> {
    for (const path of paths) {
      const [result] = await this.#ops([{ op: 'unlink', path }]);
      if (result?.errno !== '' && !isAbsent(result)) throw errnoError(`remove ${path}`, result?.errno ?? 'EIO');
    }
  }

  /** As upstream: a mount directory goes with its data, but never while something is mounted on it. */
  async removeMountDir(dir: string, mount: string): Promise<void> {
    const stat = await this.stat(mount);
    if (stat?.mountPoint === true) return;
    await this.remove([mount, `${dir}/${dataFile}.new`, `${dir}/${dataFile}`, dir]);
  }

  async removeTree(path: string): Promise<void> {
    await this.#sys.removeTree(this.absolute(path), { timeoutMs: 60_000 });
  }

  /** Where a path leads after all links; the device behind a published block volume. */
  async resolve(path: string): Promise<string> {
    let at = this.absolute(path);
    for (let hops = 0; hops < 16; hops += 1) {
      const [result] = await this.#sys.fileOps({ root: '/', ops: [{ op: 'readlink', path: at.slice(1) }], links: 'follow', timeoutMs });
      if (result?.errno !== '' || result.target === undefined) return at;
      at = result.target.startsWith('/') ? result.target : `${at.slice(0, at.lastIndexOf('/'))}/${result.target}`;
    }
    throw new OpError('invalid', `follow ${path}`, 'too many links');
  }

  /** Puts a device where all pods' devices are bound, and a link to it into the pod's directory. */
  async mapDevice(uid: string, specName: string, device: string): Promise<void> {
    const paths = blockPaths(uid, specName);
    await this.mkdir(paths.globalMap);
    await this.mkdir(paths.podDir);
    const bound = `${paths.globalMap}/${uid}`;
    const before = await this.stat(bound);
    if (before?.mountPoint !== true) {
      if (before === null) await this.write(bound, '');
      await this.#sys.bind({ source: device, target: this.absolute(bound) });
    }
    await this.remove([paths.podLink]);
    await this.#must([{ op: 'symlink', target: device, path: paths.podLink }]);
  }

  async unmapDevice(uid: string, specName: string): Promise<void> {
    const paths = blockPaths(uid, specName);
    const bound = `${paths.globalMap}/${uid}`;
    if ((await this.stat(bound))?.mountPoint === true) await this.#sys.umount(this.absolute(bound));
    await this.remove([bound, paths.podLink]);
  }

  /** Volumes that lie published in a pod's directory, by spec name; `data` is null where it is not there or cannot be read. */
  async published(uid: string): Promise<{ specName: string; data: VolumeData | null; isBlock: boolean }[]> {
    const found: { specName: string; data: VolumeData | null; isBlock: boolean }[] = [];
    for (const specName of await this.list(`pods/${uid}/volumes/${podPluginDir}`))
      found.push({ specName, data: await this.#readable(publishDir(uid, specName)), isBlock: false });
    for (const specName of await this.list(`pods/${uid}/volumeDevices/${podPluginDir}`))
      found.push({ specName, data: await this.#readable(blockPaths(uid, specName).data), isBlock: true });
    return found;
  }

  async #readable(dir: string): Promise<VolumeData | null> {
    return await this.data(dir).catch((error: unknown) => {
      if (hasCode(error, 'invalid')) return null;
      throw error;
    });
  }

  /** Takes away what is left of a volume that nothing is known of; false while it is in use, which needs its driver. */
  async discard(uid: string, specName: string, isBlock: boolean): Promise<boolean> {
    if (isBlock) {
      if ((await this.stat(blockPaths(uid, specName).publish)) !== null) return false;
      await this.unmapDevice(uid, specName);
      return true;
    }
    const mount = publishPath(uid, specName);
    if ((await this.stat(mount))?.mountPoint === true) return false;
    await this.removeMountDir(publishDir(uid, specName), mount);
    return true;
  }

  /** Volumes that lie staged on this node, whoever staged them. */
  async staged(): Promise<{ data: VolumeData; specName: string | null }[]> {
    const found: { data: VolumeData; specName: string | null }[] = [];
    for (const driver of await this.list(stagedVolumes)) {
      if (driver === 'volumeDevices') continue;
      for (const sha of await this.list(`${stagedVolumes}/${driver}`)) {
        const data = await this.data(stageDir(driver, sha)).catch(() => null);
        if (data !== null) found.push({ data, specName: null });
      }
    }
    for (const specName of await this.list(blockVolumes)) {
      if (specName === 'staging' || specName === 'publish') continue;
      const data = await this.data(`${blockVolumes}/${specName}/data`).catch(() => null);
      if (data !== null) found.push({ data, specName });
    }
    return found;
  }

  async #ops(ops: readonly FileOp[]): Promise<FileOpResult[]> {
    return await this.#sys.fileOps({ root: this.root, ops, timeoutMs });
  }

  async #must(ops: readonly FileOp[]): Promise<void> {
    const results = await this.#ops(ops);
    const last = results.at(-1);
    if (last !== undefined && last.errno !== '')
      throw errnoError(`${ops[results.length - 1]?.op ?? 'write'} ${ops[results.length - 1]?.path ?? ''}`, last.errno);
  }
}

function isAbsent(result: FileOpResult | undefined): boolean {
  return result?.errno === 'ENOENT' || result?.errno === 'ENOTDIR';
}
