import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compareContents, iptablesContents, nftContents, restoreContents } from './compare.ts';
import { parseSaved } from './iptables-rules.ts';
import { fateText, type Packet } from './trace.ts';
import { traceSaved } from './trace-iptables.ts';
import { parseListing, parseTable, traceTable } from './trace-nft.ts';

const OURS = `
add table ip kube-proxy { comment "rules for kube-proxy" ; }
add chain ip kube-proxy nat-prerouting { type nat hook prerouting priority -100 ; }
add chain ip kube-proxy nat-postrouting { type nat hook postrouting priority 100 ; }
add chain ip kube-proxy services
add chain ip kube-proxy service-X-lab/echo/tcp/web
add map ip kube-proxy service-ips { type ipv4_addr . inet_proto . inet_service : verdict ; }
add map ip kube-proxy service-endpoints-tcp-0 { typeof numgen random mod 2 : ip daddr . tcp dport ; }
add rule ip kube-proxy nat-prerouting jump services
add rule ip kube-proxy nat-postrouting mark and 0x004000 != 0 mark set mark xor 0x004000 masquerade fully-random
add rule ip kube-proxy services ip daddr . meta l4proto . th dport vmap @service-ips
add rule ip kube-proxy service-X-lab/echo/tcp/web meta l4proto tcp dnat ip addr . port to numgen random mod 2 offset 4 map @service-endpoints-tcp-0
add element ip kube-proxy service-ips { 10.96.0.8 . tcp . 80 : goto service-X-lab/echo/tcp/web }
add element ip kube-proxy service-endpoints-tcp-0 { 4 : 10.244.0.3 . 8080 }
add element ip kube-proxy service-endpoints-tcp-0 { 5 : 10.244.0.4 . 8080 }
`;

/** As nft prints what upstream's kube-proxy wrote. */
const UPSTREAM = `table ip kube-proxy {
	comment "rules for kube-proxy"
	map service-ips {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 10.96.0.8 . tcp . 80 comment "lab/echo:web" : goto service-X-lab/echo/tcp/web }
	}

	chain nat-prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		jump services
	}

	chain nat-postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		meta mark & 0x00004000 != 0x00000000 meta mark set meta mark ^ 0x00004000 masquerade fully-random
	}

	chain services {
		ip daddr . meta l4proto . th dport vmap @service-ips
	}

	chain service-X-lab/echo/tcp/web {
		meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.244.0.4 . 8080, 1 : 10.244.0.3 . 8080 }
	}

	chain service-OLD-lab/gone/tcp/ {
	}
}
`;

const packet: Packet = {
  protocol: 'tcp',
  src: '10.244.0.2',
  dst: '10.96.0.8',
  port: 80,
  fromNode: false,
  inputInterface: 'veth1',
  nodeAddresses: ['192.0.2.10'],
};

test('what upstream wrote in its own words equals what we would write', () => {
  assert.deepEqual(compareContents(nftContents(parseTable(OURS)), nftContents(parseListing(UPSTREAM))), []);
});

test('a key and an endpoint that differ are named', () => {
  const other = UPSTREAM.replace('10.96.0.8 . tcp', '10.96.0.9 . tcp').replace('0 : 10.244.0.4', '0 : 10.244.0.5');
  assert.deepEqual(compareContents(nftContents(parseTable(OURS)), nftContents(parseListing(other))), [
    {
      where: 'chain service-X-lab/echo/tcp/web',
      missing: ['meta l4proto tcp dnat to one of 10.244.0.3 . 8080, 10.244.0.4 . 8080'],
      extra: ['meta l4proto tcp dnat to one of 10.244.0.3 . 8080, 10.244.0.5 . 8080'],
    },
    {
      where: 'map service-ips',
      missing: ['10.96.0.8 . tcp . 80 : goto service-X-lab/echo/tcp/web'],
      extra: ['10.96.0.9 . tcp . 80 : goto service-X-lab/echo/tcp/web'],
    },
  ]);
});

test('a packet meets the same fate in both, and the rules that say so are told', () => {
  for (const table of [parseTable(OURS), parseListing(UPSTREAM)]) {
    const { fate, ways } = traceTable(table, packet);
    assert.equal(fateText(fate).split(', ').toSorted().join(', '), '10.244.0.3 8080, 10.244.0.4 8080');
    assert.deepEqual(
      ways[0]!.path.map(({ chain }) => chain),
      ['nat-prerouting', 'services', 'service-X-lab/echo/tcp/web'],
    );
  }
});

const SAVED = `*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:KUBE-EXTERNAL-SERVICES - [0:0]
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES
-A KUBE-EXTERNAL-SERVICES -d 203.0.113.12/32 -p tcp -m comment --comment "lab/empty:web has no endpoints" -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-SEP-A - [0:0]
:KUBE-SEP-B - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-X - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
-A KUBE-SEP-A -s 10.244.0.2/32 -m comment --comment "lab/echo:web" -j KUBE-MARK-MASQ
-A KUBE-SEP-A -p tcp -m comment --comment "lab/echo:web" -m tcp -j DNAT --to-destination 10.244.0.2:8080
-A KUBE-SEP-B -s 10.244.0.4/32 -m comment --comment "lab/echo:web" -j KUBE-MARK-MASQ
-A KUBE-SEP-B -p tcp -m comment --comment "lab/echo:web" -m tcp -j DNAT --to-destination 10.244.0.4:8080
-A KUBE-SERVICES -d 10.96.0.8/32 -p tcp -m comment --comment "lab/echo:web cluster IP" -m tcp --dport 80 -j KUBE-SVC-X
-A KUBE-SVC-X ! -s 10.244.0.0/16 -d 10.96.0.8/32 -p tcp -m comment --comment "lab/echo:web cluster IP" -m tcp --dport 80 -j KUBE-MARK-MASQ
-A KUBE-SVC-X -m comment --comment "lab/echo:web -> 10.244.0.2:8080" -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-A
-A KUBE-SVC-X -m comment --comment "lab/echo:web -> 10.244.0.4:8080" -j KUBE-SEP-B
COMMIT
`;

for (const { what, change, meets } of [
  { what: 'a pod, which may be picked itself', change: {}, meets: '10.244.0.2 8080 masqueraded, 10.244.0.4 8080' },
  { what: 'a client outside', change: { src: '192.0.2.200' }, meets: '10.244.0.2 8080 masqueraded, 10.244.0.4 8080 masqueraded' },
  { what: 'an address without endpoints', change: { dst: '203.0.113.12' }, meets: 'reject' },
  { what: 'a port that is nobody’s', change: { port: 81 }, meets: 'pass' },
  { what: 'another protocol', change: { protocol: 'udp' as const }, meets: 'pass' },
]) {
  test(`a walk through iptables rules: ${what}`, () => {
    assert.equal(fateText(traceSaved(parseSaved(SAVED), { ...packet, ...change }).fate), meets);
  });
}

test('a match that is not understood is no answer', () => {
  const odd = SAVED.replace('-m tcp --dport 80 -j KUBE-SVC-X', '-m tcp --dport 80 -m string --string x -j KUBE-SVC-X');
  assert.throws(() => traceSaved(parseSaved(odd), packet), /--string x/);
});

test('the tool prints rules in other words than they were written in', () => {
  const written = SAVED.replaceAll('--set-xmark 0x4000/0x4000', '--or-mark 0x004000')
    .replaceAll('--set-xmark 0x4000/0x0', '--xor-mark 0x004000')
    .replaceAll('0x4000/0x4000', '0x004000/0x004000')
    .replaceAll(/-d (\S+)\/32/g, '-d $1')
    .replaceAll('0.50000000000', '0.5000000000')
    .replaceAll(/-A (INPUT|FORWARD|PREROUTING|POSTROUTING) /g, '-I $1 1 ');
  assert.deepEqual(compareContents(restoreContents(written), iptablesContents(parseSaved(SAVED))), []);
  const [difference] = compareContents(restoreContents(written.replace('10.244.0.4:8080\n', '10.244.0.5:8080\n')), iptablesContents(parseSaved(SAVED)));
  assert.equal(difference?.where, 'chain nat KUBE-SEP-B');
});
