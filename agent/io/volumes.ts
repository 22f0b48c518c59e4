import { createHash } from 'node:crypto';
import { messageOf } from '../../base/errors.ts';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { Container, Pod } from '../../proto/kube/types.ts';
import type { EventText, Failure } from '../core/types.ts';
import { isSafeUid, podPaths } from '../core/volumes-paths.ts';
import { payloadOf } from '../core/volumes-payload.ts';
import type { PayloadFile } from '../core/volumes-payload.ts';
import { planVolumes } from '../core/volumes-plan.ts';
import type { VolumePlan } from '../core/volumes-plan.ts';
import type { WriterState } from '../core/volumes-writer.ts';
import type { ContainerMount, EnvSources, Volumes } from '../seams.ts';
import type { PodCertificates } from './pod-certificates.ts';
import type { Tokens } from './tokens.ts';
import type { TrustBundles } from './trust-bundles.ts';
import type { Claims } from './volumes-claims.ts';
import type { VolumeDisk } from './volumes-disk.ts';
import { fetchInputs, isExpected } from './volumes-inputs.ts';
import { mountsFor } from './volumes-mounts.ts';

export interface VolumesOptions {
  readonly rootDir: string;
  readonly clusterDomain: string;
  readonly disk: VolumeDisk;
  readonly sources: Pick<EnvSources, 'configMap' | 'secret'>;
  readonly tokens: Tokens;
  readonly certificates: Pick<PodCertificates, 'get' | 'release'>;
  readonly trustBundles: Pick<TrustBundles, 'read' | 'release'>;
  readonly claims: Claims;
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
  /** The node's own hosts file, for host-network pods. */
  readonly hostsFile?: string;
}

/** What is known to lie on disk for one pod. */
interface PodRecord {
  /** As it was last given to us. */
  pod: Pod;
  existed: boolean;
  mounted: ReadonlySet<string>;
  /** Something failed half way: what lies on disk is looked at again before the next attempt. */
  isStale: boolean;
  /** Volumes that are set up. */
  readonly done: Set<string>;
  readonly written: Map<string, { digest: string; state: WriterState }>;
  readonly claims: Map<string, { path: string; readOnly: boolean }>;
  /** When a failure of a volume is told again; upstream's retries have the same distances. */
  readonly told: Map<string, { message: string; nextMs: number; waitMs: number }>;
}

const firstRetellMs = 500;
const lastRetellMs = 122_000;

/** The volumes of all pods: plans from core/, disk work through VolumeDisk, one operation at a time for each pod. */
export class PodVolumes implements Volumes {
  readonly #options: VolumesOptions;
  readonly #records = new Map<string, PodRecord>();
  readonly #turns = new Map<string, Promise<unknown>>();
  readonly #changed = new Set<string>();

  constructor(options: VolumesOptions) {
    this.#options = options;
  }

  async prepare(pod: Pod, signal: AbortSignal): Promise<{ ok: true; events?: readonly EventText[] } | Failure> {
    const uid = pod.metadata.uid ?? '';
    return await this.#inTurn(uid, async () => {
      const plans = planVolumes(pod, this.#options.allocatable());
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
      const outcomes = await Promise.all(open.map(async (plan) => ({ plan, message: await this.#setUp(pod, plan, record, signal) })));
      const failures: string[] = [];
      const events: EventText[] = [];
      for (const { plan, message } of outcomes) {
        if (message === null) {
          record.done.add(plan.name);
          record.told.delete(plan.name);
          continue;
        }
        const text = plan.kind === 'claim' ? message : `MountVolume.SetUp failed for volume ${JSON.stringify(plan.name)} : ${message}`;
        failures.push(text);
        if (this.#isDue(record, plan.name, text)) events.push({ type: 'Warning', reason: 'FailedMount', message: text });
      }
      if (failures.length === 0) return { ok: true };
      return { ok: false, reason: 'FailedMount', message: failures.join('; '), events };
    });
  }

  async containerMounts(
    pod: Pod,
    container: Container,
    podIPs: readonly string[],
    signal: AbortSignal,
  ): Promise<{ ok: true; mounts: readonly ContainerMount[] } | Failure> {
    const uid = pod.metadata.uid ?? '';
    const env = await this.#envFor(pod, container, podIPs, signal);
    if (!env.ok) return env;
    return await this.#inTurn(
      uid,
      async () => await mountsFor(this.#options, pod, container, podIPs, { env: env.env, claims: this.#records.get(uid)?.claims ?? new Map() }),
    );
  }

  async refresh(pod: Pod, signal: AbortSignal): Promise<void> {
    const uid = pod.metadata.uid ?? '';
    await this.#inTurn(uid, async () => {
      // A pod that was adopted after a restart was never prepared by this process: its files are found on disk.
      const record = await this.#recordOf(uid, pod);
      for (const plan of planVolumes(pod, this.#options.allocatable())) {
        if (plan.kind !== 'payload') continue;
        const message = await this.#setUp(pod, plan, record, signal);
        if (message === null) record.done.add(plan.name);
        else
          this.#options.log.warn('A volume was not brought up to date', {
            pod: pod.metadata.name,
            namespace: pod.metadata.namespace,
            volume: plan.name,
            err: message,
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
      this.#records.delete(uid);
      this.#options.tokens.release(uid);
      this.#options.certificates.release(uid);
      this.#options.trustBundles.release(uid);
      await this.#options.disk.tearDown(uid, signal);
    });
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
      planVolumes(pod, this.#options.allocatable()).flatMap((plan) => (plan.kind === 'emptyDir' || plan.kind === 'payload' ? [plan.base] : [])),
    );
    // Only a directory that was there before can have mounts in it: a new pod does not pay for reading the table.
    const mounted = new Set(existed ? await this.#options.disk.mountsOf(uid) : []);
    const record: PodRecord = {
      pod,
      existed,
      mounted,
      isStale: false,
      done: new Set(),
      written: new Map(),
      claims: new Map(),
      told: new Map(),
    };
    this.#records.set(uid, record);
    return record;
  }

  /** Sets one volume up; null is done, else why not. */
  async #setUp(pod: Pod, plan: VolumePlan, record: PodRecord, signal: AbortSignal): Promise<string | null> {
    try {
      switch (plan.kind) {
        case 'refused':
          return plan.message;
        case 'image':
          return null;
        case 'hostPath':
          return await this.#options.disk.hostPath(plan.path, plan.type);
        case 'emptyDir':
          await this.#options.disk.setUpBase(pod.metadata.uid ?? '', plan.base, record);
          return null;
        case 'payload':
          return await this.#fill(pod, plan, record, signal);
        case 'claim': {
          const claim = await this.#options.claims.resolve(pod, plan, signal);
          if (!claim.ok) return claim.message;
          const problem = await this.#options.disk.hostPath(claim.path, claim.type);
          if (problem === null) record.claims.set(plan.name, { path: claim.path, readOnly: plan.readOnly });
          return problem;
        }
      }
    } catch (error) {
      record.isStale = true;
      if (!isExpected(error)) throw error;
      return messageOf(error);
    }
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
    const before = this.#turns.get(uid) ?? Promise.resolve();
    const mine = before.then(work, work);
    const settled = mine.then(
      () => undefined,
      () => undefined,
    );
    this.#turns.set(uid, settled);
    try {
      return await mine;
    } finally {
      if (this.#turns.get(uid) === settled) this.#turns.delete(uid);
    }
  }
}

function digestOf(files: readonly PayloadFile[]): string {
  const sorted = [...files].sort((left, right) => (left.path < right.path ? -1 : 1));
  return createHash('sha256').update(JSON.stringify(sorted)).digest('base64');
}
