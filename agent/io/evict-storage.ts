import type { Clock } from '../../base/clock.ts';
import { hasCode, messageOf } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import type { Sys } from '../../base/sys/types.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { isCritical, storageNeeds, storageVerdict } from '../core/evict-storage.ts';
import type { StorageNeeds, StorageUse, StorageVerdict } from '../core/evict-storage.ts';
import { podPaths } from '../core/volumes-paths.ts';
import type { Events, Pods } from '../seams.ts';
import type { Cri } from './cri.ts';
import { logUsage } from './log-usage.ts';

export interface StorageEvictionOptions {
  readonly cri: { readonly runtime: Pick<Cri['runtime'], 'listContainerStats'> };
  readonly sys: Pick<Sys, 'diskUsage'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly events: Events;
  readonly pods: Pick<Pods, 'list' | 'mayRun' | 'evict'>;
  readonly rootDir: string;
  readonly podLogsDir: string;
  /** A pod was evicted for this limit. */
  readonly evicted?: (limit: string) => void;
  /** Volumes are walked this often; upstream's sizes are up to a minute old. */
  readonly periodMs?: number;
}

const walkTimeoutMs = 30_000;
/** What a pod that broke its own limits gets to stop. */
const graceMs = 1000;

/** Evicts pods that put more on the node's disk than they allowed themselves. Only what has a limit is ever walked. */
export class StorageEviction {
  readonly #options: StorageEvictionOptions;

  constructor(options: StorageEvictionOptions) {
    this.#options = options;
  }

  /** Runs until `signal` is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    try {
      for (;;) {
        await this.#options.clock.sleep(this.#options.periodMs ?? 30_000, signal);
        await this.pass(signal);
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  async pass(signal: AbortSignal): Promise<void> {
    for (const pod of this.#options.pods.list()) {
      const needs = storageNeeds(pod);
      if (needs.volumes.length === 0 && needs.containers.length === 0) continue;
      const uid = pod.metadata.uid ?? '';
      const phase = pod.status?.phase;
      if (phase === 'Failed' || phase === 'Succeeded' || !this.#options.pods.mayRun(uid)) continue;
      const verdict = storageVerdict(pod, await this.#measure(pod, needs, signal));
      if (verdict !== null) await this.#evict(pod, verdict, signal);
    }
  }

  async #evict(pod: Pod, { limit, message }: StorageVerdict, signal: AbortSignal): Promise<void> {
    const { log, events, pods } = this.#options;
    const { name = '', namespace = '', uid = '' } = pod.metadata;
    if (isCritical(pod)) {
      log.error('Eviction manager: cannot evict a critical pod', { pod: `${namespace}/${name}` });
      return;
    }
    events.event({ apiVersion: 'v1', kind: 'Pod', namespace, name, uid }, 'Warning', 'Evicted', message);
    await pods.evict(uid, { reason: 'Evicted', message, graceMs }, signal);
    this.#options.evicted?.(limit);
    log.info('Eviction manager: pod is evicted successfully', { pod: `${namespace}/${name}` });
  }

  /** What could not be measured in time is left out: nobody is evicted for a disk that hangs. */
  async #measure(pod: Pod, needs: StorageNeeds, signal: AbortSignal): Promise<StorageUse> {
    const { rootDir, podLogsDir } = this.#options;
    const { name = '', namespace = '', uid = '' } = pod.metadata;
    const { pod: podDir } = podPaths(rootDir, uid);
    const volumes = new Map<string, bigint>();
    const containers = new Map<string, bigint>();
    for (const volume of needs.volumes) volumes.set(volume.name, await this.#walk(`${podDir}/${volume.dir}`, signal));
    if (needs.containers.length === 0) return { volumes, containers };
    const layers = await this.#writableLayers(uid, signal);
    for (const container of needs.containers) {
      const path = `${podLogsDir}/${namespace}_${name}_${uid}/${container}`;
      const logs = await this.#measured(path, logUsage(this.#options.sys, path, walkTimeoutMs, signal));
      containers.set(container, logs + (layers.get(container) ?? 0n));
    }
    return { volumes, containers };
  }

  #walk(path: string, signal: AbortSignal): Promise<bigint> {
    return this.#measured(path, this.#options.sys.diskUsage(path, { timeoutMs: walkTimeoutMs }, signal));
  }

  async #measured(path: string, use: Promise<{ bytes: number }>): Promise<bigint> {
    try {
      return BigInt((await use).bytes);
    } catch (error) {
      if (hasCode(error, 'aborted')) throw error;
      if (!hasCode(error, 'not-found')) this.#options.log.warn('The size of a directory could not be measured', { path, err: messageOf(error) });
      return 0n;
    }
  }

  async #writableLayers(uid: string, signal: AbortSignal): Promise<ReadonlyMap<string, bigint>> {
    try {
      const answer = await this.#options.cri.runtime.listContainerStats(
        { filter: { labelSelector: { 'io.kubernetes.pod.uid': uid } } },
        { timeoutMs: 30_000, signal },
      );
      return new Map(answer.stats.map((stats) => [stats.attributes?.metadata?.name ?? '', BigInt(stats.writableLayer?.usedBytes?.value ?? '0')]));
    } catch (error) {
      if (hasCode(error, 'aborted')) throw error;
      this.#options.log.warn('The writable layers of a pod could not be measured', { podUID: uid, err: messageOf(error) });
      return new Map();
    }
  }
}
