import { mkdir, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf, OpError } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import { replaceFile } from '../../base/replace-file.ts';
import type { Rng } from '../../base/rng.ts';
import type { Sys } from '../../base/sys/types.ts';
import type { UserNamespaceInput } from '../../proto/cri/types.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { keyOf } from '../core/containers.ts';
import { freeSlot, idRange, idUnit, mappingText, readSubIds, slotOf, userNamespaceOf, type IdRange } from '../core/user-namespaces.ts';
import { isSafeUid } from '../core/volumes-paths.ts';

export interface UserNamespacesOptions {
  readonly log: Log;
  readonly sys: Pick<Sys, 'run'>;
  readonly rng: Pick<Rng, 'int'>;
  readonly rootDir: string;
  /** `userNamespaces.idsPerPod`. */
  readonly idsPerPod: number | null;
  readonly maxPods: number;
  /** Whether a runtime handler can make user namespaces. */
  readonly supports: (handler: string) => boolean;
  readonly passwdFile?: string;
}

const mappingName = 'userns';
const askMs = 10_000;

/** Which IDs of the machine a pod's own user namespace has. It stands in a file before the pod is made, so that a new process gives nobody the same. */
export class UserNamespaces {
  readonly #options: UserNamespacesOptions;
  readonly #range: IdRange;
  readonly #slots = new Map<string, number>();

  /** Reads what earlier processes gave. Throws OpError `invalid` for IDs that cannot be used. */
  static async open(options: UserNamespacesOptions): Promise<UserNamespaces> {
    const range = idRange(options.idsPerPod ?? idUnit, options.maxPods, await subIds(options));
    if (typeof range === 'string') throw new OpError('invalid', 'set up user namespaces', range);
    const opened = new UserNamespaces(options, range);
    await opened.#recall();
    return opened;
  }

  private constructor(options: UserNamespacesOptions, range: IdRange) {
    this.#options = options;
    this.#range = range;
  }

  /** The pod's namespace: the machine's, or one of its own. Throws OpError in upstream's words for one that cannot be had. */
  async of(pod: Pod, handler: string): Promise<UserNamespaceInput> {
    if (pod.spec.hostUsers !== false) return { mode: 'NODE' };
    const { supports, rootDir } = this.#options;
    if (!supports(handler))
      throw new Error(
        `can't set \`spec.hostUsers: false\`, ${handler === '' ? 'runtime' : `RuntimeClass handler "${handler}"`} does not support user namespaces`,
      );
    const { uid } = keyOf(pod);
    const known = this.#slots.get(uid);
    if (known !== undefined) return userNamespaceOf(this.#range, known);
    const path = join(rootDir, 'pods', uid, mappingName);
    const text = await readFile(path, 'utf8').catch(ignoreMissing);
    if (text !== null) {
      const slot = slotOf(this.#range, text);
      if (typeof slot === 'string') throw new Error(`user namespace: ${path}: ${slot}`);
      this.#slots.set(uid, slot);
      return userNamespaceOf(this.#range, slot);
    }
    const free = (): number | null => freeSlot(this.#range, new Set(this.#slots.values()), this.#options.rng.int(this.#range.slots));
    if (free() === null) await this.#forgetGone();
    // Taken before anything is waited for: two pods ask at once.
    const slot = free();
    if (slot === null) throw new Error('create user namespace: could not find an empty slot to allocate a user namespace');
    this.#slots.set(uid, slot);
    try {
      await mkdir(join(rootDir, 'pods', uid), { recursive: true, mode: 0o750 });
      await replaceFile(path, mappingText(this.#range, slot));
    } catch (error) {
      this.#slots.delete(uid);
      throw error;
    }
    return userNamespaceOf(this.#range, slot);
  }

  /** The pod's directory is gone. */
  release(uid: string): void {
    this.#slots.delete(uid);
  }

  async #recall(): Promise<void> {
    const { rootDir, log } = this.#options;
    for (const uid of await this.#uidsOnDisk()) {
      const text = await readFile(join(rootDir, 'pods', uid, mappingName), 'utf8').catch(ignoreMissing);
      if (text === null) continue;
      const slot = slotOf(this.#range, text);
      if (typeof slot === 'number') this.#slots.set(uid, slot);
      else log.error('The user namespace of a pod cannot be used', { podUID: uid, err: slot });
    }
  }

  /** Pods that others took away. */
  async #forgetGone(): Promise<void> {
    const there = new Set(await this.#uidsOnDisk());
    for (const uid of this.#slots.keys()) if (!there.has(uid)) this.#slots.delete(uid);
  }

  async #uidsOnDisk(): Promise<string[]> {
    return (await readdir(join(this.#options.rootDir, 'pods')).catch(() => [])).filter(isSafeUid);
  }
}

function ignoreMissing(error: NodeJS.ErrnoException): null {
  if (error.code !== 'ENOENT') throw error;
  return null;
}

/** What a user named kubelet was given by the machine's owner; null where there is no such user, or nobody to ask. */
async function subIds({ sys, passwdFile = '/etc/passwd' }: UserNamespacesOptions): Promise<{ firstId: number; count: number } | null> {
  const users = await readFile(passwdFile, 'utf8').catch(() => '');
  if (!/^kubelet:/m.test(users)) return null;
  const ask = async (...args: string[]): Promise<string | null> => {
    try {
      const { code, stdout } = await sys.run(
        { argv: ['getsubids', ...args, 'kubelet'], timeoutMs: askMs, maxOutputBytes: 64 * 1024 },
        AbortSignal.timeout(askMs),
      );
      return code === 0 ? Buffer.from(stdout).toString() : '';
    } catch (error) {
      // The program is not there.
      if ((error as { code?: string }).code === 'not-found') return null;
      throw new OpError('invalid', 'set up user namespaces', `error retrieving additional ids for user "kubelet": ${messageOf(error)}`);
    }
  };
  const [uids, gids] = [await ask(), await ask('-g')];
  if (uids === null || gids === null) return null;
  const found = readSubIds(uids);
  if (uids !== gids) throw new OpError('invalid', 'set up user namespaces', 'mismatched subuids and subgids for user "kubelet"');
  if (found === null) throw new OpError('invalid', 'set up user namespaces', `error parsing line ${JSON.stringify(uids)}`);
  return found;
}
