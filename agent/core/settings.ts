import { cpuShares } from './cgroups.ts';
import type { CgroupResources } from './cgroups.ts';
import type { KubeletConfiguration } from './config.ts';
import { gateEnabled } from '../../base/feature-gates.ts';
import type { MemoryQos } from './memory-qos.ts';
import { milliValueOf, valueOf } from './quantity.ts';

/**
 * What all pods together may use of the machine: all but what is reserved when `enforceNodeAllocatable` names them, else all of it
 * (a cgroup to which nothing is written has too little weight). Null: the kernel does not say how many processes there may be.
 */
export function podsAllocatable(
  config: KubeletConfiguration,
  machine: { readonly cpus: number; readonly memoryBytes: number; readonly maxPids: number | null },
): { milliCpu: bigint; memoryBytes: bigint; pids: bigint | null } {
  const isEnforced = config.cgroupsPerQOS && config.enforceNodeAllocatable.includes('pods');
  const reserved = (resource: string): string[] =>
    isEnforced ? [config.kubeReserved[resource], config.systemReserved[resource]].filter((amount) => amount !== undefined) : [];
  const milliCpu = reserved('cpu').reduce((left, amount) => left - milliValueOf(amount), BigInt(machine.cpus) * 1000n);
  const memoryBytes = reserved('memory').reduce((left, amount) => left - valueOf(amount), BigInt(machine.memoryBytes));
  const pids = machine.maxPids === null ? null : reserved('pid').reduce((left, amount) => left - valueOf(amount), BigInt(machine.maxPids));
  const least = (amount: bigint): bigint => (amount < 0n ? 0n : amount);
  return { milliCpu: least(milliCpu), memoryBytes: least(memoryBytes), pids: pids === null ? null : least(pids) };
}

/** How memory is protected and throttled by this configuration; null: gate MemoryQoS is off. */
export function memoryQosOf(config: KubeletConfiguration, machine: { readonly memoryBytes: number }): MemoryQos | null {
  if (!gateEnabled(config.featureGates, 'MemoryQoS')) return null;
  const reserved = [config.kubeReserved['memory'], config.systemReserved['memory']].filter((amount) => amount !== undefined);
  const left = reserved.reduce((rest, amount) => rest - valueOf(amount), BigInt(machine.memoryBytes));
  return {
    policy: config.memoryReservationPolicy === 'TieredReservation' ? 'TieredReservation' : 'None',
    throttlingFactor: config.memoryThrottlingFactor,
    pageBytes: 4096,
    allocatableBytes: left < 0n ? 0n : left,
  };
}

/** A cgroup for what are no pods (`systemReservedCgroup`, `kubeReservedCgroup`) with the limits it gets. */
export interface ReservedCgroup {
  /** `system-reserved` and the like: which of `enforceNodeAllocatable` asks for it. */
  readonly key: string;
  readonly cgroup: string;
  readonly resources: CgroupResources;
}

/** What `enforceNodeAllocatable` asks for beside pods. Compressible is what can be held back without killing: processor time. */
export function reservedCgroups(config: KubeletConfiguration, cgroupVersion: 1 | 2, protectsMemory: boolean): ReservedCgroup[] {
  const sides = [
    { side: 'system-reserved', cgroup: config.systemReservedCgroup, reserved: config.systemReserved },
    { side: 'kube-reserved', cgroup: config.kubeReservedCgroup, reserved: config.kubeReserved },
  ];
  return sides.flatMap(({ side, cgroup, reserved }) =>
    [side, `${side}-compressible`]
      .filter((key) => config.enforceNodeAllocatable.includes(key))
      .map((key) => ({ key, cgroup, resources: reservedResources(reserved, key !== side, cgroupVersion === 2 && protectsMemory) })),
  );
}

function reservedResources(reserved: Readonly<Record<string, string>>, compressible: boolean, protectsMemory: boolean): CgroupResources {
  const { cpu, memory, pid } = reserved;
  const bytes = compressible || memory === undefined ? null : valueOf(memory);
  return {
    cpuShares: cpu === undefined ? null : cpuShares(milliValueOf(cpu)),
    cpuQuotaUs: null,
    cpuPeriodUs: 100_000n,
    memoryBytes: bytes,
    pidsMax: compressible || pid === undefined ? null : valueOf(pid),
    ...(bytes !== null && protectsMemory ? { unified: { 'memory.min': String(bytes) } } : {}),
  };
}

/** The kernel's files that bound how many processes there can be. */
export const PID_FILES = ['/proc/sys/kernel/pid_max', '/proc/sys/kernel/threads-max'] as const;

/** How many processes the kernel allows, from the texts of PID_FILES; null: it does not say. */
export function mostPids(texts: readonly string[]): number | null {
  const limits = texts.map((text) => Number(text)).filter((limit) => limit > 0);
  return limits.length === 0 ? null : Math.min(...limits);
}
