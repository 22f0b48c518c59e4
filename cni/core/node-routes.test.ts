import assert from 'node:assert/strict';
import { test } from 'node:test';
import { addressText, parseAddress, parseAddressPrefix } from './address.ts';
import { conflist, readDaemonConfig } from './conflist.ts';
import { uplinkOf, type RouteFact } from './link-facts.ts';
import { planWays, tunnelOps, wayOps, type NodeFacts, type Overlay } from './node-routes.ts';

const overlay: Overlay = { mode: 'auto', vni: 4096, port: 8472 };
const own: NodeFacts = { name: 'a', addresses: ['10.1.0.10', 'fd01::10'], podCIDRs: ['10.244.1.0/24', 'fd00:1::/64'] };
const facts = {
  addresses: [
    { link: 2, address: parseAddressPrefix('10.1.0.10/24')! },
    { link: 2, address: parseAddressPrefix('fd01::10/64')! },
    { link: 9, address: parseAddressPrefix('10.2.0.1/32')! },
  ],
  links: [{ index: 2, name: 'eth0', mac: '', mtu: 1500, isUp: true }],
};
const routesOf = (others: NodeFacts[], mode: Overlay['mode'] = 'auto'): string[] =>
  planWays(own, others, facts, { ...overlay, mode }).routes.map(
    (route) => `${addressText(route.dst)}/${route.dst.prefix} ${route.gateway === null ? '' : addressText(route.gateway)} ${route.link}`,
  );

test('each family goes by an address of its own on a link of ours; a single address is no link', () => {
  const near: NodeFacts = { name: 'b', addresses: ['10.1.0.11', 'fd01::11'], podCIDRs: ['10.244.2.0/24', 'fd00:2::/64'] };
  const far: NodeFacts = { name: 'c', addresses: ['10.2.0.1'], podCIDRs: ['10.244.3.0/24'] };
  assert.deepEqual(routesOf([near]), ['10.244.2.0/24 10.1.0.11 2', 'fd00:2::/64 fd01::11 2']);
  assert.deepEqual(routesOf([far]), ['10.244.3.0/24 10.244.3.0 0']);
  assert.deepEqual(routesOf([near], 'always'), ['10.244.2.0/24 10.244.2.0 0', 'fd00:2::/64 fd00:2:: 0']);
  assert.deepEqual(routesOf([far], 'never'), []);
  assert.match(planWays(own, [far], facts, { ...overlay, mode: 'never' }).unreachable[0]!, /^c: no link leads to 10\.2\.0\.1/);
});

test('both ends of a tunnel work out the same hardware address', () => {
  const far: NodeFacts = { name: 'c', addresses: ['10.2.0.1'], podCIDRs: ['10.244.3.0/24'] };
  const here = planWays(own, [far], facts, overlay);
  const there = planWays(
    far,
    [own],
    { addresses: [{ link: 3, address: parseAddressPrefix('10.2.0.1/24')! }], links: [{ index: 3, name: 'eth0', mac: '', mtu: 1400, isUp: true }] },
    overlay,
  );
  assert.equal(here.forwards[0]?.mac, there.tunnel?.mac);
  assert.equal(there.forwards[0]?.mac, here.tunnel?.mac);
  assert.deepEqual([here.tunnel?.mtu, there.tunnel?.mtu], [1450, 1350]);
  assert.equal(tunnelOps(here, [{ index: 7, name: 'nodelet-vx', mac: here.tunnel!.mac, mtu: 1450, isUp: true }], overlay).length, 0);
  assert.deepEqual(
    tunnelOps(here, [{ index: 7, name: 'nodelet-vx', mac: 'other', mtu: 1450, isUp: true }], overlay).map((op) => op.op),
    ['delete-link', 'add-vxlan'],
  );
});

test('only what differs is written, and only what is ours is removed', () => {
  const near: NodeFacts = { name: 'b', addresses: ['10.1.0.11'], podCIDRs: ['10.244.2.0/24'] };
  const wanted = planWays(own, [near], facts, overlay);
  const route = (dst: string, gateway: string, protocol: number): RouteFact => ({
    dst: parseAddressPrefix(dst)!,
    gateway: parseAddress(gateway),
    link: 2,
    protocol,
    metric: 0,
  });
  const none = { neighbours: [], forwards: [], tunnel: 0 };
  assert.deepEqual(wayOps(wanted, { ...none, routes: [route('10.244.2.0/24', '10.1.0.11', 0x9c), route('10.99.0.0/24', '10.1.0.11', 4)] }), []);
  assert.deepEqual(
    wayOps(wanted, { ...none, routes: [route('10.244.2.0/24', '10.1.0.99', 0x9c), route('10.244.7.0/24', '10.1.0.7', 0x9c)] }).map((op) => op.op),
    ['delete-route', 'replace-route'],
  );
});

test('the uplink is that of the best default route', () => {
  const route = (dst: string, link: number, metric: number): RouteFact => ({ dst: parseAddressPrefix(dst)!, gateway: null, link, protocol: 3, metric });
  assert.equal(uplinkOf([]), 0);
  assert.equal(uplinkOf([route('10.0.0.0/8', 1, 0)]), 0);
  assert.equal(uplinkOf([route('::/0', 5, 0), route('0.0.0.0/0', 2, 100), route('0.0.0.0/0', 3, 50)]), 3);
  assert.equal(uplinkOf([route('::/0', 5, 0)]), 5);
});

test('a daemon’s configuration is checked, and gives the runtime’s', () => {
  assert.deepEqual(
    new Set(readDaemonConfig({ podCIDRs: ['x'], socket: 1, nonsense: true }).problems),
    new Set(['"socket" is 1', 'unknown field "nonsense"', '"podCIDRs" has "x", which is no CIDR']),
  );
  assert.deepEqual(readDaemonConfig({}).problems, ['neither "kubeconfig" nor "podCIDRs" is given']);
  const { config, problems } = readDaemonConfig({ podCIDRs: ['10.244.1.0/24', 'fd00:1::/64'], clusterCIDRs: ['10.244.0.0/16'], cniVersion: '1.1.0' });
  assert.deepEqual(problems, []);
  const list = JSON.parse(conflist(config, config.podCIDRs, 1450)) as { cniVersion: string; plugins: Record<string, unknown>[] };
  assert.equal(list.cniVersion, '1.1.0');
  assert.deepEqual(list.plugins[0], {
    type: 'nodelet',
    capabilities: { portMappings: true, bandwidth: true, mac: true, ips: true },
    ipMasq: true,
    nonMasqueradeCIDRs: ['10.244.0.0/16'],
    mtu: 1450,
    ipam: { ranges: [[{ subnet: '10.244.1.0/24' }], [{ subnet: 'fd00:1::/64' }]], routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }] },
  });
});
