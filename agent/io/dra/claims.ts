import { crc32 } from 'node:zlib';
import type { Clock } from '../../../base/clock.ts';
import { messageOf, OpError } from '../../../base/errors.ts';
import { resourceClaims } from '../../../base/kubeapi/refs.ts';
import type { KubeApi } from '../../../base/kubeapi/types.ts';
import type { Log } from '../../../base/log.ts';
import type { Container, Pod, PodStatus, ResourceV1ResourceClaim } from '../../../proto/kube/types.ts';
import type { NodePrepareResourceResponse } from '../../../proto/plugins/dra.ts';
import type { DynamicResource } from '../../../proto/plugins/pod_resources.ts';
import { RpcError } from '../../../cri/mod.ts';
import { checkpointText, newCheckpointText, readCheckpoint } from '../../core/dra/checkpoint.ts';
import { cdiDevicesOf, claimRefusal, claimsOf, newClaimInfo, requestsOf, skips } from '../../core/dra/claims.ts';
import type { ClaimInfo } from '../../core/dra/claims.ts';
import { alpha } from '../../../base/metrics-text.ts';
import { withClaimHealth } from '../../core/dra/health.ts';
import type { Failure } from '../../core/types.ts';
import { textFile } from '../allocation-file.ts';
import { StateFile } from '../state-file.ts';
import { Turns } from '../../../base/turns.ts';
import type { DraPlugins } from './plugins.ts';

export interface DraClaimsOptions {
  readonly api: KubeApi;
  readonly clock: Clock;
  readonly log: Log;
  /** `<root>/dra_manager_state`. */
  readonly file: string;
  readonly plugins: Pick<DraPlugins, 'has' | 'call' | 'healthOf'>;
  /** `DRAWorkloadResourceClaims`: claims of a pod's group are its own. */
  readonly ofGroups?: boolean;
  /** Once done: `PrepareResources` or `UnprepareResources`, whether it failed, how long it took. */
  readonly onDone: (operation: string, failed: boolean, tookMs: number) => void;
}

const reconcileMs = 60_000;
const crc = (text: string): number => crc32(text);

/**
 * Claims of dynamic resources: prepared before a pod's sandbox is made, taken back when its containers are gone. What
 * is under way is in the checkpoint before a driver hears of it, so that a process after a crash takes it back.
 */
export class DraClaims {
  readonly #options: DraClaimsOptions;
  /** By namespace and name. */
  readonly #claims: Map<string, ClaimInfo>;
  readonly #prepared = new Set<string>();
  readonly #unpreparing = new Set<string>();
  readonly #turns = new Turns();
  readonly #file: StateFile;

  /** Reads the checkpoint. Throws OpError `invalid` for one that is damaged. */
  static async open(options: DraClaimsOptions): Promise<DraClaims> {
    const file = textFile(options.file);
    const text = (await file.read()) || null;
    if (text === null) await file.write(newCheckpointText(crc));
    const claims = text === null ? [] : readCheckpoint(text, crc);
    if (claims === null) throw new OpError('invalid', `read ${options.file}`, 'checkpoint is corrupted', { advice: 'drain the node and remove the file' });
    return new DraClaims(options, claims);
  }

  private constructor(options: DraClaimsOptions, claims: readonly ClaimInfo[]) {
    this.#options = options;
    this.#claims = new Map(claims.map((claim) => [keyOf(claim.namespace, claim.name), claim]));
    this.#file = new StateFile(textFile(options.file), () => checkpointText(this.#claims.values(), crc));
  }

  /** What /metrics tells: claims that pods hold, by driver and in all. */
  text(): string {
    const metric = alpha(
      'dra_resource_claims_in_use',
      'The number of ResourceClaims that are currently in use on the node, by driver name (driver_name label value) and across all drivers (special value <any> for driver_name). Note that the sum of all by-driver counts is not the total number of in-use ResourceClaims because the same ResourceClaim might use devices from different drivers. Instead, use the count for the <any> driver_name.',
      'gauge',
    ).zero({ driver_name: '<any>' });
    for (const { drivers } of this.#claims.values()) for (const name of ['<any>', ...drivers.keys()]) metric.add({ driver_name: name });
    return metric.text();
  }

  /** Whether drivers are to be asked for something before the pod's containers can be made. */
  concerns(pod: Pod): boolean {
    return (pod.spec.resourceClaims ?? []).length > 0 || pod.status?.extendedResourceClaimStatus !== undefined;
  }

  /** Prepares the pod's claims; those that are prepared are not asked for again. */
  async prepare(pod: Pod, signal: AbortSignal): Promise<{ ok: true } | Failure> {
    // Counted for every pod, as upstream does.
    if (!this.concerns(pod)) {
      this.#options.onDone('PrepareResources', false, 0);
      return { ok: true };
    }
    const startMs = this.#options.clock.monoMs();
    let message: string | null;
    try {
      message = await this.#inTurn(claimKeysOf(pod), async () => await this.#prepare(pod, signal));
    } catch (error) {
      signal.throwIfAborted();
      message = error instanceof RpcError ? `NodePrepareResources: ${error.goMessage}` : messageOf(error);
    }
    this.#options.onDone('PrepareResources', message !== null, this.#options.clock.monoMs() - startMs);
    if (message === null) return { ok: true };
    const text = `Failed to prepare dynamic resources: prepare dynamic resources: ${message}`;
    return {
      ok: false,
      reason: 'FailedPrepareDynamicResources',
      message: text,
      events: [{ type: 'Warning', reason: 'FailedPrepareDynamicResources', message: text }],
    };
  }

  /** Names of the CDI devices of a container. Throws OpError where its claims are not prepared. */
  cdiDevices(pod: Pod, container: Container): readonly string[] {
    const { namespace = '' } = pod.metadata;
    return [...requestsOf(pod, container)].flatMap(([name, requests]) => {
      const info = this.#claims.get(keyOf(namespace, name));
      if (info === undefined) throw new OpError('not-found', 'internal error', `unable to get claim info for ResourceClaim ${name} in namespace ${namespace}`);
      return requests.flatMap((request) => cdiDevicesOf(info, request));
    });
  }

  /** A container's devices as the pod-resources API tells of them. */
  resourcesOf(pod: Pod, container: Container): DynamicResource[] {
    const { namespace = '' } = pod.metadata;
    return [...requestsOf(pod, container).keys()].flatMap((name) => {
      const info = this.#claims.get(keyOf(namespace, name));
      if (info === undefined) return [];
      const claimResources = [...info.drivers].flatMap(([driverName, { devices }]) =>
        devices.map(({ poolName, deviceName, shareId, cdiDeviceIds }) => ({
          driverName,
          poolName,
          deviceName,
          cdiDevices: cdiDeviceIds.map((device) => ({ name: device })),
          shareId: shareId ?? '',
        })),
      );
      return [{ claimName: name, claimNamespace: namespace, claimResources }];
    });
  }

  /** Takes back what only this pod used. Throws OpError or RpcError when a driver does not do so yet. */
  async unprepare(uid: string, signal: AbortSignal): Promise<void> {
    const keys = [...this.#claims].flatMap(([key, { podUids }]) => (podUids.has(uid) ? [key] : []));
    if (keys.length === 0) return this.#options.onDone('UnprepareResources', false, 0);
    const startMs = this.#options.clock.monoMs();
    let failed = true;
    try {
      await this.#inTurn(keys, async () => await this.#unprepare(uid, signal));
      failed = false;
    } finally {
      this.#options.onDone('UnprepareResources', failed, this.#options.clock.monoMs() - startMs);
    }
  }

  /** The status with the health of devices. */
  withHealth(pod: Pod, status: PodStatus): PodStatus {
    const { plugins } = this.#options;
    return withClaimHealth(
      pod,
      status,
      (namespace, name) => this.#claims.get(keyOf(namespace, name)),
      (driver, pool, device) => plugins.healthOf(driver, pool, device),
    );
  }

  /** Pods that use one of these devices (`pool/device`) of a driver. */
  usersOf(driver: string, devices: readonly string[]): readonly string[] {
    const uids = new Set<string>();
    for (const { drivers, podUids } of this.#claims.values()) {
      const own = drivers.get(driver)?.devices ?? [];
      if (own.some(({ poolName, deviceName }) => devices.includes(`${poolName}/${deviceName}`))) for (const uid of podUids) uids.add(uid);
    }
    return [...uids];
  }

  /** Takes back what pods hold that are no more, until `signal` is aborted. */
  async run(isActive: (uid: string) => boolean, synced: () => boolean, signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#options;
    for (;;) {
      await clock.sleep(reconcileMs, signal).catch(() => undefined);
      if (signal.aborted) return;
      if (!synced()) continue;
      const uids = new Set([...this.#claims.values()].flatMap(({ podUids }) => [...podUids]).filter((uid) => !isActive(uid)));
      for (const uid of uids) {
        try {
          await this.unprepare(uid, signal);
        } catch (error) {
          if (signal.aborted) return;
          log.warn('Unpreparing pod resources failed, will retry', { podUID: uid, err: messageOf(error) });
        }
      }
    }
  }

  /** Once nobody else works on these claims: a driver that hangs holds up those who share one with it, and nobody else. */
  async #inTurn<T>(keys: readonly string[], work: () => Promise<T>): Promise<T> {
    // Everybody takes them in one order, so nobody waits for who waits for him.
    const [first, ...rest] = [...new Set(keys)].toSorted();
    return first === undefined ? await work() : await this.#turns.take(first, async () => await this.#inTurn(rest, work));
  }

  /** null, or why not. Before anything is remembered all is checked: a pod that may not start can be deleted without any driver. */
  async #prepare(pod: Pod, signal: AbortSignal): Promise<string | null> {
    const { api, plugins } = this.#options;
    const { namespace = '', uid: podUid = '' } = pod.metadata;
    const found = claimsOf(pod);
    if (!found.ok) return found.message;
    const wanted: ClaimInfo[] = [];
    for (const { name, isOwned } of found.claims) {
      if (name === null) continue;
      let claim: ResourceV1ResourceClaim;
      try {
        claim = await api.get<ResourceV1ResourceClaim>(resourceClaims(namespace, name), { timeoutMs: 10_000 }, signal);
      } catch (error) {
        signal.throwIfAborted();
        return `fetch ResourceClaim ${name}: ${messageOf(error)}`;
      }
      const refusal = claimRefusal(pod, claim, isOwned, this.#options.ofGroups);
      if (refusal !== null) return refusal;
      const info = newClaimInfo(claim);
      for (const [driver, state] of info.drivers)
        if (!skips(state, 'NodePrepareResources') && !plugins.has(driver)) return `DRA driver ${driver} is not registered`;
      wanted.push(info);
    }
    const due: string[] = [];
    for (const info of wanted) {
      const key = keyOf(namespace, info.name);
      const known = this.#claims.get(key);
      if (known !== undefined && known.uid !== info.uid)
        return `old ResourceClaim with same name ${info.name} and different UID ${known.uid} still exists (previous pod force-deleted?!)`;
      if (this.#unpreparing.has(key)) return `ResourceClaim ${info.name} is being unprepared`;
      const base = known ?? info;
      this.#claims.set(key, { ...base, podUids: new Set([...base.podUids, podUid]) });
      if (!this.#prepared.has(key)) due.push(key);
    }
    await this.#save();
    const failure = await this.#callAll(due, 'NodePrepareResources', signal);
    if (failure !== null) return failure;
    for (const key of due) this.#prepared.add(key);
    await this.#save();
    return null;
  }

  async #unprepare(uid: string, signal: AbortSignal): Promise<void> {
    const last: string[] = [];
    for (const [key, info] of this.#claims) {
      if (!info.podUids.has(uid)) continue;
      if (info.podUids.size > 1) this.#claims.set(key, { ...info, podUids: new Set([...info.podUids].filter((each) => each !== uid)) });
      else last.push(key);
    }
    for (const key of last) this.#unpreparing.add(key);
    const failure = await this.#callAll(last, 'NodeUnprepareResources', signal);
    if (failure !== null) throw new OpError('failed', 'unprepare dynamic resources', failure);
    for (const key of last) {
      this.#claims.delete(key);
      this.#prepared.delete(key);
      this.#unpreparing.delete(key);
    }
    await this.#save();
  }

  /** One call to each driver with all of its claims; null, or why not. */
  async #callAll(keys: readonly string[], method: 'NodePrepareResources' | 'NodeUnprepareResources', signal: AbortSignal): Promise<string | null> {
    const batches = new Map<string, string[]>();
    for (const key of keys) {
      for (const [driver, state] of this.#claims.get(key)?.drivers ?? []) if (!skips(state, method)) batches.set(driver, [...(batches.get(driver) ?? []), key]);
    }
    for (const [driver, batch] of batches) {
      const claims = batch.flatMap((key) => {
        const info = this.#claims.get(key);
        return info === undefined ? [] : [{ namespace: info.namespace, uid: info.uid, name: info.name }];
      });
      const answer = await this.#options.plugins.call(driver, method, { claims }, signal);
      for (const [uid, result] of Object.entries(answer.claims)) {
        const at = claims.findIndex((claim) => claim.uid === uid);
        const key = batch[at];
        const info = key === undefined ? undefined : this.#claims.get(key);
        if (key === undefined || info === undefined) return `${method} returned result for unknown claim UID ${uid}`;
        if (result.error !== '') return `${method} failed for ResourceClaim ${info.name}: ${result.error}`;
        if (method !== 'NodePrepareResources') continue;
        const { devices: told = [] } = result as Partial<NodePrepareResourceResponse>;
        const devices = told.map((device) => ({ ...device, shareId: device._shareId === undefined ? null : device.shareId }));
        const { skips: skipped = [] } = info.drivers.get(driver) ?? {};
        this.#claims.set(key, { ...info, drivers: new Map([...info.drivers, [driver, { devices, skips: skipped }]]) });
      }
      const missing = claims.length - Object.keys(answer.claims).length;
      if (missing !== 0) return `${method} skipped ${missing} ResourceClaims`;
    }
    return null;
  }

  async #save(): Promise<void> {
    await this.#file.save();
  }
}

/** Claims that the pod names; none where it cannot be told, which `prepare` refuses. */
function claimKeysOf(pod: Pod): string[] {
  const found = claimsOf(pod);
  return found.ok ? found.claims.flatMap(({ name }) => (name === null ? [] : [keyOf(pod.metadata.namespace ?? '', name)])) : [];
}

function keyOf(namespace: string, name: string): string {
  return `${namespace}/${name}`;
}
