import assert from 'node:assert/strict';
import { test } from 'node:test';
import { planWhole, readSaved } from './iptables-plan.ts';
import { portChains, type IptablesOptions, type PortChains } from './iptables-service.ts';
import { fixedRules } from './iptables-table.ts';
import { portKey } from './names.ts';
import type { RuleSettings } from './settings.ts';
import { applyService, applySlice, emptyWorld, rulesFor } from './world.ts';

const settings: RuleSettings = {
  family: 'ip',
  markBits: 0x4000,
  masqueradeAll: false,
  detector: { kind: 'cidr', cidr: '10.244.0.0/16' },
  nodePorts: { kind: 'all' },
  nodeIP: '192.0.2.10',
  serviceCIDRs: [],
};
const options: IptablesOptions = { localhostNodePorts: true, dropInvalid: true, counters: false };
const nothing = readSaved('');

function linesFor(namespace: string, clusterIP: string, addresses = ['10.244.2.3', '10.244.1.2', '10.244.2.2']): string[] {
  const world = emptyWorld();
  applyService(world, { metadata: { namespace, name: 'web' }, spec: { clusterIP, clusterIPs: [clusterIP], ports: [{ port: 80, protocol: 'TCP' }] } }, false);
  const slice = {
    metadata: { namespace, name: 'web-abcde', labels: { 'kubernetes.io/service-name': 'web' } },
    addressType: 'IPv4',
    ports: [{ port: 80, protocol: 'TCP' }],
    endpoints: addresses.map((address) => ({ addresses: [address], conditions: { ready: true } })),
  };
  applySlice(world, slice, false);
  const ports = new Map<string, PortChains>();
  for (const rules of rulesFor(world, `${namespace}/web`, 'ip', { nodeName: 'node-a', zone: '' }))
    ports.set(portKey(rules.id), portChains(rules, settings, options, false));
  const whole = planWhole(ports, fixedRules(settings, options), { filter: nothing, nat: nothing });
  const lines = whole
    .input()
    .text.split('\n')
    .filter((line) => line.startsWith('-A'));
  // As the tools print them: what leads to a Service before its chains.
  const isWay = (line: string): boolean => line.startsWith('-A KUBE-SERVICES ');
  return [...lines.filter(isWay), ...lines.filter((line) => !isWay(line))];
}

test('shop/web with three endpoints has eleven lines, and the names of upstream', () => {
  const lines = linesFor('shop', '10.96.12.34').filter((line) => line.includes('shop/web'));
  assert.equal(lines.length, 11);
  const to = '-m tcp -p tcp -d 10.96.12.34 --dport 80';
  assert.deepEqual(lines.slice(0, 5), [
    `-A KUBE-SERVICES -m comment --comment "shop/web cluster IP" ${to} -j KUBE-SVC-E3PXEPMWAWIUT6ZV`,
    `-A KUBE-SVC-E3PXEPMWAWIUT6ZV -m comment --comment "shop/web cluster IP" ${to} ! -s 10.244.0.0/16 -j KUBE-MARK-MASQ`,
    '-A KUBE-SVC-E3PXEPMWAWIUT6ZV -m comment --comment "shop/web -> 10.244.1.2:80" -m statistic --mode random --probability 0.3333333333 -j KUBE-SEP-PPGG7CLVJ7O24ZED',
    '-A KUBE-SVC-E3PXEPMWAWIUT6ZV -m comment --comment "shop/web -> 10.244.2.2:80" -m statistic --mode random --probability 0.5000000000 -j KUBE-SEP-JR4P2S7ZV6K5VKP3',
    '-A KUBE-SVC-E3PXEPMWAWIUT6ZV -m comment --comment "shop/web -> 10.244.2.3:80" -j KUBE-SEP-FGH6ZQZIMO7RP3J3',
  ]);
  assert.deepEqual(lines.slice(5, 7), [
    '-A KUBE-SEP-PPGG7CLVJ7O24ZED -m comment --comment "shop/web" -s 10.244.1.2 -j KUBE-MARK-MASQ',
    '-A KUBE-SEP-PPGG7CLVJ7O24ZED -m comment --comment "shop/web" -m tcp -p tcp -j DNAT --to-destination 10.244.1.2:80',
  ]);
});

test('default/web prints the seven lines that a walkthrough greps for', () => {
  const lines = linesFor('default', '10.96.200.1')
    .filter((line) => line.includes('default/web'))
    .filter((line) => /KUBE-SERVICES|statistic|-j KUBE-SEP|DNAT/.test(line));
  assert.deepEqual(
    lines.map((line) => /-j (\S+)/.exec(line)![1]),
    ['KUBE-SVC-LOLE4ISW44XBNF3G', 'KUBE-SEP-MQ4W7Q2CV67URU6Q', 'KUBE-SEP-QHWUG6SOC7OJ2BZK', 'KUBE-SEP-7QE66YRUUVCO6FRM', 'DNAT', 'DNAT', 'DNAT'],
  );
});

test('of 400 endpoints no two neighbours have the same probability, and the last has none', () => {
  const addresses = Array.from({ length: 400 }, (_, index) => `10.244.${index >> 8}.${index & 255}`);
  const choices = linesFor('shop', '10.96.12.34', addresses).filter((line) => line.includes('-j KUBE-SEP-'));
  const probabilities = choices.map((line) => / --probability (\S+)/.exec(line)?.[1]);
  assert.equal(probabilities.length, 400);
  assert.equal(probabilities.at(-1), undefined);
  assert.ok(probabilities.every((probability, index) => index === 0 || probability !== probabilities[index - 1]));
});
