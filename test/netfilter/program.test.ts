import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { findAssets } from '../assets/find.ts';
import { Lab, labNode, missing, service, slice, until, type Reply } from './lab.ts';
import { OURS, ProxyProgram } from './proxy-program.ts';
import { zoo, type Told } from './zoo.ts';

/** What depends on the node itself: its sysctls, its loopback, health ports. So the whole program runs in the lab's node. */

const reason = missing(['iptables', 'nsenter', 'perl', 'ss']);
if (reason !== null) console.log(`skipped: tests of the whole proxy in a node ${reason}`);

const web = { name: 'web', port: 8080, protocol: 'TCP' };
const IPTABLES = { mode: 'iptables', clusterCIDR: '10.244.0.0/16,fd00:10:244::/48', iptables: { minSyncPeriod: '20ms', syncPeriod: '500ms' } };
const START_MS = 90_000;
/** One answer that is there already, on a machine out of breath. */
const ANSWER_MS = 30_000;

function echo(spec: Record<string, unknown> = {}, ingress?: { ip: string }[]): Told {
  const ports = [{ name: 'web', port: 80, protocol: 'TCP', ...(spec['nodePort'] === undefined ? {} : { nodePort: spec['nodePort'] as number }) }];
  return { resource: 'services', object: service('echo', ['10.96.0.8'], ports, { spec, ...(ingress === undefined ? {} : { ingress }) }) };
}

const endpoints = (...of: Parameters<typeof slice>[2]): Told => ({ resource: 'endpointslices', object: slice('echo', web, of) });
const node = { resource: 'nodes', object: { ...labNode(), metadata: { ...(labNode() as { metadata: object }).metadata, uid: 'node-a' } } };
const reached = (reply: Reply): boolean => reply.server !== undefined;

suite('The whole proxy in a node', { skip: reason ?? false }, () => {
  const lab = new Lab('nfp');
  let proxy: ProxyProgram;
  const sysctl = async (path: string, value?: string): Promise<string> => {
    if (value !== undefined) await lab.run('node', ['sh', '-c', `echo ${value} > /proc/sys/net/${path}`]);
    return (await lab.run('node', ['cat', `/proc/sys/net/${path}`])).trim();
  };
  /** To be asked again until the answer is right. */
  const connect = (place: 'node' | 'ext' | 'cli', host: string, port: number) => (): Promise<Reply> =>
    lab.peers[place].connect(host, port, { timeoutMs: 1000 });
  /** Who answers, or the error; the rules are as they will be. */
  const answer = async (place: 'node' | 'ext' | 'cli', host: string, port: number): Promise<string | undefined> => {
    const { server, error } = await lab.peers[place].connect(host, port, { timeoutMs: ANSWER_MS });
    return server ?? error;
  };
  const metric = async (name: string): Promise<number | null> => {
    const { body = '' } = await lab.peers.node.ask({ do: 'http', host: '127.0.0.1', port: 10249, path: '/metrics', timeoutMs: ANSWER_MS });
    const line = body.split('\n').find((candidate) => candidate.startsWith(`${name} `));
    return line === undefined ? null : Number(line.slice(name.length));
  };
  before(async () => {
    await lab.build();
    proxy = new ProxyProgram(lab.netnsPath('node'), OURS);
  });
  after(async () => {
    await proxy?.[Symbol.asyncDispose]();
    await lab[Symbol.asyncDispose]();
  });

  test('a node port on 127.0.0.1 leads to the pod, and opens no hole for neighbours', async () => {
    assert.equal(await sysctl('ipv4/conf/all/route_localnet'), '0');
    await lab.run(
      'node',
      ['nft', '-f', '-'],
      'table ip watch { chain in { type filter hook input priority 10; iifname "vext" ip daddr 127.0.0.1 counter\n }\n}\n',
    );
    const letIn = async (): Promise<number> => Number(/packets (\d+)/.exec(await lab.run('node', ['nft', 'list', 'table', 'ip', 'watch']))?.[1]);
    const mac = /link\/ether (\S+)/.exec(await lab.run('node', ['ip', '-o', 'link', 'show', 'vext']))![1]!;
    const index = /^(\d+):/.exec(await lab.run('ext', ['ip', '-o', 'link', 'show', 'eth0']))![1]!;
    const intrude = (): Promise<string> => lab.run('ext', ['perl', '-e', INTRUDER, index, mac.replaceAll(':', '')]);
    await sysctl('ipv4/conf/all/route_localnet', '1');
    await intrude();
    assert.equal(await until(letIn, (count) => count > 0), 1, 'without the rule the hole is there');
    await sysctl('ipv4/conf/all/route_localnet', '0');
    await proxy.start({ config: IPTABLES, objects: [node, echo({ type: 'NodePort', nodePort: 30080 }), endpoints({ ip: '10.244.0.3' })] });
    const here = await until(connect('node', '127.0.0.1', 30080), reached, START_MS);
    assert.equal(here.server, 'srv');
    assert.match(here.client ?? '', /^(10\.244\.0\.1|192\.0\.2\.10|198\.51\.100\.10)$/);
    assert.equal(await sysctl('ipv4/conf/all/route_localnet'), '1');
    assert.equal(await answer('ext', '192.0.2.10', 30080), 'srv');
    await intrude();
    assert.equal(await answer('ext', '192.0.2.10', 30080), 'srv');
    assert.equal(await letIn(), 1);
    await lab.run('node', ['nft', 'delete', 'table', 'ip', 'watch']);
    assert.ok((await metric('kubeproxy_iptables_localhost_nodeports_accepted_packets_total'))! >= 1);
    assert.equal(await metric('kubeproxy_sync_proxy_rules_iptables_last{ip_family="IPv4",table="nat"}'), 14);
    assert.equal(await answer('node', '::1', 30080), 'ECONNREFUSED', 'IPv6 has no node ports on loopback');
    proxy.tell(echo({ type: 'NodePort', nodePort: 30080, externalTrafficPolicy: 'Local' }));
    await until(
      () => lab.iptablesSave(),
      (rules) => rules.includes('KUBE-SVL-'),
    );
    assert.equal(await answer('node', '127.0.0.1', 30080), 'srv');
  });

  test('a segment from outside a connection’s window reaches nobody untranslated', async () => {
    proxy.tell(echo());
    await until(
      () => lab.iptablesSave(),
      (rules) => !rules.includes('KUBE-SVL-'),
    );
    await lab.run('cli', ['nft', '-f', '-'], 'table ip watch { chain in { type filter hook prerouting priority -300; ip saddr 10.244.0.3 counter\n }\n}\n');
    const seen = async (): Promise<number> => Number(/packets (\d+)/.exec(await lab.run('cli', ['nft', 'list', 'table', 'ip', 'watch']))?.[1]);
    const inject = async (counted: () => Promise<number>): Promise<void> => {
      // Connections of what ran before may take a moment to end.
      const held = async (): Promise<string[]> =>
        [...(await lab.run('cli', ['ss', '-tnH', 'state', 'established'])).matchAll(/10\.244\.0\.2:(\d+)\s+10\.96\.0\.8:80/g)].map(([, port]) => port!);
      const ports = await until(held, (found) => found.length === 1);
      assert.equal(ports.length, 1, `one connection is held: ${ports.join(' ')}`);
      await lab.run('srv', ['perl', '-e', SEGMENT, '10.244.0.3', '8080', '10.244.0.2', ports[0]!]);
      assert.ok((await until(counted, (count) => count > 0)) > 0);
    };
    const dropped = async (): Promise<number> => (await metric('kubeproxy_iptables_ct_state_invalid_dropped_packets_total')) ?? 0;
    assert.equal((await lab.peers.cli.ask({ do: 'hold', host: '10.96.0.8', port: 80, handle: 'kept', timeoutMs: ANSWER_MS })).server, 'srv');
    await inject(dropped);
    assert.equal((await lab.peers.cli.ask({ do: 'say', handle: 'kept', timeoutMs: ANSWER_MS })).server, 'srv');
    assert.equal(await seen(), 0);
    assert.match(await lab.iptablesSave(), /^-A KUBE-FORWARD -m conntrack --ctstate INVALID .*-j DROP$/m);
    // The same without the rule, and without the one who would bring it back: it is what keeps the segment away.
    await proxy.end();
    await lab.run('node', ['iptables', '-D', 'KUBE-FORWARD', '1']);
    await inject(seen);
  });

  test('where conntrack takes such segments for valid there is no such rule', async () => {
    const started = async (isRight: (rules: string) => boolean): Promise<string> => {
      await proxy.restart(IPTABLES);
      return await until(() => lab.iptablesSave(), isRight, START_MS);
    };
    assert.match(await started((rules) => rules.includes('ctstate INVALID')), /^-A KUBE-FORWARD -m conntrack --ctstate INVALID/m);
    await sysctl('netfilter/nf_conntrack_tcp_be_liberal', '1');
    const liberal = await started((rules) => !rules.includes('ctstate INVALID'));
    assert.match(liberal, /^-A KUBE-FORWARD /m);
    assert.doesNotMatch(liberal, /ctstate INVALID/);
    await sysctl('netfilter/nf_conntrack_tcp_be_liberal', '0');
  });

  test('without node ports on localhost, and in nftables mode, route_localnet is left alone', async () => {
    proxy.tell(echo({ type: 'NodePort', nodePort: 30080 }));
    for (const config of [
      { ...IPTABLES, iptables: { ...IPTABLES.iptables, localhostNodePorts: false } },
      { ...IPTABLES, nodePortAddresses: ['192.0.2.0/24'] },
      { ...IPTABLES, mode: 'nftables' },
    ]) {
      await proxy.end();
      assert.equal(await proxy.run(['--cleanup']), 0);
      await sysctl('ipv4/conf/all/route_localnet', '0');
      await proxy.restart(config);
      assert.equal((await until(connect('ext', '192.0.2.10', 30080), reached, START_MS)).server, 'srv');
      assert.equal(await answer('node', '127.0.0.1', 30080), 'ECONNREFUSED', JSON.stringify(config));
      assert.equal(await sysctl('ipv4/conf/all/route_localnet'), '0');
    }
  });

  for (const mode of ['nftables', 'iptables'] as const)
    test(`${mode}: the health-check node port tells the load balancer what is here`, async () => {
      const local = (...of: Parameters<typeof slice>[2]): void => proxy.tell(endpoints(...of));
      const balanced = { type: 'LoadBalancer', nodePort: 30080, externalTrafficPolicy: 'Local', healthCheckNodePort: 32000 };
      proxy.tell(echo(balanced, [{ ip: '203.0.113.10' }]));
      local({ ip: '10.244.0.3' }, { ip: '10.244.0.4' });
      await proxy.restart({ ...IPTABLES, mode, nftables: IPTABLES.iptables });
      const ask = (): Promise<Reply> => lab.peers.ext.ask({ do: 'http', host: '192.0.2.10', port: 32000, timeoutMs: 1000 });
      const answers = (status: number) => (): Promise<Reply> => until(ask, (reply) => reply.status === status, START_MS);
      const two = await answers(200)();
      assert.deepEqual([two.status, (JSON.parse(two.body!) as { localEndpoints: number }).localEndpoints], [200, 2]);
      const rules = await lab.iptablesSave();
      if (mode === 'iptables') assert.match(rules, /^-A KUBE-NODEPORTS .*--dport 32000 -j ACCEPT$/m);
      else assert.doesNotMatch(rules, /32000/);
      local({ ip: '10.244.0.3', ready: false, serving: true, terminating: true });
      assert.equal((await answers(503)()).status, 503);
      assert.equal((await until(connect('ext', '203.0.113.10', 80), (reply) => reply.server === 'srv')).server, 'srv', 'a terminating pod still serves');
      local({ ip: '10.244.1.5', node: 'node-b' });
      const none = await answers(503)();
      assert.deepEqual([none.status, (JSON.parse(none.body!) as { localEndpoints: number }).localEndpoints], [503, 0]);
      proxy.tell(echo({ type: 'NodePort', nodePort: 30080 }));
      const closed = await until(ask, (reply) => reply.status === undefined);
      assert.equal(closed.status, undefined);
    });

  test('ending keeps every rule; cleanup takes all of them, twice without complaint', async () => {
    proxy.tell(endpoints({ ip: '10.244.0.3' }));
    await until(connect('cli', '10.96.0.8', 80), (reply) => reply.server === 'srv');
    assert.equal(await proxy.end(), 0);
    assert.equal(await answer('cli', '10.96.0.8', 80), 'srv');
    for (let times = 0; times < 2; times++) assert.equal(await proxy.run(['--cleanup']), 0);
    assert.doesNotMatch(await lab.allRules(), /KUBE-(?!FIREWALL)|kube-proxy/);
    assert.doesNotMatch(await lab.allRules('ip6'), /KUBE-(?!FIREWALL)|kube-proxy/);
  });
});

suite('A node without IPv6', { skip: reason ?? false }, () => {
  const lab = new Lab('nf6');
  let folder = '';
  before(async () => {
    await lab.build();
    await lab.run('node', ['sh', '-c', 'echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6']);
    folder = await mkdtemp(join(tmpdir(), 'no-ipv6-'));
    for (const what of ['', '-restore', '-save'])
      for (const kind of ['', '-nft', '-legacy']) await writeFile(join(folder, `ip6tables${kind}${what}`), '#!/bin/sh\nexit 1\n', { mode: 0o755 });
  });
  after(async () => {
    await lab[Symbol.asyncDispose]();
    await rm(folder, { recursive: true });
  });

  for (const mode of ['iptables', 'nftables'] as const)
    test(`${mode}: IPv4 works, and the proxy is healthy`, async () => {
      // The first folder that programs are looked for in, with programs that only fail.
      const hidden = ['unshare', '-m', 'sh', '-c', 'mount --bind "$0" /usr/local/sbin && exec "$@"', folder, ...OURS];
      await using proxy = new ProxyProgram(lab.netnsPath('node'), hidden);
      await proxy.start({ config: { ...IPTABLES, mode }, objects: [node, echo(), endpoints({ ip: mode === 'iptables' ? '10.244.0.3' : '10.244.0.4' })] });
      const wanted = mode === 'iptables' ? 'srv' : 'srv2';
      const reach = (): Promise<Reply> => lab.peers.cli.connect('10.96.0.8', 80, { timeoutMs: 1000 });
      assert.equal((await until(reach, (reply) => reply.server === wanted, START_MS)).server, wanted);
      assert.equal((await lab.peers.node.ask({ do: 'http', host: '127.0.0.1', port: 10256, path: '/healthz', timeoutMs: ANSWER_MS })).status, 200);
      assert.doesNotMatch(await lab.run('node', ['nft', 'list', 'tables']), /ip6 kube-proxy/);
    });
});

const kubeProxy = (await findAssets({ env: process.env })).path('kube-proxy');
const absent = reason ?? (kubeProxy === null ? 'needs upstream’s kube-proxy (./nodelet assets)' : null);
if (reason === null && absent !== null) console.log(`skipped: taking away what upstream's kube-proxy left ${absent}`);

suite('What upstream’s kube-proxy left', { skip: absent ?? false }, () => {
  const lab = new Lab('nfu');
  before(async () => await lab.build());
  after(async () => await lab[Symbol.asyncDispose]());

  for (const mode of ['iptables', 'nftables'] as const)
    test(`${mode}: cleanup takes all of it and nothing of others`, async () => {
      await using upstream = new ProxyProgram(lab.netnsPath('node'), [kubeProxy!]);
      const foreign = {
        ip: ['-A FORWARD -s 10.9.9.9/32 -j DROP'],
        nft: 'table inet mine { chain c { type filter hook forward priority 0; ip saddr 10.9.9.9 drop\n }\n}\n',
      };
      for (const rule of foreign.ip) await lab.run('node', ['iptables', ...rule.split(' ')]);
      await lab.run('node', ['nft', '-f', '-'], foreign.nft);
      const mine = await lab.run('node', ['nft', 'list', 'table', 'inet', 'mine']);
      await upstream.start({ config: { ...IPTABLES, mode, nftables: IPTABLES.iptables }, objects: [node, ...zoo()] });
      const isWritten = (rules: string): boolean => (mode === 'iptables' ? rules.includes('KUBE-SEP-') : rules.includes('service-'));
      assert.ok(isWritten(await until(() => lab.allRules(), isWritten, START_MS)), 'upstream wrote nothing');
      await upstream.end();
      const ours = new ProxyProgram(lab.netnsPath('node'), OURS);
      assert.equal(await ours.run(['--cleanup']), 0);
      for (const family of ['ip', 'ip6'] as const) assert.doesNotMatch(await lab.allRules(family), /KUBE-(?!FIREWALL)|kube-proxy/);
      assert.match(await lab.iptablesSave(), /^-A FORWARD -s 10\.9\.9\.9\/32 -j DROP$/m);
      assert.equal(await lab.run('node', ['nft', 'list', 'table', 'inet', 'mine']), mine);
    });
});

/** Sends one UDP packet for 127.0.0.1 to the neighbour of that address on that link: INDEX MAC. */
const INTRUDER = `
use Socket;
my ($index, $mac) = @ARGV;
sub sum { my $sum = 0; $sum += $_ for unpack('n*', $_[0]); $sum = ($sum & 0xffff) + ($sum >> 16) while $sum >> 16; return ~$sum & 0xffff; }
my $head = sub { pack('CCnnnCCna4a4', 0x45, 0, 32, 0, 0x4000, 64, 17, $_[0], inet_aton('192.0.2.200'), inet_aton('127.0.0.1')) };
my $packet = $head->(sum($head->(0))) . pack('nnnn', 4000, 7777, 12, 0) . 'knock';
socket(my $raw, 17, SOCK_DGRAM, 8) or die "socket: $!";
send($raw, substr($packet, 0, 32), 0, pack('SniSCCH12n', 17, 0x0800, $index, 0, 0, 6, $mac, 0)) or die "send: $!";
`;

/**
 * Sends TCP segments whose numbers no window covers: FROM PORT TO PORT. What lies behind its window conntrack takes for
 * a late one, which is valid; of these, a quarter of all numbers apart, one at least lies ahead.
 */
const SEGMENT = `
use Socket;
my ($from, $sport, $to, $dport) = @ARGV;
sub sum { my ($data) = @_; $data .= "\\0" if length($data) % 2; my $sum = 0; $sum += $_ for unpack('n*', $data); $sum = ($sum & 0xffff) + ($sum >> 16) while $sum >> 16; return ~$sum & 0xffff; }
socket(my $raw, AF_INET, SOCK_RAW, 6) or die "socket: $!";
setsockopt($raw, 0, 3, pack('i', 1)) or die "IP_HDRINCL: $!";
for my $number (0x3f000000, 0x7f000000, 0xbf000000, 0xff000000) {
  my $head = sub { pack('nnNNCCnnn', $sport, $dport, $number, $number, 5 << 4, 0x18, 512, $_[0], 0) . 'late' };
  my $pseudo = inet_aton($from) . inet_aton($to) . pack('CCn', 0, 6, length($head->(0)));
  my $segment = $head->(sum($pseudo . $head->(0)));
  my $packet = pack('CCnnnCCna4a4', 0x45, 0, 20 + length($segment), 0, 0x4000, 64, 6, 0, inet_aton($from), inet_aton($to)) . $segment;
  send($raw, $packet, 0, pack_sockaddr_in(0, inet_aton($to))) or die "send: $!";
}
`;
