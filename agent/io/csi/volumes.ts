import type { Clock } from '../../../base/clock.ts';
import { messageOf, OpError } from '../../../base/errors.ts';
import type { KubeApi } from '../../../base/kubeapi/types.ts';
import type { Log } from '../../../base/log.ts';
import type { CSIDriver, PersistentVolume, PersistentVolumeClaim, Pod } from '../../../proto/kube/types.ts';
import { blockPaths, publishDir, publishPath, stageDir, stagePath } from '../../core/csi/paths.ts';
import { blockData, publishedData, stagedData } from '../../core/csi/data.ts';
import { appliesGroup, isAttached, modeProblem, publishRequest, stageRequest } from '../../core/csi/requests.ts';
import type { CallContext, NodeCapabilities } from '../../core/csi/requests.ts';
import { contextOption, mountContext, type SelinuxNode } from '../../core/selinux.ts';
import { nameProblem } from '../../core/csi/volume.ts';
import type { CsiVolume } from '../../core/csi/volume.ts';
import type { Events } from '../../seams.ts';
import type { Ownership } from '../ownership.ts';
import type { Tokens } from '../tokens.ts';
import { Turns } from '../../../base/turns.ts';
import type { Attachments } from './attach.ts';
import { isOver, podWords, secretOf, StepFailure, words } from './calls.ts';
import { attachmentName, sha256 } from './disk.ts';
import type { CsiDisk } from './disk.ts';
import type { Driver, Drivers } from './drivers.ts';
import type { Expansions } from './expand.ts';
import type { CsiDriverObjects } from './objects.ts';
import type { CsiUnstage } from './unstage.ts';

export interface CsiVolumesOptions {
  readonly api: KubeApi;
  readonly clock: Clock;
  readonly log: Log;
  readonly nodeName: string;
  readonly disk: CsiDisk;
  readonly drivers: Pick<Drivers, 'find' | 'tellNode'>;
  readonly objects: Pick<CsiDriverObjects, 'get'>;
  readonly attachments: Pick<Attachments, 'hold' | 'check' | 'isExhausted'>;
  readonly expansions: Pick<Expansions, 'run'>;
  readonly ownership: Pick<Ownership, 'give'>;
  readonly events: Events;
  readonly unstage: CsiUnstage;
  readonly tokens: Pick<Tokens, 'getStatus'>;
  /** null: the node has no SELinux. */
  readonly selinux: SelinuxNode | null;
  /** The pod waits for a driver to register. */
  readonly waits: (uid: string) => void;
  /** Ends work in the background when the agent ends. */
  readonly signal: AbortSignal;
}

/** The claim behind a persistent volume; null for an inline one. */
export type ClaimObjects = { readonly pv: PersistentVolume; readonly pvc: PersistentVolumeClaim } | null;

export type CsiOutcome =
  /** `path`: of the mount, or of the link to a device. */
  { readonly ok: true; readonly path: string } | { readonly ok: false; readonly message: string; readonly event: 'FailedMount' | 'FailedMapVolume' | null };

/**
 * Volumes of CSI drivers: staged once for the node, published for each pod, in upstream's order and with its files,
 * so that whoever starts after a crash finds what to take away. What a driver has been asked for is waited for by
 * nobody's worker longer than it likes: it goes on in the background, and the next look takes its result.
 */
export class CsiVolumes {
  readonly #options: CsiVolumesOptions;
  readonly #turns: Turns;
  readonly #running = new Map<string, Promise<CsiOutcome>>();

  constructor(options: CsiVolumesOptions) {
    this.#options = options;
    this.#turns = options.unstage.turns;
  }

  /** Makes the volume ready for the pod. `again`: it is, and the driver wishes to be asked anew. */
  async setUp(pod: Pod, volume: CsiVolume, claim: ClaimObjects, signal: AbortSignal, again = false): Promise<CsiOutcome> {
    const key = `${pod.metadata.uid ?? ''}/${volume.specName}`;
    let running = this.#running.get(key);
    if (running === undefined) {
      running = this.#setUp(pod, volume, claim, again).finally(() => this.#running.delete(key));
      this.#running.set(key, running);
    }
    const left = Promise.withResolvers<CsiOutcome>();
    const leave = (): void => left.reject(signal.reason as Error);
    if (signal.aborted) leave();
    signal.addEventListener('abort', leave, { once: true });
    try {
      return await Promise.race([running, left.promise]);
    } finally {
      signal.removeEventListener('abort', leave);
      left.promise.catch(() => undefined);
      running.catch(() => undefined);
    }
  }

  /** Grows a volume that the pod uses, where its claim says so; null, or why not. */
  async expand(pod: Pod, volume: CsiVolume, claim: NonNullable<ClaimObjects>): Promise<string | null> {
    const { disk, drivers, expansions, signal } = this.#options;
    const driver = drivers.find(volume.driver);
    if (driver === undefined) return `driver name ${volume.driver} not found in the list of registered CSI drivers`;
    const uid = pod.metadata.uid ?? '';
    try {
      await this.#turns.take(`${volume.driver}^${volume.handle}`, async () => {
        const capabilities = await driver.capabilities();
        const block = blockPaths(uid, volume.specName);
        const paths = volume.isBlock
          ? { staging: disk.absolute(block.staging), volume: await disk.resolve(block.publish) }
          : { staging: disk.absolute(stagePath(volume.driver, sha256(volume.handle))), volume: disk.absolute(publishPath(uid, volume.specName)) };
        await expansions.run({ pod, volume, ...claim, driver, capabilities, paths }, signal);
      });
      return null;
    } catch (error) {
      return words(error);
    }
  }

  /** Whether the driver wishes to be asked anew while the pod runs. */
  async republishes(volume: CsiVolume, signal: AbortSignal): Promise<boolean> {
    return (await this.#options.objects.get(volume.driver, signal))?.spec.requiresRepublish === true;
  }

  /** Takes back all that is published for a pod. Throws OpError when a driver does not yet do so. */
  async tearDown(uid: string): Promise<void> {
    for (const [key, running] of this.#running) if (key.startsWith(`${uid}/`)) await running.catch(() => undefined);
    const { disk, unstage } = this.#options;
    const failures: string[] = [];
    for (const { specName, data, isBlock } of await disk.published(uid)) {
      try {
        if (data === null) {
          if (!(await disk.discard(uid, specName, isBlock))) failures.push(`volume ${specName} is in use, and what it is cannot be read any more`);
          continue;
        }
        await this.#turns.take(`${data.driver}^${data.handle}`, async () => {
          if (isBlock) await this.#unmap(uid, specName, data);
          else await this.#unpublish(uid, specName, data);
        });
        if (data.mode !== 'Ephemeral') unstage.left(data, uid, isBlock ? specName : null);
      } catch (error) {
        failures.push(words(error));
      }
    }
    if (failures.length > 0) throw new OpError('failed', 'take volumes back', failures.join('; '));
    unstage.leftAll(uid);
  }

  async #unpublish(uid: string, specName: string, data: { driver: string; handle: string }): Promise<void> {
    const { disk } = this.#options;
    const target = publishPath(uid, specName);
    const driver = this.#driver(data.driver, 'Unmounter.TearDownAt failed to get CSI client');
    await driver.call('NodeUnpublishVolume', { volumeId: data.handle, targetPath: disk.absolute(target) });
    await disk.removeMountDir(publishDir(uid, specName), target);
  }

  async #unmap(uid: string, specName: string, data: { driver: string; handle: string }): Promise<void> {
    const { disk } = this.#options;
    await disk.unmapDevice(uid, specName);
    const driver = this.#driver(data.driver, 'blockMapper.UnmapPodDevice failed to get CSI client');
    await driver.call('NodeUnpublishVolume', { volumeId: data.handle, targetPath: disk.absolute(blockPaths(uid, specName).publish) });
  }

  #driver(name: string, doing: string): Driver {
    const driver = this.#options.drivers.find(name);
    if (driver === undefined)
      throw new OpError('unavailable', `kubernetes.io/csi: ${doing}`, `driver name ${name} not found in the list of registered CSI drivers`);
    return driver;
  }

  /** Whether the node has no room to attach the volume; then its driver is asked how many it can (MutableCSINodeAllocatableCount). */
  async isExhausted(volume: CsiVolume, signal: AbortSignal): Promise<boolean> {
    const { attachments, drivers, log, objects } = this.#options;
    const object = await objects.get(volume.driver, signal).catch(() => null);
    if ((object?.spec.nodeAllocatableUpdatePeriodSeconds ?? 0) === 0) return false;
    if (!(await attachments.isExhausted(volume.driver, volume.handle, signal))) return false;
    await drivers
      .tellNode(volume.driver, signal)
      .catch((error: unknown) => log.error('Failed to update CSIDriver', { driver: volume.driver, err: messageOf(error) }));
    return true;
  }

  async #setUp(pod: Pod, volume: CsiVolume, claim: ClaimObjects, again: boolean): Promise<CsiOutcome> {
    const { log, signal } = this.#options;
    try {
      return { ok: true, path: await this.#steps(pod, volume, claim, again) };
    } catch (error) {
      if (signal.aborted) throw error;
      const setUp = volume.isBlock ? 'MapVolume.SetUpDevice failed' : 'MountVolume.SetUp failed';
      const failure = error instanceof StepFailure ? error : new StepFailure(setUp, volume.specName, messageOf(error));
      log.debug(2, 'A volume was not set up', { pod: pod.metadata.name, namespace: pod.metadata.namespace, err: failure.message });
      return { ok: false, message: failure.message, event: failure.quiet ? null : volume.isBlock ? 'FailedMapVolume' : 'FailedMount' };
    }
  }

  async #steps(pod: Pod, asked: CsiVolume, claim: ClaimObjects, again: boolean): Promise<string> {
    const { objects, unstage, signal } = this.#options;
    const uid = pod.metadata.uid ?? '';
    const setUp = asked.isBlock ? 'MapVolume.SetUpDevice failed' : 'MountVolume.SetUp failed';
    const problem = nameProblem(asked);
    if (problem !== null) throw new StepFailure(setUp, asked.specName, problem);
    const object = await objects.get(asked.driver, signal);
    const volume = this.#withContext(pod, asked, claim, object);
    if (volume.mode === 'Persistent') unstage.uses(volume, uid, volume.isBlock ? volume.specName : null);
    const publishContext = isAttached(volume, object) ? await this.#attached(volume, uid, signal) : {};
    return await this.#turns.take(`${volume.driver}^${volume.handle}`, async () => {
      if (volume.accessModes?.length === 1 && volume.accessModes[0] === 'ReadWriteOncePod' && unstage.othersUse(volume, uid))
        throw new StepFailure(setUp, volume.specName, 'volume uses the ReadWriteOncePod access mode and is already in use by another pod');
      const fsGroup = pod.spec.securityContext?.fsGroup ?? null;
      const work = { pod, uid, volume, claim, object, publishContext, fsGroup, again };
      return volume.isBlock ? await this.#map(work) : await this.#mount(work);
    });
  }

  /** With the SELinux context that it is to be mounted with. Throws StepFailure for one that containers or pods do not agree on. */
  #withContext(pod: Pod, volume: CsiVolume, claim: ClaimObjects, object: CSIDriver | null): CsiVolume {
    const { selinux, unstage } = this.#options;
    if (selinux === null || claim === null || volume.isBlock) return volume;
    const driverCan = object?.spec.seLinuxMount === true;
    const wanted = mountContext(selinux, pod, namesOf(pod, claim.pvc), claim.pv, driverCan);
    const fail = (message: string): StepFailure => new StepFailure('MountVolume.SetUp failed', volume.specName, message);
    if (!wanted.ok) throw fail(wanted.message);
    const { context } = wanted;
    // One mounted with another is first taken off the node, once nobody uses it any more.
    const before = driverCan ? unstage.contextOf(volume, pod.metadata.uid ?? '') : null;
    if (before !== null && before !== context)
      throw fail(`conflicting SELinux labels of volume ${volume.specName}: ${JSON.stringify(before)} and ${JSON.stringify(context)}`);
    return context === '' ? volume : { ...volume, selinuxContext: context, mountOptions: [...volume.mountOptions, contextOption(context)] };
  }

  async #attached(volume: CsiVolume, uid: string, signal: AbortSignal): Promise<Readonly<Record<string, string>>> {
    const { attachments } = this.#options;
    attachments.hold(volume.driver, volume.handle);
    const attached = await attachments.check(volume.driver, volume.handle, uid, signal);
    if (attached.ok) return attached.publishContext;
    const step = volume.isBlock ? 'MapVolume.WaitForAttach failed' : 'MountVolume.WaitForAttach failed';
    throw new StepFailure(step, volume.specName, attached.message, { quiet: attached.quiet });
  }

  async #mount(work: Work): Promise<string> {
    const { disk, unstage } = this.#options;
    const { volume, uid } = work;
    const inline = volume.mode === 'Ephemeral';
    const driver = this.#driverFor(work, inline ? 'MountVolume.SetUp failed' : 'MountVolume.MountDevice failed', inline);
    const capabilities = await this.#capabilities(driver, volume, inline ? 'MountVolume.SetUp failed' : 'MountVolume.MountDevice failed');
    const staging = !inline && capabilities.has('STAGE_UNSTAGE_VOLUME') ? stagePath(volume.driver, sha256(volume.handle)) : '';
    if (!inline && !unstage.isStaged(volume)) {
      await this.#stage(work, driver, capabilities, staging);
      unstage.staged(volume);
    }
    await this.#publish(work, driver, capabilities, staging);
    if (!inline) unstage.published(volume, uid);
    const target = publishPath(uid, volume.specName);
    await this.#grow(work, driver, capabilities, { staging: disk.absolute(stagePath(volume.driver, sha256(volume.handle))), volume: disk.absolute(target) });
    return disk.absolute(target);
  }

  #driverFor({ volume, uid }: Work, step: string, inline: boolean): Driver {
    const driver = this.#options.drivers.find(volume.driver);
    if (driver !== undefined) return driver;
    this.#options.waits(uid);
    const doing = volume.isBlock
      ? 'blockMapper.SetupDevice failed to get CSI client'
      : inline
        ? 'mounter.SetUpAt failed to get CSI client'
        : 'attacher.MountDevice failed to create newCsiDriverClient';
    throw new StepFailure(step, volume.specName, `kubernetes.io/csi: ${doing}: driver name ${volume.driver} not found in the list of registered CSI drivers`);
  }

  async #capabilities(driver: Driver, volume: CsiVolume, step: string): Promise<NodeCapabilities> {
    try {
      return await driver.capabilities();
    } catch (error) {
      throw new StepFailure(step, volume.specName, words(error));
    }
  }

  async #stage(work: Work, driver: Driver, capabilities: NodeCapabilities, staging: string): Promise<void> {
    const { api, disk, signal } = this.#options;
    const { volume, publishContext, fsGroup } = work;
    if (staging === '') return;
    const sha = sha256(volume.handle);
    const dir = stageDir(volume.driver, sha);
    const fail = (error: unknown): StepFailure => new StepFailure('MountVolume.MountDevice failed', volume.specName, words(error), { isFinal: isOver(error) });
    try {
      const secrets = await secretOf(api, volume.stageSecret, 'NodeStageSecretRef', signal);
      await disk.mkdir(staging);
      await disk.keep(dir, stagedData(volume));
      const context: CallContext = { volume, capabilities, publishContext, secrets, fsGroup };
      await driver.call('NodeStageVolume', stageRequest(context, disk.absolute(staging)));
    } catch (error) {
      if (isOver(error)) await disk.removeMountDir(dir, staging).catch(() => undefined);
      throw fail(error);
    }
  }

  async #publish(work: Work, driver: Driver, capabilities: NodeCapabilities, staging: string): Promise<void> {
    const { api, disk, nodeName, tokens, signal } = this.#options;
    const { pod, uid, volume, object, publishContext, fsGroup, again } = work;
    const fail = (message: string): StepFailure => new StepFailure('MountVolume.SetUp failed', volume.specName, message);
    const problem = modeProblem(volume, object);
    if (problem !== null) throw fail(`kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: ${problem}`);
    const dir = publishDir(uid, volume.specName);
    const target = publishPath(uid, volume.specName);
    try {
      const [own, ofPod] = [await secretOf(api, volume.publishSecret, 'NodePublishSecretRef', signal), await podWords(pod, volume, object, tokens, signal)];
      await disk.mkdir(dir);
      await disk.keep(dir, publishedData(volume, nodeName, attachmentName(volume.handle, volume.driver, nodeName)));
      const context: CallContext = { volume, capabilities, publishContext, fsGroup, secrets: { ...own, ...ofPod.secrets } };
      const paths = { staging: staging === '' ? '' : disk.absolute(staging), target: disk.absolute(target) };
      await driver.call('NodePublishVolume', publishRequest(context, paths, ofPod));
    } catch (error) {
      // A pod that uses the volume already keeps what it sees.
      if (isOver(error) && !again) await disk.removeMountDir(dir, target).catch(() => undefined);
      throw fail(words(error));
    }
    if (!appliesGroup(volume, object, fsGroup, capabilities) || fsGroup === null) return;
    try {
      const onRootMismatch = pod.spec.securityContext?.fsGroupChangePolicy === 'OnRootMismatch';
      await this.#options.ownership.give(pod, disk.absolute(target), { gid: fsGroup, readOnly: volume.readOnly, onRootMismatch });
    } catch (error) {
      throw fail(`applyFSGroup failed for vol ${volume.handle}: ${messageOf(error)}`);
    }
  }

  async #map(work: Work): Promise<string> {
    const { api, disk, nodeName, tokens, unstage, signal } = this.#options;
    const { pod, uid, volume, object, publishContext } = work;
    const paths = blockPaths(uid, volume.specName);
    const driver = this.#driverFor(work, 'MapVolume.SetUpDevice failed', false);
    const capabilities = await this.#capabilities(driver, volume, 'MapVolume.SetUpDevice failed');
    const stages = capabilities.has('STAGE_UNSTAGE_VOLUME');
    const context = { volume, capabilities, publishContext, fsGroup: null };
    await disk.mkdir(paths.data);
    await disk.keep(paths.data, blockData(volume, nodeName, attachmentName(volume.handle, volume.driver, nodeName)));
    if (stages && !unstage.isStaged(volume)) {
      try {
        const secrets = await secretOf(api, volume.stageSecret, 'NodeStageSecretRef', signal);
        await disk.mkdir(paths.staging);
        await driver.call('NodeStageVolume', stageRequest({ ...context, secrets }, disk.absolute(paths.staging)));
      } catch (error) {
        if (isOver(error)) await disk.remove([paths.publishDir, paths.staging]).catch(() => undefined);
        throw new StepFailure('MapVolume.SetUpDevice failed', volume.specName, words(error), { isFinal: isOver(error) });
      }
    }
    unstage.staged(volume);
    try {
      const own = await secretOf(api, volume.publishSecret, 'NodePublishSecretRef', signal);
      const ofPod = await podWords(pod, volume, object === null ? null : { ...object, spec: { ...object.spec, tokenRequests: [] } }, tokens, signal);
      await disk.mkdir(paths.publishDir);
      const places = { staging: disk.absolute(paths.staging), target: disk.absolute(paths.publish) };
      await driver.call('NodePublishVolume', publishRequest({ ...context, secrets: own }, places, ofPod));
    } catch (error) {
      throw new StepFailure('MapVolume.MapPodDevice failed', volume.specName, words(error), { isFinal: isOver(error) });
    }
    unstage.published(volume, uid);
    const device = await disk.resolve(paths.publish);
    await disk.mapDevice(uid, volume.specName, device);
    if (!work.again) this.#tellMapped(pod, volume, paths);
    await this.#grow(work, driver, capabilities, { staging: stages ? disk.absolute(paths.staging) : '', volume: device });
    return disk.absolute(paths.podLink);
  }

  /** Of volumes that are no file systems upstream tells when they are there. */
  #tellMapped({ metadata }: Pod, { specName }: CsiVolume, { globalMap, podDir }: ReturnType<typeof blockPaths>): void {
    const { disk, events } = this.#options;
    const { namespace = '', name = '', uid = '' } = metadata;
    for (const place of [`globalMapPath ${JSON.stringify(disk.absolute(globalMap))}`, `volumeMapPath ${JSON.stringify(disk.absolute(podDir))}`])
      events.event(
        { apiVersion: 'v1', kind: 'Pod', namespace, name, uid },
        'Normal',
        'SuccessfulMountVolume',
        `MapVolume.MapPodDevice succeeded for volume ${JSON.stringify(specName)} ${place}`,
      );
  }

  async #grow(work: Work, driver: Driver, capabilities: NodeCapabilities, paths: { staging: string; volume: string }): Promise<void> {
    const { pod, volume, claim } = work;
    if (claim === null) return;
    try {
      await this.#options.expansions.run({ pod, volume, ...claim, driver, capabilities, paths }, this.#options.signal);
    } catch (error) {
      throw new StepFailure('MountVolume.Setup failed while expanding volume', volume.specName, messageOf(error));
    }
  }
}

/** What the pod calls the volumes that are this claim. */
function namesOf({ metadata, spec }: Pod, pvc: PersistentVolumeClaim): ReadonlySet<string> {
  const claim = pvc.metadata.name;
  const own = (spec.volumes ?? []).filter(
    ({ name, persistentVolumeClaim, ephemeral }) =>
      persistentVolumeClaim?.claimName === claim || (ephemeral !== undefined && `${metadata.name ?? ''}-${name}` === claim),
  );
  return new Set(own.map(({ name }) => name));
}

interface Work {
  readonly pod: Pod;
  readonly uid: string;
  readonly volume: CsiVolume;
  readonly claim: ClaimObjects;
  readonly object: CSIDriver | null;
  readonly publishContext: Readonly<Record<string, string>>;
  readonly fsGroup: number | null;
  readonly again: boolean;
}
