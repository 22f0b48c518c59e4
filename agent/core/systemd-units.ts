import type { CgroupName, CgroupResources } from './cgroups.ts';
import { cgroupParent, cpuWeight } from './cgroups.ts';
import type { DbusValue, Variant } from './dbus/values.ts';

/** A property of a unit, as D-Bus takes it. */
export interface UnitProperty {
  readonly name: string;
  readonly value: Variant;
}

const infinity = 0xffff_ffff_ffff_ffffn;
/** From these versions on systemd knows the properties; earlier ones would refuse the whole call. */
const knowsQuotaPeriod = 242;
const knowsAllowedCpus = 244;
/** systemd keeps a quota as whole hundredths of a processor. */
const hundredthUs = 10_000n;
const secondUs = 1_000_000n;

const property = (name: string, signature: string, value: DbusValue): UnitProperty => ({ name, value: { signature, value } });
const number = (name: string, value: bigint): UnitProperty => property(name, 't', value);

/** The slice unit of a cgroup: `kubepods-burstable.slice`; that of the topmost is `-.slice`. */
export function sliceOf(name: CgroupName): string {
  return name.length === 0 ? '-.slice' : cgroupParent('systemd', name);
}

/** systemd's number from what it calls its version: `252.38-1~deb12u1` is 252; 0 when it says none. */
export function systemdVersion(text: string): number {
  return Number(/^v?(\d+)/.exec(text)?.[1] ?? 0);
}

/** What a slice of ours is made with: everything is counted from the start, for a controller cannot be joined later without loss. */
export function sliceProperties(name: CgroupName, cgroupVersion: 1 | 2): UnitProperty[] {
  return [
    property('Description', 's', `Pods of this node: ${sliceOf(name)}`),
    property('Wants', 'as', [sliceOf(name.slice(0, -1))]),
    ...['MemoryAccounting', 'CPUAccounting', cgroupVersion === 2 ? 'IOAccounting' : 'BlockIOAccounting', 'TasksAccounting'].map((each) =>
      property(each, 'b', true),
    ),
    property('DefaultDependencies', 'b', false),
  ];
}

/**
 * Limits as systemd can hold them: a quota is rounded up to a hundredth of a processor. What is written to the cgroup beside it
 * must be the same, or systemd would undo it at its next reload.
 */
export function heldBySystemd(resources: CgroupResources): CgroupResources {
  const { cpuQuotaUs: quota, cpuPeriodUs: period } = resources;
  return quota === null || quota <= 0n ? resources : { ...resources, cpuQuotaUs: (quotaPerSecond(quota, period) * period) / secondUs };
}

function quotaPerSecond(quotaUs: bigint, periodUs: bigint): bigint {
  const exact = (quotaUs * secondUs) / periodUs;
  return ((exact + hundredthUs - 1n) / hundredthUs) * hundredthUs;
}

/** The limits of a cgroup as properties of its unit; what systemd has no property for is only written to the cgroup. */
export function limitProperties(resources: CgroupResources, cgroupVersion: 1 | 2, systemd: number): UnitProperty[] {
  const { cpuShares, cpuQuotaUs, cpuPeriodUs, memoryBytes, pidsMax, cpus, unified } = resources;
  const properties: UnitProperty[] = [];
  if (memoryBytes !== null) properties.push(number(cgroupVersion === 2 ? 'MemoryMax' : 'MemoryLimit', memoryBytes));
  if (cpuShares !== null) properties.push(cgroupVersion === 2 ? number('CPUWeight', cpuWeight(cpuShares)) : number('CPUShares', cpuShares));
  if (cpuQuotaUs !== null) {
    if (systemd >= knowsQuotaPeriod) properties.push(number('CPUQuotaPeriodUSec', cpuPeriodUs));
    properties.push(number('CPUQuotaPerSecUSec', cpuQuotaUs <= 0n ? infinity : quotaPerSecond(cpuQuotaUs, cpuPeriodUs)));
  }
  // 0 is refused.
  if (pidsMax !== null) properties.push(number('TasksMax', pidsMax < 0n ? infinity : pidsMax === 0n ? 1n : pidsMax));
  if (cpus !== undefined && systemd >= knowsAllowedCpus) properties.push(property('AllowedCPUs', 'ay', cpuBits(cpus)));
  if (cgroupVersion === 2) {
    for (const [file, text] of Object.entries(unified ?? {})) {
      const name = memoryProperties[file];
      if (name !== undefined) properties.push(number(name, text === 'max' ? infinity : BigInt(text)));
    }
  }
  return properties;
}

const memoryProperties: Readonly<Record<string, string>> = { 'memory.min': 'MemoryMin', 'memory.low': 'MemoryLow', 'memory.high': 'MemoryHigh' };

/** A list of processors (`0-2,4`) as bits, the first byte with the first eight. */
export function cpuBits(list: string): Uint8Array {
  const cpus = list
    .split(',')
    .map((range) => range.trim().split('-').map(Number))
    .flatMap(([first = 0, last = first]) => Array.from({ length: last - first + 1 }, (_, index) => first + index));
  const bits = new Uint8Array(Math.floor(Math.max(0, ...cpus) / 8) + 1);
  for (const cpu of cpus) bits[Math.floor(cpu / 8)]! |= 1 << (cpu % 8);
  return bits;
}
