import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { fnv1a32 } from '../hash.ts';
import { decodeCpuState, encodeCpuState } from './cpu-state.ts';
import type { CpuState } from './cpu-static.ts';
import { decodeDeviceRecord, encodeDeviceRecord } from './device-checkpoint.ts';
import type { DeviceRecord } from './device-checkpoint.ts';
import { decodeMemoryState, encodeMemoryState } from './memory-state.ts';
import type { MemoryState } from './memory-static.ts';

/** Checksums below are those that upstream's printer (go-spew, as `dump.ForHash` sets it) and FNV-1a give for the same values. */
const cpus: CpuState = {
  shared: [0, 1, 4],
  given: new Map([
    [
      'pod2',
      new Map([
        ['b', [3]],
        ['a', [2]],
      ]),
    ],
    ['pod1', new Map([['c', [5, 6]]])],
  ]),
};

const table = { total: 1000, systemReserved: 100, allocatable: 900, reserved: 300, free: 600 };
const nothing = { total: 0, systemReserved: 0, allocatable: 0, reserved: 0, free: 0 };
const memory: MemoryState = {
  machine: new Map([
    [
      0,
      {
        assignments: 1,
        tables: new Map([
          ['memory', table],
          ['hugepages-2Mi', nothing],
        ]),
        cells: [0, 1],
      },
    ],
    [10, { assignments: 0, tables: new Map(), cells: [] }],
  ]),
  given: new Map([
    [
      'pod',
      new Map([
        ['c', [{ nodes: [0], type: 'memory', bytes: 300 }]],
        ['a', []],
      ]),
    ],
  ]),
};

const bytes = (text: string): Uint8Array => Uint8Array.from(text === '' ? [] : text.split('.').map(Number));
const text = (list: Uint8Array): string => list.join('.');

interface File {
  checksum: number;
  data: string;
  dataChecksum: number;
}

describe('cpu_manager_state', () => {
  it('is what upstream writes', () => {
    const none = JSON.parse(encodeCpuState('none', { shared: [], given: new Map() })) as File;
    assert.equal(none.checksum, 1_353_318_690);
    assert.equal(none.data, '{"policyName":"none","defaultCpuSet":""}');
    const file = JSON.parse(encodeCpuState('static', cpus)) as File;
    assert.equal(file.checksum, 2_053_828_626);
    assert.equal(file.data, '{"policyName":"static","defaultCpuSet":"0-1,4","entries":{"pod1":{"c":"5-6"},"pod2":{"a":"2","b":"3"}}}');
    assert.equal(file.dataChecksum, fnv1a32(`(string)${file.data}`));
  });

  it('keeps what pods own as a whole in the newer half alone', () => {
    const whole: CpuState = { shared: [0], given: new Map([['p', new Map([['a', [1, 2]]])]]), pods: new Map([['p', [1, 2, 3]]]) };
    const file = JSON.parse(encodeCpuState('static', whole)) as File & { podEntries?: object };
    assert.equal(file.data, '{"policyName":"static","defaultCpuSet":"0","entries":{"p":{"a":"1-2"}},"podEntries":{"p":{"cpuSet":"1-3"}}}');
    assert.equal(file.podEntries, undefined);
    assert.match(
      (JSON.parse(encodeCpuState('static', whole, { baselines: true })) as File).data,
      /"podEntries":\{"p":\{"cpuSet":"1-3"\}\},"baselines":\{"p":\{"a":\{"baseline":"1-2"\}\}\}\}$/,
    );
    assert.deepEqual(decodeCpuState(encodeCpuState('static', whole, { baselines: true }), 'static'), whole);
    assert.deepEqual(decodeCpuState(encodeCpuState('static', whole), 'static'), whole);
    const ofMemory: MemoryState = { ...memory, pods: new Map([['pod', [{ nodes: [0], type: 'memory', bytes: 300 }]]]) };
    const text_ = encodeMemoryState('Static', ofMemory);
    assert.match((JSON.parse(text_) as File).data, /"podEntries":\{"pod":\{"memoryBlocks":\[\{"numaAffinity":\[0\],"type":"memory","size":300\}\]\}\}\}$/);
    assert.deepEqual(decodeMemoryState(text_, 'Static').pods, ofMemory.pods);
  });

  it('is read back, also without the newer half', () => {
    assert.deepEqual(decodeCpuState(encodeCpuState('static', cpus), 'static'), decodeCpuState(encodeCpuState('static', cpus), 'static'));
    assert.deepEqual(decodeCpuState(encodeCpuState('static', cpus), 'static').given.get('pod1')?.get('c'), [5, 6]);
    const { data, dataChecksum, ...old } = JSON.parse(encodeCpuState('static', cpus)) as File;
    assert.ok(data !== '' && dataChecksum > 0);
    assert.deepEqual(decodeCpuState(JSON.stringify(old), 'static').shared, [0, 1, 4]);
    assert.deepEqual(decodeCpuState('', 'static'), { shared: [], given: new Map() });
  });

  it('refuses what is damaged and what another policy wrote', () => {
    const good = encodeCpuState('static', cpus);
    assert.throws(() => decodeCpuState(good.replace('"dataChecksum":', '"dataChecksum":1'), 'static'), /checkpoint is corrupted/);
    assert.throws(() => decodeCpuState(good, 'none'), /configured policy "none" differs from state checkpoint policy "static"/);
    assert.throws(() => decodeCpuState('{"policyName":"static","defaultCpuSet":"0","checksum":5}', 'static'), /corrupted/);
    assert.throws(() => decodeCpuState('[]', 'static'), /an object is expected/);
  });
});

describe('memory_manager_state', () => {
  it('is what upstream writes', () => {
    assert.equal((JSON.parse(encodeMemoryState('None', { machine: new Map(), given: new Map() })) as File).checksum, 4_236_770_233);
    const file = JSON.parse(encodeMemoryState('Static', memory)) as File;
    assert.equal(file.checksum, 3_036_821_518);
    assert.equal(
      file.data,
      '{"policyName":"Static","machineState":{"0":{"numberOfAssignments":1,"memoryMap":{"hugepages-2Mi":{"total":0,"systemReserved":0,"allocatable":0,"reserved":0,"free":0},"memory":{"total":1000,"systemReserved":100,"allocatable":900,"reserved":300,"free":600}},"cells":[0,1]},"10":{"numberOfAssignments":0,"memoryMap":{},"cells":[]}},"entries":{"pod":{"a":[],"c":[{"numaAffinity":[0],"type":"memory","size":300}]}}}',
    );
  });

  it('is read back, and refused when damaged', () => {
    const good = encodeMemoryState('Static', memory);
    assert.deepEqual(encodeMemoryState('Static', decodeMemoryState(good, 'Static')), good);
    assert.throws(() => decodeMemoryState('{"policyName":"Static","entries":{"u":{"c":{}}},"machineState":{}}', 'Static'), /another shape is expected/);
    assert.throws(() => decodeMemoryState('{"policyName":"Static","machineState":{"0":null}}', 'Static'), /another shape is expected/);
    assert.throws(() => decodeMemoryState(good, 'None'), /configured policy "None" differs/);
    assert.throws(() => decodeMemoryState(good.replace(/"dataChecksum":\d+/, '"dataChecksum":7'), 'Static'), /corrupted/);
  });
});

describe('kubelet_internal_checkpoint', () => {
  const record: DeviceRecord = {
    entries: [
      {
        uid: 'uid-1',
        container: 'ctr',
        resource: 'example.com/dev',
        ids: new Map([
          [-1, ['d1', 'd2']],
          [0, ['d3']],
          [10, ['x']],
          [2, ['y']],
        ]),
        response: bytes('10.3.255'),
      },
    ],
    registered: new Map([
      ['b.io/x', ['2', '1']],
      ['a.io/y', []],
    ]),
  };
  const print =
    '(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)[{PodUID:(string)uid-1 ContainerName:(string)ctr ResourceName:(string)example.com/dev DeviceIDs:(checkpoint.DevicesPerNUMA)map[-1:[d1 d2] 0:[d3] 2:[y] 10:[x]] AllocResp:([]uint8)[10 3 255]}] RegisteredDevices:(map[string][]string)map[a.io/y:[] b.io/x:[2 1]]}';

  it('carries the checksum of what Go prints', () => {
    const file = JSON.parse(encodeDeviceRecord(record, text)) as { Data: { PodDeviceEntries: { AllocResp: string }[] }; Checksum: number };
    assert.equal(file.Checksum, fnv1a32(print));
    assert.equal(file.Data.PodDeviceEntries[0]?.AllocResp, '10.3.255');
    const empty = encodeDeviceRecord({ entries: [], registered: new Map() }, text);
    assert.equal(empty, '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":3467439661}');
  });

  it('is read back, and refused when damaged', () => {
    const good = encodeDeviceRecord(record, text);
    assert.deepEqual(encodeDeviceRecord(decodeDeviceRecord(good, bytes), text), good);
    assert.deepEqual(decodeDeviceRecord('{"Data":{"PodDeviceEntries":[],"RegisteredDevices":null},"Checksum":3252601439}', bytes).entries, []);
    assert.throws(() => decodeDeviceRecord(good.replace('"2","1"', '"2"'), bytes), /corrupted/);
  });
});
