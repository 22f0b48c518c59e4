import { messageOf } from '../../../base/errors.ts';
import { volumeAttachments } from '../../../base/kubeapi/refs.ts';
import type { KubeApi } from '../../../base/kubeapi/types.ts';
import type { VolumeAttachment } from '../../../proto/kube/types.ts';
import { uniqueVolumeName } from '../../core/csi/volume.ts';
import type { NodeInfo } from '../../seams.ts';
import { attachmentName } from './disk.ts';

export interface AttachOptions {
  readonly api: KubeApi;
  readonly node: NodeInfo;
  /** The Node's status has something new to say. */
  readonly report: () => void;
  /** Looks at a pod again soon. */
  readonly kick: (uid: string) => void;
}

export type Attached =
  | { readonly ok: true; readonly publishContext: Readonly<Record<string, string>> }
  /** `quiet`: only to be waited for; told when it takes too long. */
  | { readonly ok: false; readonly message: string; readonly quiet: boolean };

/** gRPC's code. */
const resourceExhausted = 8;

/**
 * Volumes that a controller attaches to this node: they are reported as in use before anything waits for them, and
 * are used once the controller has written that they are attached. Detaching is the controller's, when no longer in use.
 */
export class Attachments {
  readonly #options: AttachOptions;
  readonly #held = new Set<string>();
  readonly #waiting = new Set<string>();

  constructor(options: AttachOptions) {
    this.#options = options;
    options.node.onChange(() => {
      for (const uid of this.#waiting) options.kick(uid);
      this.#waiting.clear();
    });
  }

  /** Names for the Node's `volumesInUse`, in order. */
  inUse(): readonly string[] {
    return [...this.#held].toSorted();
  }

  /** A pod wants the volume, or it is still staged. */
  hold(driver: string, handle: string): void {
    const name = uniqueVolumeName(driver, handle);
    if (this.#held.has(name)) return;
    this.#held.add(name);
    this.#options.report();
  }

  /** Nobody uses the volume any more, and it is not staged. */
  release(driver: string, handle: string): void {
    if (this.#held.delete(uniqueVolumeName(driver, handle))) this.#options.report();
  }

  /** Whether the driver could not attach the volume because the node has no room for another one. */
  async isExhausted(driver: string, handle: string, signal: AbortSignal): Promise<boolean> {
    const { api, node } = this.#options;
    const object = await api
      .get<VolumeAttachment>(volumeAttachments(attachmentName(handle, driver, node.name)), { timeoutMs: 10_000 }, signal)
      .catch(() => null);
    return object?.status?.attachError?.errorCode === resourceExhausted;
  }

  /** Whether the volume is attached to this node now. */
  async check(driver: string, handle: string, uid: string, signal: AbortSignal): Promise<Attached> {
    const { api, node } = this.#options;
    const name = uniqueVolumeName(driver, handle);
    const status = node.node()?.status;
    const wait = (message: string): Attached => {
      this.#waiting.add(uid);
      return { ok: false, message, quiet: true };
    };
    if (status?.volumesInUse?.includes(name) !== true) return wait(`Volume has not been added to the list of VolumesInUse in the node's volume status`);
    if (status.volumesAttached?.some((volume) => volume.name === name) !== true) return wait(`volume ${name} is not yet in node's status`);
    const id = attachmentName(handle, driver, node.name);
    let object: VolumeAttachment;
    try {
      object = await api.get<VolumeAttachment>(volumeAttachments(id), { timeoutMs: 10_000 }, signal);
    } catch (error) {
      signal.throwIfAborted();
      return { ok: false, message: `volume ${handle} has GET error for volume attachment ${id}: ${messageOf(error)}`, quiet: false };
    }
    const fail = (message: string): Attached => ({ ok: false, message, quiet: false });
    if (object.metadata.deletionTimestamp !== undefined) return fail('volume attachment is being deleted');
    if (object.status?.attached === true) return { ok: true, publishContext: object.status.attachmentMetadata ?? {} };
    const attachError = object.status?.attachError?.message;
    return fail(attachError ?? `volume ${handle} is not attached for volume attachment ${id}`);
  }
}
