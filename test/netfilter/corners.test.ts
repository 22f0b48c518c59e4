import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { realClock } from '../../base/clock.ts';
import { Lab, missing, service, slice, startProxy, type Reply, type RunningProxy } from './lab.ts';

/** What one setting or condition more makes of the cases in services.test.ts. */

const reason = missing(['iptables']);
if (reason !== null) console.log(`skipped: further kernel tests of netfilter ${reason}`);

const web = { name: 'web', port: 8080, protocol: 'TCP' };
type Endpoints = Parameters<typeof slice>[2];

for (const mode of ['nftables', 'iptables'] as const)
  suite(`Corners of Services in ${mode}, with real packets`, { skip: reason ?? false }, () => {
    const lab = new Lab(`nfc${mode[0]}`);
    let proxy: RunningProxy;
    before(async () => {
      await lab.build();
      await lab.peers.node.ask({ do: 'listen-tcp', port: 30080, host: '198.51.100.10' });
    });
    after(async () => {
      await proxy?.[Symbol.asyncDispose]();
      await lab[Symbol.asyncDispose]();
    });
    const start = async (spec: Record<string, unknown>, endpoints: Endpoints, config: Record<string, unknown> = {}): Promise<void> => {
      await proxy?.[Symbol.asyncDispose]();
      proxy = await startProxy(lab, { config: { mode, ...config } });
      await set(spec, endpoints);
    };
    const set = async (spec: Record<string, unknown>, endpoints: Endpoints): Promise<void> => {
      const port = { name: 'web', port: 80, protocol: 'TCP', ...(spec['nodePort'] === undefined ? {} : { nodePort: spec['nodePort'] as number }) };
      proxy.api.put('services', service('echo', ['10.96.0.8'], [port], { spec }));
      proxy.api.put('endpointslices', slice('echo', web, endpoints));
      await proxy.synced();
    };
    const word = (reply: Reply): string | undefined => reply.server ?? reply.error;

    test('addresses that take no node ports keep theirs', async () => {
      await start({ type: 'NodePort', nodePort: 30080 }, [{ ip: '10.244.0.3' }], { nodePortAddresses: ['192.0.2.0/24'] });
      const [taken, kept] = await Promise.all([lab.peers.ext.connect('192.0.2.10', 30080), lab.peers.ext.connect('198.51.100.10', 30080)]);
      assert.deepEqual([taken.server, kept.server], ['srv', 'node']);
    });

    test('under policy Local a terminating pod here goes before ready ones elsewhere, and none here means silence', async () => {
      const local = { type: 'NodePort', nodePort: 30080, externalTrafficPolicy: 'Local', internalTrafficPolicy: 'Local' };
      const far = { ip: '10.244.1.5', node: 'node-b' };
      const ask = async (): Promise<(string | undefined)[]> => {
        const both = [lab.peers.ext.connect('192.0.2.10', 30080, { timeoutMs: 300 }), lab.peers.cli.connect('10.96.0.8', 80, { timeoutMs: 300 })];
        return (await Promise.all(both)).map(word);
      };
      await start(local, [{ ip: '10.244.0.3' }, far]);
      assert.deepEqual(await ask(), ['srv', 'srv']);
      await set(local, [{ ip: '10.244.0.3', ready: false, serving: true, terminating: true }, far]);
      assert.deepEqual(await ask(), ['srv', 'srv']);
      await set(local, [{ ip: '10.244.0.3', ready: false, serving: false, terminating: true }, far]);
      assert.deepEqual(await ask(), ['TIMEOUT', 'TIMEOUT']);
      await set(local, [{ ip: '10.244.0.3', ready: false, serving: false, terminating: true }]);
      assert.deepEqual(await ask(), ['ECONNREFUSED', 'ECONNREFUSED']);
    });

    test('hints for nodes go before those for zones, and none count where policy Local decides', async () => {
      const hinted = [
        { ip: '10.244.0.3', zones: ['a'], nodes: ['node-b'] },
        { ip: '10.244.0.4', zones: ['b'], nodes: ['node-a'] },
      ];
      await start({}, hinted);
      assert.deepEqual(await lab.peers.cli.tally('10.96.0.8', 80, 20), { srv2: 20 });
      await set({ internalTrafficPolicy: 'Local' }, hinted);
      assert.deepEqual(Object.keys(await lab.peers.cli.tally('10.96.0.8', 80, 40)).sort(), ['srv', 'srv2']);
    });

    test('a client is free again after the time of its affinity, which each connection renews', async () => {
      const sticky = { sessionAffinity: 'ClientIP', sessionAffinityConfig: { clientIP: { timeoutSeconds: 2 } } };
      await start(sticky, [{ ip: '10.244.0.3' }, { ip: '10.244.0.4' }]);
      const connect = async (): Promise<string | undefined> => word(await lab.peers.cli.connect('10.96.0.8', 80));
      const first = await connect();
      for (let times = 0; times < 3; times++) {
        await realClock.sleep(1000);
        assert.equal(await connect(), first);
      }
      const seen = new Set([first]);
      for (let rounds = 0; rounds < 12 && seen.size < 2; rounds++) {
        await realClock.sleep(3100);
        seen.add(await connect());
      }
      assert.equal(seen.size, 2, 'after a silence every pod is possible');
    });

    test('who is masqueraded on the way to a ClusterIP follows the cluster CIDR', async () => {
      const seen = async (config: Record<string, unknown>): Promise<(string | undefined)[]> => {
        await start({}, [{ ip: '10.244.1.5', node: 'node-b' }], config);
        const [ext, cli] = await Promise.all([lab.peers.ext.connect('10.96.0.8', 80, { timeoutMs: 300 }), lab.peers.cli.connect('10.96.0.8', 80)]);
        return [ext.error ?? ext.client, cli.error ?? cli.client];
      };
      const [outside, inside] = await seen({ clusterCIDR: '' });
      assert.match(outside ?? '', /TIMEOUT|ECONNRESET/);
      assert.equal(inside, '10.244.0.2');
      assert.deepEqual(await seen({}), ['10.244.1.1', '10.244.0.2']);
      assert.deepEqual(await seen({ [mode]: { masqueradeAll: true } }), ['10.244.1.1', '10.244.1.1']);
    });
  });
