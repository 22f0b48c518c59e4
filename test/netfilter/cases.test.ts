import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { realClock } from '../../base/clock.ts';
import { proxyConfig } from '../../netfilter/core/config.ts';
import { parseSaved } from '../../netfilter/core/iptables-rules.ts';
import { familyOf, type Family } from '../../netfilter/core/ip.ts';
import { settingsFor } from '../../netfilter/core/node.ts';
import type { PortRules } from '../../netfilter/core/ruleset.ts';
import { fateText, trace, type Fate, type Packet } from '../../netfilter/core/trace.ts';
import { traceSaved } from '../../netfilter/core/trace-iptables.ts';
import { parseListing, traceTable } from '../../netfilter/core/trace-nft.ts';
import { applyService, applySlice, emptyWorld, rulesFor } from '../../netfilter/core/world.ts';
import { removeAllChains } from '../../netfilter/modes.ts';
import { silentLog } from '../../base/log.ts';
import { findAssets } from '../assets/find.ts';
import { allShapes, caseTable, SENDERS, type Addressed, type Sender } from './cases.ts';
import { Lab, labNode, missing, startProxy, until, type Reply } from './lab.ts';
import { ProxyProgram } from './proxy-program.ts';

/**
 * One table of packets and Services. Every packet must meet the same fate: as the ruleset means it, by a walk through
 * the rules that each proxy wrote into the kernel in each mode, and, for TCP, when it is really sent.
 */

const reason = missing(['iptables-save', 'nsenter']);
if (reason !== null) console.log(`skipped: the table of cases ${reason}`);
const kubeProxy = reason === null ? (await findAssets({ env: process.env })).path('kube-proxy') : null;

const NODE_ADDRESSES = ['127.0.0.1', '192.0.2.10', '198.51.100.10', '10.244.0.1', '10.244.1.1', '::1', '2001:db8::10', 'fd00:10:244::1'];
const CLUSTER_CIDR = '10.244.0.0/16,fd00:10:244::/48';
const node = labNode({ 'topology.kubernetes.io/zone': 'a' });
const table = caseTable(allShapes());

const PARALLEL = 80;

type Mode = 'nftables' | 'iptables';

interface Sent {
  sender: Sender;
  to: Addressed;
  packet: Packet;
}

const packets: Sent[] = SENDERS.flatMap((sender) =>
  table.addresses.map((to): Sent => {
    const src = familyOf(to.address) === 'ip' ? sender.v4 : sender.v6;
    const fromNode = sender.place === 'node';
    // The node reaches its own addresses from those addresses.
    const from = fromNode && NODE_ADDRESSES.includes(to.address) ? to.address : src;
    const packet = {
      protocol: to.protocol,
      src: from,
      dst: to.address,
      port: to.port,
      fromNode,
      inputInterface: fromNode ? '' : `v${sender.place}`,
      nodeAddresses: NODE_ADDRESSES,
    };
    return { sender, to, packet };
  }),
);

function words({ sender, to, packet }: Sent): string {
  return `${sender.place} (${packet.src}) to ${to.address} ${to.port}/${to.protocol}: ${to.name}`;
}

/** What the ruleset means, and what only one of the modes does beside it. */
function meant(mode: Mode): (packet: Packet) => Fate {
  const config = proxyConfig({ mode, clusterCIDR: CLUSTER_CIDR });
  const world = emptyWorld();
  for (const { resource, object } of table.objects) {
    if (resource === 'services') applyService(world, object, false);
    else applySlice(world, object, false);
  }
  const rulesets = new Map(
    (['ip', 'ip6'] as const).map((family) => {
      const settings = settingsFor(family, { config, node, machineAddresses: NODE_ADDRESSES, serviceCIDRs: [] });
      return [family, { settings, rules: [...world.services.keys()].flatMap((key) => rulesFor(world, key, family, { nodeName: 'node-a', zone: 'a' })) }];
    }),
  );
  return (packet) => {
    const { settings, rules } = rulesets.get(familyOf(packet.dst)!)!;
    const fate = trace(rules, packet, settings);
    return mode === 'iptables' ? inIptables(fate, packet, rules) : fate;
  };
}

/** Where iptables mode does otherwise, upstream's as ours. */
function inIptables(fate: Fate, packet: Packet, rules: readonly PortRules[]): Fate {
  if (fate.kind === 'to' || fate.kind === 'pass') return fate;
  const of = rules.filter((rule) => rule.port === packet.port && rule.id.protocol === packet.protocol);
  const outer = of.find((rule) => [...rule.externalIPs, ...rule.loadBalancerIPs].includes(packet.dst));
  // Refusals for outer addresses are asked for on the way in and through, not on the way out.
  if (outer?.external === 'reject') return { kind: packet.fromNode ? 'pass' : 'reject' };
  // A port that a cluster IP does not have is nobody's.
  const isClusterIp = rules.some((rule) => rule.clusterIP === packet.dst);
  return isClusterIp && of.every((rule) => rule.clusterIP !== packet.dst) ? { kind: 'pass' } : fate;
}

function sorted(fate: Fate): string {
  return fateText(fate).split(', ').toSorted().join(', ');
}

suite('Packets and Services', { skip: reason ?? false }, () => {
  const lab = new Lab('nfcases');
  before(async () => {
    await lab.build();
    // A refusal is an ICMP message, and the kernel sends few of them.
    for (const [sysctl, value] of [
      ['ipv4/icmp_ratelimit', '0'],
      ['ipv4/icmp_msgs_per_sec', '100000'],
      ['ipv4/icmp_msgs_burst', '10000'],
      ['ipv6/icmp/ratelimit', '0'],
    ])
      await lab.run('node', ['sh', '-c', `echo ${value} > /proc/sys/net/${sysctl}`]).catch(() => '');
    await lab.ip('ext', [
      'route add 203.0.113.0/24 via 192.0.2.10',
      'route add 2001:db8:3::/64 via 2001:db8::10',
      'route add 2001:db8:1::/64 via 2001:db8::10',
    ]);
  });
  after(() => lab[Symbol.asyncDispose]());

  const readTraces = async (mode: Mode): Promise<(packet: Packet) => Fate> => {
    const texts = new Map<Family, string>();
    for (const family of ['ip', 'ip6'] as const) texts.set(family, mode === 'nftables' ? await lab.nftTable(family) : await lab.iptablesSave(family));
    const tables = new Map([...texts].map(([family, text]) => [family, mode === 'nftables' ? { nft: parseListing(text) } : { saved: parseSaved(text) }]));
    return (packet) => {
      const found = tables.get(familyOf(packet.dst)!)!;
      return (found.nft === undefined ? traceSaved(found.saved, packet) : traceTable(found.nft, packet)).fate;
    };
  };

  const settled = async (mode: Mode): Promise<void> => {
    const count = async (): Promise<number> => {
      const texts = await Promise.all(
        (['ip', 'ip6'] as const).map((family) => (mode === 'nftables' ? lab.nftTable(family) : lab.iptablesSave(family)).catch(() => '')),
      );
      return texts.join('').length;
    };
    let last = -1;
    await until(count, (now) => (now > 20_000 && now === last) || ((last = now), false), 30_000);
    await realClock.sleep(1500);
  };

  /** Sends each TCP packet and holds what came of it against the ruleset's answer. */
  const sendAll = async (what: string, expected: (packet: Packet) => Fate): Promise<number> => {
    const wrong: string[] = [];
    const tcp = packets.filter(({ to }) => to.protocol === 'tcp');
    const check = ({ sender, packet, to }: Sent, reply: Reply): string | null => {
      const fate = expected(packet);
      const got = reply.error ?? `${reply.server} sees ${reply.client}`;
      if (fate.kind === 'reject') return reply.error === 'ECONNREFUSED' ? null : got;
      if (fate.kind === 'drop') return reply.error === 'TIMEOUT' ? null : got;
      // Not a Service's: whatever is there answers, but no pod.
      if (fate.kind === 'pass') return reply.error === undefined ? got : null;
      const servers: Record<string, string> = {
        '10.244.0.3': 'srv',
        '10.244.0.4': 'srv2',
        '10.244.1.5': 'far',
        'fd00:10:244::3': 'srv',
        'fd00:10:244::4': 'srv2',
      };
      const choice = fate.choices.find(({ target }) => servers[target.address] === reply.server);
      if (choice === undefined) return got;
      if (sender.place === 'node') return null;
      // Whom far answers past the node it cannot answer at all.
      const seen = reply.client === (familyOf(to.address) === 'ip' ? sender.v4 : sender.v6);
      const masqueraded = fate.choices.some(({ target, masquerade }) => servers[target.address] === reply.server && masquerade);
      return seen === masqueraded ? got : null;
    };
    for (let from = 0; from < tcp.length; from += PARALLEL) {
      const part = tcp.slice(from, from + PARALLEL);
      const replies = await Promise.all(
        part.map(async ({ sender, packet, to }) => {
          const send = (timeoutMs: number): Promise<Reply> => lab.peers[sender.place].connect(to.address, to.port, { timeoutMs });
          const reply = await send(1300);
          // On a busy machine an answer can be late; where there is none, there is none the second time either.
          return reply.error === 'TIMEOUT' && 'choices' in expected(packet) ? send(5000) : reply;
        }),
      );
      for (const [index, reply] of replies.entries()) {
        const said = check(part[index]!, reply);
        if (said !== null) wrong.push(`${what}: ${words(part[index]!)}: expected ${fateText(expected(part[index]!.packet))}, got ${said}`);
      }
    }
    assert.deepEqual(wrong, []);
    return tcp.length;
  };

  const judge = async (what: string, mode: Mode): Promise<void> => {
    const expected = meant(mode);
    const written = await readTraces(mode);
    const wrong = packets.flatMap((sent) => {
      const [want, got] = [sorted(expected(sent.packet)), sorted(written(sent.packet))];
      return want === got ? [] : [`${what}: ${words(sent)}: ruleset ${want}, rules ${got}`];
    });
    assert.deepEqual(wrong, []);
    const connects = await sendAll(what, expected);
    console.log(`${what}: ${packets.length} packets traced, ${connects} connections made, as the ruleset means them`);
  };

  for (const mode of ['nftables', 'iptables'] as const) {
    test(`ours, ${mode}`, async () => {
      await using proxy = await startProxy(lab, { config: { mode } });
      proxy.api.put('nodes', node);
      for (const { resource, object } of table.objects) proxy.api.put(resource, object);
      await proxy.synced();
      await judge(`ours, ${mode}`, mode);
    });
  }
  for (const mode of ['nftables', 'iptables'] as const) {
    test(`upstream’s, ${mode}`, { skip: kubeProxy === null ? 'needs upstream’s kube-proxy (./nodelet assets)' : false }, async () => {
      await removeAllChains(lab.sys, silentLog, lab.netnsPath('node'));
      for (const family of ['ip', 'ip6']) await lab.run('node', ['nft', 'delete', 'table', family, 'kube-proxy']).catch(() => '');
      await lab.run('node', ['conntrack', '-F']).catch(() => '');
      await using upstream = new ProxyProgram(lab.netnsPath('node'), [kubeProxy!]);
      const objects = [{ resource: 'nodes', object: { ...node, metadata: { ...node.metadata, uid: 'node-a' } } }, ...table.objects];
      await upstream.start({ config: { mode, clusterCIDR: CLUSTER_CIDR }, objects });
      await settled(mode);
      await judge(`upstream’s, ${mode}`, mode);
    });
  }
});
