import { Buffer } from 'node:buffer';
import { OpError } from '../../base/errors.ts';
import type { RunResult, Sys } from '../../base/sys/types.ts';
import { otherMounts, parseMountinfo } from '../core/mountinfo.ts';
import type { MountEntry } from '../core/mountinfo.ts';

export interface LocalDisk {
  readonly specName: string;
  readonly path: string;
  readonly readOnly: boolean;
  readonly options: readonly string[];
  /** Of the file system that is made where there is none; empty: ext4. */
  readonly fsType: string;
}

/** A volume could not be brought to where pods mount it from; the message is whole, with upstream's name of the step. */
export class LocalFailure extends OpError {
  readonly event: 'FailedMount' | 'FailedMapVolume';

  constructor(step: string, specName: string, detail: string, event: 'FailedMount' | 'FailedMapVolume' = 'FailedMount') {
    super('failed', `${step} for volume ${JSON.stringify(specName)} `, detail);
    this.event = event;
  }
}

const mountsDir = 'plugins/kubernetes.io/local-volume/mounts';
/** Superblocks of most file systems lie in the first MiB. */
const firstBytes = ['bs=65536', 'count=16'];
const timeoutMs = 10_000;
const mountTimeoutMs = 60_000;
/** Of large disks. */
const formatTimeoutMs = 3600_000;
/** blkid(8): nothing was found on the device. */
const nothingFound = 2;
/** fsck(8): errors were left uncorrected. */
const uncorrected = 4;

/** Which pods have mounted what lies at `path`: mount points below their directories. */
export async function mountsInPods(sys: Pick<Sys, 'readFiles'>, rootDir: string, path: string): Promise<string[]> {
  return inPods(await mountTable(sys), rootDir, path);
}

async function mountTable(sys: Pick<Sys, 'readFiles'>): Promise<MountEntry[]> {
  const [table] = await sys.readFiles(['/proc/self/mountinfo'], { maxBytesEach: 16 << 20 });
  return parseMountinfo(Buffer.from(table ?? []).toString('utf8'));
}

function inPods(table: readonly MountEntry[], rootDir: string, path: string): string[] {
  return otherMounts(table, path).filter((target) => target.startsWith(`${rootDir}/pods/`));
}

/** File systems of block devices that are local volumes: made where there is none, mounted once for all pods of the node. */
export class LocalDisks {
  readonly #sys: Sys;
  readonly #rootDir: string;
  /** By name of the volume: those that are, or may be, mounted; undefined until somebody has looked. */
  #known: Set<string> | undefined;

  constructor(sys: Sys, rootDir: string) {
    this.#sys = sys;
    this.#rootDir = rootDir;
  }

  /** Mounts a device and answers where. Throws LocalFailure. */
  async mount(asked: LocalDisk): Promise<string> {
    const disk = { ...asked, fsType: asked.fsType || 'ext4' };
    const at = `${mountsDir}/${disk.specName}`;
    const target = `${this.#rootDir}/${at}`;
    if (await this.#isMounted(at)) return target;
    await this.#sys.mkdirBeneath(this.#rootDir, at, 0o750);
    (await this.#all()).add(disk.specName);
    const fail = (why: string): LocalFailure =>
      new LocalFailure(
        'MountVolume.MountDevice failed',
        disk.specName,
        `local: failed to mount device ${disk.path} at ${target} (fstype: ${disk.fsType}), error ${why}`,
      );
    if (!/^[a-z0-9]+$/.test(disk.fsType)) throw fail(`${JSON.stringify(disk.fsType)} is not the name of a file system`);
    const isReadOnly = disk.readOnly || disk.options.includes('ro');
    const options = [...[...new Set([...(disk.readOnly ? ['ro'] : []), ...disk.options])].toSorted(), 'defaults'].join(',');
    const format = await this.#formatOf(disk.path, fail);
    if (format === null && isReadOnly) throw fail(`cannot mount unformatted disk ${disk.path} as we are manipulating it in read-only mode`);
    if (format === null) await this.#make(disk, `target:("${target}") options:("${options}")`, fail);
    else if (!isReadOnly) await this.#repair(disk.path, fail);
    const args = ['-t', disk.fsType, '-o', options];
    const result = await this.#sys.run({ argv: ['mount', ...args, '--', disk.path, target], timeoutMs: mountTimeoutMs });
    if (result.code !== 0) throw fail(`mount failed: ${mountWords(result, [...args, disk.path, target], mountTimeoutMs)}`);
    return target;
  }

  /** Volumes that lie mounted here, whoever mounted them, and that no pod has. */
  async unused(): Promise<readonly string[]> {
    const all = [...(await this.#all())];
    if (all.length === 0) return [];
    const table = await mountTable(this.#sys);
    return all.filter((specName) => inPods(table, this.#rootDir, `${this.#rootDir}/${mountsDir}/${specName}`).length === 0);
  }

  /** Takes the file system of a volume off where no pod has it any more; else it stays. Throws OpError while it is busy. */
  async release(specName: string): Promise<void> {
    const at = `${mountsDir}/${specName}`;
    const target = `${this.#rootDir}/${at}`;
    if (await this.#isMounted(at)) {
      if ((await mountsInPods(this.#sys, this.#rootDir, target)).length > 0) return;
      await this.#sys.umount(target);
    }
    await this.#sys.fileOps({ root: this.#rootDir, ops: [{ op: 'unlink', path: at }], timeoutMs });
    (await this.#all()).delete(specName);
  }

  async #all(): Promise<Set<string>> {
    if (this.#known === undefined) {
      const [listed] = await this.#sys.fileOps({ root: this.#rootDir, ops: [{ op: 'list', path: mountsDir }], timeoutMs });
      this.#known ??= new Set(listed?.names);
    }
    return this.#known;
  }

  async #isMounted(at: string): Promise<boolean> {
    const [found] = await this.#sys.fileOps({ root: this.#rootDir, ops: [{ op: 'stat', path: at }], timeoutMs });
    return found?.errno === '' && found.stat?.mountPoint === true;
  }

  /** What lies on a device; null: nothing that is known, so that a file system may be made. Partitions are something. */
  async #formatOf(device: string, fail: (why: string) => LocalFailure): Promise<string | null> {
    const unknown = (how: string): LocalFailure => fail(`failed to get disk format of disk ${device}: ${how}`);
    const result = await this.#sys.run({ argv: ['blkid', '-p', '-s', 'TYPE', '-s', 'PTTYPE', '-o', 'export', device], timeoutMs: mountTimeoutMs });
    if (result.code === 0) return /^(?:PT)?TYPE=(.*)$/m.exec(textOf(result))?.[1] ?? null;
    if (result.code !== nothingFound) throw unknown(`${howEnded(result, mountTimeoutMs)} ${textOf(result)}`);
    // It also finds nothing on what it cannot read, and what is there might be readable again when it is written over.
    const read = await this.#sys.run({ argv: ['dd', `if=${device}`, 'of=/dev/null', ...firstBytes], timeoutMs: mountTimeoutMs });
    if (read.code !== 0) throw unknown(`it cannot be read: ${textOf(read)}`);
    return null;
  }

  async #make({ path, fsType }: LocalDisk, where: string, fail: (why: string) => LocalFailure): Promise<void> {
    const flags = fsType === 'ext4' || fsType === 'ext3' ? ['-F', '-m0'] : fsType === 'xfs' ? ['-f'] : [];
    const result = await this.#sys.run({ argv: [`mkfs.${fsType}`, ...flags, path], timeoutMs: formatTimeoutMs });
    if (result.code !== 0)
      throw fail(`format of disk "${path}" failed: type:("${fsType}") ${where} errcode:(${howEnded(result, formatTimeoutMs)}) output:(${textOf(result)}) `);
  }

  async #repair(path: string, fail: (why: string) => LocalFailure): Promise<void> {
    try {
      const result = await this.#sys.run({ argv: ['fsck', '-a', path], timeoutMs: formatTimeoutMs });
      if (result.code === uncorrected) throw fail(`'fsck' found errors on device ${path} but could not correct them: ${textOf(result)}`);
    } catch (error) {
      // Where there is no such program the kernel's own look at the file system must do, as with upstream.
      if (!(error instanceof OpError) || error.code !== 'not-found') throw error;
    }
  }
}

/** What mount(8) said, in upstream's words. */
export function mountWords(result: RunResult, args: readonly string[], boundMs: number): string {
  return `${howEnded(result, boundMs)}\nMounting command: mount\nMounting arguments:  ${args.join(' ')}\nOutput: ${textOf(result)}`;
}

function howEnded({ code, signal, timedOut }: RunResult, boundMs: number): string {
  return timedOut ? `no answer within ${boundMs / 1000} s` : `exit status ${code ?? `signal ${signal}`}`;
}

function textOf({ stdout, stderr }: RunResult): string {
  return Buffer.concat([stdout, stderr]).toString('utf8');
}
