import type { Clock } from '../../../base/clock.ts';
import { OpError } from '../../../base/errors.ts';
import type { Log } from '../../../base/log.ts';
import { createKeyedQueue } from '../../../base/queue.ts';
import type { KeyedQueue } from '../../../base/queue.ts';
import { createKeyedBackoff } from '../../../base/retry.ts';
import type { KeyedBackoff } from '../../../base/retry.ts';
import type { Rng } from '../../../base/rng.ts';
import { blockPaths, stageDir, stagePath } from '../../core/csi/paths.ts';
import type { Turns } from '../../../base/turns.ts';
import type { Attachments } from './attach.ts';
import { words } from './calls.ts';
import { sha256 } from './disk.ts';
import type { CsiDisk } from './disk.ts';
import type { Drivers } from './drivers.ts';
import type { Expansions } from './expand.ts';

export interface UnstageOptions {
  readonly clock: Clock;
  readonly rng: Rng;
  readonly log: Log;
  readonly disk: CsiDisk;
  readonly drivers: Pick<Drivers, 'find'>;
  readonly attachments: Pick<Attachments, 'hold' | 'release'>;
  readonly expansions: Pick<Expansions, 'forget'>;
  readonly turns: Turns;
}

interface Ref {
  readonly driver: string;
  readonly handle: string;
  readonly selinuxContext?: string;
}

interface Known extends Ref {
  /** The pods that want it, and whether it is published for them. */
  readonly users: Map<string, boolean>;
  /** By this process: one before it may have come half way. */
  staged: boolean;
  /** Name of a block volume; null for a file system. */
  block: string | null;
  /** The SELinux context that it is mounted with; '' is none. */
  context: string;
}

/** Which pods use which staged volume; one that nobody uses is taken off the node, tried until it works. */
export class CsiUnstage implements AsyncDisposable {
  readonly #options: UnstageOptions;
  readonly turns: Turns;
  readonly #volumes = new Map<string, Known>();
  readonly #queue: KeyedQueue;
  readonly #backoff: KeyedBackoff;

  constructor(options: UnstageOptions) {
    this.#options = options;
    this.turns = options.turns;
    const { clock, rng, log } = options;
    this.#backoff = createKeyedBackoff({ baseMs: 500, maxMs: 122_000 }, rng);
    this.#queue = createKeyedQueue({
      clock,
      concurrency: 8,
      work: async (key) => {
        await this.turns.take(key, async () => await this.#unstage(key));
        this.#backoff.succeeded(key);
      },
      onError: (key, error) => {
        log.error('A volume was not taken off the node, will retry', { volume: key, err: words(error) });
        this.#queue.addAfter(key, this.#backoff.failed(key));
      },
    });
  }

  /** What lies on the disk of an earlier process: used by the pods whose directories it lies in. */
  async find(uids: readonly string[]): Promise<void> {
    const { disk } = this.#options;
    for (const { data, specName } of await disk.staged()) this.#known(data, specName);
    for (const uid of uids) {
      for (const { specName, data, isBlock } of await disk.published(uid))
        if (data !== null && data.mode !== 'Ephemeral') this.#known(data, isBlock ? specName : null).users.set(uid, true);
    }
    for (const volume of this.#volumes.values()) this.#options.attachments.hold(volume.driver, volume.handle);
  }

  /** What nobody uses goes, once it is known who uses what. */
  sweep(): void {
    for (const [key, { users }] of this.#volumes) if (users.size === 0) this.#queue.add(key);
  }

  uses(volume: Ref, uid: string, block: string | null): void {
    const known = this.#known(volume, block);
    if (!known.users.has(uid)) known.users.set(uid, false);
    known.context = volume.selinuxContext ?? '';
  }

  published(volume: Ref, uid: string): void {
    this.#known(volume, null).users.set(uid, true);
  }

  othersUse(volume: Ref, uid: string): boolean {
    const users = this.#volumes.get(keyOf(volume))?.users;
    return users !== undefined && [...users].some(([other, published]) => published && other !== uid);
  }

  /** The context that the volume is, or is going to be, mounted with for others; null: for nobody. */
  contextOf(volume: Ref, uid: string): string | null {
    const known = this.#volumes.get(keyOf(volume));
    return known === undefined || (known.users.size === 1 && known.users.has(uid)) ? null : known.context;
  }

  isStaged(volume: Ref): boolean {
    return this.#volumes.get(keyOf(volume))?.staged === true;
  }

  staged(volume: Ref): void {
    this.#known(volume, null).staged = true;
  }

  /** The pod has the volume no more. */
  left(volume: Ref, uid: string, block: string | null): void {
    const known = this.#known(volume, block);
    known.users.delete(uid);
    if (known.users.size === 0) this.#queue.add(keyOf(volume));
  }

  /** The pod has nothing more, whatever it had begun. */
  leftAll(uid: string): void {
    for (const [key, { users }] of this.#volumes) if (users.delete(uid) && users.size === 0) this.#queue.add(key);
  }

  #known({ driver, handle, selinuxContext = '' }: Ref, block: string | null): Known {
    const key = keyOf({ driver, handle });
    let known = this.#volumes.get(key);
    if (known === undefined) {
      known = { driver, handle, users: new Map(), staged: false, block, context: selinuxContext };
      this.#volumes.set(key, known);
    }
    if (block !== null) known.block = block;
    return known;
  }

  async #unstage(key: string): Promise<void> {
    const known = this.#volumes.get(key);
    // Somebody has come meanwhile.
    if (known === undefined || known.users.size > 0) return;
    known.staged = false;
    const { driver, handle, block } = known;
    if (block === null) await this.#unmountDevice(driver, handle);
    else await this.#tearDownDevice(driver, handle, block);
    this.#volumes.delete(key);
    this.#options.expansions.forget(driver, handle);
    this.#options.attachments.release(driver, handle);
  }

  async #unmountDevice(name: string, handle: string): Promise<void> {
    const { disk } = this.#options;
    const sha = sha256(handle);
    const dir = stageDir(name, sha);
    if ((await disk.data(dir)) === null) return;
    const staging = stagePath(name, sha);
    await this.#call(name, handle, disk.absolute(staging));
    await disk.removeMountDir(dir, staging);
  }

  async #tearDownDevice(name: string, handle: string, specName: string): Promise<void> {
    const { disk } = this.#options;
    const paths = blockPaths('-', specName);
    if ((await disk.stat(paths.staging)) !== null) {
      await this.#call(name, handle, disk.absolute(paths.staging));
      await disk.removeTree(paths.staging);
    }
    await disk.remove([paths.publishDir]);
    await disk.removeTree(paths.dir);
  }

  async #call(name: string, handle: string, stagingTargetPath: string): Promise<void> {
    const driver = this.#options.drivers.find(name);
    if (driver === undefined) throw new OpError('unavailable', 'unstage a volume', `driver name ${name} not found in the list of registered CSI drivers`);
    if (!(await driver.capabilities()).has('STAGE_UNSTAGE_VOLUME')) return;
    await driver.call('NodeUnstageVolume', { volumeId: handle, stagingTargetPath });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#queue[Symbol.asyncDispose]();
  }
}

function keyOf({ driver, handle }: Ref): string {
  return `${driver}^${handle}`;
}
