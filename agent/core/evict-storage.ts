import type { Pod } from '../../proto/kube/types.ts';
import { podLimits } from './qos.ts';
import { formatQuantity, parseQuantity, valueOf } from './quantity.ts';
import type { Quantity } from './quantity.ts';

/** What must be measured before a verdict on a pod; empty and false for one that set itself no limit. */
export interface StorageNeeds {
  /** Volumes on the node's disk, by name, with their directory below the pod's. */
  readonly volumes: readonly { readonly name: string; readonly dir: string }[];
  readonly containers: readonly string[];
}

/** Bytes by volume and by container (writable layer and logs). */
export interface StorageUse {
  readonly volumes: ReadonlyMap<string, bigint>;
  readonly containers: ReadonlyMap<string, bigint>;
}

export interface StorageVerdict {
  /** Which limit, by the name it has among eviction signals. */
  readonly limit: 'emptydirfs.limit' | 'ephemeralpodfs.limit' | 'ephemeralcontainerfs.limit';
  readonly message: string;
}

const resource = 'ephemeral-storage';

export function storageNeeds(pod: Pod): StorageNeeds {
  const isWhole = podLimits(pod).has(resource);
  const volumes = (pod.spec.volumes ?? []).flatMap((volume) => {
    if (volume.emptyDir !== undefined && (volume.emptyDir.medium ?? '') === '') {
      return isWhole || valueOf(volume.emptyDir.sizeLimit) > 0n ? [{ name: volume.name, dir: `volumes/kubernetes.io~empty-dir/${volume.name}` }] : [];
    }
    return isWhole && volume.configMap !== undefined ? [{ name: volume.name, dir: `volumes/kubernetes.io~configmap/${volume.name}` }] : [];
  });
  const containers = containersOf(pod).filter((container) => isWhole || valueOf(container.resources?.limits?.[resource]) > 0n);
  return { volumes, containers: containers.map((container) => container.name) };
}

/**
 * Why a pod is evicted for its own use of the node's disk, in upstream's words; null when it keeps its limits. What
 * was not measured counts as nothing. Volumes in memory are held to their size by the kernel.
 */
export function storageVerdict(pod: Pod, use: StorageUse): StorageVerdict | null {
  for (const volume of pod.spec.volumes ?? []) {
    const limit = volume.emptyDir?.sizeLimit;
    if (limit === undefined || (volume.emptyDir?.medium ?? '') !== '' || valueOf(limit) <= 0n) continue;
    if ((use.volumes.get(volume.name) ?? 0n) > valueOf(limit))
      return { limit: 'emptydirfs.limit', message: `Usage of EmptyDir volume "${volume.name}" exceeds the limit "${formatQuantity(parseQuantity(limit))}". ` };
  }
  const whole: Quantity | undefined = podLimits(pod).get(resource);
  const total = [...use.volumes.values(), ...use.containers.values()].reduce((sum, bytes) => sum + bytes, 0n);
  if (whole !== undefined && total > valueOf(`${whole.nano}n`))
    return { limit: 'ephemeralpodfs.limit', message: `Pod ephemeral local storage usage exceeds the total limit of containers ${formatQuantity(whole)}. ` };
  for (const container of containersOf(pod)) {
    const limit = container.resources?.limits?.[resource];
    if (limit === undefined || valueOf(limit) <= 0n) continue;
    if ((use.containers.get(container.name) ?? 0n) > valueOf(limit))
      return {
        limit: 'ephemeralcontainerfs.limit',
        message: `Container ${container.name} exceeded its local ephemeral storage limit "${formatQuantity(parseQuantity(limit))}". `,
      };
  }
  return null;
}

/** Pods that the node itself needs are never evicted: static ones and those of a system priority. */
export function isCritical(pod: Pod): boolean {
  const source = pod.metadata.annotations?.['kubernetes.io/config.source'];
  return (source !== undefined && source !== 'api') || (pod.spec.priority ?? 0) >= 2_000_000_000;
}

/** Containers that go on for the life of the pod. */
function containersOf(pod: Pod): Pod['spec']['containers'] {
  return [...pod.spec.containers, ...(pod.spec.initContainers ?? []).filter((container) => container.restartPolicy === 'Always')];
}
