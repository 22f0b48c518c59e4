import assert from 'node:assert/strict';
import { test } from 'node:test';
import { conflicts, nameProblem, nodeIpsOf, overlap, planSet, podCidrsOf, serviceCidrsOf, subnetProblem, type SetOptions, type SetPlan } from './plan.ts';

const plan = planSet({ name: 'default', index: 0, stateHome: '/var/lib/nodelet', nodeCount: 2, controlPlane: 'embedded' });

test('the first set has the addresses that the documents print', () => {
  assert.equal(plan.dnsIp, '10.96.0.10');
  assert.equal(plan.nodes[0]?.podCidr, '10.244.1.0/24');
  assert.equal(plan.nodes[1]?.ip, '10.89.0.12');
  assert.equal(plan.server, 'https://10.89.0.1:6443');
});

test('sets beside each other share no address', () => {
  const all = [0, 1, 2, 3].map((index) => planSet({ name: `s${index}`, index, stateHome: '/x', nodeCount: 1, controlPlane: 'embedded' }));
  const subnets = all.flatMap((set) => [set.hub.subnet, set.podCidr, set.serviceCidr]);
  for (const [at, a] of subnets.entries()) for (const b of subnets.slice(at + 1)) assert.equal(overlap(a, b), false, `${a} ${b}`);
});

test('a taken subnet is named with the flag that changes it', () => {
  assert.deepEqual(
    conflicts(plan, [
      { dst: 'default', dev: 'eth0' },
      { dst: '10.96.3.0/24', dev: 'vpn0' },
    ]),
    [{ flag: '--service-cidr', text: '10.96.0.0/16 is taken by 10.96.3.0/24 on vpn0: choose another with --service-cidr' }],
  );
  assert.deepEqual(conflicts(plan, [{ dst: '10.96.0.0/16', dev: 'nodelet0' }]), []);
});

test('subnets of one set must not share addresses', () => {
  const crossed = planSet({ name: 'x', index: 0, stateHome: '/x', nodeCount: 1, controlPlane: 'embedded', subnet: '10.244.7.0/24' });
  assert.deepEqual(
    conflicts(crossed, []).map((one) => one.flag),
    ['--pod-cidr'],
  );
});

test('names and subnets are checked', () => {
  assert.equal(nameProblem('a-1'), null);
  assert.match(nameProblem('A/..') ?? '', /not a name/);
  assert.equal(subnetProblem('10.1.0.0/16', 16), null);
  assert.match(subnetProblem('10.1.1.0/16', 16) ?? '', /not a subnet/);
  assert.match(subnetProblem('10.300.0.0/16', 16) ?? '', /not a subnet/);
});

test('each node has a kubelet and a service proxy of the maker that was asked for', () => {
  const of = (options: Pick<SetOptions, 'agents' | 'proxies'>, nodeCount: number): string[] =>
    planSet({ name: 's', index: 0, stateHome: '/x', nodeCount, controlPlane: 'real', ...options }).nodes.map((node) => `${node.agent} ${node.proxy}`);
  assert.deepEqual(of({}, 2), ['ours nftables', 'ours nftables']);
  assert.deepEqual(of({ agents: ['upstream'] }, 2), ['upstream upstream-nftables', 'upstream upstream-nftables']);
  assert.deepEqual(of({ agents: ['upstream', 'ours'] }, 3), ['upstream upstream-nftables', 'ours nftables', 'upstream upstream-nftables']);
  assert.deepEqual(of({ agents: ['upstream', 'ours'], proxies: ['upstream-iptables'] }, 2), ['upstream upstream-iptables', 'ours upstream-iptables']);
});

test('a set of both families has a range of each for pods, Services and nodes; another one has one', () => {
  const of = (dualStack: boolean): SetPlan => planSet({ name: 's', index: 11, stateHome: '/x', nodeCount: 2, controlPlane: 'real', cni: 'nodelet', dualStack });
  const [single, dual] = [of(false), of(true)];
  assert.deepEqual(podCidrsOf(dual), ['10.222.0.0/16', 'fd00:244:c::/48']);
  assert.deepEqual(serviceCidrsOf(dual), ['10.107.0.0/16', 'fd00:96:c::/112']);
  assert.deepEqual(
    dual.nodes.map((node) => [...nodeIpsOf(node), ...podCidrsOf(node)]),
    [
      ['10.89.11.11', 'fd00:89:c::b', '10.222.1.0/24', 'fd00:244:c:1::/64'],
      ['10.89.11.12', 'fd00:89:c::c', '10.222.2.0/24', 'fd00:244:c:2::/64'],
    ],
  );
  assert.deepEqual([podCidrsOf(single), serviceCidrsOf(single), nodeIpsOf(single.nodes[0]!)], [['10.222.0.0/16'], ['10.107.0.0/16'], ['10.89.11.11']]);
});
