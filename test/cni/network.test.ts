import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import { describe, test } from 'node:test';
import { ip, Lab, linkOf, missing, peer, serve } from './lab.ts';

/** The plugin on real network namespaces, with real packets; the reported faults with their right values. */

const skip = missing() ?? false;

const ask = async (lab: Lab, space: string, protocol: 'tcp' | 'udp', host: string, port: number): Promise<string> =>
  (await lab.start(space, peer('ask', protocol, host, String(port))).ended).out;

const dual = { ipam: { ranges: [[{ subnet: '10.244.1.0/24' }], [{ subnet: 'fd00:1::/64' }]] } };
const ports = (...list: Record<string, unknown>[]): Record<string, unknown> => ({ runtimeConfig: { portMappings: list } });

describe('the pod network', { skip, concurrency: false }, () => {
  test('each version of the spec has its shape; DEL is total; CHECK, STATUS and GC say what is', async () => {
    await using lab = new Lab();
    await lab.daemon();
    const pod = lab.space('p');
    for (const version of ['0.3.1', '0.4.0', '1.0.0', '1.1.0']) {
      const conf = { ...dual, cniVersion: version };
      const result = await lab.call('ADD', 'c', pod, conf);
      assert.equal(result.cniVersion, version);
      assert.deepEqual(
        result.ips.map((one) => one.version),
        version.startsWith('0.') ? ['4', '6'] : [undefined, undefined],
      );
      assert.deepEqual(
        result.interfaces.map((one) => one.sandbox),
        [undefined, lab.netns(pod)],
      );
      assert.deepEqual(result.routes, [{ dst: '0.0.0.0/0' }, { dst: '::/0' }]);
      assert.equal((await lab.call('ADD', 'c', pod, conf, true)).code, 4);
      await lab.call('CHECK', 'c', pod, { ...conf, prevResult: result });
      ip('-n', pod, 'route', 'delete', 'default');
      assert.equal((await lab.call('CHECK', 'c', pod, { ...conf, prevResult: result }, true)).code, 102);
      await lab.call('DEL', 'c', pod, conf);
      await lab.call('DEL', 'c', pod, conf);
      await lab.call('DEL', 'c', '', conf);
      assert.equal((await lab.call('CHECK', 'c', pod, conf, true)).code, 3);
      assert.deepEqual(lab.remains(), []);
    }
    assert.equal((await lab.call('ADD', 'c', 'nowhere', dual, true)).code, 3);
    assert.equal((await lab.call('ADD', 'c', pod, { cniVersion: '0.1.0' }, true)).code, 1);
    assert.deepEqual(lab.remains(), []);
    await lab.call('STATUS', '', '', { ...dual, cniVersion: '1.1.0' });
    assert.equal((await lab.call('STATUS', '', '', { ipam: {}, cniVersion: '1.1.0' }, true)).code, 50);
    const other = lab.space('q');
    await lab.call('ADD', 'keep', pod);
    await lab.call('ADD', 'lost', other);
    await lab.call('GC', '', '', { cniVersion: '1.1.0', 'cni.dev/valid-attachments': [{ containerID: 'keep', ifname: 'eth0' }] });
    assert.deepEqual(
      lab.rows().attachment.map((row) => row['container']),
      ['keep'],
    );
    assert.equal(linkOf(other, 'eth0'), null);
    const lo = lab.plugin('ADD', 'keep', other, {}, 'loopback');
    assert.equal((await lo.ended).code, 0);
    assert.match(ip('-n', other, 'link', 'show', 'lo'), /UP/);
  });

  test('without the daemon the same answers come, from a process of their own', async () => {
    await using lab = new Lab();
    lab.uplink();
    const [pod, other] = [lab.space('p'), lab.space('q')];
    const result = await lab.call('ADD', 'c1', pod, dual);
    assert.deepEqual(
      result.ips.map((one) => one.address),
      ['10.244.1.2/24', 'fd00:1::2/64'],
    );
    const daemon = await lab.daemon();
    assert.deepEqual(
      (await lab.call('ADD', 'c2', other, dual)).ips.map((one) => one.address),
      ['10.244.1.3/24', 'fd00:1::3/64'],
    );
    await lab.stop(daemon);
    for (const container of ['c1', 'c2']) await lab.call('DEL', container, '');
    assert.deepEqual(lab.remains(), []);
  });

  test('pods reach node, each other and the outside by both families; what leaves has the node’s address, but for the exceptions', async () => {
    await using lab = new Lab();
    const outside = lab.uplink();
    await lab.daemon();
    const [pod, other] = [lab.space('p'), lab.space('q')];
    const conf = { ...dual, ipMasq: true };
    await lab.call('ADD', 'c1', pod, conf);
    await lab.call('ADD', 'c2', other, conf);
    await serve(lab, outside, 'ext', 7000);
    await serve(lab, other, 'other', 7000);
    await serve(lab, lab.node, 'node', 7001);
    assert.equal(await ask(lab, pod, 'tcp', '10.244.1.3', 7000), 'other 10.244.1.2');
    assert.equal(await ask(lab, pod, 'tcp', 'fd00:1::3', 7000), 'other fd00:1::2');
    assert.equal(await ask(lab, pod, 'tcp', '192.0.2.10', 7001), 'node 10.244.1.2');
    assert.equal(await ask(lab, lab.node, 'tcp', '10.244.1.3', 7000), 'other 10.244.1.1');
    assert.equal(await ask(lab, pod, 'tcp', '192.0.2.200', 7000), 'ext 192.0.2.10');
    assert.equal(await ask(lab, pod, 'udp', '2001:db8::200', 7000), 'ext 2001:db8::10');
    ip('-n', outside, 'route', 'add', '10.244.1.0/24', 'via', '192.0.2.10');
    // The exceptions follow the configuration: the next ADD writes them.
    const third = lab.space('r');
    await lab.call('ADD', 'c3', third, { ...conf, nonMasqueradeCIDRs: ['192.0.2.192/26'] });
    assert.equal(await ask(lab, pod, 'tcp', '192.0.2.200', 7000), 'ext 10.244.1.2');
  });

  test('a host port takes its own packets and no others', async () => {
    await using lab = new Lab();
    const outside = lab.uplink();
    ip('-n', lab.node, 'addr', 'add', '198.51.100.10/32', 'dev', 'lo');
    ip('-n', outside, 'route', 'add', '198.51.100.10', 'via', '192.0.2.10');
    await lab.daemon();
    const [x, y, z] = [lab.space('x'), lab.space('y'), lab.space('z')];
    await lab.call('ADD', 'x', x, { ...dual, ...ports({ hostPort: 80, hostIP: '192.0.2.10', containerPort: 8080 }, { hostPort: 81, containerPort: 8080 }) });
    await lab.call('ADD', 'z', z, ports({ hostPort: 80, containerPort: 8080, protocol: 'udp' }));
    // The same number by another protocol or at another address is another port; the same one is refused.
    assert.equal((await lab.call('ADD', 'y', y, ports({ hostPort: 80, hostIP: '192.0.2.10', containerPort: 1 }), true)).code, 101);
    await serve(lab, x, 'x', 8080);
    await serve(lab, z, 'z', 8080);
    const plain = await serve(lab, lab.node, 'plain', 80);
    assert.equal(await ask(lab, outside, 'tcp', '192.0.2.10', 80), 'x 192.0.2.200');
    assert.equal(await ask(lab, outside, 'tcp', '198.51.100.10', 80), 'plain 192.0.2.200');
    assert.equal(await ask(lab, outside, 'udp', '198.51.100.10', 80), 'z 192.0.2.200');
    assert.equal(await ask(lab, outside, 'tcp', '192.0.2.10', 81), 'x 192.0.2.200');
    assert.equal(await ask(lab, outside, 'tcp', '2001:db8::10', 81), 'x 2001:db8::200');
    assert.equal(await ask(lab, lab.node, 'tcp', '127.0.0.1', 81), 'x 10.244.1.1');
    assert.equal(await ask(lab, x, 'tcp', '192.0.2.10', 81), 'x 10.244.1.1');
    assert.equal(await ask(lab, z, 'tcp', '192.0.2.10', 81), 'x 10.244.1.3');
    // Somebody flushed all rules: the next pod's ADD brings them back.
    lab.start(lab.node, ['nft', 'flush', 'ruleset']);
    await lab.call('ADD', 'y', y, ports({ hostPort: 82, containerPort: 1 }));
    assert.equal(await ask(lab, outside, 'tcp', '192.0.2.10', 80), 'x 192.0.2.200');
    for (const name of ['x', 'y', 'z']) await lab.call('DEL', name, '');
    assert.equal(await ask(lab, outside, 'tcp', '192.0.2.10', 80), 'plain 192.0.2.200');
    plain.child.kill();
    assert.deepEqual(lab.remains(), []);
  });

  test('a UDP sender that never pauses follows the pod, and then the node', async () => {
    await using lab = new Lab();
    const outside = lab.uplink();
    await lab.daemon();
    const [a, b] = [lab.space('a'), lab.space('b')];
    const conf = ports({ hostPort: 8125, containerPort: 8125, protocol: 'udp' });
    await lab.call('ADD', 'a', a, conf);
    await serve(lab, a, 'first', 8125);
    const sender = lab.start(outside, peer('send', '192.0.2.10', '8125'));
    let said = '';
    sender.child.stdout!.on('data', (chunk: Buffer) => (said += chunk.toString()));
    const until = async (word: string): Promise<void> => {
      for (const deadline = performance.now() + 10_000; !said.includes(word); await delay(20))
        assert.ok(performance.now() < deadline, `${word} never answered; ${said}`);
    };
    await until('first');
    // A flow to another port of the node, which is nobody's business.
    await serve(lab, lab.node, 'other', 9999);
    lab.start(outside, peer('send', '192.0.2.10', '9999'));
    const flowIds = async (): Promise<string[]> =>
      [...(await lab.start(lab.node, ['conntrack', '-L', '-p', 'udp', '--orig-port-dst', '9999', '-o', 'id']).ended).out.matchAll(/id=(\d+)/g)].map(
        ([, id]) => id!,
      );
    let others: string[] = [];
    for (const deadline = performance.now() + 10_000; (others = await flowIds()).length === 0; await delay(20))
      assert.ok(performance.now() < deadline, 'no flow');
    await lab.call('DEL', 'a', a, conf);
    await lab.call('ADD', 'b', b, conf);
    await serve(lab, b, 'second', 8125);
    await until('second');
    await lab.call('DEL', 'b', b, conf);
    await serve(lab, lab.node, 'host', 8125);
    await until('host');
    said = '';
    await until('host');
    assert.doesNotMatch(said, /first|second/);
    assert.deepEqual(await flowIds(), others);
  });

  test('addresses do not leak over reboots, with the daemon and without', async () => {
    await using lab = new Lab();
    lab.conf = { ipam: { ranges: [[{ subnet: '10.244.0.0/29' }]] } };
    const old: string[] = [];
    for (const round of [1, 2, 3]) {
      if (round === 2) await lab.daemon({ podCIDRs: ['10.244.0.0/29'] });
      const pods = [1, 2, 3, 4].map((at) => lab.space(`r${round}p${at}`));
      for (const [at, pod] of pods.entries()) {
        await lab.call('ADD', `r${round}c${at}`, pod);
        old.push(`r${round}c${at}`);
      }
      // What a reboot takes: namespaces and links; the file of addresses stays.
      for (const pod of pods) lab.renew(pod);
    }
    const { code } = await lab.plugin('ADD', 'one-more', lab.space('more')).ended;
    assert.equal(code, 0);
    for (const container of ['one-more', ...old]) await lab.call('DEL', container, 'gone');
    assert.deepEqual(lab.remains(), []);
  });

  test('a range that is full says so, and an address given back is given again', async () => {
    await using lab = new Lab();
    lab.conf = { ipam: { ranges: [[{ subnet: '10.244.0.0/30', gateway: '10.244.0.1' }]] } };
    const [a, b] = [lab.space('a'), lab.space('b')];
    await lab.daemon();
    await lab.call('ADD', 'a', a);
    assert.equal((await lab.call('ADD', 'b', b, {}, true)).code, 100);
    await lab.call('DEL', 'a', a);
    assert.equal((await lab.call('ADD', 'b', b)).ips[0]?.address, '10.244.0.2/30');
  });

  test('the MTU is the uplink’s at that time, unless one is configured', async () => {
    await using lab = new Lab();
    lab.uplink(1442);
    await lab.daemon();
    const mtuOf = async (name: string, extra: Record<string, unknown> = {}): Promise<number | undefined> => {
      const pod = lab.space(name);
      const result = await lab.call('ADD', name, pod, { cniVersion: '1.1.0', ...extra });
      const host = linkOf(lab.node, result.interfaces[0]!.name)?.mtu;
      assert.equal(host, linkOf(pod, 'eth0')?.mtu);
      assert.equal(result.interfaces[1]!.mtu, host);
      return host;
    };
    assert.equal(await mtuOf('a'), 1442);
    ip('-n', lab.node, 'link', 'set', 'up0', 'mtu', '9000');
    assert.equal(await mtuOf('b'), 9000);
    ip('-n', lab.node, 'link', 'set', 'up0', 'mtu', '1400');
    assert.equal(await mtuOf('c'), 1400);
    assert.equal(await mtuOf('d', { mtu: 1280 }), 1280);
  });

  test('a download passes a hop that drops what is too large and says nothing', async () => {
    await using lab = new Lab();
    const outside = lab.uplink(1442);
    ip('-n', outside, 'link', 'set', 'up1', 'mtu', '1500', 'gso_max_segs', '1');
    ip('-n', outside, 'route', 'add', '10.244.1.0/24', 'via', '192.0.2.10');
    // The wire is of the smaller end: what is larger is dropped on it, and nobody is told.
    const dropped = (): number =>
      (JSON.parse(ip('-n', outside, '-s', '-json', 'link', 'show', 'up1')) as [{ stats64: { tx: { dropped: number } } }])[0].stats64.tx.dropped;
    await lab.daemon();
    const lines = { ours: '', toolarge: '' };
    for (const [name, extra] of [
      ['ours', {}],
      ['toolarge', { mtu: 1500 }],
    ] as const) {
      const pod = lab.space(name);
      const { ips } = await lab.call('ADD', name, pod, extra);
      const sink = lab.start(pod, peer('sink', '7200'));
      sink.child.stdout!.on('data', (chunk: Buffer) => (lines[name] += chunk.toString()));
      const has = async (count: number): Promise<void> => {
        for (const deadline = performance.now() + 20_000; lines[name].split('\n').length <= count; await delay(20))
          assert.ok(performance.now() < deadline, `${name}: the download does not end`);
      };
      await has(1);
      lab.start(outside, peer('pour', ips[0]!.address.split('/')[0]!, '7200', String(1024 * 1024)));
      if (name !== 'ours') continue;
      await has(2);
      assert.equal(dropped(), 0);
    }
    // The wire does drop: a pod whose link is too large hears nothing more.
    for (const deadline = performance.now() + 10_000; dropped() === 0; await delay(50)) assert.ok(performance.now() < deadline, 'the wire drops nothing');
    assert.equal(lines.toolarge, 'listening\n');
  });

  test('beside a service proxy a host port has its own number, whoever comes first, and a Service its own address', async () => {
    await using lab = new Lab();
    const outside = lab.uplink();
    const daemon = await lab.daemon();
    const [x, z] = [lab.space('x'), lab.space('z')];
    const { ips } = await lab.call('ADD', 'z', z);
    const target = `${ips[0]!.address.split('/')[0]!}:8080`;
    // A Service with the node port 81, as the proxy's chains have it: both at priority dstnat.
    const rules = `fib daddr type local tcp dport 81 dnat to ${target}; ip daddr 10.96.0.8 tcp dport 80 dnat to ${target};`;
    const hooks = ['prerouting', 'output'].map((hook) => `chain nat-${hook} { type nat hook ${hook} priority -100; ${rules} };`);
    const proxy = async (): Promise<void> => {
      const input = `add table ip kube-proxy; delete table ip kube-proxy; table ip kube-proxy { ${hooks.join(' ')} }`;
      const { code, err } = await lab.start(lab.node, ['nft', '-f', '-'], { input }).ended;
      assert.equal(code, 0, err);
    };
    await serve(lab, x, 'x', 8080);
    await serve(lab, z, 'z', 8080);
    ip('-n', outside, 'route', 'add', '10.96.0.0/16', 'via', '192.0.2.10');
    await proxy();
    assert.equal(await ask(lab, outside, 'tcp', '192.0.2.10', 81), 'z 192.0.2.200');
    await lab.call('ADD', 'x', x, ports({ hostPort: 81, containerPort: 8080 }, { hostPort: 80, containerPort: 8080 }));
    const both = async (when: string): Promise<void> => {
      assert.equal(await ask(lab, outside, 'tcp', '192.0.2.10', 81), 'x 192.0.2.200', when);
      assert.equal(await ask(lab, outside, 'tcp', '10.96.0.8', 80), 'z 192.0.2.200', when);
      assert.match(await ask(lab, lab.node, 'tcp', '192.0.2.10', 81), /^x /, when);
      assert.match(await ask(lab, lab.node, 'tcp', '10.96.0.8', 80), /^z /, when);
    };
    await both('the proxy came first');
    await proxy();
    await both('the proxy came anew');
    await lab.stop(daemon);
    await lab.daemon();
    await both('the daemon came anew');
    await lab.call('DEL', 'x', x);
    assert.equal(await ask(lab, outside, 'tcp', '192.0.2.10', 81), 'z 192.0.2.200');
  });

  test('bandwidth, a hardware address and an address that were asked for', async () => {
    await using lab = new Lab();
    await lab.daemon();
    const pod = lab.space('p');
    const result = await lab.call('ADD', 'c', pod, {
      runtimeConfig: {
        bandwidth: { ingressRate: 8_000_000, ingressBurst: 800_000, egressRate: 16_000_000_000, egressBurst: 2_147_483_647 },
        mac: '02:00:00:00:00:07',
        ips: ['10.244.1.77/24'],
      },
    });
    assert.equal(result.ips[0]?.address, '10.244.1.77/24');
    assert.equal(result.interfaces[1]?.mac, '02:00:00:00:00:07');
    const tc = async (space: string, dev: string): Promise<string> => (await lab.start(space, ['tc', 'qdisc', 'show', 'dev', dev]).ended).out;
    assert.match(await tc(lab.node, result.interfaces[0]!.name), /tbf .* rate 8Mbit burst 100000b lat 25ms/);
    assert.match(await tc(pod, 'eth0'), /tbf .* rate 16Gbit/);
  });

  test('a limit holds for what flows, each way', async () => {
    await using lab = new Lab();
    await lab.daemon();
    const pod = lab.space('p');
    const [rateBits, burstBits, bytes] = [8_000_000, 800_000, 2_000_000];
    await lab.call('ADD', 'c', pod, {
      runtimeConfig: { bandwidth: { ingressRate: rateBits, ingressBurst: burstBits, egressRate: rateBits, egressBurst: burstBits } },
    });
    const leastMs = ((bytes - burstBits / 8) / (rateBits / 8)) * 1_000;
    for (const [from, to, host] of [
      [lab.node, pod, '10.244.1.2'],
      [pod, lab.node, '10.244.1.1'],
    ] as const) {
      const sink = lab.start(to, peer('sink', '7100'));
      const lines: string[] = [];
      const line = async (at: number): Promise<string> => {
        for (const deadline = performance.now() + 30_000; lines.length <= at; await delay(20)) assert.ok(performance.now() < deadline, 'nothing came through');
        return lines[at]!;
      };
      sink.child.stdout!.on('data', (chunk: Buffer) => lines.push(...chunk.toString().trim().split('\n')));
      await line(0);
      lab.start(from, peer('pour', host, '7100', String(bytes)));
      const tookMs = Number(await line(1));
      assert.ok(tookMs >= leastMs, `${bytes} bytes in ${tookMs} ms`);
    }
  });
});
