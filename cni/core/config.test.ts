import assert from 'node:assert/strict';
import { test } from 'node:test';
import { addressText, cidrText } from './address.ts';
import { readCall, readInput, readNetConf, toldAddresses, versionOf, type NetConf } from './config.ts';
import { CniError } from './errors.ts';

const env = { CNI_COMMAND: 'ADD', CNI_CONTAINERID: 'c1', CNI_NETNS: '/run/netns/p', CNI_IFNAME: 'eth0' };
const ranges = [[{ subnet: '10.244.1.0/24' }]];
const base = { cniVersion: '1.0.0', name: 'n', type: 'nodelet', ipam: { ranges } };
const read = (input: Record<string, unknown>, args = ''): NetConf => readNetConf({ ...base, ...input }, readCall({ ...env, CNI_ARGS: args }));
const codeOf = (work: () => unknown): number => {
  try {
    work();
  } catch (error) {
    assert.ok(error instanceof CniError);
    return error.code;
  }
  return 0;
};

test('a call needs what its command needs', () => {
  assert.equal(readCall(env).containerId, 'c1');
  for (const [change, code] of [
    [{ CNI_COMMAND: 'ADDD' }, 4],
    [{ CNI_COMMAND: undefined }, 4],
    [{ CNI_CONTAINERID: '' }, 4],
    [{ CNI_CONTAINERID: '../x' }, 4],
    [{ CNI_NETNS: '' }, 4],
    [{ CNI_NETNS: '', CNI_COMMAND: 'DEL' }, 0],
    [{ CNI_IFNAME: 'a/b' }, 4],
    [{ CNI_IFNAME: 'longer-than-15-letters' }, 4],
    [{ CNI_COMMAND: 'STATUS', CNI_CONTAINERID: '', CNI_NETNS: '', CNI_IFNAME: '' }, 0],
  ] as const)
    assert.equal(
      codeOf(() => readCall({ ...env, ...change })),
      code,
      JSON.stringify(change),
    );
});

test('a configuration that is wrong is refused with the spec’s code', () => {
  for (const [input, code] of [
    [{}, 0],
    [{ cniVersion: '0.3.1' }, 0],
    [{ cniVersion: '1.1.0' }, 0],
    [{ cniVersion: '0.2.0' }, 1],
    [{ cniVersion: '9.0.0' }, 1],
    [{ name: '' }, 7],
    [{ name: 'a b' }, 7],
    [{ ipam: { type: 'dhcp' } }, 2],
    [{ ipam: { ranges: [[{ subnet: '10.244.1.0' }]] } }, 7],
    [{ ipam: { ranges: [[{ subnet: '10.244.1.0/31' }]] } }, 7],
    [{ ipam: { ranges: [[]] } }, 7],
    [{ ipam: { ranges: [[{ subnet: '10.244.1.0/24' }], [{ subnet: '10.244.1.128/25' }]] } }, 7],
    [{ ipam: { ranges: [[{ subnet: '10.244.1.0/24' }, { subnet: 'fd00::/64' }]] } }, 7],
    [{ ipam: { ranges: [[{ subnet: '10.244.1.0/24', rangeStart: '10.244.2.1' }]] } }, 7],
    [{ ipam: { ranges: [[{ subnet: '10.244.1.0/24', rangeStart: '10.244.1.9', rangeEnd: '10.244.1.8' }]] } }, 7],
    [{ ipam: { ranges, routes: [{ dst: 'x' }] } }, 7],
    [{ ipam: { ranges, routes: [{ dst: '0.0.0.0/0', gw: 'fd00::1' }] } }, 7],
    [{ mtu: -1 }, 7],
    [{ nonMasqueradeCIDRs: ['10.0.0.0'] }, 7],
    [{ runtimeConfig: { portMappings: [{ hostPort: 70_000, containerPort: 80 }] } }, 7],
    [{ runtimeConfig: { portMappings: [{ hostPort: 80, containerPort: 80, protocol: 'icmp' }] } }, 7],
    [{ runtimeConfig: { mac: 'x' } }, 7],
    [{ runtimeConfig: { ips: ['nothing'] } }, 7],
  ] as const)
    assert.equal(
      codeOf(() => read(input)),
      code,
      JSON.stringify(input),
    );
  assert.equal(
    codeOf(() => readInput('{')),
    6,
  );
  assert.equal(
    codeOf(() => readInput('[]')),
    6,
  );
  assert.equal(versionOf({ cniVersion: '0.4.0' }), '0.4.0');
  assert.equal(versionOf({ cniVersion: '0.2.0' }), '1.1.0');
});

test('what runtimes written in Go send is read whatever its letters’ case', () => {
  const conf = read({
    runtimeConfig: {
      portMappings: [
        { HostPort: 8080, ContainerPort: 80, Protocol: 'TCP', HostIP: '' },
        { HostPort: 0, ContainerPort: 81, Protocol: 'tcp', HostIP: '' },
        { hostPort: 53, containerPort: 53, protocol: 'udp', hostIP: '192.0.2.10' },
      ],
      bandwidth: { IngressRate: 1_000_000, IngressBurst: 2_147_483_647, EgressRate: 0, EgressBurst: 0 },
      ipRanges: [[{ Subnet: '10.9.0.0/24', RangeStart: '10.9.0.5' }]],
    },
  });
  assert.deepEqual(
    conf.ports.map((port) => [port.hostPort, port.containerPort, port.protocol, port.hostIp === null ? '' : addressText(port.hostIp)]),
    [
      [8080, 80, 'tcp', ''],
      [53, 53, 'udp', '192.0.2.10'],
    ],
  );
  assert.equal(conf.bandwidth?.ingressRate, 1_000_000);
  assert.equal(cidrText(conf.rangeSets[0]![0]!.subnet), '10.9.0.0/24');
  assert.equal(addressText({ family: 4, value: conf.rangeSets[0]![0]!.first }), '10.9.0.5');
});

test('addresses are asked for in three ways', () => {
  assert.deepEqual(read({ runtimeConfig: { ips: ['10.244.1.7/24'] } }).wanted.map(addressText), ['10.244.1.7']);
  assert.deepEqual(read({ args: { cni: { ips: ['10.244.1.8'] } } }).wanted.map(addressText), ['10.244.1.8']);
  assert.deepEqual(read({}, 'K8S_POD_NAME=x;IP=10.244.1.9').wanted.map(addressText), ['10.244.1.9']);
});

test('ranges end before the broadcast address, and the gateway is the first', () => {
  const [range] = read({}).rangeSets[0]!;
  assert.equal(addressText({ family: 4, value: range!.last }), '10.244.1.254');
  assert.equal(addressText(range!.gateway), '10.244.1.1');
  const [six] = read({ ipam: { ranges: [[{ subnet: 'fd00:1::/64' }]] } }).rangeSets[0]!;
  assert.equal(addressText({ family: 6, value: six!.last }), 'fd00:1::ffff:ffff:ffff:ffff');
});

test('whatever a previous result is, its addresses can be asked for', () => {
  assert.deepEqual(toldAddresses({ ips: [{ address: '10.244.0.9/24' }, { address: 'fd00::9/64' }] }), ['10.244.0.9', 'fd00::9']);
  for (const ips of [undefined, null, 'x', 1, {}, [], [null], [[]], [{}], [{ address: '' }]]) assert.deepEqual(toldAddresses({ ips }), [], JSON.stringify(ips));
  assert.deepEqual(toldAddresses(null), []);
});
