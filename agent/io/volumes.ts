import { createHash } from 'node:crypto';
import { messageOf } from '../../base/errors.ts';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { Container, Pod } from '../../proto/kube/types.ts';
import type { EventText, Failure } from '../core/types.ts';
import { expansionOf } from '../core/csi/expand.ts';
import { csiOfInline } from '../core/csi/volume.ts';
import type { CsiVolume } from '../core/csi/volume.ts';
import { isSafeUid, podPaths } from '../core/volumes-paths.ts';
import { payloadOf } from '../core/volumes-payload.ts';
import type { PayloadFile } from '../core/volumes-payload.ts';
import { planDevices } from '../core/volumes-mounts.ts';
import type { ClaimPlace } from '../core/volumes-mounts.ts';
import { planVolumes, volumesUsed } from '../core/volumes-plan.ts';
import type { NfsExport, VolumeGates, VolumePlan } from '../core/volumes-plan.ts';
import type { ContainerDevice, ContainerMount, EnvSources, Volumes } from '../seams.ts';
import { sha256 } from './csi/disk.ts';
import type { AskedVolume } from './csi/health.ts';
import type { ClaimObjects, CsiVolumes } from './csi/volumes.ts';
import type { PodCertificates } from './pod-certificates.ts';
import type { Tokens } from './tokens.ts';
import type { TrustBundles } from './trust-bundles.ts';
import { Turns } from '../../base/turns.ts';
import type { Claims } from './volumes-claims.ts';
import type { VolumeDisk } from './volumes-disk.ts';
import { LocalFailure } from './local-disks.ts';
import { fetchInputs, isExpected } from './volumes-inputs.ts';
import { pluginOf, type VolumeCounts, type VolumeMetrics } from './volume-metrics.ts';
import type { MeasuredVolume } from './volume-stats.ts';
import type { MountedVolumes } from './volumes-mounted.ts';
import { mountsFor } from './volumes-mounts.ts';
import { newRecord } from './volumes-record.ts';
import type { PodRecord } from './volumes-record.ts';

export interface VolumesOptions {
  readonly rootDir: string;
  readonly clusterDomain: string;
  readonly disk: VolumeDisk;
  readonly sources: Pick<EnvSources, 'configMap' | 'secret'>;
  readonly tokens: Tokens;
  readonly certificates: Pick<PodCertificates, 'get' | 'release'>;
  readonly trustBundles: Pick<TrustBundles, 'read' | 'release'>;
  readonly claims: Claims;
  readonly csi: Pick<CsiVolumes, 'setUp' | 'expand' | 'republishes' | 'tearDown' | 'isExhausted'>;
  readonly mounted: Pick<MountedVolumes, 'nfs' | 'local' | 'ended' | 'sweep'>;
  readonly clock: Clock;
  readonly log: Log;
  /** `status.allocatable` of the node; empty while it is not known. */
  readonly allocatable: () => Readonly<Record<string, string>>;
  /** The environment of a container, for subPathExpr. */
  readonly env: (
    pod: Pod,
    container: Container,
    podIPs: readonly string[],
    signal: AbortSignal,
  ) => Promise<{ ok: true; env: ReadonlyMap<string, string> } | Failure>;
  readonly supportsRecursiveReadOnly?: () => boolean;
  readonly gates?: VolumeGates;
  readonly hasSelinux?: boolean;
  readonly metrics?: Pick<VolumeMetrics, 'done' | 'mounted' | 'reconstructed'>;
  /** The node's own hosts file, for host-network pods. */
  readonly hostsFile?: string;
}

/** Why a volume is not set up. `event` null: it is only waited for, and told when that takes long. */
interface SetUpFailure {
  readonly text: string;
  readonly event: string | null;
}

const waitedText = 'Unable to attach or mount volumes: ';
/** Upstream's reason for a pod whose volumes the node cannot attach any more. */
export const attachLimitReached = 'VolumeAttachmentLimitExceeded';
/** After this time a pod that waits for volumes says so; upstream's bound of one attempt. */
const waitTellMs = 123_000;
const firstRetellMs = 500;
const lastRetellMs = 122_000;

/** The volumes of all pods: plans from core/, disk work through VolumeDisk, one operation at a time for each pod. */
export class PodVolumes implements Volumes {
  readonly #options: VolumesOptions;
  readonly #records = new Map<string, PodRecord>();
  readonly #turns = new Turns();
  readonly #changed = new Set<string>();

  constructor(options: VolumesOptions) {
    this.#options = options;
  }

  async prepare(pod: Pod, signal: AbortSignal): Promise<{ ok: true; events?: readonly EventText[] } | Failure> {
    const uid = pod.metadata.uid ?? '';
    return await this.#inTurn(uid, async () => {
      const plans = planVolumes(pod, this.#options.allocatable(), this.#options.gates);
      let record: PodRecord;
      try {
        record = await this.#recordOf(uid, pod);
      } catch (error) {
        if (!isExpected(error)) throw error;
        const message = `error making pod data directories: ${messageOf(error)}`;
        return {
          ok: false,
          reason: 'FailedToMakePodDataDirectories',
          message,
          events: [{ type: 'Warning', reason: 'FailedToMakePodDataDirectories', message }],
        };
      }
      const open = plans.filter((plan) => !record.done.has(plan.name));
      const outcomes = await Promise.all(open.map(async (plan) => ({ plan, failure: await this.#setUp(pod, plan, record, signal) })));
      const failures: string[] = [];
      const events: EventText[] = [];
      for (const { plan, failure } of outcomes) {
        if (failure === null) {
          record.done.add(plan.name);
          record.told.delete(plan.name);
          continue;
        }
        failures.push(failure.text);
        if (failure.event !== null && this.#isDue(record, plan.name, failure.text))
          events.push({ type: 'Warning', reason: failure.event, message: failure.text });
      }
      if (failures.length === 0) {
        record.waitingSinceMs = null;
        return { ok: true };
      }
      const late = this.#tooLong(record, plans);
      if (late !== null && (await this.#isExhausted(record, signal)))
        return {
          ok: false,
          reason: attachLimitReached,
          message: `Node has reached its volume attachment limit, rejecting pod. ${late.message.slice(waitedText.length)}`,
        };
      return { ok: false, reason: 'FailedMount', message: failures.join('; '), events: late === null ? events : [...events, late] };
    });
  }

  async #isExhausted({ coming }: PodRecord, signal: AbortSignal): Promise<boolean> {
    for (const volume of coming.values()) if (await this.#options.csi.isExhausted(volume, signal)) return true;
    return false;
  }

  #tooLong(record: PodRecord, plans: readonly VolumePlan[]): EventText | null {
    const now = this.#options.clock.monoMs();
    record.waitingSinceMs ??= now;
    if (now - record.waitingSinceMs < waitTellMs) return null;
    record.waitingSinceMs = now;
    const unmounted = plans.filter(({ name }) => !record.done.has(name)).map(({ name }) => name);
    const message = `${waitedText}unmounted volumes=[${unmounted.join(' ')}], unattached volumes=[], failed to process volumes=[]: context deadline exceeded`;
    return { type: 'Warning', reason: 'FailedMount', message };
  }

  async containerMounts(
    pod: Pod,
    container: Container,
    podIPs: readonly string[],
    signal: AbortSignal,
  ): Promise<{ ok: true; mounts: readonly ContainerMount[]; devices: readonly ContainerDevice[] } | Failure> {
    const uid = pod.metadata.uid ?? '';
    const env = await this.#envFor(pod, container, podIPs, signal);
    if (!env.ok) return env;
    return await this.#inTurn(uid, async () => {
      const claims = this.#records.get(uid)?.claims ?? new Map<string, ClaimPlace>();
      const devices = planDevices({ container, claims });
      if (!devices.ok) return { ok: false, reason: 'CreateContainerConfigError', message: devices.message };
      const mounts = await mountsFor(this.#options, pod, container, podIPs, { env: env.env, claims });
      return mounts.ok ? { ...mounts, devices: devices.devices } : mounts;
    });
  }

  groupsOf(uid: string): readonly number[] {
    return [...new Set(this.#records.get(uid)?.groups.values())];
  }

  async refresh(pod: Pod, signal: AbortSignal): Promise<void> {
    const uid = pod.metadata.uid ?? '';
    await this.#inTurn(uid, async () => {
      // A pod that was adopted after a restart was never prepared by this process: its files are found on disk.
      const record = await this.#recordOf(uid, pod);
      for (const plan of planVolumes(pod, this.#options.allocatable(), this.#options.gates)) {
        if (plan.kind !== 'payload' && plan.kind !== 'claim' && plan.kind !== 'csi') continue;
        const failure = await this.#setUp(pod, plan, record, signal);
        if (failure === null) record.done.add(plan.name);
        else
          this.#options.log.warn('A volume was not brought up to date', {
            pod: pod.metadata.name,
            namespace: pod.metadata.namespace,
            volume: plan.name,
            err: failure.text,
          });
      }
    });
  }

  /** An object that the pod names has changed: its files follow at once. Refreshes that wait for the same turn are one. */
  async objectChanged(uid: string, signal: AbortSignal): Promise<void> {
    const pod = this.#records.get(uid)?.pod;
    if (pod === undefined || signal.aborted || this.#changed.has(uid)) return;
    this.#changed.add(uid);
    try {
      await this.#inTurn(uid, async () => {
        this.#changed.delete(uid);
      });
      if (this.#records.has(uid)) await this.refresh(pod, signal);
    } catch (error) {
      if (!isExpected(error) && !signal.aborted) throw error;
      this.#options.log.warn('A change was not taken over, the next sync does it', { podUID: uid, err: messageOf(error) });
    }
  }

  async teardown(uid: string, signal: AbortSignal): Promise<void> {
    await this.#inTurn(uid, async () => {
      const record = this.#records.get(uid);
      // Pods without such volumes, which are most, do not pay for looking.
      if (record === undefined || record.existed || record.usesCsi) await this.#options.csi.tearDown(uid);
      const beganMs = this.#options.clock.monoMs();
      this.#records.delete(uid);
      this.#options.tokens.release(uid);
      this.#options.certificates.release(uid);
      this.#options.trustBundles.release(uid);
      await this.#options.disk.tearDown(uid, signal);
      await this.#options.mounted.ended(uid);
      for (const name of record?.done ?? [])
        this.#options.metrics?.done(pluginIn(record!, name), 'volume_unmount', this.#options.clock.monoMs() - beganMs, false);
    });
  }

  /** Volumes that are set up and whose content can be measured. */
  measured(): MeasuredVolume[] {
    return [...this.#records].flatMap(([uid, { measured }]) => [...measured].map(([name, how]) => ({ uid, name, ...how })));
  }

  /** Volumes behind claims that CSI drivers were asked for, and where those are that are set up. */
  asked(): AskedVolume[] {
    return [...this.#records.values()].flatMap(({ pod, measured, coming }) => {
      const ready = [...measured].flatMap(([name, { csi, claim, path }]) => (csi === null || claim === null ? [] : [{ pod, name, ...csi, path }]));
      const waiting = [...coming].map(([name, { driver, handle }]) => ({ pod, name, driver, handle, path: null }));
      return [...ready, ...waiting];
    });
  }

  /** Volumes that pods want, and those that are set up, by plugin. */
  counts(): Pick<VolumeCounts, 'wanted' | 'mounted'> {
    const records = [...this.#records.values()];
    return {
      wanted: records.flatMap((record) => volumesUsed(record.pod).map(({ name }) => pluginIn(record, name))),
      mounted: records.flatMap((record) => [...record.done].map((name) => pluginIn(record, name))),
    };
  }

  sweep(): Promise<void> {
    return this.#options.mounted.sweep();
  }

  async uidsOnDisk(): Promise<readonly string[]> {
    return (await this.#options.disk.uids()).filter(isSafeUid);
  }

  async #recordOf(uid: string, pod: Pod): Promise<PodRecord> {
    const present = this.#records.get(uid);
    if (present !== undefined) present.pod = pod;
    if (present?.isStale === true) {
      present.mounted = new Set(await this.#options.disk.mountsOf(uid));
      present.existed = true;
      present.isStale = false;
    }
    if (present !== undefined) return present;
    const { existed } = await this.#options.disk.ensurePodDir(
      uid,
      planVolumes(pod, this.#options.allocatable(), this.#options.gates).flatMap((plan) =>
        plan.kind === 'emptyDir' || plan.kind === 'payload' ? [plan.base] : [],
      ),
    );
    // Only a directory that was there before can have mounts in it: a new pod does not pay for reading the table.
    const mounted = new Set(existed ? await this.#options.disk.mountsOf(uid) : []);
    const record = newRecord(pod, existed, mounted, this.#options.clock.monoMs());
    this.#records.set(uid, record);
    if (existed) this.#options.metrics?.reconstructed(volumesUsed(pod).length, false);
    return record;
  }

  /** Sets one volume up; null is done, else why not. */
  async #setUp(pod: Pod, plan: VolumePlan, record: PodRecord, signal: AbortSignal): Promise<SetUpFailure | null> {
    const { clock, metrics } = this.#options;
    const beganMs = clock.monoMs();
    const failure = await this.#setUpPlan(pod, plan, record, signal);
    const plugin = pluginIn(record, plan.name);
    metrics?.done(plugin, 'volume_mount', clock.monoMs() - beganMs, failure !== null);
    if (failure === null && !record.done.has(plan.name)) metrics?.mounted(plugin, clock.monoMs() - record.sinceMs);
    return failure;
  }

  async #setUpPlan(pod: Pod, plan: VolumePlan, record: PodRecord, signal: AbortSignal): Promise<SetUpFailure | null> {
    const failed = (message: string | null, specName = plan.name): SetUpFailure | null =>
      message === null ? null : { text: `MountVolume.SetUp failed for volume ${JSON.stringify(specName)} : ${message}`, event: 'FailedMount' };
    const uid = pod.metadata.uid ?? '';
    try {
      switch (plan.kind) {
        case 'refused':
          return failed(plan.message);
        case 'image':
          return null;
        case 'hostPath':
          return failed(await this.#options.disk.hostPath(plan.path, plan.type));
        case 'emptyDir':
          await this.#options.disk.setUpBase(uid, plan.base, record);
          record.measured.set(plan.name, { how: 'walk', path: this.#pathOf(uid, plan.base.dir), claim: null, csi: null });
          return null;
        case 'payload':
          record.measured.set(plan.name, { how: 'once', path: this.#pathOf(uid, plan.base.dir), claim: null, csi: null });
          return failed(await this.#fill(pod, plan, record, signal));
        case 'nfs':
          await this.#setUpNfs(uid, plan.name, plan.export, null, record, signal);
          return null;
        case 'csi': {
          const volume = csiOfInline(pod, plan.volume, sha256);
          return volume === null ? failed('it has no driver') : await this.#setUpCsi(pod, plan.name, volume, null, record, signal);
        }
        case 'claim':
          return await this.#setUpClaim(pod, plan, record, failed, signal);
      }
    } catch (error) {
      record.isStale = true;
      if (!isExpected(error)) throw error;
      return failed(linesOf(error));
    }
  }

  #pathOf(uid: string, dir: string): string {
    return `${podPaths(this.#options.rootDir, uid).pod}/${dir}`;
  }

  async #setUpClaim(
    pod: Pod,
    plan: Extract<VolumePlan, { kind: 'claim' }>,
    record: PodRecord,
    failed: (message: string | null, specName?: string) => SetUpFailure | null,
    signal: AbortSignal,
  ): Promise<SetUpFailure | null> {
    const { claims, disk, mounted } = this.#options;
    const claim = await claims.resolve(pod, plan, record.existed || record.done.has(plan.name), signal);
    if (!claim.ok) return { text: claim.message, event: 'FailedMount' };
    if (claim.group !== undefined) record.groups.set(plan.name, claim.group);
    const uid = pod.metadata.uid ?? '';
    record.plugins.set(plan.name, claim.kind === 'csi' ? `kubernetes.io/csi:${claim.volume.driver}` : claimPlugins[claim.kind]);
    switch (claim.kind) {
      case 'hostPath': {
        const problem = await disk.hostPath(claim.path, claim.type);
        if (problem === null) record.claims.set(plan.name, { path: claim.path, readOnly: claim.readOnly });
        return failed(problem);
      }
      case 'local':
        try {
          const path = await mounted.local(pod, claim);
          record.claims.set(plan.name, { path, readOnly: claim.readOnly, relabels: !claim.readOnly });
          if (!claim.isBlock) record.measured.set(plan.name, { how: 'fs', path, claim: claimOf(pod, plan.claimName), csi: null });
          return null;
        } catch (error) {
          if (error instanceof LocalFailure) return { text: error.message, event: error.event };
          if (!isExpected(error)) throw error;
          return failed(linesOf(error), claim.specName);
        }
      case 'nfs':
        try {
          await this.#setUpNfs(uid, plan.name, claim.export, claimOf(pod, plan.claimName), record, signal);
          return null;
        } catch (error) {
          if (!isExpected(error)) throw error;
          return failed(linesOf(error), claim.export.specName);
        }
      case 'csi':
        return await this.#setUpCsi(pod, plan.name, claim.volume, { ...claim, ref: claimOf(pod, plan.claimName) }, record, signal);
    }
  }

  async #setUpNfs(uid: string, name: string, nfs: NfsExport, claim: MeasuredVolume['claim'], record: PodRecord, signal: AbortSignal): Promise<void> {
    const path = await this.#options.mounted.nfs(uid, nfs, signal);
    record.claims.set(name, { path, readOnly: nfs.readOnly });
    record.measured.set(name, { how: 'fs', path, claim, csi: null });
  }

  /** A volume that is done is asked for again only where its driver wishes so, or where it is to grow. */
  async #setUpCsi(
    pod: Pod,
    name: string,
    volume: CsiVolume,
    claim: (NonNullable<ClaimObjects> & { readonly ref: MeasuredVolume['claim'] }) | null,
    record: PodRecord,
    signal: AbortSignal,
  ): Promise<SetUpFailure | null> {
    const { csi } = this.#options;
    record.usesCsi = true;
    const isDone = record.done.has(name);
    if (isDone && !(await csi.republishes(volume, signal))) {
      if (claim === null || expansionOf(claim.pv, claim.pvc, volume.readOnly, null).kind === 'none') return null;
      const problem = await csi.expand(pod, volume, claim);
      return problem === null ? null : { text: `MountVolume.NodeExpandVolume failed for volume ${JSON.stringify(volume.specName)} : ${problem}`, event: null };
    }
    if (volume.mode === 'Persistent') record.coming.set(name, volume);
    const outcome = await csi.setUp(pod, volume, claim, signal, isDone || record.existed);
    if (outcome.ok) record.coming.delete(name);
    if (!outcome.ok) return { text: outcome.message, event: outcome.event };
    const relabels = this.#options.hasSelinux === true && !volume.readOnly && (await this.#options.disk.labels(outcome.path));
    record.claims.set(name, { path: outcome.path, readOnly: volume.readOnly, relabels });
    record.measured.set(name, { how: 'csi', path: outcome.path, claim: claim?.ref ?? null, csi: { driver: volume.driver, handle: volume.handle } });
    return null;
  }

  /** Fetches, then makes the directory, then writes: a volume whose objects are missing leaves nothing mounted. */
  async #fill(pod: Pod, plan: Extract<VolumePlan, { kind: 'payload' }>, record: PodRecord, signal: AbortSignal): Promise<string | null> {
    const uid = pod.metadata.uid ?? '';
    const payload = payloadOf(plan.volume, await fetchInputs(this.#options, pod, plan.needs, signal));
    if (!payload.ok) return payload.message;
    const digest = digestOf(payload.files);
    const before = record.written.get(plan.name);
    if (before?.digest === digest) return null;
    const dir = `${podPaths(this.#options.rootDir, uid).pod}/${plan.base.dir}`;
    try {
      const { disk } = this.#options;
      let state = before?.state;
      if (state === undefined) {
        const made = record.done.has(plan.name) ? 'was there' : await disk.setUpBase(uid, plan.base, record);
        state = made === 'made' && !record.existed ? { names: [], dataTarget: null, dataNames: [] } : await disk.readWriterState(dir);
        if (await disk.holds(dir, state, payload.files)) {
          await disk.link(dir, state, payload.files);
          record.written.set(plan.name, { digest, state });
          return null;
        }
      }
      record.written.set(plan.name, { digest, state: await disk.swap(dir, state, payload.files, plan.base.fsGroup) });
      return null;
    } catch (error) {
      record.written.delete(plan.name);
      throw error;
    }
  }

  async #envFor(
    pod: Pod,
    container: Container,
    podIPs: readonly string[],
    signal: AbortSignal,
  ): Promise<{ ok: true; env: ReadonlyMap<string, string> } | Failure> {
    const expands = (container.volumeMounts ?? []).some((mount) => mount.subPathExpr !== undefined && mount.subPathExpr !== '');
    return expands ? await this.#options.env(pod, container, podIPs, signal) : { ok: true, env: new Map() };
  }

  #isDue(record: PodRecord, name: string, message: string): boolean {
    const now = this.#options.clock.monoMs();
    const before = record.told.get(name);
    if (before !== undefined && before.message === message && now < before.nextMs) return false;
    const waitMs = before?.message === message ? Math.min(before.waitMs * 2, lastRetellMs) : firstRetellMs;
    record.told.set(name, { message, nextMs: now + waitMs, waitMs });
    return true;
  }

  async #inTurn<T>(uid: string, work: () => Promise<T>): Promise<T> {
    return await this.#turns.take(uid, work);
  }
}

/** As it was said: what mount(8) answers has lines, and upstream's Events keep them. */
function linesOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The plugin of a volume; what lies behind a claim is known once it is set up. */
function pluginIn({ pod, plugins }: PodRecord, name: string): string {
  return plugins.get(name) ?? pluginOf(pod, name);
}

const claimPlugins = { hostPath: 'kubernetes.io/host-path', local: 'kubernetes.io/local-volume', nfs: 'kubernetes.io/nfs' } as const;

function claimOf(pod: Pod, name: string): { namespace: string; name: string } {
  return { namespace: pod.metadata.namespace ?? '', name };
}

function digestOf(files: readonly PayloadFile[]): string {
  const sorted = [...files].sort((left, right) => (left.path < right.path ? -1 : 1));
  return createHash('sha256').update(JSON.stringify(sorted)).digest('base64');
}
