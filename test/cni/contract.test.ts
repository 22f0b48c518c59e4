import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { silentLog } from '../../base/log.ts';
import { createSysClient } from '../../base/sys/client.ts';
import { parseAddress, parseAddressPrefix, parseCidr } from '../../cni/core/address.ts';
import { tableText, type HostPort } from '../../cni/core/ports.ts';
import { FakeKernel } from '../../cni/fake.ts';
import { createKernel, type Kernel } from '../../cni/io/kernel.ts';
import { ip, Lab, missing } from './lab.ts';

/** One suite for the kernel's network in memory and for the real one. */

interface Place {
  readonly kernel: Kernel;
  /** The node's namespace for `kernel`, and an empty one as a path. */
  readonly pod: string;
  readonly pid: number;
}

const sysPath = process.env['NODELET_SYS'] ?? join(import.meta.dirname, '../../dist/sys');
const end = { name: 'eth0', index: 500, mac: '0a:00:00:00:00:01' };
const peer = { name: 'nltest', index: 70_000, mac: '0a:00:00:00:00:02' };
const gateway = parseCidr('10.244.1.1/32')!;
const pod = parseAddressPrefix('10.244.1.2/24')!;

function suite(name: string, skip: string | false, open: (run: (place: Place) => Promise<void>) => Promise<void>): void {
  describe(`the kernel's network: ${name}`, { skip }, () => {
    test('links, addresses and routes', async () => {
      await open(async ({ kernel, pod: path, pid }) => {
        const veth = { op: 'add-veth', end, peer, pid, mtu: 1400 } as const;
        const route = { dst: gateway, gateway: null, link: end.index, protocol: 3 } as const;
        assert.equal(await kernel.apply(path, [veth, { op: 'add-address', link: end.index, address: pod }, { op: 'add-route', ...route }]), null);
        // What was done before the refused operation is done.
        assert.deepEqual(await kernel.apply(path, [veth]).then((refused) => [refused?.at, refused?.errno]), [0, 'EEXIST']);
        assert.deepEqual(
          await kernel
            .apply(path, [
              { op: 'replace-route', ...route },
              { op: 'add-route', ...route },
            ])
            .then((refused) => [refused?.at, refused?.errno]),
          [1, 'EEXIST'],
        );
        const inside = await kernel.link(path, 'eth0');
        assert.deepEqual([inside?.index, inside?.mac, inside?.mtu, inside?.isUp], [end.index, end.mac, 1400, true]);
        assert.equal((await kernel.link(null, 'nltest'))?.isUp, false);
        const toPod = { dst: { ...pod, prefix: 32 }, gateway: null, link: peer.index, protocol: 3 } as const;
        assert.equal((await kernel.apply(null, [{ op: 'add-route', ...toPod }]))?.errno, 'ENETDOWN');
        assert.equal(
          await kernel.apply(null, [
            { op: 'set-up', link: 'nltest' },
            { op: 'add-address', link: peer.index, address: gateway },
            { op: 'replace-route', ...toPod },
          ]),
          null,
        );
        assert.equal((await kernel.link(null, peer.index))?.isUp, true);
        assert.ok((await kernel.addresses(path)).some((one) => one.link === end.index && one.address.value === pod.value && one.address.prefix === 24));
        assert.ok((await kernel.routes(null)).some((one) => one.link === peer.index && one.dst.value === pod.value && one.dst.prefix === 32));
        assert.equal(await kernel.apply(null, [{ op: 'delete-link', link: 'nltest' }]), null);
        assert.equal(await kernel.link(path, 'eth0'), null);
        assert.equal((await kernel.apply(null, [{ op: 'delete-link', link: 'nltest' }]))?.errno, 'ENODEV');
        assert.equal((await kernel.apply(null, [{ op: 'set-up', link: 'nltest' }]))?.errno, 'ENODEV');
        assert.equal((await kernel.apply(null, [{ op: 'delete-route', ...toPod }]))?.errno, 'ESRCH');
        await assert.rejects(kernel.links('/run/netns/there-is-none'), /network namespace/);
      });
    });

    test('host ports', async () => {
      await open(async ({ kernel }) => {
        const port = (podIp: string, hostIp: string | null = null): HostPort => ({
          hostIp: hostIp === null ? null : parseAddress(hostIp),
          protocol: 'tcp',
          hostPort: 80,
          podIp: parseAddress(podIp)!,
          containerPort: 8080,
        });
        const [first, second] = [port('10.244.1.2'), port('10.244.1.3')];
        assert.equal(await kernel.ports('nodelet-test', 'add', [first]), 'ENOENT');
        await kernel.table(tableText('nodelet-test', '/d', [4], [], []));
        assert.equal(await kernel.ports('nodelet-test', 'add', [first, port('10.244.1.2', '192.0.2.10')]), null);
        assert.equal(await kernel.ports('nodelet-test', 'add', [first]), null);
        assert.equal(await kernel.ports('nodelet-test', 'add', [second]), 'EEXIST');
        assert.equal(await kernel.ports('nodelet-test', 'remove', [second]), 'EEXIST');
        assert.equal(await kernel.ports('nodelet-test', 'remove', [first]), null);
        assert.equal(await kernel.ports('nodelet-test', 'remove', [first]), null);
        assert.equal(await kernel.ports('nodelet-test', 'add', [second]), null);
        // A table that is written again holds what it was told and no more.
        await kernel.table(tableText('nodelet-test', '/d', [4], [first], []));
        assert.equal(await kernel.ports('nodelet-test', 'add', [second]), 'EEXIST');
        assert.equal(await kernel.ports('nodelet-test', 'remove', [first]), null);
        assert.equal(await kernel.ports('nodelet-test', 'add', [second]), null);
      });
    });
  });
}

suite('in memory', false, async (run) => {
  const kernel = new FakeKernel();
  kernel.addSpace('/p');
  await run({ kernel, pod: '/p', pid: 1 });
});

suite('real', missing() ?? false, async (run) => {
  await using lab = new Lab();
  await using sys = createSysClient({ path: sysPath, log: silentLog });
  // Whose namespace the other end goes to.
  const holder = lab.start(lab.node, ['sleep', '600']);
  const own = createKernel(sys, { netns: lab.netns(lab.node) });
  const kernel: Kernel = {
    ...own,
    async table(text) {
      const { code, err } = await lab.start(lab.node, ['nft', '-f', '-'], { input: text }).ended;
      assert.equal(code, 0, err);
    },
  };
  await run({ kernel, pod: lab.netns(lab.space('p')), pid: holder.child.pid! });
  assert.equal(ip('-n', lab.node, '-o', 'link').includes('nltest'), false);
});
