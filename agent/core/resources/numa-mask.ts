/** A set of NUMA nodes as bits: node 0 is the lowest. */
export type NumaMask = bigint;

export function maskOf(nodes: Iterable<number>): NumaMask {
  let mask = 0n;
  for (const node of nodes) mask |= 1n << BigInt(node);
  return mask;
}

/** Node numbers, ascending. */
export function nodesOf(mask: NumaMask): number[] {
  const nodes: number[] = [];
  for (let node = 0, rest = mask; rest > 0n; node++, rest >>= 1n) if ((rest & 1n) === 1n) nodes.push(node);
  return nodes;
}

export function countOf(mask: NumaMask): number {
  return nodesOf(mask).length;
}

export function hasNode(mask: NumaMask, node: number): boolean {
  return ((mask >> BigInt(node)) & 1n) === 1n;
}

/** Fewer nodes; of as many, lower ones. */
export function isNarrower(left: NumaMask, right: NumaMask): boolean {
  const [few, many] = [countOf(left), countOf(right)];
  return few === many ? left < right : few < many;
}

/** Every set of at least one of the nodes: small ones first, of one size in the order of the nodes. */
export function masksOf(nodes: readonly number[]): NumaMask[] {
  const masks: NumaMask[] = [];
  for (let size = 1; size <= nodes.length; size++) for (const combination of combinations(nodes, size)) masks.push(maskOf(combination));
  return masks;
}

/** Every choice of `size` of the items, in the order of the items. */
export function* combinations<T>(items: readonly T[], size: number, from = 0): Generator<readonly T[]> {
  if (size === 0) {
    yield [];
    return;
  }
  for (let index = from; index <= items.length - size; index++) {
    for (const rest of combinations(items, size - 1, index + 1)) yield [items[index] as T, ...rest];
  }
}
