import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { takePacked } from './cpu-assign.ts';
import { takeDistributed } from './cpu-distribute.ts';
import { formatCpuSet, parseCpuSet } from './cpuset.ts';
import type { CpuSet } from './cpuset.ts';
import { topologyOf } from './cpu-topology.ts';
import type { CpuPlace, CpuTopology } from './cpu-topology.ts';
import { hugePageName, topologyFrom } from './machine.ts';

function make(count: number, place: (cpu: number) => CpuPlace): CpuTopology {
  return topologyOf(new Map(Array.from({ length: count }, (_, cpu) => [cpu, place(cpu)])));
}

const set = (text: string): CpuSet => parseCpuSet(text) ?? [];

/** Machines as upstream's tests have them. */
const oneSocketHT = make(8, (cpu) => ({ numa: 0, socket: 0, core: cpu % 4, uncore: 0 }));
const twoSocketsHT = make(12, (cpu) => ({ numa: cpu % 2, socket: cpu % 2, core: cpu % 6, uncore: 0 }));
const fourNodesHT = make(80, (cpu) => ({ numa: Math.floor((cpu % 40) / 10), socket: Math.floor((cpu % 40) / 20), core: cpu % 40, uncore: 0 }));
const uncore16 = make(16, (cpu) => ({ numa: 0, socket: 0, core: cpu, uncore: Math.floor(cpu / 4) }));
const uncoreTwoSockets = make(16, (cpu) => ({ numa: Math.floor(cpu / 8), socket: Math.floor(cpu / 8), core: cpu, uncore: Math.floor(cpu / 4) }));
const uncoreTwoNodes = make(16, (cpu) => ({ numa: Math.floor(cpu / 8), socket: 0, core: cpu, uncore: Math.floor(cpu / 4) }));
const uncoreHT = make(16, (cpu) => ({ numa: 0, socket: 0, core: cpu % 8, uncore: Math.floor((cpu % 8) / 4) }));

describe('CPUs that are taken together', () => {
  const packed: readonly [string, CpuTopology, string, number, string, boolean?][] = [
    ['none of one socket', oneSocketHT, '0-7', 0, ''],
    ['one CPU', oneSocketHT, '0-7', 1, '0'],
    ['one CPU of a core that is broken already', oneSocketHT, '1,3,5,6,7', 1, '6'],
    ['a core', oneSocketHT, '0-7', 2, '0,4'],
    ['the only core that is free', oneSocketHT, '0,1,2,3,6', 2, '2,6'],
    ['all', oneSocketHT, '0-7', 8, '0-7'],
    ['a socket', twoSocketsHT, '0-11', 6, '0,2,4,6,8,10'],
    ['a socket of two nodes', fourNodesHT, '0-79', 40, '0-19,40-59'],
    ['a NUMA node', fourNodesHT, '0-79', 20, '0-9,40-49'],
    ['the next NUMA node', fourNodesHT, '10-39,50-79', 20, '10-19,50-59'],
    ['a socket and a node', fourNodesHT, '0-79', 60, '0-29,40-69'],
    ['the socket that is whole, and a node', fourNodesHT, '1-39,41-79', 60, '10-39,50-79'],
    ['one CPU of the socket with fewer free', twoSocketsHT, '1-5,7-11', 1, '2'],
    ['a node and one core of the other', twoSocketsHT, '0-11', 8, '0-2,4,6-8,10'],
    ['three nodes and two cores', fourNodesHT, '0-79', 64, '0-31,40-71'],
    ['two caches and part of a third', uncore16, '1-15', 10, '1,2,4-11', true],
    ['one CPU, by caches', twoSocketsHT, '1-5,7-11', 1, '1', true],
    ['a cache of the first socket', uncoreTwoSockets, '0-15', 4, '0-3', true],
    ['all that the first socket has', uncoreTwoSockets, '2-15', 6, '2-7', true],
    ['a cache of the second socket', uncoreTwoSockets, '8-15', 4, '8-11', true],
    ['a part of a cache that holds all', uncoreTwoNodes, '3,4-8,12', 2, '4,5', true],
    ['a part of the better cache', uncoreHT, '2-3,10-11,4-7,12-15', 6, '4-6,12-14', true],
    ['a cache and a core of another', uncoreHT, '1-7,9-15', 10, '1,4-7,9,12-15', true],
  ];
  for (const [name, topology, available, count, expected, byUncore = false] of packed) {
    it(`packed: ${name}`, () => {
      const taken = takePacked(topology, set(available), count, 'packed', byUncore);
      assert.deepEqual(taken, { ok: true, cpus: set(expected) });
    });
  }

  it('one of each core first, when they are spread', () => {
    assert.deepEqual(takePacked(oneSocketHT, set('0-7'), 3, 'spread', false), { ok: true, cpus: set('0-2') });
  });

  it('says how many there are when they do not suffice', () => {
    const taken = takePacked(oneSocketHT, set('0,2,4,6'), 5, 'packed', false);
    assert.deepEqual(taken, { ok: false, message: 'not enough cpus available to satisfy request: requested=5, available=4' });
  });

  const distributed: readonly [string, CpuTopology, string, number, number, string][] = [
    ['two sockets', twoSocketsHT, '0-11', 8, 1, '0-3,6-9'],
    ['four nodes', fourNodesHT, '0-79', 64, 1, '0-7,10-17,20-27,30-37,40-47,50-57,60-67,70-77'],
    ['three nodes suffice', fourNodesHT, '0-79', 48, 1, '0-7,10-17,20-27,40-47,50-57,60-67'],
    ['the emptier three', fourNodesHT, '2-29,31-39,42-69,71-79', 48, 1, '10-17,20-27,31-38,50-57,60-67,71-78'],
    ['few in each', fourNodesHT, '0-2,10-12,20-22,30-32,40-41,50-51,60-61,70-71', 16, 1, '0-1,10-11,20-21,30-31,40-41,50-51,60-61,70-71'],
    ['one CPU', twoSocketsHT, '1-5,7-11', 1, 1, '1'],
    ['no whole core: packed', twoSocketsHT, '1-5,7-11', 1, 2, '2'],
    ['13 each', fourNodesHT, '0-79', 26, 1, '0-6,10-16,40-45,50-55'],
    ['in whole cores', fourNodesHT, '0-79', 26, 2, '0-6,10-15,40-46,50-55'],
    ['a remainder of two', fourNodesHT, '0-79', 62, 1, '0-7,10-17,20-27,30-37,40-47,50-57,60-66,70-76'],
    ['a remainder of three cores', fourNodesHT, '0-79', 62, 2, '0-7,10-17,20-27,30-36,40-47,50-57,60-67,70-76'],
    ['a remainder that keeps the balance', fourNodesHT, '0-8,10-18,20-39,40-48,50-58,60-79', 62, 1, '0-7,10-17,20-27,30-37,40-46,50-56,60-67,70-77'],
    ['the same in cores', fourNodesHT, '0-8,10-18,20-39,40-48,50-58,60-79', 62, 2, '0-7,10-16,20-27,30-37,40-47,50-56,60-67,70-77'],
    ['a remainder only where it fits', fourNodesHT, '0-3,10-13,20-23,30-36,40-43,50-53,60-63,70-76', 34, 1, '0-3,10-13,20-23,30-34,40-43,50-53,60-63,70-74'],
  ];
  for (const [name, topology, available, count, groupSize, expected] of distributed) {
    it(`distributed: ${name}`, () => {
      const taken = takeDistributed(topology, set(available), count, { groupSize, order: 'packed', alignBySocket: false });
      assert.deepEqual(taken.ok && formatCpuSet(taken.cpus), formatCpuSet(set(expected)));
    });
  }
});

describe('a machine read from the kernel', () => {
  it('calls a core by its first CPU, and a cache only where it parts a node', () => {
    const cpus = [0, 1, 2, 3].map((cpu) => ({ cpu, coreId: cpu % 2, socket: 0, bigCaches: [{ id: 7, shared: [0, 1, 2, 3] }] }));
    const topology = topologyFrom([{ node: 0, cpus, memoryBytes: 0, hugePages: [], distances: [10] }], set('0-3'));
    assert.deepEqual([topology.cpus, topology.cores, topology.sockets, topology.numaNodes, topology.uncoreCaches], [4, 2, 1, 1, 1]);
    assert.deepEqual(topology.places.get(3), { numa: 0, socket: 0, core: 1, uncore: 0 });
    const parted = cpus.map((each) => ({ ...each, bigCaches: [{ id: each.coreId + 4, shared: [each.coreId, each.coreId + 2] }] }));
    const two = topologyFrom([{ node: 0, cpus: parted, memoryBytes: 0, hugePages: [], distances: [10] }], set('0-2'));
    assert.deepEqual([two.cpus, two.uncoreCaches, two.places.get(2)?.uncore], [3, 2, 4]);
  });

  it('names huge pages as the API does', () => {
    assert.deepEqual([2048, 1_048_576, 64].map(hugePageName), ['hugepages-2Mi', 'hugepages-1Gi', 'hugepages-64Ki']);
  });

  it('reads and writes sets as the kernel does', () => {
    assert.deepEqual(parseCpuSet('0-2,5\n'), [0, 1, 2, 5]);
    assert.equal(formatCpuSet([0, 1, 2, 5, 7, 8]), '0-2,5,7-8');
    assert.deepEqual(parseCpuSet(''), []);
    for (const wrong of ['a', '3-1', '1,,2', '-1', '1-']) assert.equal(parseCpuSet(wrong), null);
  });
});
