import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { hasCode } from '../../base/errors.ts';
import { silentLog } from '../../base/log.ts';
import { createSysClient } from '../../base/sys/client.ts';
import { readDaemonConfig } from '../../cni/core/conflist.ts';
import type { NodeFacts } from '../../cni/core/node-routes.ts';
import { createKernel } from '../../cni/io/kernel.ts';
import { NodeNetwork } from '../../cni/node-network.ts';
import { ip, Lab, missing, peer } from './lab.ts';

/** Ways to other nodes' pods: a and b on one link, c behind a router. Pods have both families, the nodes IPv4 alone. */

const sysPath = process.env['NODELET_SYS'] ?? join(import.meta.dirname, '../../dist/sys');
const NODES: readonly NodeFacts[] = [
  { name: 'a', addresses: ['10.1.0.10'], podCIDRs: ['10.244.1.0/24', 'fd00:1::/64'] },
  { name: 'b', addresses: ['10.1.0.11'], podCIDRs: ['10.244.2.0/24', 'fd00:2::/64'] },
  { name: 'c', addresses: ['10.2.0.10'], podCIDRs: ['10.244.3.0/24', 'fd00:3::/64'] },
];

test(
  'a route where a link reaches the node, a tunnel where none does, and nothing of either when it is gone',
  { skip: missing() ?? false, timeout: 120_000 },
  async () => {
    await using lab = new Lab();
    await using sys = createSysClient({ path: sysPath, log: silentLog });
    const router = lab.space('router');
    const spaces = new Map<string, string>();
    ip('-n', router, 'link', 'add', 'br0', 'type', 'bridge');
    ip('-n', router, 'addr', 'add', '10.1.0.1/24', 'dev', 'br0');
    ip('-n', router, 'link', 'set', 'br0', 'up');
    await lab.start(router, ['sh', '-c', 'echo 1 > /proc/sys/net/ipv4/ip_forward']).ended;
    for (const { name, addresses } of NODES) {
      const space = lab.space(name);
      const pod = lab.space(`pod-${name}`);
      spaces.set(name, space);
      ip('link', 'add', 'up0', 'netns', space, 'type', 'veth', 'peer', 'name', `to-${name}`, 'netns', router);
      if (name === 'c') ip('-n', router, 'addr', 'add', '10.2.0.1/24', 'dev', 'to-c');
      else ip('-n', router, 'link', 'set', `to-${name}`, 'master', 'br0');
      ip('-n', router, 'link', 'set', `to-${name}`, 'up');
      ip('-n', space, 'addr', 'add', `${addresses[0]}/24`, 'dev', 'up0');
      ip('-n', space, 'link', 'set', 'up0', 'up');
      ip('-n', space, 'route', 'add', 'default', 'via', name === 'c' ? '10.2.0.1' : '10.1.0.1');
      await lab.start(space, ['sh', '-c', 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding']).ended;
      const at = NODES.findIndex((node) => node.name === name) + 1;
      ip('link', 'add', 'eth0', 'netns', pod, 'mtu', '1450', 'type', 'veth', 'peer', 'name', 'pod', 'netns', space);
      for (const [family, own, gateway, bits] of [
        ['-4', `10.244.${at}.5`, `10.244.${at}.1`, '32'],
        ['-6', `fd00:${at}::5`, `fd00:${at}::1`, '128'],
      ] as const) {
        const nodad = family === '-6' ? ['nodad'] : [];
        ip('-n', pod, 'addr', 'add', `${own}/${bits}`, 'dev', 'eth0', ...nodad);
        ip('-n', space, 'addr', 'add', `${gateway}/${bits}`, 'dev', 'pod', ...nodad);
        ip('-n', pod, 'link', 'set', 'eth0', 'up');
        ip('-n', space, 'link', 'set', 'pod', 'up');
        ip('-n', pod, family, 'route', 'add', gateway, 'dev', 'eth0');
        ip('-n', pod, family, 'route', 'add', 'default', 'via', gateway);
        ip('-n', space, family, 'route', 'add', own, 'dev', 'pod');
      }
      const server = lab.start(pod, peer('serve', name, '7000'));
      await new Promise<void>((resolve) => server.child.stdout!.once('data', () => resolve()));
    }
    const networkOf = (name: string): NodeNetwork => {
      const { config, problems } = readDaemonConfig({ kubeconfig: '-', nodeName: name, confFile: `${lab.dir}/${name}/10.conflist` });
      assert.deepEqual(problems, []);
      const network = new NodeNetwork({ config, kernel: createKernel(sys, { netns: lab.netns(spaces.get(name)!) }), clock: createFakeClock(), log: silentLog });
      network.tell(NODES);
      return network;
    };
    const networks = new Map(NODES.map(({ name }) => [name, networkOf(name)]));
    const a = networks.get('a')!;
    for (const network of networks.values()) await network.sync();
    const spaceA = spaces.get('a')!;
    const routes = (): string => ip('-n', spaceA, 'route').replaceAll(/ +\n/g, '\n');
    assert.match(routes(), /^10\.244\.2\.0\/24 via 10\.1\.0\.11 dev up0 proto 156$/m);
    assert.match(routes(), /^10\.244\.3\.0\/24 via 10\.244\.3\.0 dev nodelet-vx proto 156 onlink$/m);
    const ask = async (from: string, host: string): Promise<string> => (await lab.start(from, peer('ask', 'tcp', host, '7000')).ended).out;
    const podA = spaceA.replace('ncni-a-', 'ncni-pod-a-');
    assert.equal(await ask(podA, '10.244.2.5'), 'b 10.244.1.5');
    assert.equal(await ask(podA, '10.244.3.5'), 'c 10.244.1.5');
    assert.equal(await ask(podA, 'fd00:3::5'), 'c fd00:1::5');
    // The nodes have no IPv6, so also a node on the same link is reached through the tunnel by it.
    assert.equal(await ask(podA, 'fd00:2::5'), 'b fd00:1::5');
    const conf = JSON.parse(readFileSync(`${lab.dir}/a/10.conflist`, 'utf8')) as { plugins: { mtu?: number; ipam: { ranges: { subnet: string }[][] } }[] };
    assert.equal(conf.plugins[0]!.mtu, 1450);
    assert.deepEqual(conf.plugins[0]!.ipam.ranges, [[{ subnet: '10.244.1.0/24' }], [{ subnet: 'fd00:1::/64' }]]);
    assert.equal(existsSync(`${lab.dir}/a/10.conflist.new`), false);

    // What somebody removes comes back, what somebody else wrote stays.
    ip('-n', spaceA, 'route', 'delete', '10.244.2.0/24');
    ip('-n', spaceA, 'route', 'add', '10.99.0.0/24', 'via', '10.1.0.11');
    ip('-n', spaceA, 'neigh', 'flush', 'dev', 'nodelet-vx', 'nud', 'permanent');
    await a.sync();
    assert.equal(await ask(podA, '10.244.2.5'), 'b 10.244.1.5');
    assert.equal(await ask(podA, '10.244.3.5'), 'c 10.244.1.5');

    // A node that comes back with another address, a node that is gone.
    a.tell([NODES[0]!, { ...NODES[1]!, addresses: ['10.1.0.12'], podCIDRs: ['10.244.2.0/24'] }]);
    await a.sync();
    assert.match(routes(), /^10\.244\.2\.0\/24 via 10\.1\.0\.12 dev up0 proto 156$/m);
    assert.doesNotMatch(routes(), /10\.244\.3\.0/);
    assert.match(routes(), /10\.99\.0\.0/);
    assert.doesNotMatch(ip('-n', spaceA, 'link'), /nodelet-vx/);
    a.tell([NODES[0]!]);
    await a.sync();
    assert.doesNotMatch(routes(), /proto 156/);

    // Told to use no tunnel, it says which node is not reached.
    const { config } = readDaemonConfig({ kubeconfig: '-', nodeName: 'a', confFile: '', overlay: 'never' });
    const alone = new NodeNetwork({ config, kernel: createKernel(sys, { netns: lab.netns(spaceA) }), clock: createFakeClock(), log: silentLog });
    alone.tell([NODES[0]!, { ...NODES[2]!, podCIDRs: ['10.244.3.0/24'] }]);
    await assert.rejects(alone.sync(), (error) => hasCode(error, 'failed') && /c: no link leads to 10\.2\.0\.10/.test((error as Error).message));
  },
);
