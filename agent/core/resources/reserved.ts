import type { KubeletConfiguration } from '../config.ts';
import { shareOf } from '../node-status.ts';
import { addQuantities, parseQuantity, quantityOf } from '../quantity.ts';
import type { Quantity } from '../quantity.ts';
import { parseCpuSet } from './cpuset.ts';

/** With `reservedSystemCPUs` their number stands in for what is reserved of CPU otherwise. */
export function withReservedCpus(config: KubeletConfiguration): KubeletConfiguration {
  const cpus = parseCpuSet(config.reservedSystemCPUs) ?? [];
  if (cpus.length === 0) return config;
  const kubeReserved = Object.fromEntries(Object.entries(config.kubeReserved).filter(([name]) => name !== 'cpu'));
  return { ...config, kubeReserved, systemReserved: { ...config.systemReserved, cpu: String(cpus.length) } };
}

/** CPU that is reserved, in thousandths; null: nothing is said of it. */
export function reservedMilliCpu(config: Pick<KubeletConfiguration, 'kubeReserved' | 'systemReserved'>): bigint | null {
  const texts = [config.kubeReserved['cpu'], config.systemReserved['cpu']].flatMap((text) => (text === undefined ? [] : [text]));
  if (texts.length === 0) return null;
  const { nano } = texts.map(parseQuantity).reduce(addQuantities);
  return (nano + 999_999n) / 1_000_000n;
}

/** What node allocatable takes off memory and huge pages: reserved for kube and system, and the hard eviction threshold. */
export function reservedMemoryOf(
  config: Pick<KubeletConfiguration, 'kubeReserved' | 'systemReserved' | 'evictionHard'>,
  memoryBytes: number,
): Record<string, Quantity> {
  const reserved: Record<string, Quantity> = {};
  const add = (name: string, amount: Quantity): void => {
    reserved[name] = addQuantities(amount, reserved[name] ?? quantityOf(0));
  };
  for (const list of [config.kubeReserved, config.systemReserved]) {
    for (const [name, text] of Object.entries(list)) if (name === 'memory' || name.startsWith('hugepages-')) add(name, parseQuantity(text));
  }
  const threshold = config.evictionHard['memory.available'];
  if (threshold !== undefined) add('memory', shareOf(threshold, quantityOf(BigInt(memoryBytes), 'BinarySI')));
  return reserved;
}
