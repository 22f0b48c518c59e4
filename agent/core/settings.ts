import type { KubeletConfiguration } from './config.ts';
import { milliValueOf, valueOf } from './quantity.ts';

/**
 * What all pods together may use of the machine when `enforceNodeAllocatable` names them: all but what is reserved.
 * Null: nobody bounds them.
 */
export function podsAllocatable(
  config: KubeletConfiguration,
  machine: { readonly cpus: number; readonly memoryBytes: number },
): { milliCpu: bigint; memoryBytes: bigint } | null {
  if (!config.enforceNodeAllocatable.includes('pods')) return null;
  const reserved = (resource: string): string[] => [config.kubeReserved[resource], config.systemReserved[resource]].filter((amount) => amount !== undefined);
  const milliCpu = reserved('cpu').reduce((left, amount) => left - milliValueOf(amount), BigInt(machine.cpus) * 1000n);
  const memoryBytes = reserved('memory').reduce((left, amount) => left - valueOf(amount), BigInt(machine.memoryBytes));
  return { milliCpu: milliCpu < 0n ? 0n : milliCpu, memoryBytes: memoryBytes < 0n ? 0n : memoryBytes };
}
