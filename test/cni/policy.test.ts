import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { describe, test } from 'node:test';
import { realClock } from '../../base/clock.ts';
import { FakeKubeApi } from '../../base/kubeapi/fake.ts';
import * as refs from '../../base/kubeapi/refs.ts';
import { silentLog } from '../../base/log.ts';
import { createSysClient } from '../../base/sys/client.ts';
import { createPolicyTable } from '../../cni/io/policy-table.ts';
import { PolicyNetwork } from '../../cni/policy.ts';
import type { ClusterNetworkPolicy } from '../../cni/core/cluster-policy.ts';
import type { NetworkPolicy, Pod } from '../../proto/kube/types.ts';
import { Lab, missing, peer, serve } from './lab.ts';

/** NetworkPolicies on real network namespaces, with packets: two pods of this node and a machine beside it. */

const skip = missing() ?? false;
const sysPath = process.env['NODELET_SYS'] ?? join(import.meta.dirname, '../../dist/sys');
const SETTLE_MS = 20_000;
const TRIES = 6;

const podOf = (name: string, namespace: string, ips: string[], labels: Record<string, string>): Pod => ({
  metadata: { name, namespace, labels },
  spec: { nodeName: 'n1', containers: [{ name: 'c', ports: [{ name: 'serve', containerPort: 7000 }] }] },
  status: { phase: 'Running', podIP: ips[0]!, podIPs: ips.map((ip) => ({ ip })) },
});

interface Stage {
  readonly lab: Lab;
  readonly outside: string;
  readonly api: FakeKubeApi;
  readonly network: PolicyNetwork;
  /** `a > b tcp 7000` with `6` behind the arrow by IPv6: which get through and which do not. A crowded machine may need another try for the first. */
  readonly through: (yes: readonly string[], no?: readonly string[]) => Promise<void>;
  /** Waits until what the API has stands in the kernel. */
  readonly settled: (pattern: RegExp | null) => Promise<void>;
}

const ADDRESS: Record<string, string> = { a: '10.244.1.2', b: '10.244.1.3', out: '192.0.2.200', node: '192.0.2.10' };
const ADDRESS6: Record<string, string> = { a: 'fd00:1::2', b: 'fd00:1::3', out: '2001:db8::200', node: '2001:db8::10' };

async function stage(run: (stage: Stage) => Promise<void>): Promise<void> {
  await using lab = new Lab();
  const outside = lab.uplink();
  const spaces: Record<string, string> = { a: lab.space('a'), b: lab.space('b'), out: outside, node: lab.node };
  for (const name of ['a', 'b']) await lab.call('ADD', name, spaces[name]!, { ipam: { ranges: [[{ subnet: '10.244.1.0/24' }], [{ subnet: 'fd00:1::/64' }]] } });
  for (const [prefix, via] of [
    ['10.244.1.0/24', '192.0.2.10'],
    ['fd00:1::/64', '2001:db8::10'],
  ] as const)
    execFileSync('ip', ['-n', outside, 'route', 'add', prefix, 'via', via]);
  await Promise.all(['a', 'b', 'out'].map((name) => serve(lab, spaces[name]!, name, 7000, 7001)));
  await using sys = createSysClient({ path: sysPath, log: silentLog });
  await using api = new FakeKubeApi();
  const stop = new AbortController();
  const network = new PolicyNetwork({ nodeName: 'n1', table: createPolicyTable(sys, { netns: lab.netns(lab.node) }), clock: realClock, log: silentLog });
  for (const name of ['x', 'y']) api.put(refs.namespaces(name), { metadata: { name, labels: { ns: name } } });
  api.put(refs.pods('x', 'a'), podOf('a', 'x', [ADDRESS['a']!, ADDRESS6['a']!], { pod: 'a' }));
  api.put(refs.pods('y', 'b'), podOf('b', 'y', [ADDRESS['b']!, ADDRESS6['b']!], { pod: 'b' }));
  const running = network.run(api, stop.signal).catch((error: unknown) => {
    if (!stop.signal.aborted) throw error;
  });
  const one = async (packet: string): Promise<boolean> => {
    const [from = '', arrow, to = '', protocol = 'tcp', port = '7000'] = packet.split(' ');
    const answer = await lab.start(spaces[from]!, peer('ask', protocol, (arrow === '>6' ? ADDRESS6 : ADDRESS)[to]!, port)).ended;
    return answer.out.startsWith(to);
  };
  try {
    await run({
      lab,
      outside,
      api,
      network,
      async through(yes, no = []) {
        const passed = async (packet: string): Promise<boolean> => {
          for (let tries = 0; tries < TRIES; tries++) if (await one(packet)) return true;
          return false;
        };
        const lost = await Promise.all(yes.map(passed));
        const leaked = await Promise.all(no.map(one));
        assert.deepEqual({ lost: yes.filter((_, at) => !lost[at]), leaked: no.filter((_, at) => leaked[at]) }, { lost: [], leaked: [] });
      },
      async settled(pattern) {
        for (const deadline = performance.now() + SETTLE_MS; ; await delay(50)) {
          const table = lab.nft();
          if (pattern === null ? !table.includes('nodelet-policy') : pattern.test(table)) return;
          assert.ok(performance.now() < deadline, `never ${pattern}: ${table}`);
        }
      },
    });
  } finally {
    stop.abort();
    await running;
  }
}

const put = (api: FakeKubeApi, name: string, spec: NetworkPolicy['spec'], namespace = 'x'): void => {
  api.put(refs.networkPolicies(namespace, name), { metadata: { name, namespace }, spec });
};

describe('NetworkPolicies', { skip, concurrency: false, timeout: 600_000 }, () => {
  test('ingress: deny all, then by namespace, port, name, block; what answers and what the node sends comes through', async () => {
    await stage(async ({ api, through, settled }) => {
      const all = ['b > a', 'b >6 a', 'b > a udp', 'out > a', 'out >6 a udp'];
      const always = ['node > a', 'a > b', 'a > out udp', 'a >6 b'];
      await through([...all, ...always]);
      put(api, 'p', { podSelector: {} });
      await settled(/ingress-/);
      await through(always, all);
      put(api, 'q', {
        podSelector: { matchLabels: { pod: 'a' } },
        ingress: [{ from: [{ namespaceSelector: { matchLabels: { ns: 'y' } } }], ports: [{ port: 7000 }] }],
      });
      await settled(/x\/q/);
      await through(['b > a', 'b >6 a'], ['b > a udp', 'out > a', 'out >6 a udp', 'b > a tcp 7001']);
      // Labels that change, of the pod and of the namespace.
      api.put(refs.namespaces('y'), { metadata: { name: 'y', labels: { ns: 'other' } } });
      await settled(/set pods-\S+-4 \{\s+type ipv4_addr\s+\}/);
      await through([], ['b > a', 'b >6 a']);
      put(api, 'q', {
        podSelector: {},
        ingress: [
          {
            from: [{ ipBlock: { cidr: '0.0.0.0/0', except: ['10.244.1.3/32', '10.244.1.0/30'] } }],
            ports: [
              { port: 'serve', protocol: 'TCP' },
              { port: 7000, endPort: 7005, protocol: 'UDP' },
            ],
          },
        ],
      });
      await settled(/ip saddr != 10\.244\.1\.0\/30/);
      await through(['out > a', 'out > a udp 7001'], ['b > a', 'b >6 a', 'b > a udp', 'out >6 a udp', 'out > a tcp 7001']);
      api.remove(refs.networkPolicies('x', 'q'));
      api.remove(refs.networkPolicies('x', 'p'));
      await settled(null);
      await through(all);
    });
  });

  test('egress, in a table that somebody flushed, and pods that change their labels', async () => {
    await stage(async ({ lab, api, through, settled }) => {
      put(api, 'p', {
        podSelector: { matchLabels: { pod: 'a' } },
        policyTypes: ['Egress'],
        egress: [{ to: [{ namespaceSelector: {}, podSelector: { matchLabels: { pod: 'b' } } }] }],
      });
      await settled(/egress-/);
      const always = ['b > a', 'out > a'];
      await through(['a > b', 'a >6 b udp', ...always], ['a > out', 'a >6 out udp']);
      api.put(refs.pods('y', 'b'), podOf('b', 'y', [ADDRESS['b']!, ADDRESS6['b']!], { pod: 'c' }));
      await settled(/set pods-\S+-4 \{\s+type ipv4_addr\s+\}/);
      await through(always, ['a > b', 'a >6 b udp', 'a > out']);
      execFileSync('nsenter', [`--net=${lab.netns(lab.node)}`, 'nft', 'delete', 'table', 'inet', 'nodelet-policy']);
      // The next write is of elements, and finds no table: everything is written.
      api.put(refs.pods('y', 'b'), podOf('b', 'y', [ADDRESS['b']!, ADDRESS6['b']!], { pod: 'b' }));
      await settled(/egress-/);
      await through(['a > b', 'a >6 b udp', ...always], ['a > out', 'a >6 out udp']);
    });
  });

  test('ClusterNetworkPolicies: both tiers about a NetworkPolicy, priorities, nodes', async () => {
    await stage(async ({ lab, api, through, settled }) => {
      const cluster = (name: string, spec: Partial<ClusterNetworkPolicy['spec']>): void => {
        api.put(refs.clusterNetworkPolicies(name), { metadata: { name }, spec: { tier: 'Admin', priority: 10, subject: { namespaces: {} }, ...spec } });
      };
      const y = { namespaces: { matchLabels: { ns: 'y' } } };
      await serve(lab, lab.node, 'node', 7000);
      await through(['b > a', 'b >6 a udp', 'a > node', 'a >6 node udp', 'out > a']);
      cluster('tail', { priority: 30, ingress: [{ action: 'Deny', from: [y] }] });
      cluster('head', {
        priority: 20,
        ingress: [{ action: 'Accept', from: [y], protocols: [{ tcp: { destinationPort: { range: { start: 7001, end: 7005 } } } }] }],
      });
      await settled(/admin-ingress-[\s\S]*head 0[\s\S]*tail 0/);
      await through(['b > a tcp 7001', 'b >6 a tcp 7001', 'out > a', 'a > b', 'node > a'], ['b > a', 'b >6 a udp', 'b > a udp 7001']);
      // Pass: the NetworkPolicy decides, which lets nobody in but the other tier's Accept is above it.
      cluster('head', { priority: 20, ingress: [{ action: 'Pass', from: [y], protocols: [{ tcp: { destinationPort: { number: 7000 } } }] }] });
      cluster('baseline', { tier: 'Baseline', priority: 1, ingress: [{ action: 'Deny', from: [y] }] });
      await settled(/goto baseline-ingress/);
      await through(['out > a'], ['b > a', 'b > a udp']);
      put(api, 'p', { podSelector: {}, ingress: [{ from: [{ namespaceSelector: {} }] }] });
      await settled(/goto ingress-/);
      await through(['b > a', 'b >6 a'], ['out > a', 'b > a tcp 7001', 'b >6 a udp']);
      // The node itself, which NetworkPolicies never keep a pod from.
      api.put(refs.nodes('n1'), {
        metadata: { name: 'n1' },
        status: { addresses: [ADDRESS['node']!, ADDRESS6['node']!].map((address) => ({ type: 'InternalIP', address })) },
      });
      cluster('nodes', {
        egress: [
          { action: 'Accept', to: [{ nodes: {} }], protocols: [{ udp: { destinationPort: { number: 7000 } } }] },
          { action: 'Deny', to: [{ nodes: {} }] },
        ],
      });
      await settled(/hook input[\s\S]*@node-egress4/);
      await through(['a > node udp', 'a >6 node udp', 'node > a', 'a > out'], ['a > node', 'a >6 node']);
      for (const name of ['tail', 'head', 'baseline', 'nodes']) api.remove(refs.clusterNetworkPolicies(name));
      api.remove(refs.networkPolicies('x', 'p'));
      await settled(null);
      await through(['b > a', 'out > a', 'a > node']);
    });
  });

  test('a connection that is there goes on when a policy begins to forbid it, and no new one comes', async () => {
    await stage(async ({ lab, outside, api, through, settled }) => {
      let said = '';
      const out = lab.start(outside, peer('send', ADDRESS['a']!, '7000'));
      out.child.stdout!.on('data', (chunk: Buffer) => (said += chunk.toString()));
      const hears = async (): Promise<void> => {
        said = '';
        for (const deadline = performance.now() + SETTLE_MS; !said.includes('a '); await delay(20)) assert.ok(performance.now() < deadline, 'the flow ended');
      };
      await hears();
      put(api, 'p', { podSelector: {} });
      await settled(/ingress-/);
      await through([], ['out > a udp', 'out > a']);
      await hears();
    });
  });
});
