import { mkdir, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf, OpError } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import { replaceFile } from '../../base/replace-file.ts';
import type { Rng } from '../../base/rng.ts';
import type { Sys } from '../../base/sys/types.ts';
import { Turns } from '../../base/turns.ts';
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
  readonly files?: MappingFiles;
}

/** Where it is kept which IDs a pod has. */
export interface MappingFiles {
  /** null: the pod has none. */
  read(uid: string): Promise<string | null>;
  write(uid: string, text: string): Promise<void>;
  /** Pods that have a directory. */
  uids(): Promise<string[]>;
}

const mappingName = 'userns';
const askMs = 10_000;

/** Which IDs of the machine a pod's own user namespace has. It stands in a file before the pod is made, so that a new process gives nobody the same. */
export class UserNamespaces {
  readonly #options: UserNamespacesOptions;
  readonly #range: IdRange;
  readonly #files: MappingFiles;
  readonly #slots = new Map<string, number>();
  readonly #turns = new Turns();

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
    this.#files = options.files ?? mappingFiles(options.rootDir);
  }

  /** The pod's namespace: the machine's, or one of its own. Throws OpError in upstream's words for one that cannot be had. */
  async of(pod: Pod, handler: string): Promise<UserNamespaceInput> {
    if (pod.spec.hostUsers !== false) return { mode: 'NODE' };
    const { supports } = this.#options;
    if (!supports(handler))
      throw new Error(
        `can't set \`spec.hostUsers: false\`, ${handler === '' ? 'runtime' : `RuntimeClass handler "${handler}"`} does not support user namespaces`,
      );
    const { uid } = keyOf(pod);
    const slot = this.#slots.get(uid) ?? (await this.#turns.take('', () => this.#give(uid)));
    return userNamespaceOf(this.#range, slot);
  }

  /** In its turn: while a file is read or written, nobody else is given the same IDs or looks for pods that are gone. */
  async #give(uid: string): Promise<number> {
    const slot = this.#slots.get(uid) ?? (await this.#kept(uid)) ?? (await this.#allocate(uid));
    this.#slots.set(uid, slot);
    return slot;
  }

  /** What an earlier process gave. */
  async #kept(uid: string): Promise<number | null> {
    const text = await this.#files.read(uid);
    const slot = text === null ? null : slotOf(this.#range, text);
    if (typeof slot === 'string') throw new Error(`user namespace: ${join(this.#options.rootDir, 'pods', uid, mappingName)}: ${slot}`);
    return slot;
  }

  /** What cannot be written is nobody's. */
  async #allocate(uid: string): Promise<number> {
    const free = (): number | null => freeSlot(this.#range, new Set(this.#slots.values()), this.#options.rng.int(this.#range.slots));
    if (free() === null) await this.#forgetGone();
    const slot = free();
    if (slot === null) throw new Error('create user namespace: could not find an empty slot to allocate a user namespace');
    await this.#files.write(uid, mappingText(this.#range, slot));
    return slot;
  }

  /** The pod's directory is gone. */
  release(uid: string): void {
    this.#slots.delete(uid);
  }

  async #recall(): Promise<void> {
    for (const uid of await this.#files.uids()) {
      const text = await this.#files.read(uid);
      if (text === null) continue;
      const slot = slotOf(this.#range, text);
      if (typeof slot === 'number') this.#slots.set(uid, slot);
      else this.#options.log.error('The user namespace of a pod cannot be used', { podUID: uid, err: slot });
    }
  }

  /** Pods that others took away. */
  async #forgetGone(): Promise<void> {
    const there = new Set(await this.#files.uids());
    for (const uid of this.#slots.keys()) if (!there.has(uid)) this.#slots.delete(uid);
  }
}

function mappingFiles(rootDir: string): MappingFiles {
  const dir = join(rootDir, 'pods');
  return {
    read: (uid) => readFile(join(dir, uid, mappingName), 'utf8').catch(ignoreMissing),
    async write(uid, text) {
      await mkdir(join(dir, uid), { recursive: true, mode: 0o750 });
      await replaceFile(join(dir, uid, mappingName), text);
    },
    uids: async () =>
      ((await readdir(dir, { withFileTypes: true }).catch(ignoreMissing)) ?? []).flatMap((entry) =>
        entry.isDirectory() && isSafeUid(entry.name) ? [entry.name] : [],
      ),
  };
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
