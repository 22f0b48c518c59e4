import { fnv1a32 } from '../hash.ts';
import { byKey, damaged, dataOf, jsonObject, parseObject, readShape, stateText } from './checkpoint-text.ts';
import { noMemory } from './memory-static.ts';
import type { MemoryBlock, MemoryState, MemoryTable, NodeMemory } from './memory-static.ts';

const fileName = 'memory_manager_state';

/** `memory_manager_state` as upstream 1.37 writes it. */
export function encodeMemoryState(policy: string, state: MemoryState): string {
  const { machine, given, pods = new Map<string, readonly MemoryBlock[]>() } = state;
  const entries = jsonObject(
    byKey(given).map(([uid, containers]) => [uid, jsonObject(byKey(containers).map(([name, blocks]) => [name, JSON.stringify(blocks.map(blockJson))]))]),
  );
  const fields: [string, string][] = [
    ['policyName', JSON.stringify(policy)],
    [
      'machineState',
      jsonObject(byKey([...machine].map(([node, memory]): [string, NodeMemory] => [String(node), memory])).map(([node, memory]) => [node, nodeJson(memory)])),
    ],
    ...(given.size === 0 ? [] : [['entries', entries] as [string, string]]),
  ];
  const ofPods = byKey(pods).map(([uid, blocks]): [string, string] => [uid, JSON.stringify({ memoryBlocks: blocks.map(blockJson) })]);
  return stateText(fields, { podEntries: ofPods }, fieldsChecksum(policy, state));
}

/** Reads `memory_manager_state`, of 1.37 or older; no text is no state. Throws OpError `invalid` as `decodeCpuState`. */
export function decodeMemoryState(text: string, policy: string): MemoryState {
  return readShape(fileName, () => decode(text, policy));
}

function decode(text: string, policy: string): MemoryState {
  if (text === '') return noMemory;
  const file = parseObject(text, fileName);
  const data = dataOf(file, fileName);
  const {
    policyName = '',
    machineState = {},
    entries = {},
    podEntries = {},
  } = (data === null ? file : parseObject(data, fileName)) as {
    policyName?: string;
    machineState?: Record<string, NodeFile>;
    entries?: Record<string, Record<string, BlockFile[]>>;
    podEntries?: Record<string, { memoryBlocks?: BlockFile[] }>;
  };
  const state: MemoryState = {
    machine: new Map(Object.entries(machineState ?? {}).map(([node, memory]) => [Number(node), nodeOf(memory)])),
    given: new Map(
      Object.entries(entries ?? {}).map(([uid, containers]) => [
        uid,
        new Map(Object.entries(containers).map(([name, blocks]) => [name, (blocks ?? []).map(blockOf)])),
      ]),
    ),
    ...(Object.keys(podEntries ?? {}).length === 0
      ? {}
      : { pods: new Map(Object.entries(podEntries).map(([uid, { memoryBlocks }]) => [uid, (memoryBlocks ?? []).map(blockOf)])) }),
  };
  if (data === null && ![0, fieldsChecksum(policyName, state)].includes(Number(file['checksum'] ?? -1))) throw damaged(fileName, 'checkpoint is corrupted');
  if (policyName !== policy) throw damaged(fileName, `[memorymanager] configured policy "${policy}" differs from state checkpoint policy "${policyName}"`);
  return state;
}

interface BlockFile {
  readonly numaAffinity: number[];
  readonly type: string;
  readonly size: number;
}

function blockOf({ numaAffinity, type, size }: BlockFile): MemoryBlock {
  return { nodes: numaAffinity, type, bytes: size };
}

interface NodeFile {
  readonly numberOfAssignments: number;
  readonly memoryMap: Readonly<Record<string, MemoryTable>>;
  readonly cells: readonly number[];
}

function nodeOf({ numberOfAssignments, memoryMap, cells }: NodeFile): NodeMemory {
  return { assignments: numberOfAssignments, tables: new Map(Object.entries(memoryMap ?? {})), cells };
}

function nodeJson({ assignments, tables, cells }: NodeMemory): string {
  const maps = byKey(tables).map(([type, { total, systemReserved, allocatable, reserved, free }]): [string, string] => [
    type,
    JSON.stringify({ total, systemReserved, allocatable, reserved, free }),
  ]);
  return jsonObject([
    ['numberOfAssignments', String(assignments)],
    ['memoryMap', jsonObject(maps)],
    ['cells', JSON.stringify(cells)],
  ]);
}

function blockJson({ nodes, type, bytes }: MemoryBlock): object {
  return { numaAffinity: nodes, type, size: bytes };
}

/** Over what Go's printer makes of the older form of the file. */
function fieldsChecksum(policy: string, { machine, given }: MemoryState): number {
  const numbers = (list: readonly number[]): string => `[${list.join(' ')}]`;
  const entries = byKey(given)
    .map(
      ([uid, containers]) =>
        `${uid}:map[${byKey(containers)
          .map(([name, blocks]) => `${name}:[${blocks.map(printBlock).join(' ')}]`)
          .join(' ')}]`,
    )
    .join(' ');
  const printNode = ({ assignments, tables, cells }: NodeMemory): string =>
    `<*>{NumberOfAssignments:(int)${assignments} MemoryMap:(map[v1.ResourceName]*state.MemoryTable)map[${byKey(tables)
      .map(([type, table]) => `${type}:${printTable(table)}`)
      .join(' ')}] Cells:([]int)${numbers(cells)}}`;
  const nodes = [...machine]
    .toSorted(([left], [right]) => left - right)
    .map(([node, memory]) => `${node}:${printNode(memory)}`)
    .join(' ');
  return fnv1a32(
    `(*state.MemoryManagerCheckpoint){PolicyName:(string)${policy} MachineState:(state.NUMANodeMap)map[${nodes}] Entries:(state.ContainerMemoryAssignments)map[${entries}] Checksum:(checksum.Checksum)0}`,
  );
}

function printTable({ total, systemReserved, allocatable, reserved, free }: MemoryTable): string {
  return `<*>{TotalMemSize:(uint64)${total} SystemReserved:(uint64)${systemReserved} Allocatable:(uint64)${allocatable} Reserved:(uint64)${reserved} Free:(uint64)${free}}`;
}

function printBlock({ nodes, type, bytes }: MemoryBlock): string {
  return `{NUMAAffinity:([]int)[${nodes.join(' ')}] Type:(v1.ResourceName)${type} Size:(uint64)${bytes}}`;
}
