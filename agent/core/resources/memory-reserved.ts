import { addQuantities, compareQuantities, formatQuantity, parseQuantity, quantityOf, valueOf } from '../quantity.ts';
import type { Quantity } from '../quantity.ts';

/** One entry of `reservedMemory`. */
export interface MemoryReservation {
  readonly numaNode: number;
  readonly limits: Readonly<Record<string, string>>;
}

type ByNode = ReadonlyMap<number, Readonly<Record<string, number>>>;

/**
 * What the system keeps of each NUMA node (`reservedMemory`), in bytes. Its sums must be what node allocatable takes
 * off (kube and system reserved and the hard eviction threshold): else upstream's sentence.
 */
export function reservedByNode(
  nodes: readonly number[],
  reservations: readonly MemoryReservation[],
  allocatableReservation: Readonly<Record<string, Quantity>>,
): { readonly ok: true; readonly byNode: ByNode } | { readonly ok: false; readonly message: string } {
  const totals = new Map<string, Quantity>();
  const byNode = new Map(nodes.map((node): [number, Record<string, number>] => [node, {}]));
  for (const { numaNode, limits } of reservations) {
    const own = byNode.get(numaNode);
    if (own === undefined) return wrong(`the reserved memory configuration references a NUMA node ${numaNode} that does not exist on this machine`);
    for (const [name, text] of Object.entries(limits)) {
      totals.set(name, addQuantities(parseQuantity(text), totals.get(name) ?? quantityOf(0)));
      own[name] = Number(valueOf(text));
    }
  }
  const names = new Set([...totals.keys(), ...Object.keys(allocatableReservation).filter((name) => name === 'memory' || name.startsWith('hugepages-'))]);
  for (const name of names) {
    const [has, wanted] = [totals.get(name) ?? quantityOf(0), allocatableReservation[name] ?? quantityOf(0)];
    if (compareQuantities(has, wanted) === 0) continue;
    return wrong(
      `the total amount "${formatQuantity(has)}" of type "${name}" is not equal to the value "${formatQuantity(wanted)}" determined by Node Allocatable feature`,
    );
  }
  if ((totals.get('memory')?.nano ?? 0n) <= 0n) return wrong('[memorymanager] you should specify the system reserved memory');
  return { ok: true, byNode };
}

function wrong(message: string): { readonly ok: false; readonly message: string } {
  return { ok: false, message };
}
