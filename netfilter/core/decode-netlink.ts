import { isAffinitySet, valueText } from './diff.ts';
import { bytesToIp, type Family } from './ip.ts';
import { messageType, NFT } from './encode-netlink.ts';
import { attributeList, attributes, messagesOf, readText, readU32 } from './netlink.ts';
import { PROTOCOLS, VERDICT_CODE } from './netlink-values.ts';
import { TABLE, type FieldType, type NetworkTarget, type SetSpec, type Verdict } from './ops.ts';
import { readComment } from './userdata.ts';

/** What the kernel says is in the table. */

/** After the netlink header comes one word: family, version, resource. */
const AFTER_FAMILY = 4;

export function decodeChains(datagrams: readonly Uint8Array[]): string[] {
  const names: string[] = [];
  for (const { type, payload } of messagesOf(datagrams)) {
    if (type !== messageType(NFT.newChain)) continue;
    const found = attributes(payload, AFTER_FAMILY);
    // A dump is of the whole family, other tables too.
    if (readText(found.get(1)) === TABLE) names.push(readText(found.get(3)));
  }
  return names;
}

/** How many rules each chain has that has any. */
export function countRules(datagrams: readonly Uint8Array[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { type, payload } of messagesOf(datagrams)) {
    if (type !== messageType(NFT.newRule)) continue;
    const found = attributes(payload, AFTER_FAMILY);
    const chain = readText(found.get(2));
    if (readText(found.get(1)) === TABLE) counts.set(chain, (counts.get(chain) ?? 0) + 1);
  }
  return counts;
}

/** Names of all sets, and the timeouts of those for affinity. */
export function decodeSets(datagrams: readonly Uint8Array[]): { names: Set<string>; affinity: Map<string, number> } {
  const names = new Set<string>();
  const affinity = new Map<string, number>();
  for (const { type, payload } of messagesOf(datagrams)) {
    if (type !== messageType(NFT.newSet)) continue;
    const found = attributes(payload, AFTER_FAMILY);
    if (readText(found.get(1)) !== TABLE) continue;
    const name = readText(found.get(2));
    names.add(name);
    if (!isAffinitySet(name)) continue;
    const timeout = found.get(11);
    affinity.set(name, timeout === undefined ? 0 : (readU32(timeout) * 2 ** 32 + readU32(timeout.subarray(4))) / 1000);
  }
  return { names, affinity };
}

/** Packets by name of the counter. */
export function decodeCounters(datagrams: readonly Uint8Array[]): Map<string, number> {
  const packets = new Map<string, number>();
  for (const { type, payload } of messagesOf(datagrams)) {
    if (type !== messageType(NFT.newObject)) continue;
    const found = attributes(payload, AFTER_FAMILY);
    const counted = attributes(found.get(4) ?? new Uint8Array()).get(2);
    if (readText(found.get(1)) === TABLE && counted !== undefined)
      packets.set(readText(found.get(2)), readU32(counted) * 2 ** 32 + readU32(counted.subarray(4)));
  }
  return packets;
}

function fieldText(bytes: Uint8Array, type: FieldType): string {
  if (type === 'address') return bytesToIp(bytes);
  if (type === 'port') return String((bytes[0]! << 8) | bytes[1]!);
  if (type === 'random') return String((bytes[0]! | (bytes[1]! << 8) | (bytes[2]! << 16) | (bytes[3]! << 24)) >>> 0);
  return Object.entries(PROTOCOLS).find(([, number]) => number === bytes[0])?.[0] ?? String(bytes[0]);
}

function keyText(bytes: Uint8Array, key: readonly FieldType[], family: Family): string {
  const fields: string[] = [];
  let at = 0;
  for (const type of key) {
    const length = type === 'address' && family === 'ip6' ? 16 : 4;
    fields.push(fieldText(bytes.subarray(at, at + length), type));
    at += length;
  }
  return fields.join(' . ');
}

function decodeVerdict(data: Uint8Array | undefined): Verdict | undefined {
  if (data === undefined) return undefined;
  const verdict = attributes(attributes(data).get(2) ?? new Uint8Array());
  const code = readU32(verdict.get(1));
  if (code === VERDICT_CODE.goto || code === VERDICT_CODE.jump) return { kind: code === VERDICT_CODE.goto ? 'goto' : 'jump', chain: readText(verdict.get(2)) };
  return { kind: 'drop' };
}

function decodeTarget(data: Uint8Array | undefined, family: Family): NetworkTarget {
  const [address = '', port = ''] = keyText(data ?? new Uint8Array(), ['address', 'port'], family).split(' . ');
  return { address, port: Number(port) };
}

/** Elements of one set: key text to value text, as `diff.ts` compares them. */
export function decodeElements(datagrams: readonly Uint8Array[], set: SetSpec, family: Family): Map<string, string> {
  const elements = new Map<string, string>();
  for (const { type, payload } of messagesOf(datagrams)) {
    if (type !== messageType(NFT.newElement)) continue;
    for (const [, item] of attributeList(attributes(payload, AFTER_FAMILY).get(3) ?? new Uint8Array())) {
      const found = attributes(item);
      const key = attributes(found.get(1) ?? new Uint8Array()).get(1);
      if (key === undefined) continue;
      const value =
        set.targets !== undefined
          ? { target: decodeTarget(attributes(found.get(2) ?? new Uint8Array()).get(1), family) }
          : { verdict: decodeVerdict(found.get(2)), comment: readComment(found.get(6)) };
      elements.set(keyText(key, set.key, family), valueText(value));
    }
  }
  return elements;
}

/** The generation number, or null when the answer has none. */
export function decodeGeneration(datagrams: readonly Uint8Array[]): number | null {
  for (const { type, payload } of messagesOf(datagrams)) if (type === messageType(NFT.newGeneration)) return readU32(attributes(payload, AFTER_FAMILY).get(1));
  return null;
}
