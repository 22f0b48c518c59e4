import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { findAssets } from '../assets/find.ts';
import { Lab, labNode, missing, service, slice, until, type Reply } from './lab.ts';
import { OURS, ProxyProgram } from './proxy-program.ts';
import type { Told } from './zoo.ts';

/** Node ports on loopback addresses in nftables mode, behind their gate: ours and upstream's must do the same. */

const reason = missing(['nft', 'nsenter']);
if (reason !== null) console.log(`skipped: node ports on loopback in nftables mode ${reason}`);
const kubeProxy = reason === null ? (await findAssets({ env: process.env })).path('kube-proxy') : null;

const START_MS = 90_000;
/** One answer that is there already, on a machine out of breath. */
const ANSWER_MS = 30_000;
const web = { name: 'web', port: 8080, protocol: 'TCP' };
const stats = { name: 'u', port: 8125, protocol: 'UDP' };
const node = { resource: 'nodes', object: { ...labNode(), metadata: { ...(labNode() as { metadata: object }).metadata, uid: 'node-a' } } };
const ports = [
  { name: 'web', port: 80, protocol: 'TCP', nodePort: 30080 },
  { name: 'u', port: 8125, protocol: 'UDP', nodePort: 30081 },
];
const echo: Told = {
  resource: 'services',
  object: service('echo', ['10.96.0.8', 'fd00:96::8'], ports, { spec: { type: 'NodePort', ipFamilies: ['IPv4', 'IPv6'], ipFamilyPolicy: 'RequireDualStack' } }),
};
const endpoints = (there: boolean): Told[] => [
  { resource: 'endpointslices', object: slice('echo', web, there ? [{ ip: '10.244.0.3' }] : [], { name: 'echo-web' }) },
  { resource: 'endpointslices', object: slice('echo', stats, there ? [{ ip: '10.244.0.3' }] : [], { name: 'echo-u' }) },
];

suite('Node ports on loopback in nftables mode', { skip: reason ?? false }, () => {
  const lab = new Lab('nfloop');
  before(async () => await lab.build());
  after(async () => await lab[Symbol.asyncDispose]());

  const connect = (host: string) => (): Promise<Reply> => lab.peers.node.connect(host, 30080, { timeoutMs: 3000 });
  let opened = 0;
  const udpError = async (host: string): Promise<string | undefined> => {
    const handle = `h${++opened}`;
    await lab.peers.node.ask({ do: 'udp-open', handle, host, port: 30081, connected: true });
    await lab.peers.node.ask({ do: 'udp-send', handle, connected: true });
    const told = (): Promise<Reply> => lab.peers.node.ask({ do: 'udp-error', handle });
    return (await until(told, ({ error }) => error !== undefined)).error;
  };
  const metrics = async (): Promise<string[]> => {
    const { body = '' } = await lab.peers.node.ask({ do: 'http', host: '127.0.0.1', port: 10249, path: '/metrics', timeoutMs: ANSWER_MS });
    return body.split('\n').filter((line) => line.startsWith('kubeproxy_nftables_localhost_nodeport_'));
  };
  /** What the table has of it: map, chains and counters, and the ways there. */
  const listed = async (family: string): Promise<string[]> =>
    (await lab.run('node', ['nft', 'list', 'table', family, 'kube-proxy']))
      .split('\n')
      .map((line) => line.trim().replace(/packets \d+ bytes \d+/, 'packets'))
      .filter((line) => line.includes('localhost-nodeport'))
      .toSorted();
  const seen = new Map<string, object>();

  for (const [name, program] of [['ours', OURS] as const, ...(kubeProxy === null ? [] : [['upstream’s', [kubeProxy]] as const])])
    test(name, async () => {
      const config = { mode: 'nftables', featureGates: { KubeProxyNFTablesLocalhostNodePorts: true }, nftables: { minSyncPeriod: '20ms' } };
      await using proxy = new ProxyProgram(lab.netnsPath('node'), program);
      await proxy.start({ config: { ...config, nodePortAddresses: ['primary', 'localhost'] }, objects: [node, echo, ...endpoints(true)] });
      const results: Record<string, unknown> = {};
      for (const family of ['ip', 'ip6'])
        await until(
          async () => await listed(family).catch(() => []),
          (lines) => lines.some((line) => line.includes('udp . 30081')),
          START_MS,
        );
      assert.equal((await until(connect('127.0.0.1'), (reply) => reply.server === 'srv', START_MS)).server, 'srv');
      results['other address'] = (await until(connect('192.0.2.10'), (reply) => reply.server === 'srv', START_MS)).server;
      // Without endpoints of that family nothing listens.
      results['::1'] = (await connect('::1')()).error;
      results['udp'] = [await udpError('127.0.0.1'), await udpError('::1')];
      results['listed'] = [await listed('ip'), await listed('ip6')];
      results['metrics'] = (await metrics()).toSorted();
      for (const told of endpoints(false)) proxy.tell(told);
      results['no endpoints'] = (await until(connect('127.0.0.1'), (reply) => reply.error === 'ECONNREFUSED', START_MS)).error;
      for (const told of endpoints(true)) proxy.tell(told);
      assert.equal((await until(connect('127.0.0.1'), (reply) => reply.server === 'srv', START_MS)).server, 'srv');
      // Not asked for by name: all protocols are refused.
      await proxy.restart({ ...config, nodePortAddresses: ['primary'] });
      await until(
        async () => await listed('ip').catch(() => []),
        (lines) => lines.some((line) => line.includes('localhost-nodeport-reject-tcp')),
        START_MS,
      );
      results['refused'] = (await until(connect('127.0.0.1'), (reply) => reply.error === 'ECONNREFUSED', START_MS)).error;
      results['refused, counted'] = (await metrics()).some((line) => /"IPv4",protocol="TCP"\} [1-9]/.test(line));
      // Without the gate nothing is left of it.
      await proxy.restart({ mode: 'nftables', nftables: config.nftables, nodePortAddresses: ['primary'] });
      await until(
        async () => await listed('ip'),
        (lines) => lines.length === 0,
        START_MS,
      );
      results['left'] = [
        await until(
          async () => await listed('ip6'),
          (lines) => lines.length === 0,
          START_MS,
        ),
      ];
      await proxy.end();
      assert.equal(await proxy.run(['--cleanup']), 0);
      assert.doesNotMatch(await lab.run('node', ['nft', 'list', 'ruleset']), /kube-proxy/);
      assert.deepEqual([results['other address'], results['::1'], results['udp']], ['srv', 'ECONNREFUSED', ['ECONNREFUSED', 'ECONNREFUSED']]);
      assert.deepEqual([results['no endpoints'], results['refused']], ['ECONNREFUSED', 'ECONNREFUSED']);
      seen.set(name, results);
      assert.deepEqual(results, seen.get('ours'));
    });
});
