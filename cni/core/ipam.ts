import { addressText, type Address, type Cidr } from './address.ts';
import type { Range } from './config.ts';
import { CniError, CODE } from './errors.ts';

export interface Given {
  readonly address: Cidr;
  readonly gateway: Address;
}

export interface Taken {
  has(address: Address): boolean;
}

/**
 * One address from a set of ranges: the one that was asked for, else the next free one behind `last`, around to the
 * front, so that an address rests as long as possible before another pod has it. Throws CniError when none is free.
 */
export function allocate(ranges: readonly Range[], taken: Taken, last: Address | null, wanted: Address | null): Given {
  const isUsable = (range: Range, value: bigint): boolean => value !== range.gateway.value;
  const give = (range: Range, value: bigint): Given => ({
    address: { family: range.subnet.family, value, prefix: range.subnet.prefix },
    gateway: range.gateway,
  });
  if (wanted !== null) {
    const range = ranges.find((one) => one.subnet.family === wanted.family && wanted.value >= one.first && wanted.value <= one.last);
    if (range === undefined) throw new CniError(CODE.invalidConfig, `address ${addressText(wanted)} was asked for and is in no range`);
    if (!isUsable(range, wanted.value)) throw new CniError(CODE.invalidConfig, `address ${addressText(wanted)} was asked for and is the gateway's`);
    if (taken.has(wanted)) throw new CniError(CODE.exhausted, `address ${addressText(wanted)} was asked for and is another pod's`);
    return give(range, wanted.value);
  }
  const at = last === null ? -1 : ranges.findIndex((range) => range.subnet.family === last.family && last.value >= range.first && last.value <= range.last);
  // From behind the last one through all ranges, and the first part of its own range at the end.
  const spans: { range: Range; from: bigint; to: bigint }[] = [];
  if (at < 0) spans.push(...ranges.map((range) => ({ range, from: range.first, to: range.last })));
  else {
    const own = ranges[at]!;
    spans.push({ range: own, from: last!.value + 1n, to: own.last });
    for (const range of [...ranges.slice(at + 1), ...ranges.slice(0, at)]) spans.push({ range, from: range.first, to: range.last });
    spans.push({ range: own, from: own.first, to: last!.value });
  }
  for (const { range, from, to } of spans) {
    for (let value = from; value <= to; value += 1n)
      if (isUsable(range, value) && !taken.has({ family: range.subnet.family, value })) return give(range, value);
  }
  const size = ranges.reduce((sum, range) => sum + range.last - range.first + 1n, 0n);
  throw new CniError(CODE.exhausted, 'no address is free', `all ${size} of the range belong to pods`);
}
