import type { KubeletConfiguration } from './config.ts';
import { milliValueOf, valueOf } from './quantity.ts';

/**
 * What all pods together may use of the machine when `enforceNodeAllocatable` names them: all but what is reserved.
 * Null: nobody bounds them.
 */
export function podsAllocatable(
  config: KubeletConfiguration,
  machine: { readonly cpus: number; readonly memoryBytes: number; readonly maxPids: number | null },
): { milliCpu: bigint; memoryBytes: bigint; pids: bigint | null } | null {
  if (!config.enforceNodeAllocatable.includes('pods')) return null;
  const reserved = (resource: string): string[] => [config.kubeReserved[resource], config.systemReserved[resource]].filter((amount) => amount !== undefined);
  const milliCpu = reserved('cpu').reduce((left, amount) => left - milliValueOf(amount), BigInt(machine.cpus) * 1000n);
  const memoryBytes = reserved('memory').reduce((left, amount) => left - valueOf(amount), BigInt(machine.memoryBytes));
  const pids = machine.maxPids === null ? null : reserved('pid').reduce((left, amount) => left - valueOf(amount), BigInt(machine.maxPids));
  const least = (amount: bigint): bigint => (amount < 0n ? 0n : amount);
  return { milliCpu: least(milliCpu), memoryBytes: least(memoryBytes), pids: pids === null ? null : least(pids) };
}

/** The kernel's files that bound how many processes there can be. */
export const PID_FILES = ['/proc/sys/kernel/pid_max', '/proc/sys/kernel/threads-max'] as const;

/** How many processes the kernel allows, from the texts of PID_FILES; null: it does not say. */
export function mostPids(texts: readonly string[]): number | null {
  const limits = texts.map((text) => Number(text)).filter((limit) => limit > 0);
  return limits.length === 0 ? null : Math.min(...limits);
}
