import assert from 'node:assert/strict';
import { text as textOf } from 'node:stream/consumers';
import { after, before, suite, test } from 'node:test';
import { OpError } from '../../base/errors.ts';
import { silentLog } from '../../base/log.ts';
import { detectVariant, type Iptables } from '../../netfilter/io/iptables.ts';
import { removeAllChains } from '../../netfilter/modes.ts';
import { Lab, missing, service, slice, startProxy, until, type Reply, type RunningProxy } from './lab.ts';

const reason = missing(['iptables', 'iptables-legacy']);
if (reason !== null) console.log(`skipped: programming tests of iptables mode ${reason}`);

const web = { name: 'web', port: 8080, protocol: 'TCP' };
const echo = (spec: Record<string, unknown> = {}): never => service('echo', ['10.96.0.8'], [{ name: 'web', port: 80, protocol: 'TCP' }], { spec });
const FAST = { minSyncPeriod: '100ms', syncPeriod: '200ms' };

suite('Programming iptables', { skip: reason ?? false }, () => {
  const lab = new Lab('nfi');
  let refuse: (text: string) => boolean = () => false;
  let written: string[] = [];
  let proxy: RunningProxy;
  const wrapIptables = (own: Iptables): Iptables => ({
    ...own,
    restore: async (family, input, signal) => {
      const text = typeof input === 'string' ? input : await textOf(input);
      if (family === 'ip') written.push(text);
      if (refuse(text)) return { ok: false, error: new OpError('failed', 'write iptables rules', 'refused by the test'), failedLines: [] };
      return await own.restore(family, text, signal);
    },
  });
  const reach = (): Promise<Reply> => lab.peers.cli.connect('10.96.0.8', 80, { timeoutMs: 300 });
  const restart = async (mode: 'iptables' | 'nftables', more: object = {}): Promise<void> => {
    await proxy[Symbol.asyncDispose]();
    proxy = await startProxy(lab, { config: { mode, [mode]: FAST }, wrapIptables, api: proxy.api, ...more });
    await proxy.synced();
  };
  before(async () => {
    await lab.build();
    proxy = await startProxy(lab, { config: { mode: 'iptables', iptables: FAST }, wrapIptables });
    proxy.api.put('services', echo());
    proxy.api.put('endpointslices', slice('echo', web, [{ ip: '10.244.0.3' }]));
    proxy.api.put('services', service('other', ['10.96.0.9'], [{ port: 80, protocol: 'TCP' }]));
    proxy.api.put('endpointslices', slice('other', { port: 8080 }, [{ ip: '10.244.0.4' }]));
    await proxy.synced();
  });
  after(async () => {
    await proxy?.[Symbol.asyncDispose]();
    await lab[Symbol.asyncDispose]();
  });

  test('another endpoint writes only the chains of its Service, and what is gone is deleted', async () => {
    written = [];
    proxy.api.put('endpointslices', slice('echo', web, [{ ip: '10.244.0.4' }]));
    await proxy.synced();
    assert.equal(written.length, 1);
    assert.deepEqual(
      [...written[0]!.matchAll(/^:(KUBE-\w+)/gm)].map((match) => match[1]),
      ['KUBE-SVC', 'KUBE-SEP', 'KUBE-SEP'],
    );
    assert.match(written[0]!, /^-X KUBE-SEP-KDBXJDXKLRBPSVXK$/m);
    assert.doesNotMatch(await lab.iptablesSave(), /KUBE-SEP-KDBXJDXKLRBPSVXK/);
    assert.equal((await reach()).server, 'srv2');
  });

  test('a write that fails is made up for by a whole one, with nothing lost', async () => {
    let left = 1;
    refuse = () => left-- > 0;
    proxy.api.put('endpointslices', slice('echo', web, [{ ip: '10.244.0.3' }]));
    await proxy.synced();
    refuse = () => false;
    assert.equal((await reach()).server, 'srv');
    assert.equal(proxy.metrics.value('kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total', { ip_family: 'IPv4' }), 1);
  });

  test('a table that somebody emptied is written again', async () => {
    for (const table of ['nat', 'mangle']) {
      await lab.run('node', ['iptables', '-t', table, '-F']);
      await lab.run('node', ['iptables', '-t', table, '-X']);
      const back = await until(
        () => lab.iptablesSave(),
        (saved) => saved.split(':KUBE-PROXY-CANARY').length === 4 && saved.includes('KUBE-SEP-'),
      );
      assert.match(back, /-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES/);
    }
    await proxy.synced();
    assert.equal((await reach()).server, 'srv');
  });

  test('switching modes while a connection is open, there and back, leaves only the current mode’s rules', async () => {
    const foreign = ['-I FORWARD -s 10.9.9.9/32 -j DROP', '-N MY-CHAIN', '-A MY-CHAIN -s 10.9.9.8/32 -j RETURN'];
    for (const line of foreign) await lab.run('node', ['iptables', ...line.split(' ')]);
    await lab.peers.cli.ask({ do: 'hold', host: '10.96.0.8', port: 80, handle: 'kept' });
    await restart('nftables');
    const after = await until(
      () => lab.iptablesSave(),
      (saved) => !/KUBE-(?!FIREWALL)/.test(saved),
    );
    assert.doesNotMatch(after, /KUBE-(?!FIREWALL)/);
    assert.match(after, /-A FORWARD -s 10\.9\.9\.9\/32 -j DROP[\s\S]*-A MY-CHAIN -s 10\.9\.9\.8\/32 -j RETURN/);
    assert.doesNotMatch(await lab.iptablesSave('ip6'), /KUBE-(?!FIREWALL)/);
    assert.equal((await reach()).server, 'srv');
    assert.equal((await lab.peers.cli.ask({ do: 'say', handle: 'kept' })).server, 'srv');
    await restart('iptables');
    const tables = (): Promise<string> => lab.run('node', ['nft', 'list', 'tables']);
    assert.doesNotMatch(await until(tables, (text) => !text.includes('kube-proxy')), /kube-proxy/);
    assert.equal((await reach()).server, 'srv');
    assert.equal((await lab.peers.cli.ask({ do: 'say', handle: 'kept' })).server, 'srv');
  });

  test('a start finds what an earlier one left and takes out what nobody wants', async () => {
    const stale =
      '*nat\n:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]\n:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]\n-A KUBE-SVC-AAAAAAAAAAAAAAAA -j KUBE-SEP-AAAAAAAAAAAAAAAA\nCOMMIT\n';
    await lab.run('node', ['iptables-restore', '--noflush'], stale);
    const jumps = (await lab.iptablesSave()).match(/^-A [A-Z]+ .*-j KUBE-/gm)?.length;
    await restart('iptables');
    const saved = await lab.iptablesSave();
    assert.doesNotMatch(saved, /AAAAAAAA/);
    assert.equal(saved.match(/^-A [A-Z]+ .*-j KUBE-/gm)?.length, jumps);
  });

  test('the legacy programs work as well, and are found by what is there', async () => {
    await removeAllChains(lab.sys, silentLog, lab.netnsPath('node'));
    const where = { netns: lab.netnsPath('node') };
    await restart('iptables', { variant: '-legacy' });
    assert.match(await lab.iptablesSave('ip', '-legacy'), /KUBE-SVC-/);
    assert.equal((await reach()).server, 'srv');
    assert.equal(await detectVariant(lab.sys, where), '-legacy');
    await lab.run('node', ['iptables-nft', '-t', 'mangle', '-N', 'KUBE-IPTABLES-HINT']);
    assert.equal(await detectVariant(lab.sys, where), '-nft');
  });

  test('cleanup takes out both kinds and keeps what is others’', async () => {
    await proxy[Symbol.asyncDispose]();
    for (let times = 0; times < 2; times++) assert.equal(await removeAllChains(lab.sys, silentLog, lab.netnsPath('node')), 0);
    for (const variant of ['-nft', '-legacy'] as const) assert.doesNotMatch(await lab.iptablesSave('ip', variant), /KUBE-(?!FIREWALL|IPTABLES-HINT)/);
    assert.match(await lab.iptablesSave('ip', '-nft'), /-A MY-CHAIN -s 10\.9\.9\.8\/32 -j RETURN/);
    proxy = await startProxy(lab, { config: { mode: 'iptables' }, api: proxy.api });
    await proxy.synced();
  });
});
