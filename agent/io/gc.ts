import type { Clock } from '../../base/clock.ts';
import { hasCode, messageOf, OpError } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import type { Sys } from '../../base/sys/types.ts';
import { freeDiskSpaceFailed, imageKey, planImageGc, recordImages } from '../core/gc-images.ts';
import type { ImageFacts, ImageGcPolicy, ImageRecord } from '../core/gc-images.ts';
import { goneLogDirs, planContainerGc, unknownLogLinks } from '../core/gc.ts';
import type { ContainerGcPlan } from '../core/gc.ts';
import type { PodFacts } from '../core/types.ts';
import type { Cgroups, Events, EventTarget, Pods, Volumes } from '../seams.ts';
import { isNotFound } from './cri.ts';
import type { Cri } from './cri.ts';
import type { PodFiles } from './files.ts';
import type { LogRotation } from './logs-rotate.ts';
import { noTracer, type Tracer } from './tracer.ts';

type GcRuntime = Pick<Cri['runtime'], 'containerStatus' | 'stopContainer' | 'removeContainer' | 'stopPodSandbox' | 'removePodSandbox' | 'status'>;

export interface GcOptions {
  readonly cri: { readonly runtime: GcRuntime; readonly images: Pick<Cri['images'], 'listImages' | 'removeImage' | 'imageFsInfo'> };
  readonly sys: Pick<Sys, 'statfs' | 'removeTree' | 'fileOps'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly pods: Pick<Pods, 'allFacts' | 'facts' | 'isKnown' | 'mayRun' | 'synced'>;
  readonly volumes: Pick<Volumes, 'uidsOnDisk' | 'teardown' | 'sweep'>;
  readonly cgroups: Pick<Cgroups, 'podUids' | 'removePod'>;
  readonly events: Events;
  /** The Node that events are about. */
  readonly node: () => EventTarget;
  readonly logs: Pick<LogRotation, 'remove'>;
  readonly files: Pick<PodFiles, 'unlinkLog'>;
  readonly podLogsDir: string;
  /** /var/log/containers. */
  readonly containerLogsDir: string;
  readonly images: ImageGcPolicy;
  /** `RuntimeClassInImageCriApi`: an image is counted for each runtime handler it was pulled for. */
  readonly imagesByHandler?: boolean;
  readonly tracer?: Tracer;
  /** Forgets what is remembered of pulls of images that are not among these, from before that moment. */
  readonly pruneRecords?: (imageRefs: ReadonlySet<string>, beforeMs: number) => Promise<void>;
  readonly collected?: (reason: 'age' | 'space') => void;
  /** Directories of pods that nobody knows were taken away: so many, and of so many not. */
  readonly swept?: (cleaned: number, failed: number) => void;
  /** Whether the runtime has been listed and the wishes are known: before, everything would look like nobody's. */
  readonly ready: () => boolean;
  readonly containers?: { readonly maxPerPodContainer: number; readonly maxContainers: number; readonly minAgeMs: number };
}

const containerPeriodMs = 60_000;
const imagePeriodMs = 5 * 60_000;
const orphanPeriodMs = 10_000;
const readyMs = 1000;
const timeoutMs = 120_000;

/** What is left of pods and images and taken away: dead containers, sandboxes, log directories, images, and what pods nobody knows left on disk. */
export class Gc {
  readonly #options: GcOptions;
  #images = new Map<string, ImageRecord>();
  readonly #beganMs: number;
  #imageFailedBefore = false;
  #containersFailedBefore = false;

  constructor(options: GcOptions) {
    this.#options = options;
    this.#beganMs = options.clock.nowMs();
  }

  /**
   * Runs until `signal` is aborted. Containers are collected at once as well. Of images the first look only remembers
   * which there are, so that ages count from the start: upstream's has no sizes yet, and frees none before five minutes.
   */
  async run(signal: AbortSignal): Promise<void> {
    while (!this.#options.ready() && !signal.aborted) await this.#options.clock.sleep(readyMs, signal).catch(() => undefined);
    if (signal.aborted) return;
    await Promise.all([this.#every(orphanPeriodMs, () => this.orphansPass(signal), signal), this.#collectContainers(signal), this.#collectImages(signal)]);
  }

  #collectContainers(signal: AbortSignal): Promise<void> {
    const pass = (): Promise<void> => this.#traced('Containers/GarbageCollect', () => this.containersPass(signal));
    return this.#every(containerPeriodMs, pass, signal, pass);
  }

  #collectImages(signal: AbortSignal): Promise<void> {
    const first = async (): Promise<void> => {
      try {
        await this.#look(signal);
      } catch (error) {
        if (signal.aborted) throw error;
        this.#options.log.warn('Failed to monitor images', { err: messageOf(error) });
      }
    };
    return this.#every(imagePeriodMs, () => this.#traced('Images/GarbageCollect', () => this.imagesPass(signal)), signal, first);
  }

  #traced(name: string, pass: () => Promise<void>): Promise<void> {
    return (this.#options.tracer ?? noTracer).span(name, {}, pass);
  }

  async #every(periodMs: number, pass: () => Promise<void>, signal: AbortSignal, first?: () => Promise<void>): Promise<void> {
    try {
      await first?.();
      for (;;) {
        await this.#options.clock.sleep(periodMs, signal);
        await pass();
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  /** Dead containers and sandboxes, and log directories of gone pods. Failures of one do not stop the others. */
  async containersPass(signal: AbortSignal): Promise<void> {
    const { pods, log } = this.#options;
    const plan = this.#plan(pods.allFacts(), (uid) => this.#isGone(uid));
    const failures = await this.#remove(plan, signal);
    try {
      if (pods.synced()) await this.#removeLogDirs(signal);
    } catch (error) {
      if (hasCode(error, 'aborted')) throw error;
      failures.push(messageOf(error));
    }
    if (failures.length === 0) {
      this.#containersFailedBefore = false;
      return;
    }
    log.warn('Container garbage collection failed', { err: failures.join('; ') });
    if (this.#containersFailedBefore) this.#tell('ContainerGCFailed', failures.join('; '));
    this.#containersFailedBefore = true;
  }

  /** Images by age and by how full their disk is. */
  async imagesPass(signal: AbortSignal): Promise<void> {
    const { log, images: policy } = this.#options;
    if (policy.highThresholdPercent === 100 && policy.maxAgeMs === 0) return;
    let message: string | null;
    try {
      message = await this.#freeImages(signal);
    } catch (error) {
      if (hasCode(error, 'aborted')) throw error;
      message = messageOf(error);
    }
    if (message === null) {
      this.#imageFailedBefore = false;
      return;
    }
    // The first failure may be a runtime that has no numbers yet.
    log.warn('Image garbage collection failed', { err: message });
    if (this.#imageFailedBefore) this.#tell('ImageGCFailed', message);
    this.#imageFailedBefore = true;
  }

  /** Directories and cgroups of pods that nobody knows: what a run before left, or a pod removed while we were away. */
  async orphansPass(signal: AbortSignal): Promise<void> {
    const { pods, volumes, cgroups, log } = this.#options;
    if (!pods.synced()) return;
    const busy = this.#busy();
    const remove = async (what: string, uids: readonly string[], work: (uid: string) => Promise<void>): Promise<{ done: number; failed: number }> => {
      let [done, failed] = [0, 0];
      for (const uid of uids) {
        // Asked for each again: a pod may have come while the one before was removed.
        if (busy.has(uid) || !this.#isGone(uid)) continue;
        try {
          await work(uid);
          done += 1;
          log.info(`Removed what was left of a pod: ${what}`, { podUID: uid });
        } catch (error) {
          if (hasCode(error, 'aborted')) throw error;
          failed += 1;
          log.warn(`There were errors when attempting to remove what is left of a pod: ${what}`, { podUID: uid, err: messageOf(error) });
        }
      }
      return { done, failed };
    };
    try {
      const { done, failed } = await remove('its directory', await volumes.uidsOnDisk(), async (uid) => await volumes.teardown(uid, signal));
      this.#options.swept?.(done, failed);
      await volumes.sweep();
      await remove('its cgroup', await cgroups.podUids(signal), async (uid) => await cgroups.removePod(uid, signal));
    } catch (error) {
      if (hasCode(error, 'aborted')) throw error;
      log.warn('Looking for what pods left failed', { err: messageOf(error) });
    }
  }

  /** Under disk pressure: all dead containers of pods that have ended, and of living ones all but the newest of a name. */
  async reclaimContainers(signal: AbortSignal): Promise<void> {
    const { pods } = this.#options;
    const isOver = (uid: string): boolean => pods.synced() && !pods.mayRun(uid);
    throwAny(await this.#remove(this.#plan(pods.allFacts(), isOver), signal));
  }

  /** Under disk pressure: every image that nothing uses and that is old enough. */
  async reclaimImages(signal: AbortSignal): Promise<void> {
    const { clock, images: policy } = this.#options;
    await this.#look(signal);
    const full = { ...policy, highThresholdPercent: 0, lowThresholdPercent: 0 };
    const whole = { capacityBytes: 1, availableBytes: 0, nowMs: clock.nowMs(), beganMs: this.#beganMs };
    const { tooOld, candidates } = planImageGc({ records: this.#removable(), policy: full, ...whole });
    const failures: string[] = [];
    for (const record of [...tooOld, ...candidates]) await this.#removeImage(record, tooOld.includes(record) ? 'age' : 'space', failures, signal);
    if (failures.length > 0) throw new OpError('failed', 'remove unused images', failures.join(', '));
  }

  /** Of one pod that has just changed: all but the newest dead container of each name, so that a crash loop leaves no pile. */
  async deadPass(facts: PodFacts, signal: AbortSignal): Promise<void> {
    const exited = { ...facts, sandboxes: [], containers: facts.containers.filter(({ state }) => state === 'exited') };
    throwAny(
      await this.#remove(
        this.#plan([exited], () => false),
        signal,
      ),
    );
  }

  #plan(facts: readonly PodFacts[], isGone: (uid: string) => boolean): ContainerGcPlan {
    const { maxPerPodContainer, maxContainers, minAgeMs } = this.#options.containers ?? { maxPerPodContainer: 1, maxContainers: -1, minAgeMs: 0 };
    return planContainerGc({ pods: facts, maxPerPodContainer, maxContainers, minAgeMs, nowMs: this.#options.clock.nowMs(), isGone });
  }

  /** Failures of one do not stop the others. Answers them. */
  async #remove(plan: ContainerGcPlan, signal: AbortSignal): Promise<string[]> {
    const failures: string[] = [];
    const attempt = async (work: Promise<void>): Promise<void> => {
      try {
        await work;
      } catch (error) {
        if (hasCode(error, 'aborted')) throw error;
        failures.push(messageOf(error));
      }
    };
    for (const container of plan.containers) await attempt(this.#removeContainer(container.id, container.stopFirst, signal));
    for (const sandbox of plan.sandboxes) await attempt(this.#removeSandbox(sandbox.id, signal));
    return failures;
  }

  #isGone(uid: string): boolean {
    const { pods } = this.#options;
    return pods.synced() && !pods.isKnown(uid) && !pods.mayRun(uid);
  }

  /** Pods that the runtime still has something alive of, whoever knows them. */
  #busy(): ReadonlySet<string> {
    const alive = this.#options.pods
      .allFacts()
      .filter((pod) => pod.containers.some((container) => container.state !== 'exited') || pod.sandboxes.some((sandbox) => sandbox.ready));
    return new Set(alive.map((pod) => pod.uid));
  }

  async #removeContainer(id: string, stopFirst: boolean, signal: AbortSignal): Promise<void> {
    const { cri, logs, files, containerLogsDir } = this.#options;
    if (stopFirst) await orGone(cri.runtime.stopContainer({ containerId: id, timeout: '2' }, { timeoutMs, signal }));
    const status = await orGone(cri.runtime.containerStatus({ containerId: id }, { timeoutMs, signal }));
    const logPath = status?.status?.logPath ?? '';
    if (logPath !== '') await logs.remove(logPath);
    await files.unlinkLog(containerLogsDir, id);
    await orGone(cri.runtime.removeContainer({ containerId: id }, { timeoutMs, signal }));
  }

  async #removeSandbox(id: string, signal: AbortSignal): Promise<void> {
    const { runtime } = this.#options.cri;
    await orGone(runtime.stopPodSandbox({ podSandboxId: id }, { timeoutMs, signal }));
    await orGone(runtime.removePodSandbox({ podSandboxId: id }, { timeoutMs, signal }));
  }

  async #removeLogDirs(signal: AbortSignal): Promise<void> {
    const { sys, podLogsDir } = this.#options;
    const [listed] = await sys.fileOps({ root: '/', ops: [{ op: 'list', path: podLogsDir.slice(1) }], links: 'follow', timeoutMs: 10_000 });
    const busy = this.#busy();
    const gone = goneLogDirs(listed?.names ?? [], (uid) => this.#isGone(uid) && !busy.has(uid));
    for (const name of gone) await sys.removeTree(`${podLogsDir}/${name}`, { timeoutMs }, signal);
    await this.#removeLogLinks();
  }

  /** Links in /var/log/containers whose container and log are no more: an agent that was killed between removing the two leaves one. */
  async #removeLogLinks(): Promise<void> {
    const { sys, pods, files, containerLogsDir } = this.#options;
    const look = (op: 'list' | 'stat', path: string) => sys.fileOps({ root: '/', ops: [{ op, path: path.slice(1) }], links: 'follow', timeoutMs: 10_000 });
    const [listed] = await look('list', containerLogsDir);
    const known = new Set(pods.allFacts().flatMap((pod) => pod.containers.map(({ id }) => id)));
    for (const { name, id } of unknownLogLinks(listed?.names ?? [], (each) => known.has(each))) {
      // One that was made since the last listing has its log.
      const [found] = await look('stat', `${containerLogsDir}/${name}`);
      if (found?.errno === 'ENOENT') await files.unlinkLog(containerLogsDir, id);
    }
  }

  /** Without those that have no ID to remove them by, which a runtime may list where images are counted by handler. */
  #removable(): ReadonlyMap<string, ImageRecord> {
    if (this.#options.imagesByHandler !== true) return this.#images;
    const all = [...this.#images];
    for (const [key, { id, isKept }] of all) if (id === '' && !isKept) this.#tell('InvalidImageID', `ImageID is not valid, skipping, image: ${key}`);
    return new Map(all.filter(([, { id }]) => id !== ''));
  }

  /** null when all is well, else why it is not. */
  async #freeImages(signal: AbortSignal): Promise<string | null> {
    const { cri, sys, clock, images: policy } = this.#options;
    await this.#look(signal);
    const fs = await cri.images.imageFsInfo({}, { timeoutMs, signal });
    const mountpoint = fs.imageFilesystems[0]?.fsId?.mountpoint ?? '';
    if (mountpoint === '') return 'the runtime names no image filesystem';
    const facts = await sys.statfs(mountpoint, { timeoutMs: 10_000 });
    if (facts.totalBytes === 0) {
      this.#tell('InvalidDiskCapacity', 'invalid capacity 0 on image filesystem');
      return 'invalid capacity 0 on image filesystem';
    }
    const input = {
      records: this.#removable(),
      policy,
      capacityBytes: facts.totalBytes,
      availableBytes: facts.availableBytes,
      nowMs: clock.nowMs(),
      beganMs: this.#beganMs,
    };
    const plan = planImageGc(input);
    const failures: string[] = [];
    for (const record of plan.tooOld) await this.#removeImage(record, 'age', failures, signal);
    let freed = 0;
    for (const record of plan.candidates) {
      if (freed >= plan.bytesToFree) break;
      freed += await this.#removeImage(record, 'space', failures, signal);
    }
    if (failures.length > 0)
      return `wanted to free ${plan.bytesToFree} bytes, but freed ${freed} bytes space with errors in image deletion: ${failures.join(', ')}`;
    if (freed >= plan.bytesToFree) return null;
    const message = freeDiskSpaceFailed(plan.usedPercent, facts.totalBytes, freed);
    this.#tell('FreeDiskSpaceFailed', message);
    return message;
  }

  /** Bytes that it freed; why not goes to `failures`. */
  async #removeImage(record: ImageRecord, reason: 'age' | 'space', failures: string[], signal: AbortSignal): Promise<number> {
    const { cri, log } = this.#options;
    log.info('Removing image to free bytes', { imageID: record.id, size: record.sizeBytes });
    try {
      await orGone(
        cri.images.removeImage(
          { image: { image: record.id, ...(record.handler === undefined ? {} : { runtimeHandler: record.handler }) } },
          { timeoutMs, signal },
        ),
      );
      this.#images.delete(imageKey(record.id, record.handler));
      this.#options.collected?.(reason);
      return record.sizeBytes;
    } catch (error) {
      if (hasCode(error, 'aborted')) throw error;
      failures.push(messageOf(error));
      return 0;
    }
  }

  async #look(signal: AbortSignal): Promise<void> {
    const { cri, pods, clock, imagesByHandler: byHandler = false } = this.#options;
    const askedMs = clock.nowMs();
    const listed = await cri.images.listImages({}, { timeoutMs, signal });
    await this.#options.pruneRecords?.(new Set(listed.images.map(({ id }) => id)), askedMs);
    const images: ImageFacts[] = listed.images.map((image) => ({
      id: image.id,
      repoTags: image.repoTags,
      repoDigests: image.repoDigests,
      sizeBytes: Number(image.size),
      pinned: image.pinned,
      ...(byHandler && image.spec !== null && image.spec.runtimeHandler !== '' ? { handler: image.spec.runtimeHandler } : {}),
    }));
    const uses = pods.allFacts().flatMap((pod) => [
      ...pod.containers.map(({ imageId, imageRef, imageHandler = '' }) => ({ imageId, imageRef, ...(byHandler ? { handler: imageHandler } : {}) })),
      // What is mounted in a container its own status tells, not the list.
      ...(pods.facts(pod.uid)?.containers ?? []).flatMap(({ imageMounts = [], imageHandler = '' }) =>
        imageMounts.map(({ image }) => ({ imageId: image, imageRef: '', ...(byHandler ? { handler: imageHandler } : {}) })),
      ),
    ]);
    this.#images = recordImages(this.#images, images, uses, await this.#sandboxImages(images, signal), clock.nowMs());
  }

  /** containerd pins the sandbox image since 1.7; for older ones its name stands in their configuration. */
  async #sandboxImages(images: readonly ImageFacts[], signal: AbortSignal): Promise<ReadonlySet<string>> {
    if (images.some((image) => image.pinned)) return new Set();
    const status = await this.#options.cri.runtime.status({ verbose: true }, { timeoutMs, signal });
    try {
      const config: unknown = JSON.parse(status.info['config'] ?? '{}');
      const name = typeof config === 'object' && config !== null && 'sandboxImage' in config ? config.sandboxImage : '';
      return new Set(typeof name === 'string' && name !== '' ? [name] : []);
    } catch {
      return new Set();
    }
  }

  #tell(reason: string, message: string): void {
    this.#options.events.event(this.#options.node(), 'Warning', reason, message);
  }
}

function throwAny(failures: readonly string[]): void {
  if (failures.length > 0) throw new OpError('failed', 'remove dead containers', failures.join('; '));
}

/** The answer of a call, or undefined when what it was about is gone. */
async function orGone<T>(call: Promise<T>): Promise<T | undefined> {
  try {
    return await call;
  } catch (error) {
    if (isNotFound(error)) return undefined;
    throw error;
  }
}
