import assert from 'node:assert/strict';
import { test } from 'node:test';
import { planReplace } from './diff.ts';
import type { Family } from './ip.ts';
import { portKey } from './names.ts';
import { portObjects } from './nft-service.ts';
import { Slots } from './slots.ts';
import type { RuleSettings } from './settings.ts';
import { transactionText } from './render-nft-text.ts';
import type { PortRules } from './ruleset.ts';
import { fateText, trace, type Packet } from './trace.ts';
import { traceText } from './trace-nft.ts';

/** One case table: the ruleset's answer, and the answer of its rendering walked through packet by packet. */

const settings: RuleSettings = {
  family: 'ip',
  markBits: 0x4000,
  masqueradeAll: false,
  detector: { kind: 'cidr', cidr: '10.244.0.0/16' },
  nodePorts: { kind: 'some', addresses: ['192.0.2.10'] },
  nodeIP: '192.0.2.10',
  serviceCIDRs: ['10.96.0.0/16'],
};

const nodeAddresses = ['127.0.0.1', '192.0.2.10', '198.51.100.10', '10.244.0.1'];
const a = { address: '10.244.0.3', port: 8080 };
const b = { address: '10.244.0.4', port: 8080 };
const far = { address: '10.244.1.5', port: 8080 };

function rules(more: Partial<PortRules> = {}): PortRules {
  return {
    id: { namespace: 'lab', name: 'echo', port: 'web', protocol: 'tcp' },
    label: 'lab/echo:web',
    clusterIP: '10.96.0.8',
    port: 80,
    nodePort: 0,
    healthCheckNodePort: 0,
    externalIPs: [],
    loadBalancerIPs: [],
    sourceRanges: [],
    affinitySeconds: null,
    internal: 'cluster',
    external: null,
    externalLocal: false,
    cluster: [a, b],
    local: [],
    reachable: [a, b],
    onNode: [a, b],
    endpointCount: 2,
    ...more,
  };
}

const outside = { nodePort: 30080, externalIPs: ['198.51.100.77'], loadBalancerIPs: ['203.0.113.10'] };
const from = { pod: '10.244.0.2', self: '10.244.0.3', ext: '192.0.2.200', near: '192.0.2.130', node: '192.0.2.10' };

function packet(who: keyof typeof from, dst: string, port: number, protocol: Packet['protocol'] = 'tcp'): Packet {
  const fromNode = who === 'node';
  return { protocol, src: from[who], dst, port, fromNode, inputInterface: fromNode ? '' : who === 'pod' || who === 'self' ? 'cali1' : 'eth0', nodeAddresses };
}

interface Case {
  name: string;
  ports: PortRules[];
  settings?: Partial<RuleSettings>;
  packets: [keyof typeof from, string, number, string, Packet['protocol']?][];
}

const both = '10.244.0.3 8080, 10.244.0.4 8080';
const bothMasqueraded = '10.244.0.3 8080 masqueraded, 10.244.0.4 8080 masqueraded';

const cases: Case[] = [
  {
    name: 'cluster IP',
    ports: [rules()],
    packets: [
      ['pod', '10.96.0.8', 80, both],
      ['ext', '10.96.0.8', 80, bothMasqueraded],
      ['node', '10.96.0.8', 80, bothMasqueraded],
      ['self', '10.96.0.8', 80, '10.244.0.3 8080 masqueraded, 10.244.0.4 8080'],
      ['pod', '10.96.0.8', 81, 'reject'],
      ['pod', '10.96.0.8', 80, 'reject', 'udp'],
      ['pod', '10.96.77.77', 80, 'drop'],
      ['pod', '10.244.0.9', 80, 'pass'],
    ],
  },
  { name: 'cluster IP without a way to tell pods', ports: [rules()], settings: { detector: { kind: 'none' } }, packets: [['ext', '10.96.0.8', 80, both]] },
  {
    name: 'node ports on localhost that are refused',
    ports: [
      rules({ nodePort: 30080, external: 'cluster' }),
      rules({ id: { ...rules().id, name: 'other', protocol: 'udp' }, clusterIP: '10.96.77.77', nodePort: 30080, external: 'reject' }),
    ],
    settings: { refusedOnLocalhost: ['udp', 'sctp'] },
    packets: [
      ['node', '127.0.0.1', 30080, 'pass'],
      ['node', '127.0.0.1', 30080, 'reject', 'udp'],
      ['node', '127.0.0.1', 30081, 'pass', 'udp'],
    ],
  },
  { name: 'masquerade all', ports: [rules()], settings: { masqueradeAll: true }, packets: [['pod', '10.96.0.8', 80, bothMasqueraded]] },
  {
    name: 'interface prefix',
    ports: [rules()],
    settings: { detector: { kind: 'prefix', name: 'cali' } },
    packets: [
      ['pod', '10.96.0.8', 80, both],
      ['ext', '10.96.0.8', 80, bothMasqueraded],
    ],
  },
  {
    name: 'bridge',
    ports: [rules()],
    settings: { detector: { kind: 'bridge', name: 'cali1' } },
    packets: [
      ['pod', '10.96.0.8', 80, both],
      ['ext', '10.96.0.8', 80, bothMasqueraded],
    ],
  },
  { name: 'affinity', ports: [rules({ affinitySeconds: 5 })], packets: [['pod', '10.96.0.8', 80, both]] },
  {
    name: 'external addresses under policy Cluster',
    ports: [rules({ ...outside, external: 'cluster' })],
    packets: [
      ['ext', '192.0.2.10', 30080, bothMasqueraded],
      ['ext', '198.51.100.77', 80, bothMasqueraded],
      ['pod', '203.0.113.10', 80, bothMasqueraded],
      ['ext', '198.51.100.10', 30080, 'pass'],
      ['node', '127.0.0.1', 30080, 'pass'],
      ['ext', '192.0.2.10', 80, 'pass'],
    ],
  },
  {
    name: 'node ports on all addresses',
    ports: [rules({ ...outside, external: 'cluster' })],
    settings: { nodePorts: { kind: 'all' } },
    packets: [
      ['ext', '198.51.100.10', 30080, bothMasqueraded],
      ['node', '127.0.0.1', 30080, 'pass'],
      ['ext', '192.0.2.77', 30080, 'pass'],
    ],
  },
  {
    name: 'no endpoint anywhere',
    ports: [rules({ ...outside, internal: 'reject', external: 'reject', cluster: [], reachable: [], onNode: [] })],
    packets: [
      ['pod', '10.96.0.8', 80, 'reject'],
      ['node', '10.96.0.8', 80, 'reject'],
      ['ext', '192.0.2.10', 30080, 'reject'],
      ['ext', '198.51.100.77', 80, 'reject'],
      ['ext', '203.0.113.10', 80, 'reject'],
    ],
  },
  {
    name: 'policies Local with nothing local',
    ports: [rules({ ...outside, internal: 'drop', external: 'drop', externalLocal: true, cluster: [far], reachable: [far], onNode: [] })],
    packets: [
      ['pod', '10.96.0.8', 80, 'drop'],
      ['ext', '192.0.2.10', 30080, 'drop'],
      ['ext', '203.0.113.10', 80, 'drop'],
      ['pod', '192.0.2.10', 30080, '10.244.1.5 8080'],
      ['node', '203.0.113.10', 80, '10.244.1.5 8080 masqueraded'],
    ],
  },
  {
    name: 'policies Local with a local pod',
    ports: [rules({ ...outside, internal: 'local', external: 'local', externalLocal: true, cluster: [a, far], local: [a], reachable: [a, far], onNode: [a] })],
    packets: [
      ['pod', '10.96.0.8', 80, '10.244.0.3 8080'],
      ['ext', '192.0.2.10', 30080, '10.244.0.3 8080'],
      ['pod', '198.51.100.77', 80, '10.244.0.3 8080, 10.244.1.5 8080'],
      ['self', '198.51.100.77', 80, '10.244.0.3 8080 masqueraded, 10.244.1.5 8080'],
    ],
  },
  {
    name: 'source ranges',
    ports: [rules({ ...outside, external: 'cluster', sourceRanges: ['192.0.2.128/26'] })],
    packets: [
      ['near', '203.0.113.10', 80, bothMasqueraded],
      ['ext', '203.0.113.10', 80, 'drop'],
      ['pod', '203.0.113.10', 80, 'drop'],
      ['node', '203.0.113.10', 80, 'drop'],
      ['ext', '192.0.2.10', 30080, bothMasqueraded],
      ['ext', '198.51.100.77', 80, bothMasqueraded],
    ],
  },
];

/** The same case in IPv6: each address gets a twin. */
const twins: Record<string, string> = {
  '10.96.0.8': 'fd00:96::8',
  '10.96.77.77': 'fd00:96::7777',
  '10.96.0.0/16': 'fd00:96::/112',
  '10.244.0.0/16': 'fd00:10:244::/48',
  '192.0.2.128/26': '2001:db8:2::/64',
  '10.244.0.1': 'fd00:10:244::1',
  '10.244.0.2': 'fd00:10:244::2',
  '10.244.0.3': 'fd00:10:244::3',
  '10.244.0.4': 'fd00:10:244::4',
  '10.244.0.9': 'fd00:10:244::9',
  '10.244.1.5': 'fd00:10:244:1::5',
  '127.0.0.1': '::1',
  '192.0.2.10': '2001:db8::10',
  '192.0.2.200': '2001:db8::200',
  '192.0.2.130': '2001:db8:2::130',
  '192.0.2.77': '2001:db8::77',
  '198.51.100.10': '2001:db8:1::10',
  '198.51.100.77': '2001:db8:1::77',
  '203.0.113.10': '2001:db8:3::10',
};

function twin<T>(value: T, family: Family): T {
  if (family === 'ip') return value;
  return JSON.parse(
    JSON.stringify(value).replaceAll(/\d+\.\d+\.\d+\.\d+(?:\/\d+)?/g, (address) => twins[address] ?? assert.fail(`no twin of ${address}`)),
  ) as T;
}

for (const family of ['ip', 'ip6'] as const) {
  for (const { name, ports, settings: more, packets } of cases) {
    test(`${name}, ${family}: the ruleset and its rendering agree`, () => {
      const all: RuleSettings = { ...twin({ ...settings, ...more }, family), family };
      const ruleset = twin(ports, family);
      const slots = new Slots();
      const text = transactionText({ family, ops: planReplace(all, new Map(ruleset.map((port) => [portKey(port.id), portObjects(port, all, slots)]))).ops });
      for (const [who, dst, port, expected, protocol] of packets) {
        const sent = twin(packet(who, dst, port, protocol), family);
        assert.equal(fateText(trace(ruleset, sent, all)), twin(expected, family), `ruleset: ${who} to ${dst}:${port}`);
        assert.equal(fateText(traceText(text, sent)), twin(expected, family), `text: ${who} to ${dst}:${port}`);
      }
    });
  }
}
