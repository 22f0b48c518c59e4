import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { NetworkPolicy, Pod } from '../../proto/kube/types.ts';
import { namespaceFacts, podFacts, policyFacts, selects } from './policy-facts.ts';
import { passes } from './policy-fate.ts';
import { isEmpty, MAPS, policyRules, waysOf, type PolicyRules } from './policy-rules.ts';
import { changeText, isAsWritten, removalText, wholeText } from './policy-table.ts';

type Spec = NetworkPolicy['spec'];

const pod = (
  namespace: string,
  name: string,
  ips: string[],
  labels: Record<string, string> = {},
  more: Partial<Pod['spec']> & { phase?: string } = {},
): Pod => ({
  metadata: { namespace, name, labels },
  spec: { nodeName: 'n1', containers: [{ name: 'c', ports: [{ name: 'serve', containerPort: 80 }] }], ...more },
  status: { phase: more.phase ?? 'Running', podIP: ips[0]!, podIPs: ips.map((ip) => ({ ip })) },
});

const PODS = [
  pod('x', 'a', ['10.244.1.1', 'fd00:1::1'], { pod: 'a' }),
  pod('x', 'b', ['10.244.1.2', 'fd00:1::2'], { pod: 'b' }),
  pod('y', 'a', ['10.244.2.1', 'fd00:2::1'], { pod: 'a' }, { nodeName: 'n2' }),
  pod('y', 'b', ['10.244.2.2', 'fd00:2::2'], { pod: 'b' }, { nodeName: 'n2' }),
  pod('z', 'a', ['10.244.2.3', 'fd00:2::3'], { pod: 'a' }, { nodeName: 'n2' }),
  pod('x', 'host', ['192.0.2.1'], { pod: 'a' }, { hostNetwork: true }),
  pod('x', 'finished', ['10.244.1.9'], { pod: 'a' }, { phase: 'Succeeded' }),
];
const NAMESPACES = ['x', 'y', 'z'].map((name) => namespaceFacts({ metadata: { name, labels: { ns: name } }, spec: {} }));

const rulesOf = (specs: readonly Spec[], pods = PODS): PolicyRules =>
  policyRules({
    node: 'n1',
    policies: specs.map((spec, at) => policyFacts({ metadata: { namespace: 'x', name: `p${at}` }, spec })),
    clusterPolicies: [],
    pods: pods.map(podFacts),
    nodes: [],
    namespaces: new Map(NAMESPACES.map((one) => [one.name, one])),
  });

const IP: Record<string, string> = {
  'x/a': '10.244.1.1',
  'x/b': '10.244.1.2',
  'y/a': '10.244.2.1',
  'y/b': '10.244.2.2',
  'z/a': '10.244.2.3',
  out: '198.51.100.7',
  node: '192.0.2.1',
  freed: '10.244.1.9',
};
/** `x/a > x/b tcp 80` by IPv4, with `6` behind the arrow by IPv6. */
function fate(rules: PolicyRules, text: string): boolean {
  const [from = '', arrow, to = '', protocol = 'tcp', port = '80'] = text.split(' ');
  const address = (name: string): string =>
    arrow === '>6' ? IP[name]!.replace(/^10\.244\.(\d)\./, 'fd00:$1::').replace('198.51.100.7', '2001:db8::7') : (IP[name] ?? name);
  return passes(rules, { from: address(from), to: address(to), protocol, port: Number(port) });
}

const toA = { podSelector: { matchLabels: { pod: 'a' } } };
const cases: { what: string; specs: Spec[]; yes: string[]; no: string[] }[] = [
  { what: 'nobody is isolated without a policy', specs: [], yes: ['y/a > x/a', 'x/a > out'], no: [] },
  {
    what: 'no rules: nothing comes in, everything goes out, the pod reaches itself',
    specs: [{ podSelector: {} }],
    yes: ['x/a > y/a', 'x/a > out', 'x/a > x/a', 'x/a >6 x/a', 'y/a > z/a'],
    no: ['y/a > x/a', 'y/a >6 x/a', 'x/b > x/a', 'out > x/b udp'],
  },
  { what: 'an empty rule lets all in', specs: [{ podSelector: {}, ingress: [{}] }], yes: ['y/a > x/a', 'out >6 x/b sctp 7'], no: [] },
  { what: 'only the selected pods are isolated', specs: [toA], yes: ['y/a > x/b'], no: ['y/a > x/a'] },
  { what: 'both ways by types', specs: [{ ...toA, policyTypes: ['Ingress', 'Egress'] }], yes: ['x/b > y/a'], no: ['x/a > out', 'out > x/a'] },
  { what: 'egress alone', specs: [{ ...toA, policyTypes: ['Egress'] }], yes: ['out > x/a'], no: ['x/a > x/b', 'x/a >6 x/b'] },
  {
    what: 'egress rules without types isolate both ways',
    specs: [{ ...toA, egress: [{ ports: [{ port: 53, protocol: 'UDP' }] }] }],
    yes: ['x/a > out udp 53'],
    no: ['x/a > out tcp 53', 'out > x/a'],
  },
  {
    what: 'pods of the own namespace',
    specs: [{ ...toA, ingress: [{ from: [{ podSelector: { matchLabels: { pod: 'b' } } }] }] }],
    yes: ['x/b > x/a', 'x/b >6 x/a'],
    no: ['y/b > x/a', 'out > x/a'],
  },
  {
    what: 'a namespace and pods in it: both must hold',
    specs: [{ ...toA, ingress: [{ from: [{ namespaceSelector: { matchLabels: { ns: 'y' } }, podSelector: { matchLabels: { pod: 'b' } } }] }] }],
    yes: ['y/b > x/a'],
    no: ['y/a > x/a', 'x/b > x/a'],
  },
  {
    what: 'a namespace or pods: one of two must hold',
    specs: [{ ...toA, ingress: [{ from: [{ namespaceSelector: { matchLabels: { ns: 'y' } } }, { podSelector: { matchLabels: { pod: 'b' } } }] }] }],
    yes: ['y/a > x/a', 'y/b > x/a', 'x/b > x/a'],
    no: ['z/a > x/a'],
  },
  {
    what: 'all namespaces are no outside, and no node',
    specs: [{ ...toA, ingress: [{ from: [{ namespaceSelector: {} }] }] }],
    yes: ['z/a > x/a'],
    no: ['out > x/a', 'node > x/a', 'freed > x/a'],
  },
  {
    what: 'expressions',
    specs: [
      {
        podSelector: { matchExpressions: [{ key: 'pod', operator: 'In', values: ['a'] }] },
        ingress: [{ from: [{ namespaceSelector: { matchExpressions: [{ key: 'ns', operator: 'NotIn', values: ['x'] }] } }] }],
      },
    ],
    yes: ['y/a > x/a', 'x/a > x/b'],
    no: ['x/b > x/a'],
  },
  {
    what: 'ports, ranges, protocols',
    specs: [
      {
        ...toA,
        ingress: [{ ports: [{ port: 80 }, { port: 100, endPort: 110 }, { port: 105, endPort: 120 }, { protocol: 'SCTP' }, { port: 5, protocol: 'SCTP' }] }],
      },
    ],
    yes: ['out > x/a', 'out > x/a tcp 110', 'out > x/a tcp 120', 'out >6 x/a sctp 9'],
    no: ['out > x/a udp', 'out > x/a tcp 99', 'out > x/a tcp 121'],
  },
  {
    what: 'a named port is the receiving pod’s',
    specs: [{ ...toA, ingress: [{ ports: [{ port: 'serve' }] }] }],
    yes: ['out > x/a', 'out >6 x/a'],
    no: ['out > x/a tcp 81', 'out > x/a udp'],
  },
  {
    what: 'a named port to others',
    specs: [{ ...toA, policyTypes: ['Egress'], egress: [{ ports: [{ port: 'serve' }] }] }],
    yes: ['x/a > y/a'],
    no: ['x/a > y/a tcp 81', 'x/a > out'],
  },
  { what: 'a name that no pod has lets nothing through', specs: [{ ...toA, ingress: [{ ports: [{ port: 'none' }] }] }], yes: [], no: ['out > x/a'] },
  {
    what: 'blocks with exceptions, which may lie in each other',
    specs: [{ ...toA, policyTypes: ['Egress'], egress: [{ to: [{ ipBlock: { cidr: '10.244.0.0/16', except: ['10.244.2.0/24', '10.244.2.0/30'] } }] }] }],
    yes: ['x/a > x/b'],
    no: ['x/a > y/a', 'x/a > out', 'x/a >6 x/b'],
  },
  {
    what: 'an exception that another block holds is let through',
    specs: [
      {
        ...toA,
        policyTypes: ['Egress'],
        egress: [{ to: [{ ipBlock: { cidr: '10.244.2.0/24', except: ['10.244.2.1/32'] } }] }, { to: [{ ipBlock: { cidr: '10.244.2.1/32' } }] }],
      },
    ],
    yes: ['x/a > y/a', 'x/a > y/b'],
    no: ['x/a > x/b'],
  },
  {
    what: 'everything of a family',
    specs: [{ ...toA, ingress: [{ from: [{ ipBlock: { cidr: '::/0' } }] }, { from: [{ ipBlock: { cidr: '0.0.0.0/0', except: ['0.0.0.0/0'] } }] }] }],
    yes: ['out >6 x/a'],
    no: ['out > x/a'],
  },
  {
    what: 'policies add up',
    specs: [toA, { podSelector: {}, ingress: [{ from: [{ namespaceSelector: { matchLabels: { ns: 'y' } } }] }] }],
    yes: ['y/a > x/a', 'y/a > x/b'],
    no: ['z/a > x/a', 'z/a > x/b'],
  },
  {
    what: 'both ends must agree',
    specs: [
      { ...toA, policyTypes: ['Egress'], egress: [{ to: [{ podSelector: {} }] }] },
      { podSelector: { matchLabels: { pod: 'b' } }, ingress: [{ ports: [{ port: 80 }] }] },
    ],
    yes: ['x/a > x/b'],
    no: ['x/a > x/b tcp 81', 'x/a > y/a'],
  },
  {
    what: 'a peer that says nothing, or nothing that is known, is nobody',
    specs: [{ ...toA, ingress: [{ from: [{}] }, { from: [{ ipBlock: { cidr: 'no' } }] }, { ports: [{ protocol: 'ICMP' }] }] }],
    yes: [],
    no: ['y/a > x/a', 'out > x/a'],
  },
];

for (const { what, specs, yes, no } of cases)
  test(`policies: ${what}`, () => {
    const rules = rulesOf(specs);
    assert.deepEqual(
      [...yes, ...no].filter((packet) => fate(rules, packet)),
      yes,
    );
  });

test('the types of a policy', () => {
  assert.deepEqual(waysOf({ podSelector: {} }), ['ingress']);
  assert.deepEqual(waysOf({ podSelector: {}, egress: [] }), ['ingress']);
  assert.deepEqual(waysOf({ podSelector: {}, egress: [{}] }), ['ingress', 'egress']);
  assert.deepEqual(waysOf({ podSelector: {}, egress: [{}], policyTypes: ['Ingress'] }), ['ingress']);
});

test('selectors', () => {
  const expression = (operator: string, values?: string[]): boolean =>
    selects({ matchExpressions: [{ key: 'k', operator, ...(values === undefined ? {} : { values }) }] }, { k: 'v' });
  assert.deepEqual(
    [expression('In', ['v']), expression('NotIn', ['v']), expression('Exists'), expression('DoesNotExist'), expression('Like', ['v'])],
    [true, false, true, false, false],
  );
  assert.equal(selects({ matchExpressions: [{ key: 'other', operator: 'NotIn', values: ['v'] }] }, { k: 'v' }), true);
  assert.equal(selects({ matchLabels: { toString: 'x' } }, {}), false);
});

const other: Spec = { podSelector: {}, ingress: [{ from: [{ namespaceSelector: { matchLabels: { ns: 'y' } } }] }] };

test('pods of the same policies share a chain; a pod that comes changes elements only', () => {
  const before = rulesOf([other], PODS.slice(0, 3));
  assert.equal(before.chains.size, 1);
  const after = rulesOf([other], [...PODS.slice(0, 4), pod('x', 'new', ['10.244.1.7'])]);
  assert.deepEqual(
    changeText(before, after)
      .trim()
      .split('\n')
      .map((line) => line.replace(/pods-[0-9a-f]+|ingress-[0-9a-f]+/g, (name) => name.split('-')[0]!)),
    [
      'add element inet nodelet-policy pods-4 { 10.244.2.2 }',
      'add element inet nodelet-policy pods-6 { fd00:2::2 }',
      'add element inet nodelet-policy self-4 { 10.244.1.7 . 10.244.1.7 }',
      'add element inet nodelet-policy ingress4 { 10.244.1.7 : jump ingress }',
    ],
  );
  assert.equal(changeText(after, after), '');
});

test('a policy that is gone takes its chain and sets with it, the last one the table', () => {
  const [none, one, both] = [rulesOf([]), rulesOf([toA]), rulesOf([toA, other])];
  assert.equal(isEmpty(none), true);
  const lines = changeText(both, one).trim().split('\n');
  assert.equal(lines.filter((line) => line.startsWith('delete chain')).length, 2);
  assert.equal(lines.filter((line) => line.startsWith('delete set')).length, 2);
  assert.ok(
    lines.findIndex((line) => line.startsWith('delete element inet nodelet-policy ingress4')) < lines.findIndex((line) => line.startsWith('delete chain')),
  );
  assert.equal(changeText(one, none), removalText());
  assert.equal(changeText(none, one), wholeText(one));
  assert.equal(wholeText(none), removalText());
});

test('a listing tells what is missing', () => {
  const rules = rulesOf([other]);
  const block = (kind: string, name: string, lines: string[]): string => `\t${kind} ${name} {\n${lines.map((line) => `\t\t${line}\n`).join('')}\t}\n`;
  const listing = [
    ...[...rules.sets].map(([name, { type, elements }]) => block('set', name, [`type ${type}`, `elements = { ${[...elements].join(',\n\t\t\t     ')} }`])),
    ...MAPS.map((name) =>
      block('map', name, [
        `type x : verdict`,
        ...(rules.maps[name].size === 0 ? [] : [`elements = { ${[...rules.maps[name]].map(([key, chain]) => `${key} : jump ${chain}`).join(', ')} }`]),
      ]),
    ),
    ...[...rules.chains].map(([name, list]) => block('chain', name, [...list])),
    block('chain', 'forward', ['type filter hook forward priority filter; policy accept;', ...'12345'.split('')]),
  ];
  const whole = (parts: string[]): string => `table inet nodelet-policy {\n${parts.join('\n')}}\n`;
  assert.equal(isAsWritten(whole(listing), rules), true);
  for (let at = 0; at < listing.length; at++) assert.equal(isAsWritten(whole(listing.toSpliced(at, 1)), rules), false);
  assert.equal(isAsWritten(whole(listing).replace('10.244.2.1', '').replace(/\{ ,/, '{'), rules), false);
  assert.equal(isAsWritten(whole(listing).replace('\t\tdrop\n', ''), rules), false);
});
