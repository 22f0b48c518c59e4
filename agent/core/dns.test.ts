import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod } from '../../proto/kube/types.ts';
import { parseResolvConf, podDns, resolvConfProblem } from './dns.ts';

const file = 'search svc.cluster.local cluster.local d1.example d2.example d3.example d4.example\nnameserver 192.0.2.1\noptions timeout:2\n';
const input = { host: parseResolvConf(file), clusterDNS: ['10.96.0.10'], clusterDomain: 'cluster.local', nodeIPs: ['192.0.2.5'] };
const host = ['svc.cluster.local', 'cluster.local', 'd1.example', 'd2.example', 'd3.example', 'd4.example'];
const cluster = ['n.svc.cluster.local', ...host];
const own = { nameservers: ['192.0.2.9'], searches: ['x.example'], options: [{ name: 'ndots', value: '2' }] };
const podOf = (spec: Partial<Pod['spec']>): Pod => ({ metadata: { name: 'p', namespace: 'n', uid: 'u' }, spec: { containers: [], ...spec } });

test('resolv.conf by dnsPolicy', () => {
  const cases: [string, Partial<Pod['spec']>, string[], string[], string[]][] = [
    ['ClusterFirst, each domain once', { dnsPolicy: 'ClusterFirst' }, ['10.96.0.10'], cluster, ['ndots:5']],
    ['Default', { dnsPolicy: 'Default' }, ['192.0.2.1'], host, ['timeout:2']],
    ["ClusterFirst in the host network is the host's", { dnsPolicy: 'ClusterFirst', hostNetwork: true }, ['192.0.2.1'], host, ['timeout:2']],
    ['ClusterFirstWithHostNet', { dnsPolicy: 'ClusterFirstWithHostNet', hostNetwork: true }, ['10.96.0.10'], cluster, ['ndots:5']],
    ['None', { dnsPolicy: 'None', dnsConfig: own }, ['192.0.2.9'], ['x.example'], ['ndots:2']],
    ['ClusterFirst with dnsConfig', { dnsPolicy: 'ClusterFirst', dnsConfig: own }, ['10.96.0.10', '192.0.2.9'], [...cluster, 'x.example'], ['ndots:2']],
  ];
  for (const [name, spec, servers, searches, options] of cases) assert.deepEqual(podDns(podOf(spec), input), { servers, searches, options, events: [] }, name);
});

test('what resolvers do not take is cut and told', () => {
  const many = Array.from({ length: 33 }, (_, index) => `d${index}.example`);
  const cut = podDns(podOf({ dnsPolicy: 'None', dnsConfig: { searches: many, nameservers: ['1.1.1.1', '1.1.1.2', '1.1.1.3', '1.1.1.4'] } }), input);
  assert.equal(cut.searches.length, 32);
  assert.deepEqual(cut.servers, ['1.1.1.1', '1.1.1.2', '1.1.1.3']);
  assert.deepEqual(
    cut.events.map((event) => event.reason),
    ['DNSConfigForming', 'DNSConfigForming'],
  );
  assert.match(
    cut.events[1]?.message ?? '',
    /^Search Line limits were exceeded, some search paths have been omitted, the applied search line is: d0\.example /,
  );
  const long = podDns(podOf({ dnsPolicy: 'None', dnsConfig: { searches: ['a'.repeat(254), 'ok.example'] } }), input);
  assert.deepEqual(long.searches, ['ok.example']);
});

test("without a cluster DNS the host's serves, without a resolv.conf nothing does", () => {
  const fallback = podDns(podOf({ dnsPolicy: 'ClusterFirst' }), { ...input, clusterDNS: [] });
  assert.deepEqual([fallback.servers, fallback.events[0]?.reason], [['192.0.2.1'], 'MissingClusterDNS']);
  assert.deepEqual(podDns(podOf({ dnsPolicy: 'Default' }), { ...input, host: null }), { servers: ['127.0.0.1'], searches: ['.'], options: [], events: [] });
});

test('the last search line and the last option of a name count', () => {
  assert.deepEqual(parseResolvConf('# c\nsearch a. b\nsearch c .\nnameserver 1.1.1.1 x\n nameserver 2.2.2.2\noptions ndots:1 edns0\noptions ndots:3\n'), {
    servers: ['1.1.1.1', '2.2.2.2'],
    searches: ['c'],
    options: ['ndots:3', 'edns0'],
  });
});

test("what of the machine's own search line no pod could be given is said in upstream's words", () => {
  const of = (...searches: string[]): string | null => resolvConfProblem('/r', { servers: [], searches, options: [] }, 'cluster.local');
  const many = (count: number): string[] => Array.from({ length: count }, (_, index) => `d${index}`);
  assert.equal(of(...many(29)), null);
  assert.equal(of(...many(30)), "Resolv.conf file '/r' contains search line consisting of more than 29 domains!");
  assert.equal(resolvConfProblem('/r', { servers: [], searches: many(32), options: [] }, ''), null);
  assert.equal(of('a'.repeat(254)), 'Resolv.conf file "/r" contains a search path which length is more than allowed 253 chars!');
  assert.equal(of(...many(9).map((name) => name.padEnd(250, 'x'))), "Resolv.conf file '/r' contains search line which length is more than allowed 2048 chars!");
});
