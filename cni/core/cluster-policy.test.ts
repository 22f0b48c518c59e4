import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { NetworkPolicy, Node, Pod } from '../../proto/kube/types.ts';
import { clusterPolicyFacts, type ClusterNetworkPolicy, type ClusterPolicyRule } from './cluster-policy.ts';
import { namespaceFacts, nodeFacts, podFacts, policyFacts } from './policy-facts.ts';
import { passes } from './policy-fate.ts';
import { guardsNode, isEmpty, policyRules, type PolicyRules } from './policy-rules.ts';
import { changeText, wholeText } from './policy-table.ts';

const pod = (namespace: string, name: string, ips: string[], more: Partial<Pod['spec']> = {}): Pod => ({
  metadata: { namespace, name, labels: { pod: name } },
  spec: { nodeName: 'n1', containers: [{ name: 'c', ports: [{ name: 'serve', containerPort: 80, protocol: 'UDP' }] }], ...more },
  status: { phase: 'Running', podIP: ips[0]!, podIPs: ips.map((ip) => ({ ip })) },
});
const PODS = [
  pod('x', 'a', ['10.244.1.1', 'fd00:1::1']),
  pod('x', 'b', ['10.244.1.2', 'fd00:1::2']),
  pod('y', 'a', ['10.244.2.1', 'fd00:2::1'], { nodeName: 'n2' }),
  pod('y', 'b', ['10.244.2.2', 'fd00:2::2'], { nodeName: 'n2' }),
  pod('x', 'host', ['192.0.2.1'], { hostNetwork: true }),
];
const NAMESPACES = ['x', 'y'].map((name) => namespaceFacts({ metadata: { name, labels: { ns: name } }, spec: {} }));
const NODES: Node[] = [
  { metadata: { name: 'n1', labels: { role: 'one' } }, spec: {}, status: { addresses: [{ type: 'InternalIP', address: '192.0.2.1' }] } },
  {
    metadata: { name: 'n2', labels: { role: 'two' } },
    spec: {},
    status: {
      addresses: [
        { type: 'InternalIP', address: '192.0.2.2' },
        { type: 'Hostname', address: 'n2' },
        { type: 'InternalIP', address: '2001:db8::2' },
      ],
    },
  },
];

type Spec = Partial<Omit<ClusterNetworkPolicy['spec'], 'ingress' | 'egress'>> & {
  ingress?: Partial<ClusterPolicyRule>[];
  egress?: Partial<ClusterPolicyRule>[];
};
const clusterPolicy = (name: string, spec: Spec): ClusterNetworkPolicy => ({
  metadata: { name },
  spec: { tier: 'Admin', priority: 10, subject: { namespaces: {} }, ...spec } as ClusterNetworkPolicy['spec'],
});

const rulesOf = (specs: readonly Spec[], own: readonly NetworkPolicy['spec'][] = [], pods = PODS): PolicyRules =>
  policyRules({
    node: 'n1',
    policies: own.map((spec, at) => policyFacts({ metadata: { namespace: 'x', name: `p${at}` }, spec })),
    clusterPolicies: specs.map((spec, at) => clusterPolicyFacts(clusterPolicy(`c${at}`, spec))),
    pods: pods.map(podFacts),
    namespaces: new Map(NAMESPACES.map((one) => [one.name, one])),
    nodes: NODES.map(nodeFacts),
  });

const IP: Record<string, string> = {
  'x/a': '10.244.1.1',
  'x/b': '10.244.1.2',
  'y/a': '10.244.2.1',
  'y/b': '10.244.2.2',
  out: '198.51.100.7',
  n1: '192.0.2.1',
  n2: '192.0.2.2',
};
/** As in `policy-rules.test.ts`; `n1` is the node itself. */
function fate(rules: PolicyRules, text: string): boolean {
  const [from = '', arrow, to = '', protocol = 'tcp', port = '80'] = text.split(' ');
  const address = (name: string): string =>
    arrow === '>6'
      ? IP[name]!.replace(/^10\.244\.(\d)\./, 'fd00:$1::')
          .replace('198.51.100.7', '2001:db8:9::7')
          .replace('192.0.2.', '2001:db8::')
      : IP[name]!;
  return passes(rules, { from: address(from), to: address(to), protocol, port: Number(port) }, to === 'n1' ? 'input' : 'forward');
}

const all = { namespaces: {} };
const x = { namespaces: { matchLabels: { ns: 'x' } } };
const y = { namespaces: { matchLabels: { ns: 'y' } } };
const a = { pods: { namespaceSelector: {}, podSelector: { matchLabels: { pod: 'a' } } } };
const everywhere = { networks: ['0.0.0.0/0', '::/0'] };
const cases: { what: string; specs: Spec[]; own?: NetworkPolicy['spec'][]; yes: string[]; no: string[] }[] = [
  {
    what: 'Deny ends, and what no rule names goes on',
    specs: [{ ingress: [{ action: 'Deny', from: [y] }] }],
    yes: ['x/b > x/a', 'out > x/a', 'x/a > y/a', 'n2 > x/a'],
    no: ['y/a > x/a', 'y/a >6 x/b udp'],
  },
  {
    what: 'the first rule decides',
    specs: [
      {
        ingress: [
          { action: 'Accept', from: [y], protocols: [{ tcp: { destinationPort: { number: 80 } } }] },
          { action: 'Deny', from: [y] },
          { action: 'Accept', from: [y] },
        ],
      },
    ],
    yes: ['y/a > x/a'],
    no: ['y/a > x/a tcp 81', 'y/a > x/a udp'],
  },
  {
    what: 'the lower priority number is asked first, and the name where it is the same',
    specs: [
      { priority: 20, ingress: [{ action: 'Accept', from: [y] }] },
      { priority: 5, ingress: [{ action: 'Deny', from: [a] }] },
      { priority: 20, ingress: [{ action: 'Deny', from: [y] }] },
    ],
    yes: ['y/b > x/a'],
    no: ['y/a > x/a', 'x/a > x/b'],
  },
  {
    what: 'Admin’s Accept is above NetworkPolicies, its Deny too',
    specs: [
      {
        ingress: [
          { action: 'Accept', from: [y] },
          { action: 'Deny', from: [x] },
        ],
      },
    ],
    own: [{ podSelector: {}, ingress: [{ from: [{ podSelector: {} }] }] }],
    yes: ['y/a > x/a'],
    no: ['x/b > x/a', 'out > x/a'],
  },
  {
    what: 'Pass leaves it to the next tier: the NetworkPolicy, past all that Admin says else',
    specs: [
      {
        ingress: [
          { action: 'Pass', from: [a] },
          { action: 'Deny', from: [all] },
        ],
      },
    ],
    own: [{ podSelector: { matchLabels: { pod: 'b' } }, ingress: [{ from: [{ podSelector: {} }] }] }],
    yes: ['x/a > x/b', 'y/a > x/a', 'out > x/a'],
    no: ['y/a > x/b', 'y/b > x/a', 'x/b > x/a', 'out > x/b'],
  },
  {
    what: 'Baseline is for pods that no NetworkPolicy selects',
    specs: [{ tier: 'Baseline', ingress: [{ action: 'Deny', from: [all] }] }],
    own: [{ podSelector: { matchLabels: { pod: 'b' } }, ingress: [{}] }],
    yes: ['y/a > x/b', 'out > x/a'],
    no: ['y/a > x/a', 'x/b > x/a'],
  },
  {
    what: 'a NetworkPolicy of ingress leaves egress to Baseline',
    specs: [{ tier: 'Baseline', egress: [{ action: 'Deny', to: [everywhere] }] }],
    own: [{ podSelector: {}, ingress: [{}] }],
    yes: ['y/a > x/b'],
    no: ['x/a > y/a', 'x/a >6 out', 'x/a > n1'],
  },
  {
    what: 'from Admin by Pass to Baseline, and by none',
    specs: [
      {
        egress: [
          { action: 'Pass', to: [y] },
          { action: 'Accept', to: [x] },
        ],
      },
      { tier: 'Baseline', egress: [{ action: 'Deny', to: [a] }] },
    ],
    yes: ['x/b > x/a', 'x/a > y/b', 'x/a > out'],
    no: ['x/a > y/a'],
  },
  {
    what: 'egress that is accepted is still judged at the other end',
    specs: [
      { subject: a, egress: [{ action: 'Accept', to: [all] }] },
      { subject: { pods: { podSelector: { matchLabels: { pod: 'b' } } } }, priority: 20, ingress: [{ action: 'Deny', from: [all] }] },
    ],
    yes: ['x/a > y/a'],
    no: ['x/a > x/b'],
  },
  {
    what: 'subjects by namespace and pod',
    specs: [
      {
        subject: { pods: { namespaceSelector: { matchLabels: { ns: 'x' } }, podSelector: { matchLabels: { pod: 'a' } } } },
        ingress: [{ action: 'Deny', from: [all] }],
      },
    ],
    yes: ['y/a > x/b'],
    no: ['y/a > x/a'],
  },
  {
    what: 'nodes by label, the own one too; a NetworkPolicy never forbids it',
    specs: [
      {
        egress: [
          { action: 'Accept', to: [{ nodes: { matchLabels: { role: 'two' } } }] },
          { action: 'Accept', to: [{ nodes: {} }], protocols: [{ tcp: { destinationPort: { number: 6443 } } }] },
          { action: 'Deny', to: [{ nodes: {} }] },
        ],
      },
    ],
    own: [{ podSelector: { matchLabels: { pod: 'b' } }, policyTypes: ['Egress'] }],
    yes: ['x/a > n2', 'x/a >6 n2', 'x/a > n1 tcp 6443', 'x/b > n1 tcp 6443', 'x/a > out'],
    no: ['x/a > n1', 'x/b > n1', 'x/b > out'],
  },
  {
    what: 'packets to the node pass a NetworkPolicy and the tier behind it',
    specs: [
      { egress: [{ action: 'Pass', to: [{ networks: ['192.0.2.0/24'] }] }] },
      { tier: 'Baseline', egress: [{ action: 'Deny', to: [{ networks: ['192.0.2.0/24'] }] }] },
    ],
    own: [{ podSelector: { matchLabels: { pod: 'b' } }, policyTypes: ['Egress'] }],
    yes: ['x/b > n1'],
    no: ['x/a > n1', 'x/a > n2', 'x/b > n2'],
  },
  {
    what: 'networks that lie in each other, of both families',
    specs: [{ egress: [{ action: 'Deny', to: [{ networks: ['10.244.2.0/24', '10.244.2.1/32', '198.51.100.0/24', '2001:db8:9::/48'] }] }] }],
    yes: ['x/a > x/b', 'x/a >6 y/a'],
    no: ['x/a > y/a', 'x/a > y/b', 'x/a > out', 'x/a >6 out'],
  },
  {
    what: 'protocols: ranges, whole ones, a name of any protocol',
    specs: [
      {
        egress: [
          {
            action: 'Accept',
            to: [all],
            protocols: [
              { tcp: { destinationPort: { range: { start: 90, end: 99 } } } },
              { tcp: { destinationPort: { number: 95 } } },
              { sctp: {} },
              { destinationNamedPort: 'serve' },
            ],
          },
          { action: 'Deny', to: [all] },
        ],
      },
    ],
    yes: ['x/a > y/a tcp 99', 'x/a > y/a sctp 7', 'x/a >6 y/a udp 80', 'x/a > out'],
    no: ['x/a > y/a tcp 80', 'x/a > y/a tcp 100', 'x/a > y/a udp 81'],
  },
  {
    what: 'a pod is not kept from itself by a NetworkPolicy, and is by a tier',
    specs: [{ subject: a, ingress: [{ action: 'Deny', from: [x] }] }],
    own: [{ podSelector: {}, policyTypes: ['Ingress', 'Egress'] }],
    yes: ['x/b > x/b'],
    no: ['x/a > x/a'],
  },
  {
    what: 'a field that is not known: an Accept lets nothing through, all else denies everything',
    specs: [
      {
        subject: { pods: { podSelector: { matchLabels: { pod: 'a' } } } },
        ingress: [
          { action: 'Pass', from: [{ services: {} } as object] },
          { action: 'Accept', from: [all] },
        ],
      },
      {
        subject: { pods: { podSelector: { matchLabels: { pod: 'b' } } } },
        ingress: [
          { action: 'Accept', from: [y, {}] },
          { action: 'Accept', from: [y], ports: [] } as object,
          { action: 'Accept', from: [y], protocols: [{ icmp: {} } as object] },
          { action: 'Deny', from: [y] },
        ],
      },
    ],
    yes: ['x/a > x/b'],
    no: ['x/b > x/a', 'out > x/a', 'y/a > x/b'],
  },
  {
    what: 'names of domains are not followed: an Accept of them lets nothing more through',
    specs: [
      {
        egress: [
          { action: 'Accept', to: [{ domainNames: ['example.org'] }, y] },
          { action: 'Deny', to: [everywhere] },
        ],
      },
    ],
    yes: ['x/a > y/a'],
    no: ['x/a > out', 'x/a > x/b'],
  },
];

for (const { what, specs, own, yes, no } of cases)
  test(`cluster policies: ${what}`, () => {
    const rules = rulesOf(specs, own);
    assert.deepEqual(
      [...yes, ...no].filter((packet) => fate(rules, packet)),
      yes,
    );
  });

const GOLDEN = `table inet nodelet-policy { }
delete table inet nodelet-policy
table inet nodelet-policy {
  set pods-A-4 { type ipv4_addr; elements = { 10.244.2.1, 10.244.2.2 }; }
  set pods-A-6 { type ipv6_addr; elements = { fd00:2::1, fd00:2::2 }; }
  set pods-B-4 { type ipv4_addr; elements = { 10.244.1.1, 10.244.1.2, 10.244.2.1, 10.244.2.2 }; }
  set pods-B-6 { type ipv6_addr; elements = { fd00:1::1, fd00:1::2, fd00:2::1, fd00:2::2 }; }
  set self-4 { type ipv4_addr . ipv4_addr; elements = { 10.244.1.2 . 10.244.1.2 }; }
  set self-6 { type ipv6_addr . ipv6_addr; elements = { fd00:1::2 . fd00:1::2 }; }
  set pods-C-4 { type ipv4_addr; elements = { 10.244.1.1, 10.244.2.1 }; }
  set pods-C-6 { type ipv6_addr; elements = { fd00:1::1, fd00:2::1 }; }
  chain ingress-D {
    ip saddr . ip daddr @self-4 return
    ip6 saddr . ip6 daddr @self-6 return
    drop
  }
  chain baseline-ingress-E {
    ip saddr @pods-C-4 tcp dport { 80 } drop comment "c1 0"
    ip6 saddr @pods-C-6 tcp dport { 80 } drop comment "c1 0"
  }
  chain admin-ingress-F {
    ip saddr @pods-A-4 goto ingress-D comment "c0 0"
    ip6 saddr @pods-A-6 goto ingress-D comment "c0 0"
    ip saddr @pods-B-4 drop comment "c0 1"
    ip6 saddr @pods-B-6 drop comment "c0 1"
    goto ingress-D
  }
  chain admin-ingress-G {
    ip saddr @pods-A-4 goto baseline-ingress-E comment "c0 0"
    ip6 saddr @pods-A-6 goto baseline-ingress-E comment "c0 0"
    ip saddr @pods-B-4 drop comment "c0 1"
    ip6 saddr @pods-B-6 drop comment "c0 1"
    goto baseline-ingress-E
  }
  map egress4 { type ipv4_addr : verdict; }
  map egress6 { type ipv6_addr : verdict; }
  map ingress4 { type ipv4_addr : verdict; elements = { 10.244.1.2 : jump admin-ingress-F, 10.244.1.1 : jump admin-ingress-G }; }
  map ingress6 { type ipv6_addr : verdict; elements = { fd00:1::2 : jump admin-ingress-F, fd00:1::1 : jump admin-ingress-G }; }
  chain forward {
    type filter hook forward priority filter; policy accept;
    ct state established,related accept
    ip saddr vmap @egress4
    ip6 saddr vmap @egress6
    ip daddr vmap @ingress4
    ip6 daddr vmap @ingress6
  }
}
`;

test('the table of both tiers, as a person reads it', () => {
  const rules = rulesOf(
    [
      {
        ingress: [
          { action: 'Pass', from: [y] },
          { action: 'Deny', from: [all] },
        ],
      },
      { tier: 'Baseline', ingress: [{ action: 'Deny', from: [a], protocols: [{ tcp: { destinationPort: { number: 80 } } }] }] },
    ],
    [{ podSelector: { matchLabels: { pod: 'b' } } }],
  );
  const names = new Map<string, string>();
  const plain = wholeText(rules).replace(/-([0-9a-f]{16})/g, (_, hash: string) => {
    names.set(hash, names.get(hash) ?? String.fromCharCode(65 + names.size));
    return `-${names.get(hash)}`;
  });
  assert.equal(plain, GOLDEN);
});

const deny: Spec = { ingress: [{ action: 'Deny', from: [y] }] };

test('cluster policies that come and go: changes are of elements and chains; one that speaks of the node’s own packets is a whole table', () => {
  const none = rulesOf([]);
  const one = rulesOf([deny]);
  assert.equal(isEmpty(none), true);
  assert.equal(guardsNode(one), false);
  assert.equal(changeText(none, one), wholeText(one));
  const own: NetworkPolicy['spec'] = { podSelector: {} };
  const both = rulesOf([deny], [own]);
  const lines = changeText(one, both).trim().split('\n');
  // The chain that another one leads to is there before.
  const added = lines.filter((line) => line.startsWith('add chain')).map((line) => line.split(' ').at(-1)!);
  assert.match(added[0]!, /^ingress-/);
  assert.match(added[1]!, /^admin-ingress-/);
  const back = changeText(both, one).trim().split('\n');
  assert.ok(back.findLastIndex((line) => line.startsWith('flush chain')) < back.findIndex((line) => line.startsWith('delete chain')));
  const withNode = rulesOf([deny, { egress: [{ action: 'Deny', to: [{ nodes: {} }] }] }]);
  assert.equal(changeText(one, withNode), wholeText(withNode));
  assert.match(wholeText(withNode), /chain input \{\n {4}type filter hook input/);
  assert.equal(changeText(withNode, one), wholeText(one));
});

test('a name is no way into the table’s text', () => {
  const rules = rulesOf([{ ingress: [{ action: 'Deny', name: '"; flush ruleset; #', from: [y] }] }]);
  assert.doesNotMatch(wholeText(rules), /flush ruleset/);
});
