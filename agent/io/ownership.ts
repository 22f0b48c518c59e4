import type { Clock } from '../../base/clock.ts';
import type { Sys } from '../../base/sys/types.ts';
import type { Pod } from '../../proto/kube/types.ts';
import type { Events } from '../seams.ts';

export interface OwnershipOptions {
  readonly sys: Pick<Sys, 'fileOps' | 'chownTree'>;
  readonly clock: Clock;
  readonly events: Events;
}

export interface GivenTo {
  readonly gid: number;
  readonly readOnly: boolean;
  /** Nothing is done where the top of the volume is right already (`fsGroupChangePolicy: OnRootMismatch`). */
  readonly onRootMismatch: boolean;
}

const lookTimeoutMs = 10_000;
const giveTimeoutMs = 3600_000;
/** Upstream's: a volume of many files is told of after this, and then each minute. */
const firstTellMs = 30_000;
const tellAgainMs = 60_000;
const advice = 'https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods';

/** Gives what is in a volume to the group of a pod, as `fsGroup` asks. One that takes long is told of. */
export class Ownership {
  readonly #options: OwnershipOptions;

  constructor(options: OwnershipOptions) {
    this.#options = options;
  }

  /** `path` is absolute. Throws OpError, `deadline` after an hour. */
  async give(pod: Pod, path: string, { gid, readOnly, onRootMismatch }: GivenTo): Promise<void> {
    const { sys } = this.#options;
    const [fileMask, dirMask] = readOnly ? [0o440, 0o2550] : [0o660, 0o2770];
    if (onRootMismatch) {
      const [found] = await sys.fileOps({ root: path, ops: [{ op: 'stat', path: '' }], timeoutMs: lookTimeoutMs });
      if (found?.stat?.gid === gid && (found.stat.mode & dirMask) === dirMask) return;
    }
    let files = 0;
    using _told = this.#tellMeanwhile(pod, path, () => files);
    await sys.chownTree(path, { gid, orMode: fileMask, orDirMode: dirMask, timeoutMs: giveTimeoutMs, onProgress: (changed) => (files = changed) });
  }

  /** First that it takes long, then how many files were done. */
  #tellMeanwhile(pod: Pod, path: string, files: () => number): Disposable {
    const { clock, events } = this.#options;
    const { namespace = '', name = '', uid = '' } = pod.metadata;
    const place = path.slice(Math.max(0, path.indexOf(uid)));
    const setting = `Setting volume ownership for ${place}`;
    const tell = (message: string): void => {
      events.event({ apiVersion: 'v1', kind: 'Pod', namespace, name, uid }, 'Warning', 'VolumePermissionChangeInProgress', message);
      next = clock.after(tellAgainMs, () => tell(`${setting}, processed ${files()} files.`));
    };
    let next = clock.after(firstTellMs, () => tell(`${setting} is taking longer than expected, consider using OnRootMismatch - ${advice}`));
    return { [Symbol.dispose]: () => next[Symbol.dispose]() };
  }
}
