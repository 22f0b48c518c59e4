import { rfc3339 } from '../../../base/clock.ts';
import type { Clock } from '../../../base/clock.ts';
import { persistentVolumeClaims, subresource } from '../../../base/kubeapi/refs.ts';
import type { KubeApi } from '../../../base/kubeapi/types.ts';
import type { PersistentVolume, PersistentVolumeClaim, Pod } from '../../../proto/kube/types.ts';
import { RpcError } from '../../../cri/mod.ts';
import { expansionOf, failedPatch, finishedPatch, inProgressPatch } from '../../core/csi/expand.ts';
import { expandRequest } from '../../core/csi/requests.ts';
import type { NodeCapabilities } from '../../core/csi/requests.ts';
import type { CsiVolume } from '../../core/csi/volume.ts';
import { valueOf } from '../../core/quantity.ts';
import type { Events } from '../../seams.ts';
import { isOver, secretOf, words } from './calls.ts';
import type { Driver } from './drivers.ts';

export interface ExpansionOptions {
  readonly api: KubeApi;
  readonly clock: Clock;
  readonly events: Events;
  readonly nodeName: string;
}

export interface ExpandInput {
  readonly pod: Pod;
  readonly volume: CsiVolume;
  readonly pv: PersistentVolume;
  readonly pvc: PersistentVolumeClaim;
  readonly driver: Driver;
  readonly capabilities: NodeCapabilities;
  readonly paths: { readonly staging: string; readonly volume: string };
}

/** Grows file systems of volumes in use, as their claims ask, and says so in the claim. */
export class Expansions {
  readonly #options: ExpansionOptions;
  /** By driver and handle: the size that this node has made of it, in bytes. */
  readonly #grown = new Map<string, bigint>();
  /** Volumes that their driver will not grow while they are used. */
  readonly #notInUse = new Set<string>();

  constructor(options: ExpansionOptions) {
    this.#options = options;
  }

  /** Does what is due. Throws when the driver or the API server refuses; the pod is not to use the volume then. */
  async run(input: ExpandInput, signal: AbortSignal): Promise<void> {
    const { pod, volume, pv, pvc, driver, capabilities, paths } = input;
    const key = `${volume.driver}^${volume.handle}`;
    const before = this.#grown.get(key) ?? null;
    const due = expansionOf(pv, pvc, volume.readOnly, before);
    if (before === null) this.#grown.set(key, valueOf(pvc.status?.capacity?.['storage']));
    if (due.kind === 'none' || this.#notInUse.has(key)) return;
    if (due.kind === 'refused') return this.#tell(pod, pvc, 'Warning', 'FileSystemResizeFailed', `${failedWords(volume)} requested read-only file system`);
    let claim = pvc;
    if (due.recovers && due.marks) claim = await this.#patch(claim, inProgressPatch(claim), signal);
    try {
      if (!capabilities.has('EXPAND_VOLUME'))
        throw new RpcError('Unimplemented', 'NodeExpandVolume', `NodeExpand is not supported by the CSI driver ${volume.driver}`);
      const secrets = await secretOf(this.#options.api, volume.expandSecret, 'NodeExpandSecretRef', signal);
      await driver.call('NodeExpandVolume', expandRequest({ volume, capabilities, secrets, publishContext: {}, fsGroup: null }, paths, due.sizeBytes));
    } catch (error) {
      if (error instanceof RpcError && error.status === 'Unimplemented' && !due.marks) return;
      const message = `Expander.NodeExpand failed to expand the volume : ${words(error)}`;
      if (error instanceof RpcError && due.recovers && isOver(error)) {
        const infeasible = ['InvalidArgument', 'OutOfRange', 'NotFound'].includes(error.status);
        await this.#patch(claim, failedPatch(claim, message, infeasible, rfc3339(this.#options.clock.nowMs())), signal);
      }
      // The volume can be used as it is, and grows when nobody uses it.
      if (error instanceof RpcError && error.status === 'FailedPrecondition') return void this.#notInUse.add(key);
      this.#tell(pod, pvc, 'Warning', 'VolumeResizeFailed', `${failedWords(volume)} ${message}`);
      throw new Error(message, { cause: error });
    }
    this.#grown.set(key, due.sizeBytes);
    this.#tell(
      pod,
      pvc,
      'Normal',
      'FileSystemResizeSuccessful',
      `MountVolume.NodeExpandVolume succeeded for volume ${JSON.stringify(volume.specName)} ${this.#options.nodeName}`,
    );
    if (due.marks) await this.#patch(claim, finishedPatch(claim, due.size), signal);
  }

  /** Nobody uses it on this node any more. */
  forget(driver: string, handle: string): void {
    this.#grown.delete(`${driver}^${handle}`);
    this.#notInUse.delete(`${driver}^${handle}`);
  }

  async #patch(pvc: PersistentVolumeClaim, patch: object, signal: AbortSignal): Promise<PersistentVolumeClaim> {
    const ref = subresource(persistentVolumeClaims(pvc.metadata.namespace, pvc.metadata.name), 'status');
    return await this.#options.api.patch<PersistentVolumeClaim>(ref, 'strategic', patch, { timeoutMs: 10_000 }, signal);
  }

  #tell(pod: Pod, pvc: PersistentVolumeClaim, type: 'Normal' | 'Warning', reason: string, message: string): void {
    for (const [kind, { metadata }] of [
      ['Pod', pod],
      ['PersistentVolumeClaim', pvc],
    ] as const) {
      const { namespace = '', name = '', uid = '' } = metadata;
      this.#options.events.event({ apiVersion: 'v1', kind, namespace, name, uid }, type, reason, message);
    }
  }
}

function failedWords(volume: CsiVolume): string {
  return `MountVolume.NodeExpandVolume failed for volume ${JSON.stringify(volume.specName)}`;
}
