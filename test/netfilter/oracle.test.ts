import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { seededRng } from '../../base/rng.ts';
import { silentLog } from '../../base/log.ts';
import { createSysClient } from '../../base/sys/client.ts';
import { removeTables } from '../../netfilter/cleanup.ts';
import { portKey } from '../../netfilter/core/names.ts';
import type { Family } from '../../netfilter/core/ip.ts';
import type { PortRules } from '../../netfilter/core/ruleset.ts';
import type { LocalDetector, RuleSettings } from '../../netfilter/core/settings.ts';
import { applyService, applySlice, emptyWorld, rulesFor } from '../../netfilter/core/world.ts';
import { sets } from '../../netfilter/core/nft-table.ts';
import type { Op } from '../../netfilter/core/ops.ts';
import { createNetlinkKernel } from '../../netfilter/io/nft-netlink.ts';
import { createTextKernel } from '../../netfilter/io/nft-text.ts';
import { Table } from '../../netfilter/table.ts';
import { missing, service, slice, sysPath, type EndpointSpec } from './lab.ts';

const reason = missing();
if (reason !== null) console.log(`skipped: comparing text and netlink ${reason}`);

/** nft prints elements in the order of a hash. The numbers by which endpoints are drawn mean nothing, and a second owner takes others. */
function normal(listing: string): string {
  const endpoints = new Map<string, string>();
  const withoutMaps = listing.replaceAll(/\tmap (service-endpoints-\S+) \{(.*?)\n\t\}\n/gs, (_, map: string, body: string) => {
    for (const [, number, target] of body.matchAll(/(\d+) : (\S+ \. \d+)/g)) endpoints.set(`${map} ${number}`, target!);
    return '';
  });
  const resolved = withoutMaps.replaceAll(/numgen random mod (\d+)(?: offset (\d+))? map @(\S+)/g, (_, count: string, first = '0', map = '') =>
    Array.from({ length: Number(count) }, (_unused, index) => endpoints.get(`${map} ${Number(first) + index}`)).join(' or '),
  );
  return resolved.replaceAll(/\n+/g, '\n').replaceAll(
    /elements = \{([^}]*)\}/g,
    (_, body: string) =>
      `elements = { ${body
        .split(',')
        .map((item) => item.trim())
        .toSorted()
        .join(', ')} }`,
  );
}

suite('Text and netlink say the same', { skip: reason ?? false }, () => {
  const names = { text: `nfo-${process.pid}-text`, netlink: `nfo-${process.pid}-netlink` };
  const sys = createSysClient({ path: sysPath, log: silentLog });
  const run = async (argv: string[], netns?: string): Promise<string> => {
    const result = await sys.run({ argv, timeoutMs: 10_000, ...(netns === undefined ? {} : { netns: `/run/netns/${netns}` }) });
    assert.equal(result.code, 0, Buffer.from(result.stderr).toString());
    return Buffer.from(result.stdout).toString();
  };
  before(async () => {
    for (const name of Object.values(names)) await run(['ip', 'netns', 'add', name]);
  });
  after(async () => {
    for (const name of Object.values(names)) await run(['ip', 'netns', 'delete', name]);
    await sys[Symbol.asyncDispose]();
  });

  const detectors = (family: Family): LocalDetector[] => [
    { kind: 'cidr', cidr: family === 'ip' ? '10.244.0.0/14' : 'fd00:10:244::/44' },
    { kind: 'prefix', name: 'cali' },
    { kind: 'bridge', name: 'br0' },
    { kind: 'none' },
  ];

  for (const family of ['ip', 'ip6'] as const) {
    for (const detector of detectors(family)) {
      test(`${family}, pods told by ${detector.kind}: nft lists the same after every change`, async () => {
        const v4 = family === 'ip';
        const settings: RuleSettings = {
          family,
          markBits: 0x4000,
          masqueradeAll: detector.kind === 'none',
          detector,
          nodePorts: detector.kind === 'bridge' ? { kind: 'all' } : { kind: 'some', addresses: [v4 ? '192.0.2.10' : '2001:db8::10'] },
          ...(detector.kind === 'bridge' ? { refusedOnLocalhost: ['udp', 'sctp'] as const } : {}),
          nodeIP: v4 ? '192.0.2.10' : '2001:db8::10',
          serviceCIDRs: detector.kind === 'prefix' ? ['10.96.0.0/13', '10.128.0.0/20', 'fd00:96::/111', 'fd00:98::/112'] : ['10.96.0.0/12', 'fd00:96::/108'],
        };
        // The order of chains in a listing tells how they came to be: both begin with nothing.
        for (const netns of Object.values(names)) await removeTables(createNetlinkKernel(sys, { netns: `/run/netns/${netns}` }), [family], silentLog);
        const rng = seededRng(detector.kind.length);
        const world = emptyWorld();
        const written = new Map<string, PortRules>();
        const tables = {
          text: new Table({ kernel: createTextKernel(sys, { netns: `/run/netns/${names.text}` }), fallback: null, log: silentLog }),
          netlink: new Table({ kernel: createNetlinkKernel(sys, { netns: `/run/netns/${names.netlink}` }), fallback: null, log: silentLog }),
        };
        for (const table of Object.values(tables)) assert.ok((await table.writeWhole(settings, [], 0)).ok);
        for (let step = 0; step < 7; step++) {
          const name = `s${rng.int(4)}`;
          const spec = {
            type: 'LoadBalancer',
            externalIPs: ['198.51.100.77', '2001:db8:1::77'],
            loadBalancerSourceRanges: rng.pick([
              [],
              ['192.0.2.0/26', '10.0.0.0/9', '10.128.0.0/9', '240.0.0.0/4', 'fd00::/44', 'ff00::/8'],
              ['192.0.2.0/27', '192.0.2.8/32', '2001:db8::/64'],
            ]),
            sessionAffinity: rng.pick(['None', 'ClientIP']),
            externalTrafficPolicy: rng.pick(['Cluster', 'Local']),
            internalTrafficPolicy: rng.pick(['Cluster', 'Local']),
          };
          const number = name.slice(1);
          const protocol = rng.pick(['TCP', 'UDP', 'SCTP']);
          const gone = rng.int(5) === 0;
          applyService(
            world,
            service(name, [`10.96.0.${number}`, `fd00:96::${number}`], [{ port: 80, protocol, nodePort: 30080 + Number(number) }], {
              spec,
              ingress: [{ ip: '203.0.113.10' }, { ip: '2001:db8:3::10' }],
            }),
            gone,
          );
          const endpoints: EndpointSpec[] = Array.from({ length: rng.int(4) }, (_, index) => ({
            ip: v4 ? `10.244.0.${index + 2}` : `fd00:10:244::${index + 2}`,
            node: rng.pick(['node-a', 'node-b']),
          }));
          applySlice(world, slice(name, { port: 8080, protocol }, endpoints, { addressType: v4 ? 'IPv4' : 'IPv6' }), gone);
          const changes = new Map<string, PortRules | null>([...written.keys()].filter((key) => key.startsWith(`lab/${name}:`)).map((key) => [key, null]));
          for (const rules of rulesFor(world, `lab/${name}`, family, { nodeName: 'node-a', zone: '' })) changes.set(portKey(rules.id), rules);
          for (const [key, objects] of changes) {
            if (objects === null) written.delete(key);
            else written.set(key, objects);
          }
          const listings: string[] = [];
          for (const [way, table] of Object.entries(tables)) {
            const result = await table.writeChanges(family, changes, step);
            assert.ok(result.ok, `${way}: ${result.ok ? '' : result.error.message}`);
            assert.ok((await table.deleteStale(family, step)).ok);
            listings.push(normal(await run(['nft', 'list', 'table', family, 'kube-proxy'], names[way as keyof typeof names])));
          }
          assert.equal(listings[1], listings[0], `step ${step}`);
          assert.ok(await tables.netlink.isIntact(settings), 'what netlink reads back is what was written');
        }
        // A second owner repairs what the first left, and the result is still the same.
        const netlink = new Table({ kernel: createNetlinkKernel(sys, { netns: `/run/netns/${names.netlink}` }), fallback: null, log: silentLog });
        const before = normal(await run(['nft', 'list', 'table', family, 'kube-proxy'], names.netlink));
        assert.deepEqual(await netlink.writeWhole(settings, [written], 100), { ok: true, refused: [] });
        assert.deepEqual(
          normal(await run(['nft', 'list', 'table', family, 'kube-proxy'], names.netlink))
            .split('\n')
            .toSorted(),
          before.split('\n').toSorted(),
        );
      });
    }
  }

  test('a refused element is named, though it went with others of its set', async () => {
    const kernel = createNetlinkKernel(sys, { netns: `/run/netns/${names.netlink}` });
    const to = (address: string, chain: string): Op => ({
      op: 'add-element',
      set: sets.serviceIPs,
      element: { key: [address, 'tcp', '80'], verdict: { kind: 'goto', chain } },
    });
    const result = await kernel.commit('ip', [
      { op: 'add-table', comment: 'rules for kube-proxy' },
      { op: 'add-chain', chain: 'fine' },
      { op: 'add-set', set: sets.serviceIPs },
      to('10.96.0.1', 'fine'),
      to('10.96.0.2', 'missing'),
      to('10.96.0.3', 'fine'),
      to('10.96.0.4', 'missing too'),
    ]);
    assert.ok(!result.ok);
    assert.deepEqual(result.failedOps, [4, 6]);
  });

  test('a refusal names the operation, and all of them', async () => {
    const kernel = createNetlinkKernel(sys, { netns: `/run/netns/${names.netlink}` });
    const long = 'x'.repeat(300);
    const ops = [
      { op: 'add-table', comment: 'rules for kube-proxy' },
      { op: 'add-chain', chain: 'fine' },
      { op: 'add-chain', chain: long },
      { op: 'add-chain', chain: 'fine2' },
      { op: 'add-rule', chain: 'missing', rule: { statements: [{ kind: 'reject' }] } },
    ] as const;
    const result = await kernel.commit('ip', ops);
    assert.ok(!result.ok);
    assert.deepEqual(result.failedOps, [2, 4]);
    assert.doesNotMatch(await run(['nft', 'list', 'table', 'ip', 'kube-proxy'], names.netlink), /fine/);
    const text = await createTextKernel(sys, { netns: `/run/netns/${names.netlink}` }).commit('ip', ops);
    assert.ok(!text.ok);
    assert.ok(text.failedOps.includes(2) || text.failedOps.includes(4), JSON.stringify(text));
  });
});
