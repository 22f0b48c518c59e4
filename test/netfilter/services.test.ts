import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { Lab, missing, service, slice, startProxy, labNode, type RunningProxy } from './lab.ts';

const reason = missing(['ss', 'iptables']);
if (reason !== null) console.log(`skipped: kernel tests of netfilter ${reason}`);

/** Before the second after which a lost first packet is sent again: somebody said no. */
const REFUSED_MS = 900;

for (const mode of ['nftables', 'iptables'] as const)
  suite(`Services in ${mode}, with real packets`, { skip: reason ?? false }, () => {
    const nft = mode === 'nftables';
    const lab = new Lab(`nfs${mode[0]}`);
    let proxy: RunningProxy;
    before(async () => {
      await lab.build();
      proxy = await startProxy(lab, { config: { mode } });
    });
    after(async () => {
      await proxy?.[Symbol.asyncDispose]();
      await lab[Symbol.asyncDispose]();
    });

    const echo = (spec: Record<string, unknown> = {}, more: object = {}): never =>
      service(
        'echo',
        ['10.96.0.8'],
        [{ name: 'web', port: 80, targetPort: 8080, protocol: 'TCP', ...(spec['nodePort'] === undefined ? {} : { nodePort: spec['nodePort'] as number }) }],
        { spec, ...more },
      );
    const web = { name: 'web', port: 8080, protocol: 'TCP' };

    test('a ClusterIP leads to the pods, from pod and node, a share each', async () => {
      proxy.api.put('services', echo());
      proxy.api.put('endpointslices', slice('echo', web, [{ ip: '10.244.0.3' }, { ip: '10.244.0.4' }]));
      await proxy.synced();
      const fromPod = await lab.peers.cli.tally('10.96.0.8', 80, 60);
      assert.equal((fromPod['srv'] ?? 0) + (fromPod['srv2'] ?? 0), 60, JSON.stringify(fromPod));
      assert.ok((fromPod['srv'] ?? 0) > 12 && (fromPod['srv2'] ?? 0) > 12, JSON.stringify(fromPod));
      const fromNode = await lab.peers.node.connect('10.96.0.8', 80);
      assert.match(fromNode.server ?? '', /^srv/);
      assert.equal((await lab.peers.cli.connect('10.96.0.8', 80)).client, '10.244.0.2');
    });

    // iptables mode lets it pass, as upstream.
    if (nft)
      test('a port that no Service has is refused on a live ClusterIP', async () => {
        assert.equal((await lab.peers.cli.connect('10.96.0.8', 81)).error, 'ECONNREFUSED');
      });

    test('a pod that is picked by its own Service sees a node address, others keep theirs', async () => {
      proxy.api.put('endpointslices', slice('echo', web, [{ ip: '10.244.0.3' }]));
      await proxy.synced();
      assert.equal((await lab.peers.srv.connect('10.96.0.8', 80)).client, '10.244.0.1');
      assert.equal((await lab.peers.cli.connect('10.96.0.8', 80)).client, '10.244.0.2');
      proxy.api.put('endpointslices', slice('echo', web, [{ ip: '10.244.0.3' }, { ip: '10.244.0.4' }]));
      await proxy.synced();
      const counts = await lab.peers.srv.tally('10.96.0.8', 80, 60);
      assert.deepEqual(Object.keys(counts).sort(), ['srv', 'srv2']);
    });

    test('no usable endpoint means a refusal on every address', async () => {
      proxy.api.put('services', echo({ type: 'LoadBalancer', nodePort: 30080, externalIPs: ['198.51.100.77'] }, { ingress: [{ ip: '203.0.113.10' }] }));
      proxy.api.put('endpointslices', slice('echo', web, [{ ip: '10.244.0.3', ready: false }]));
      await proxy.synced();
      const { cli, ext, node } = lab.peers;
      const replies = await Promise.all([
        cli.connect('10.96.0.8', 80),
        node.connect('10.96.0.8', 80),
        ext.connect('192.0.2.10', 30080),
        ext.connect('198.51.100.77', 80),
        ext.connect('203.0.113.10', 80),
      ]);
      for (const reply of replies) assert.equal(reply.error, 'ECONNREFUSED');
      for (const reply of replies) assert.ok(reply.ms < REFUSED_MS, `${reply.ms} ms`);
      if (nft) {
        assert.deepEqual(await lab.elements('no-endpoint-services'), ['10.96.0.8 . tcp . 80', '198.51.100.77 . tcp . 80', '203.0.113.10 . tcp . 80']);
        assert.deepEqual(await lab.elements('no-endpoint-nodeports'), ['tcp . 30080']);
        assert.deepEqual(await lab.elements('service-ips'), []);
        assert.deepEqual(await lab.elements('service-nodeports'), []);
      } else {
        const rules = await lab.iptablesSave();
        const refused = (chain: string): number => rules.match(new RegExp(`^-A ${chain} .*"lab/echo:web has no endpoints".* -j REJECT`, 'gm'))?.length ?? 0;
        assert.deepEqual([refused('KUBE-SERVICES'), refused('KUBE-EXTERNAL-SERVICES')], [1, 3]);
        assert.doesNotMatch(rules, /KUBE-(SVC|SVL|EXT|SEP|FW)-/);
      }
    });

    test('node port, external and load-balancer addresses lead to the pod, masqueraded', async () => {
      proxy.api.put('endpointslices', slice('echo', web, [{ ip: '10.244.0.3' }]));
      await proxy.synced();
      for (const [host, port] of [
        ['192.0.2.10', 30080],
        ['198.51.100.77', 80],
        ['203.0.113.10', 80],
      ] as const) {
        const reply = await lab.peers.ext.connect(host, port);
        assert.deepEqual([reply.server, reply.client], ['srv', '10.244.0.1'], `${host}:${port} ${JSON.stringify(reply)}`);
      }
      assert.doesNotMatch(await lab.allRules(), nft ? /comment "lab/ : /has no endpoints"/);
    });

    test('which addresses take node ports without a setting, and the proxy listens on none', async () => {
      await lab.peers.node.ask({ do: 'listen-tcp', port: 30080, host: '198.51.100.10' });
      if (!nft) {
        assert.equal((await lab.peers.ext.connect('198.51.100.10', 30080)).server, 'srv');
        const own = await lab.peers.node.connect('127.0.0.1', 30080);
        assert.deepEqual([own.server, own.client], ['srv', '10.244.0.1']);
        return;
      }
      assert.deepEqual(await lab.elements('nodeport-ips'), ['192.0.2.10']);
      assert.equal((await lab.peers.ext.connect('198.51.100.10', 30080)).server, 'node');
      assert.equal((await lab.peers.node.connect('127.0.0.1', 30080)).error, 'ECONNREFUSED');
      assert.doesNotMatch(await lab.run('node', ['ss', '-Hltn', 'src', '192.0.2.10:30080']), /30080/);
    });

    test('source ranges filter by the address before the DNAT, and only load-balancer addresses', async () => {
      proxy.api.put(
        'services',
        echo({ type: 'LoadBalancer', nodePort: 30080, loadBalancerSourceRanges: ['192.0.2.128/26'] }, { ingress: [{ ip: '203.0.113.10' }] }),
      );
      await proxy.synced();
      const { cli, ext } = lab.peers;
      const [inside, outside, pod, port1, port2] = await Promise.all([
        ext.connect('203.0.113.10', 80, { from: '192.0.2.130' }),
        ext.connect('203.0.113.10', 80, { from: '192.0.2.200', timeoutMs: 250 }),
        cli.connect('203.0.113.10', 80, { timeoutMs: 250 }),
        ext.connect('192.0.2.10', 30080, { from: '192.0.2.130' }),
        ext.connect('192.0.2.10', 30080, { from: '192.0.2.200' }),
      ]);
      assert.deepEqual([inside.server, outside.error, pod.error, port1.server, port2.server], ['srv', 'TIMEOUT', 'TIMEOUT', 'srv', 'srv']);
    });

    test('an ingress address of mode Proxy is left alone', async () => {
      proxy.api.put('services', echo({ type: 'LoadBalancer', nodePort: 30080 }, { ingress: [{ ip: '203.0.113.10', ipMode: 'Proxy' }] }));
      await proxy.synced();
      assert.doesNotMatch(await lab.allRules(), /203\.0\.113\.10/);
    });

    test('internal policy Local with nothing local drops, while the node port goes on', async () => {
      proxy.api.put('services', echo({ type: 'NodePort', nodePort: 30080, internalTrafficPolicy: 'Local' }));
      proxy.api.put('endpointslices', slice('echo', web, [{ ip: '10.244.1.5', node: 'node-b' }]));
      await proxy.synced();
      const [internal, external] = await Promise.all([lab.peers.cli.connect('10.96.0.8', 80, { timeoutMs: 250 }), lab.peers.ext.connect('192.0.2.10', 30080)]);
      assert.deepEqual([internal.error, external.server], ['TIMEOUT', 'far']);
      assert.equal(proxy.metrics.value('kubeproxy_sync_proxy_rules_no_local_endpoints_total', { traffic_policy: 'internal', ip_family: 'IPv4' }), 1);
    });

    test('external policy Local keeps the client address and drops without a local pod', async () => {
      proxy.api.put('services', echo({ type: 'NodePort', nodePort: 30080, externalTrafficPolicy: 'Local', externalIPs: ['198.51.100.77'] }));
      await proxy.synced();
      const [outside, pod] = await Promise.all([lab.peers.ext.connect('198.51.100.77', 80, { timeoutMs: 250 }), lab.peers.cli.connect('192.0.2.10', 30080)]);
      assert.deepEqual([outside.error, pod.server], ['TIMEOUT', 'far']);
      proxy.api.put('endpointslices', slice('echo', web, [{ ip: '10.244.0.3' }]));
      await proxy.synced();
      assert.equal((await lab.peers.ext.connect('198.51.100.77', 80)).client, '192.0.2.200');
      assert.equal((await lab.peers.ext.connect('192.0.2.10', 30080)).client, '192.0.2.200');
    });

    test('the port of a target comes from its slice', async () => {
      proxy.api.put('services', echo());
      proxy.api.put('endpointslices', slice('echo', web, [{ ip: '10.244.0.3' }]));
      proxy.api.put('endpointslices', slice('echo', { ...web, port: 9090 }, [{ ip: '10.244.0.4' }], { name: 'echo-2' }));
      proxy.api.put('endpointslices', slice('echo', { name: 'other', port: 1 }, [{ ip: '10.244.0.4' }], { name: 'echo-3' }));
      proxy.api.put('endpointslices', slice('echo', { name: 'web', port: null }, [{ ip: '10.244.0.4' }], { name: 'echo-4' }));
      proxy.api.put('endpointslices', slice('echo', { ...web, port: 9090 }, [{ ip: '10.244.0.3' }], { name: 'echo-5' }));
      await proxy.synced();
      const table = await lab.allRules();
      if (!nft) assert.equal(new Set(table.match(/--to-destination 10\.244\.0\.(3:8080|3:9090|4:9090)$/gm)).size, 3);
      else
        assert.deepEqual([...table.matchAll(/\d+ : (10\.244\.0\.\d \. \d+)/g)].map(([, target = '']) => target).toSorted(), [
          '10.244.0.3 . 8080',
          '10.244.0.3 . 9090',
          '10.244.0.4 . 9090',
        ]);
      const counts = await lab.peers.cli.tally('10.96.0.8', 80, 60);
      assert.deepEqual(Object.keys(counts).sort(), ['srv', 'srv2']);
      for (const number of [2, 3, 4, 5]) proxy.api.remove('endpointslices', 'lab', `echo-${number}`);
    });

    test('a terminating pod serves while nothing else is ready', async () => {
      const walk = [
        { states: [{ ip: '10.244.0.3' }, { ip: '10.244.0.4' }], expect: ['srv', 'srv2'] },
        { states: [{ ip: '10.244.0.3', ready: false, serving: true, terminating: true }, { ip: '10.244.0.4' }], expect: ['srv2'] },
        { states: [{ ip: '10.244.0.3', ready: false, serving: true, terminating: true }], expect: ['srv'] },
        { states: [{ ip: '10.244.0.3', ready: false, serving: false, terminating: true }], expect: ['ECONNREFUSED'] },
      ];
      for (const { states, expect } of walk) {
        proxy.api.put('endpointslices', slice('echo', web, states));
        await proxy.synced();
        // Few refusals: the kernel limits how many ICMP errors it sends.
        assert.deepEqual(Object.keys(await lab.peers.cli.tally('10.96.0.8', 80, expect[0] === 'ECONNREFUSED' ? 1 : 20)).sort(), expect);
      }
    });

    test('zone hints choose the near pod; a node label alone changes the choice', async () => {
      const hinted = (zones: (string[] | undefined)[]): never =>
        slice('echo', web, [
          { ip: '10.244.0.3', zones: zones[0] },
          { ip: '10.244.0.4', zones: zones[1] },
        ]);
      proxy.api.put('nodes', labNode({ 'topology.kubernetes.io/zone': 'a' }));
      proxy.api.put('endpointslices', hinted([['a'], ['b']]));
      await proxy.synced();
      assert.deepEqual(await lab.peers.cli.tally('10.96.0.8', 80, 20), { srv: 20 });
      proxy.api.put('nodes', labNode({ 'topology.kubernetes.io/zone': 'c' }));
      await proxy.synced();
      assert.deepEqual(Object.keys(await lab.peers.cli.tally('10.96.0.8', 80, 40)).sort(), ['srv', 'srv2']);
      proxy.api.put('nodes', labNode({ 'topology.kubernetes.io/zone': 'b' }));
      await proxy.synced();
      assert.deepEqual(await lab.peers.cli.tally('10.96.0.8', 80, 20), { srv2: 20 });
      proxy.api.put('endpointslices', hinted([['a'], undefined]));
      proxy.api.put('nodes', labNode());
      await proxy.synced();
      assert.deepEqual(Object.keys(await lab.peers.cli.tally('10.96.0.8', 80, 40)).sort(), ['srv', 'srv2']);
    });

    test('both families work and fail each by itself', async () => {
      proxy.api.put('services', service('echo', ['10.96.0.8', 'fd00:96::8'], [{ name: 'web', port: 80, protocol: 'TCP' }]));
      proxy.api.put('endpointslices', slice('echo', web, [{ ip: '10.244.0.3' }]));
      proxy.api.put('endpointslices', slice('echo', web, [{ ip: 'fd00:10:244::4' }], { name: 'echo-v6' }));
      proxy.api.put('endpointslices', slice('echo', web, [{ ip: 'x.example' }], { name: 'echo-fqdn', addressType: 'FQDN' }));
      await proxy.synced();
      const [v4, v6] = await Promise.all([lab.peers.cli.connect('10.96.0.8', 80), lab.peers.cli.connect('fd00:96::8', 80)]);
      assert.deepEqual([v4.server, v6.server], ['srv', 'srv2']);
      const v6Rules = await lab.allRules('ip6');
      assert.ok(v6Rules.includes('fd00:96::8') && !v6Rules.includes('10.96.0.8'));
      proxy.api.remove('endpointslices', 'lab', 'echo-v6');
      await proxy.synced();
      // Linux hands the first ICMPv6 error to a socket that is still busy connecting; the next SYN comes a second later.
      const [v4After, v6After] = await Promise.all([lab.peers.cli.connect('10.96.0.8', 80), lab.peers.cli.connect('fd00:96::8', 80, { timeoutMs: 2500 })]);
      assert.deepEqual([v4After.server, v6After.error], ['srv', 'ECONNREFUSED']);
      proxy.api.remove('endpointslices', 'lab', 'echo-fqdn');
    });

    test('headless, ExternalName and other proxies Services make no rule', async () => {
      const before = await lab.allRules();
      proxy.api.put('services', service('a', ['None'], [{ port: 80 }], { spec: { externalIPs: ['198.51.100.78'] } }));
      proxy.api.put('endpointslices', slice('a', { port: 80 }, [{ ip: '10.244.0.3' }]));
      proxy.api.put('services', service('b', [''], [{ port: 80 }], { spec: { type: 'ExternalName', externalName: 'x.example' } }));
      proxy.api.put('endpointslices', slice('b', { port: 8080 }, [{ ip: '10.244.0.3' }]));
      await proxy.synced();
      assert.equal(await lab.allRules(), before);
      proxy.api.put('services', service('b', ['10.96.0.30'], [{ port: 80 }], { spec: { type: 'ClusterIP' } }));
      await proxy.synced();
      assert.equal((await lab.peers.cli.connect('10.96.0.30', 80)).server, 'srv');
      for (const name of ['a', 'b']) {
        proxy.api.remove('services', 'lab', name);
        proxy.api.remove('endpointslices', 'lab', `${name}-1`);
      }
      await proxy.synced();
    });

    test('a client sticks to its pod for as long as it keeps coming', async () => {
      proxy.api.put('services', echo({ sessionAffinity: 'ClientIP' }));
      proxy.api.put('endpointslices', slice('echo', web, [{ ip: '10.244.0.3' }, { ip: '10.244.0.4' }]));
      await proxy.synced();
      assert.match(
        await lab.allRules(),
        !nft
          ? /--rcheck --seconds 10800 --reap --name KUBE-SEP-/
          : /set affinity-[^\n]*10\.244\.0\.3\/8080 \{\n\t\ttype ipv4_addr\n\t\tsize 65535\n\t\tflags dynamic,timeout\n\t\ttimeout 3h\n/,
      );
      assert.equal(Object.keys(await lab.peers.cli.tally('10.96.0.8', 80, 30)).length, 1);
      proxy.api.put('services', echo({ sessionAffinity: 'ClientIP', sessionAffinityConfig: { clientIP: { timeoutSeconds: 1 } } }));
      await proxy.synced();
      assert.match(await lab.allRules(), nft ? /timeout 1s/ : /--seconds 1 --reap/);
      const first = (await lab.peers.cli.connect('10.96.0.8', 80)).server;
      assert.equal((await lab.peers.cli.connect('10.96.0.8', 80)).server, first);
      proxy.api.put('services', echo());
      await proxy.synced();
      assert.doesNotMatch(await lab.allRules(), /affinity-|-m recent/);
    });

    test('an address that moves from one Service to another moves in one transaction', async () => {
      proxy.api.put('services', service('one', ['10.96.0.21'], [{ port: 80, protocol: 'TCP' }], { spec: { externalIPs: ['198.51.100.77'] } }));
      proxy.api.put('services', service('two', ['10.96.0.22'], [{ port: 80, protocol: 'TCP' }]));
      proxy.api.put('endpointslices', slice('one', { port: 8080 }, [{ ip: '10.244.0.3' }]));
      proxy.api.put('endpointslices', slice('two', { port: 8080 }, [{ ip: '10.244.0.4' }]));
      await proxy.synced();
      assert.equal((await lab.peers.ext.connect('198.51.100.77', 80)).server, 'srv');
      proxy.api.put('services', service('one', ['10.96.0.21'], [{ port: 80, protocol: 'TCP' }]));
      proxy.api.put('services', service('two', ['10.96.0.22'], [{ port: 80, protocol: 'TCP' }], { spec: { externalIPs: ['198.51.100.77'] } }));
      await proxy.synced();
      assert.equal((await lab.peers.ext.connect('198.51.100.77', 80)).server, 'srv2');
      assert.equal(proxy.metrics.value(`kubeproxy_sync_proxy_rules_${nft ? 'nftables_sync' : 'iptables_restore'}_failures_total`, { ip_family: 'IPv4' }), 0);
    });
  });
