import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { FakeApi } from '../../netfilter/fake.ts';
import { Lab, labNode, missing, service, slice, startProxy, type RunningProxy } from './lab.ts';

const reason = missing(['conntrack']);
if (reason !== null) console.log(`skipped: UDP tests of netfilter ${reason}`);

const stats = (more: object = {}): never =>
  service('stats', ['10.96.0.7'], [{ name: 'u', port: 8125, protocol: 'UDP', nodePort: 30123 }], { spec: { type: 'NodePort' }, ...more });
const u = { name: 'u', port: 8125, protocol: 'UDP' };

suite('UDP flows follow the rules', { skip: reason ?? false }, () => {
  const lab = new Lab('nfu');
  let proxy: RunningProxy;
  before(async () => {
    await lab.build();
  });
  after(async () => {
    await proxy?.[Symbol.asyncDispose]();
    await lab[Symbol.asyncDispose]();
  });

  /** One datagram after the other from one socket that is bound to a port of its own. */
  async function send(place: 'cli' | 'ext', handle: string, host: string, port: number, times: number): Promise<void> {
    for (let done = 0; done < times; done++) {
      await lab.peers[place].ask({ do: 'udp-send', handle, host, port });
      await sleep(5);
    }
  }

  test('a sender that was there before the proxy reaches the pod after the first sync', async () => {
    await lab.peers.cli.ask({ do: 'udp-open', handle: 'early', host: '10.96.0.7', localPort: 40001 });
    await send('cli', 'early', '10.96.0.7', 8125, 2);
    const api = new FakeApi();
    api.put('nodes', labNode());
    api.put('services', stats());
    api.put('endpointslices', slice('stats', u, [{ ip: '10.244.0.3' }]));
    proxy = await startProxy(lab, { api });
    await proxy.synced();
    await send('cli', 'early', '10.96.0.7', 8125, 2);
    assert.equal(await lab.peers.srv.received(8125), 2);
  });

  test('scaling to zero cuts the flow, and a connected sender is refused', async () => {
    const before = await lab.peers.srv.received(8125);
    proxy.api.put('endpointslices', slice('stats', u, [], { addressType: 'IPv4' }));
    await proxy.synced();
    await send('cli', 'early', '10.96.0.7', 8125, 4);
    assert.equal(await lab.peers.srv.received(8125), before);
    assert.deepEqual(
      (await lab.udpFlows()).filter((line) => line.includes('dst=10.96.0.7') && line.includes('src=10.244.0.3')),
      [],
    );
    await lab.peers.cli.ask({ do: 'udp-open', handle: 'connected', host: '10.96.0.7', port: 8125, connected: true });
    await lab.peers.cli.ask({ do: 'udp-send', handle: 'connected', connected: true });
    await sleep(20);
    assert.equal((await lab.peers.cli.ask({ do: 'udp-error', handle: 'connected' })).error, 'ECONNREFUSED');
  });

  test('an endpoint that turns ready gets the next datagram of a sender that never stopped', async () => {
    proxy.api.put('endpointslices', slice('stats', u, [{ ip: '10.244.0.4', ready: false }]));
    await proxy.synced();
    await send('cli', 'early', '10.96.0.7', 8125, 10);
    assert.equal(await lab.peers.srv2.received(8125), 0);
    proxy.api.put('endpointslices', slice('stats', u, [{ ip: '10.244.0.4' }]));
    await proxy.synced();
    await send('cli', 'early', '10.96.0.7', 8125, 2);
    assert.equal(await lab.peers.srv2.received(8125), 2);
  });

  test('replacing an endpoint cuts the node port flow, and not another Service with the same number as its port', async () => {
    proxy.api.put('services', service('other', ['10.96.0.9'], [{ name: 'u', port: 30123, protocol: 'UDP' }]));
    proxy.api.put('endpointslices', slice('other', u, [{ ip: '10.244.1.5', node: 'node-b' }]));
    await proxy.synced();
    await lab.peers.ext.ask({ do: 'udp-open', handle: 'outside', host: '192.0.2.10', localPort: 40002 });
    await lab.peers.cli.ask({ do: 'udp-open', handle: 'other', host: '10.96.0.9', localPort: 40003 });
    await send('ext', 'outside', '192.0.2.10', 30123, 2);
    await send('cli', 'other', '10.96.0.9', 30123, 2);
    const idOf = async (dst: string): Promise<string> =>
      /id=(\d+)/.exec((await lab.udpFlows()).find((line) => line.includes(` dst=${dst} `)) ?? '')?.[1] ?? 'none';
    const other = await idOf('10.96.0.9');
    assert.notEqual(await idOf('192.0.2.10'), 'none');
    proxy.api.put('endpointslices', slice('stats', u, [{ ip: '10.244.0.3' }]));
    await proxy.synced();
    const before = await lab.peers.srv.received(8125);
    await send('ext', 'outside', '192.0.2.10', 30123, 2);
    assert.equal(await lab.peers.srv.received(8125), before + 2);
    assert.equal(await idOf('10.96.0.9'), other);
  });

  test('a restart with nothing changed keeps healthy flows, and stopping removes nothing', async () => {
    const ids = async (): Promise<string[]> => (await lab.udpFlows()).map((line) => /id=(\d+)/.exec(line)?.[1] ?? '').sort();
    await send('cli', 'early', '10.96.0.7', 8125, 1);
    const before = await ids();
    const { api } = proxy;
    await proxy[Symbol.asyncDispose]();
    assert.match(await lab.nftTable(), /10\.96\.0\.7 \. udp \. 8125/);
    await send('cli', 'early', '10.96.0.7', 8125, 1);
    proxy = await startProxy(lab, { api });
    await proxy.synced();
    assert.deepEqual(await ids(), before);
  });
});
