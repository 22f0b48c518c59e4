import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { OpError } from '../../base/errors.ts';
import { silentLog } from '../../base/log.ts';
import type { NftKernel } from '../../netfilter/io/kernel.ts';
import { Lab, missing, service, slice, startProxy, until, type Reply, type RunningProxy } from './lab.ts';

const reason = missing();
if (reason !== null) console.log(`skipped: programming tests of netfilter ${reason}`);

const web = { name: 'web', port: 8080, protocol: 'TCP' };
const echo = (spec: Record<string, unknown> = {}): never => service('echo', ['10.96.0.8'], [{ name: 'web', port: 80, protocol: 'TCP' }], { spec });

suite('Programming the kernel', { skip: reason ?? false }, () => {
  const lab = new Lab('nfk');
  let refuseDeletes = false;
  let proxy: RunningProxy;
  const wrap = (kernel: NftKernel): NftKernel => ({
    ...kernel,
    commit: async (family, ops, signal) =>
      refuseDeletes && ops.some((op) => op.op === 'delete-chain' && op.chain.includes('/'))
        ? { ok: false, error: new OpError('failed', 'write nftables rules', 'resource busy'), failedOps: [0] }
        : kernel.commit(family, ops, signal),
  });
  before(async () => {
    await lab.build();
    proxy = await startProxy(lab, { wrap });
    proxy.api.put('services', echo());
    proxy.api.put('endpointslices', slice('echo', web, [{ ip: '10.244.0.3' }]));
    await proxy.synced();
  });
  after(async () => {
    await proxy?.[Symbol.asyncDispose]();
    await lab[Symbol.asyncDispose]();
  });

  const counts = async (): Promise<{ chains: number; sets: number; lab: number }> => {
    const text = await lab.nftTable();
    return { chains: text.match(/^\tchain /gm)?.length ?? 0, sets: text.match(/^\t(set|map) /gm)?.length ?? 0, lab: text.match(/lab\/e\d/g)?.length ?? 0 };
  };

  test('chains of deleted Services are emptied at once and gone soon; one that cannot be deleted stops nobody', async () => {
    const before = await counts();
    for (let round = 0; round < 2; round++) {
      for (let index = 1; index <= 20; index++) {
        proxy.api.put('services', service(`e${index}`, [`10.96.1.${index}`], [{ port: 80, protocol: 'TCP' }], { spec: { sessionAffinity: 'ClientIP' } }));
        proxy.api.put('endpointslices', slice(`e${index}`, { port: 8080 }, [{ ip: '10.244.0.3' }, { ip: '10.244.0.4' }]));
      }
      await proxy.synced();
      assert.equal((await lab.peers.cli.connect('10.96.1.7', 80)).error, undefined);
      for (let index = 1; index <= 20; index++) {
        proxy.api.remove('services', 'lab', `e${index}`);
        proxy.api.remove('endpointslices', 'lab', `e${index}-1`);
      }
      await proxy.synced();
    }
    refuseDeletes = true;
    await sleep(60);
    proxy.api.put('services', service('late', ['10.96.0.40'], [{ port: 80, protocol: 'TCP' }]));
    proxy.api.put('endpointslices', slice('late', { port: 8080 }, [{ ip: '10.244.0.4' }]));
    await proxy.synced();
    assert.equal((await lab.peers.cli.connect('10.96.0.40', 80)).server, 'srv2');
    refuseDeletes = false;
    proxy.api.remove('services', 'lab', 'late');
    proxy.api.remove('endpointslices', 'lab', 'late-1');
    await proxy.synced();
    // What could not be deleted waits for the next sync.
    const put = async (): Promise<object> => {
      proxy.api.put('services', echo({ externalIPs: ['198.51.100.77'] }));
      proxy.api.put('services', echo());
      await proxy.synced();
      return await counts();
    };
    assert.deepEqual(await until(put, (now) => JSON.stringify(now) === JSON.stringify(before)), before);
  });

  test('a long name stops nobody and works once it has an endpoint', async () => {
    const namespace = 'n'.repeat(62);
    const name = 's'.repeat(63);
    proxy.api.put('services', service(name, ['10.96.0.50'], [{ name: 'http', port: 80, protocol: 'TCP' }], { namespace }));
    await proxy.synced();
    const [long, base] = await Promise.all([lab.peers.cli.connect('10.96.0.50', 80), lab.peers.cli.connect('10.96.0.8', 80)]);
    assert.deepEqual([long.error, base.server], ['ECONNREFUSED', 'srv']);
    proxy.api.put('endpointslices', slice(name, { name: 'http', port: 8080 }, [{ ip: '10.244.0.4' }], { namespace }));
    await proxy.synced();
    assert.equal((await lab.peers.cli.connect('10.96.0.50', 80)).server, 'srv2');
    proxy.api.remove('services', namespace, name);
    proxy.api.remove('endpointslices', namespace, `${name}-1`);
    await proxy.synced();
  });

  test('an SCTP port loads without any SCTP socket', async () => {
    proxy.api.put('services', service('sctp', ['10.96.0.60'], [{ port: 38412, protocol: 'SCTP' }]));
    proxy.api.put('endpointslices', slice('sctp', { port: 38412, protocol: 'SCTP' }, [{ ip: '10.244.0.3' }]));
    await proxy.synced();
    assert.ok((await lab.elements('service-ips')).includes('10.96.0.60 . sctp . 38412'));
    proxy.api.remove('services', 'lab', 'sctp');
    proxy.api.remove('endpointslices', 'lab', 'sctp-1');
    await proxy.synced();
  });

  test('a restart takes over what is there, with clients where they were', async () => {
    proxy.api.put('services', echo({ sessionAffinity: 'ClientIP' }));
    proxy.api.put('endpointslices', slice('echo', web, [{ ip: '10.244.0.3' }, { ip: '10.244.0.4' }]));
    await proxy.synced();
    const first = (await lab.peers.cli.connect('10.96.0.8', 80)).server;
    const held = await lab.peers.cli.ask({ do: 'hold', host: '10.96.0.8', port: 80, handle: 'kept' });
    assert.equal(held.server, first);
    const { api } = proxy;
    await proxy[Symbol.asyncDispose]();
    api.put('services', service('new', ['10.96.0.70'], [{ port: 80, protocol: 'TCP' }]));
    api.put('endpointslices', slice('new', { port: 8080 }, [{ ip: '10.244.0.3' }]));
    proxy = await startProxy(lab, { api, wrap });
    await proxy.synced();
    assert.equal((await lab.peers.cli.ask({ do: 'say', handle: 'kept' })).server, first);
    assert.equal((await lab.peers.cli.connect('10.96.0.70', 80)).server, 'srv');
    assert.deepEqual(await lab.peers.cli.tally('10.96.0.8', 80, 20), { [first!]: 20 });
    proxy.api.remove('services', 'lab', 'new');
    proxy.api.remove('endpointslices', 'lab', 'new-1');
    proxy.api.put('services', echo());
    await proxy.synced();
  });

  test('cleanup removes our tables and nothing of others', async () => {
    await lab.run('node', ['nft', '-f', '-'], 'table inet mine { chain c { type filter hook forward priority 0; ip saddr 10.9.9.9 drop\n }\n}\n');
    const others = await lab.run('node', ['nft', 'list', 'table', 'inet', 'mine']);
    await proxy[Symbol.asyncDispose]();
    const { createNetlinkKernel } = await import('../../netfilter/io/nft-netlink.ts');
    const { removeTables } = await import('../../netfilter/cleanup.ts');
    const kernel = createNetlinkKernel(lab.sys, { netns: lab.netnsPath('node') });
    for (let times = 0; times < 2; times++) assert.equal(await removeTables(kernel, ['ip', 'ip6'], silentLog), 0);
    assert.equal(await lab.run('node', ['nft', 'list', 'tables']), 'table inet mine\n');
    assert.equal(await lab.run('node', ['nft', 'list', 'table', 'inet', 'mine']), others);
    proxy = await startProxy(lab, { wrap, api: proxy.api });
    await proxy.synced();
    assert.match((await lab.peers.cli.connect('10.96.0.8', 80)).server ?? '', /^srv/);
  });

  test('who is masqueraded on the way to a ClusterIP follows the cluster CIDR', async () => {
    const far = slice('echo', web, [{ ip: '10.244.1.5', node: 'node-b' }]);
    const seen = async (config: Record<string, unknown>): Promise<(string | undefined)[]> => {
      await proxy[Symbol.asyncDispose]();
      proxy = await startProxy(lab, { config, wrap });
      proxy.api.put('services', echo());
      proxy.api.put('endpointslices', far);
      await proxy.synced();
      const [ext, cli] = await Promise.all([lab.peers.ext.connect('10.96.0.8', 80, { timeoutMs: 300 }), lab.peers.cli.connect('10.96.0.8', 80)]);
      return [ext.error ?? ext.client, cli.error ?? cli.client];
    };
    const [unset, ...rest] = [await seen({ clusterCIDR: '' }), await seen({}), await seen({ nftables: { masqueradeAll: true } })];
    assert.match(unset[0] ?? '', /TIMEOUT|ECONNRESET/);
    assert.equal(unset[1], '10.244.0.2');
    assert.deepEqual(rest, [
      ['10.244.1.1', '10.244.0.2'],
      ['10.244.1.1', '10.244.1.1'],
    ]);
  });

  test('other bits of a mark survive the masquerade', async () => {
    await lab.run(
      'node',
      ['nft', '-f', '-'],
      'table ip marks { chain in { type filter hook prerouting priority -200; iifname "vext" meta mark set 0x1\n }\n chain out { type filter hook postrouting priority 200; meta mark 0x1 counter\n meta mark 0x4001 counter\n }\n}\n',
    );
    await lab.peers.ext.connect('10.96.0.8', 80);
    const text = await lab.run('node', ['nft', 'list', 'table', 'ip', 'marks']);
    assert.match(text, /mark 0x00000001 counter packets [1-9]/);
    assert.match(text, /mark 0x00004001 counter packets 0 /);
    await lab.run('node', ['nft', 'delete', 'table', 'ip', 'marks']);
  });

  test('a table that somebody else changed is put right at the next look', async () => {
    await proxy[Symbol.asyncDispose]();
    // The proxy looks when it is let, so that what it finds wrong was seen to be wrong before.
    let mayLook = Promise.resolve();
    const held = (kernel: NftKernel): NftKernel => ({
      ...kernel,
      generation: async (signal) => {
        await mayLook;
        return await kernel.generation(signal);
      },
    });
    proxy = await startProxy(lab, { config: { nftables: { syncPeriod: '200ms', minSyncPeriod: '100ms' } }, api: proxy.api, wrap: held });
    proxy.api.put('endpointslices', slice('echo', web, [{ ip: '10.244.1.5', node: 'node-b' }]));
    await proxy.synced();
    const reach = (): Promise<Reply> => lab.peers.cli.connect('10.96.0.8', 80, { timeoutMs: 1000 });
    for (const damage of [
      'delete element ip kube-proxy service-ips { 10.96.0.8 . tcp . 80 }',
      'delete table ip kube-proxy',
      'flush table ip kube-proxy',
      'flush chain ip kube-proxy services',
    ]) {
      const { promise, resolve: look } = Promise.withResolvers<void>();
      mayLook = promise;
      try {
        await lab.run('node', ['nft', ...damage.split(' ')]);
        assert.notEqual((await reach()).error, undefined);
      } finally {
        look();
      }
      assert.equal((await until(reach, (reply) => reply.server === 'far')).server, 'far', damage);
    }
  });

  test('the interface-prefix detector loads without any such interface', async () => {
    await proxy[Symbol.asyncDispose]();
    proxy = await startProxy(lab, { config: { detectLocalMode: 'InterfaceNamePrefix', detectLocal: { interfaceNamePrefix: 'azv' } }, api: proxy.api });
    await proxy.synced();
    assert.match(await lab.nftTable(), /iifname != "azv\*" meta mark set/);
  });
});
