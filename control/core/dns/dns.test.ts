import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { EndpointSlice, Service } from '../../../proto/kube/types.ts';
import { decodeAnswers, decodeQuery, encodeQuery, encodeResponse, ipv6Groups, type Query, RCODE, type ResourceRecord, TYPE } from './wire.ts';
import { addressOfReverse, answerQuestion, type ZoneView } from './zone.ts';

const service = (name: string, spec: Service['spec']): Service => ({ apiVersion: 'v1', kind: 'Service', metadata: { name, namespace: 'shop' }, spec });
const services = [
  service('web', {
    clusterIP: '10.96.1.1',
    ports: [
      { name: 'http', port: 80 },
      { name: 'dns', port: 53, protocol: 'UDP' },
    ],
  }),
  service('redis', { clusterIP: 'None', ports: [{ name: 'redis', port: 6379 }] }),
  service('out', { type: 'ExternalName', externalName: 'example.com' }),
  service('alias', { type: 'ExternalName', externalName: 'web.shop.svc.cluster.local' }),
];
const slices: EndpointSlice[] = [
  {
    addressType: 'IPv4',
    metadata: { name: 'redis-a', namespace: 'shop', labels: { 'kubernetes.io/service-name': 'redis' } },
    ports: [{ name: 'redis', port: 6379, protocol: 'TCP' }],
    endpoints: [
      { addresses: ['10.244.1.3'], hostname: 'redis-0', conditions: { ready: true } },
      { addresses: ['10.244.1.4'], conditions: { ready: true } },
      { addresses: ['10.244.1.5'], conditions: { ready: false } },
    ],
  },
];
const view: ZoneView = {
  domain: 'cluster.local',
  serverAddress: '10.96.0.10',
  service: (namespace, name) => services.find((one) => one.metadata.namespace === namespace && one.metadata.name === name),
  slices: (_namespace, name) => (name === 'redis' ? slices : []),
  hasNamespace: (name) => name === 'shop' || name === 'default',
  servicesWithIp: (ip) => services.filter((one) => one.spec.clusterIP === ip),
  slicesWithIp: (ip) => slices.filter((slice) => slice.endpoints?.some((endpoint) => endpoint.addresses.includes(ip))),
};

const text = ({ name, data }: ResourceRecord): string => {
  const { type, ...rest } = data;
  return `${name} ${type} ${type === 'SOA' ? '' : Object.values(rest).join(' ')}`.trim();
};

function ask(name: string, type: keyof typeof TYPE = 'A'): string[] {
  const answer = answerQuestion({ name, type: TYPE[type], class: 1 }, view, 0);
  if (answer.kind === 'forward') return [...answer.chain.map(text), `forward ${answer.name}`];
  if (answer.rcode === RCODE.nameError) return ['NXDOMAIN', ...answer.authority.map(text)];
  return answer.answers.length === 0 ? ['NODATA', ...answer.authority.map(text)] : answer.answers.map(text);
}

const NX = ['NXDOMAIN', 'cluster.local SOA'];
const NODATA = ['NODATA', 'cluster.local SOA'];
const questions: [name: string, type: keyof typeof TYPE, answers: string[]][] = [
  ['web.shop.svc.cluster.local', 'A', ['web.shop.svc.cluster.local A 10.96.1.1']],
  ['WEB.shop.svc.cluster.LOCAL', 'A', ['WEB.shop.svc.cluster.LOCAL A 10.96.1.1']],
  ['web.shop.svc.cluster.local', 'AAAA', NODATA],
  ['nope.shop.svc.cluster.local', 'A', NX],
  ['web.nowhere.svc.cluster.local', 'A', NX],
  ['example.com.shop.svc.cluster.local', 'A', NX],
  ['example.com.svc.cluster.local', 'A', NX],
  ['example.com.cluster.local', 'A', NX],
  ['example.com', 'A', ['forward example.com']],
  ['shop.svc.cluster.local', 'A', NODATA],
  ['redis.shop.svc.cluster.local', 'A', ['redis.shop.svc.cluster.local A 10.244.1.3', 'redis.shop.svc.cluster.local A 10.244.1.4']],
  ['redis-0.redis.shop.svc.cluster.local', 'A', ['redis-0.redis.shop.svc.cluster.local A 10.244.1.3']],
  ['10-244-1-4.redis.shop.svc.cluster.local', 'A', ['10-244-1-4.redis.shop.svc.cluster.local A 10.244.1.4']],
  ['redis-9.redis.shop.svc.cluster.local', 'A', NX],
  ['_http._tcp.web.shop.svc.cluster.local', 'SRV', ['_http._tcp.web.shop.svc.cluster.local SRV 0 100 80 web.shop.svc.cluster.local']],
  ['_dns._udp.web.shop.svc.cluster.local', 'SRV', ['_dns._udp.web.shop.svc.cluster.local SRV 0 100 53 web.shop.svc.cluster.local']],
  ['_http._udp.web.shop.svc.cluster.local', 'SRV', NX],
  [
    '_redis._tcp.redis.shop.svc.cluster.local',
    'SRV',
    [
      '_redis._tcp.redis.shop.svc.cluster.local SRV 0 50 6379 redis-0.redis.shop.svc.cluster.local',
      '_redis._tcp.redis.shop.svc.cluster.local SRV 0 50 6379 10-244-1-4.redis.shop.svc.cluster.local',
    ],
  ],
  ['out.shop.svc.cluster.local', 'A', ['out.shop.svc.cluster.local CNAME example.com', 'forward example.com']],
  ['out.shop.svc.cluster.local', 'CNAME', ['out.shop.svc.cluster.local CNAME example.com']],
  ['alias.shop.svc.cluster.local', 'A', ['alias.shop.svc.cluster.local CNAME web.shop.svc.cluster.local', 'web.shop.svc.cluster.local A 10.96.1.1']],
  ['10-244-1-9.shop.pod.cluster.local', 'A', ['10-244-1-9.shop.pod.cluster.local A 10.244.1.9']],
  ['10-244-1-900.shop.pod.cluster.local', 'A', NX],
  ['dns-version.cluster.local', 'TXT', ['dns-version.cluster.local TXT 1.1.0']],
  ['cluster.local', 'NS', ['cluster.local NS ns.dns.cluster.local']],
  ['ns.dns.cluster.local', 'A', ['ns.dns.cluster.local A 10.96.0.10']],
  ['1.1.96.10.in-addr.arpa', 'PTR', ['1.1.96.10.in-addr.arpa PTR web.shop.svc.cluster.local']],
  ['3.1.244.10.in-addr.arpa', 'PTR', ['3.1.244.10.in-addr.arpa PTR redis-0.redis.shop.svc.cluster.local']],
  ['8.8.8.8.in-addr.arpa', 'PTR', ['forward 8.8.8.8.in-addr.arpa']],
];
for (const [name, type, answers] of questions) test(`${type} ${name}`, () => assert.deepEqual(ask(name, type), answers));

test('SRV answers bring the addresses of their targets', () => {
  const answer = answerQuestion({ name: '_redis._tcp.redis.shop.svc.cluster.local', type: TYPE.SRV, class: 1 }, view, 0);
  assert.ok(answer.kind === 'answer');
  assert.deepEqual(answer.additional.map(text), ['redis-0.redis.shop.svc.cluster.local A 10.244.1.3', '10-244-1-4.redis.shop.svc.cluster.local A 10.244.1.4']);
});

test('equal records take turns', () => {
  const first = (turn: number): string => {
    const answer = answerQuestion({ name: 'redis.shop.svc.cluster.local', type: TYPE.A, class: 1 }, view, turn);
    return answer.kind === 'answer' && answer.answers[0]?.data.type === 'A' ? answer.answers[0].data.address : '';
  };
  assert.deepEqual([first(0), first(1), first(2)], ['10.244.1.3', '10.244.1.4', '10.244.1.3']);
});

const query = (udpSize?: number): Query => ({
  id: 7,
  opcode: 0,
  isResponse: false,
  recursionDesired: true,
  questions: [{ name: 'web.shop.svc.cluster.local', type: TYPE.A, class: 1 }],
  udpSize,
});

test('a question survives the wire, with what its asker can take', () => {
  const decoded = decodeQuery(encodeQuery(7, { name: 'a.Example.com', type: TYPE.AAAA, class: 1 }));
  assert.deepEqual(decoded, {
    id: 7,
    opcode: 0,
    isResponse: false,
    recursionDesired: true,
    questions: [{ name: 'a.Example.com', type: TYPE.AAAA, class: 1 }],
    udpSize: 1232,
  });
});

test('answers survive the wire with compressed names', () => {
  const answers: ResourceRecord[] = [
    { name: 'web.shop.svc.cluster.local', ttl: 30, data: { type: 'CNAME', target: 'other.shop.svc.cluster.local' } },
    { name: 'other.shop.svc.cluster.local', ttl: 30, data: { type: 'A', address: '10.96.1.1' } },
    { name: 'other.shop.svc.cluster.local', ttl: 30, data: { type: 'AAAA', address: 'fd00:0:0:0:0:0:0:1' } },
  ];
  const bytes = encodeResponse(query(), { rcode: 0, authoritative: true, answers, authority: [], additional: [] }, 512);
  assert.deepEqual(decodeAnswers(bytes), { rcode: 0, answers });
  assert.ok(bytes.length < 130);
});

test('what does not fit is left out and said', () => {
  const answers = Array.from({ length: 60 }, (_, index): ResourceRecord => ({
    name: 'web.shop.svc.cluster.local',
    ttl: 30,
    data: { type: 'A', address: `10.0.0.${index}` },
  }));
  const bytes = encodeResponse(query(), { rcode: 0, authoritative: true, answers, authority: [], additional: [] }, 512);
  assert.ok(bytes.length <= 512);
  assert.equal((bytes[2] ?? 0) & 2, 2);
  assert.equal(decodeAnswers(bytes)?.answers.length, (bytes[6] ?? 0) * 256 + (bytes[7] ?? 0));
  const large = encodeResponse(query(1232), { rcode: 0, authoritative: true, answers, authority: [], additional: [] }, 1232);
  assert.equal((large[2] ?? 0) & 2, 0);
});

test('broken messages are answered with nothing or without questions, and never hang', () => {
  assert.equal(decodeQuery(new Uint8Array(5)), undefined);
  const loop = encodeQuery(1, { name: 'a', type: 1, class: 1 });
  loop.set([0xc0, 12], 12);
  assert.deepEqual(decodeQuery(loop)?.questions, []);
  for (let seed = 0; seed < 500; seed++) {
    const bytes = Uint8Array.from({ length: seed % 60 }, (_, index) => (seed * 31 + index * 17 * (seed % 7)) & 255);
    decodeQuery(bytes);
    decodeAnswers(bytes);
  }
});

test('reverse names and IPv6 in its short forms', () => {
  assert.equal(addressOfReverse('4.3.2.1.in-addr.arpa'), '1.2.3.4');
  assert.equal(addressOfReverse(`1.${'0.'.repeat(28)}0.d.f.ip6.arpa`), 'fd00:0:0:0:0:0:0:1');
  assert.deepEqual(ipv6Groups('fd00::1'), [0xfd00, 0, 0, 0, 0, 0, 0, 1]);
  assert.deepEqual(ipv6Groups('::ffff:10.0.0.1'), [0, 0, 0, 0, 0, 0xffff, 0x0a00, 1]);
});
