import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { realClock } from '../../base/clock.ts';
import { silentLog } from '../../base/log.ts';
import { seededRng } from '../../base/rng.ts';
import { createSysClient } from '../../base/sys/client.ts';
import { proxyConfig } from '../../netfilter/core/config.ts';
import { FakeApi } from '../../netfilter/fake.ts';
import { ProxyHealth } from '../../netfilter/health.ts';
import { proxyMetrics } from '../../netfilter/io/metrics.ts';
import { HealthPorts } from '../../netfilter/io/servers.ts';
import { openMode } from '../../netfilter/modes.ts';
import { Proxy } from '../../netfilter/proxy.ts';
import { findAssets } from '../assets/find.ts';
import { labNode, missing, sysPath, until } from './lab.ts';
import { randomChange, zoo, type Told } from './zoo.ts';

/** Upstream's kube-proxy and ours, each in a network namespace of its own, are told the same objects: their rules must be equal. */

const kubeProxy = (await findAssets({ env: process.env })).path('kube-proxy');
const reason = missing(['iptables', 'nsenter']) ?? (kubeProxy === null ? 'needs upstream’s kube-proxy (./nodelet assets)' : null);
if (reason !== null) console.log(`skipped: comparing iptables rules with upstream's ${reason}`);

const node = { ...labNode({ 'topology.kubernetes.io/zone': 'a' }), spec: { podCIDRs: ['10.244.0.0/24', 'fd00:10:244::/64'] } };
const CONFIG = {
  mode: 'iptables',
  conntrack: { maxPerCore: 0, min: 0, tcpEstablishedTimeout: '0s', tcpCloseWaitTimeout: '0s' },
  clusterCIDR: '10.244.0.0/16,fd00:10:244::/48',
  iptables: { minSyncPeriod: '20ms', syncPeriod: '30s' },
};
/** How long upstream may take to write one change; the machine may be busy. */
const PATIENCE_MS = 60_000;

/** Chains that all Services write to, in the order of a Go map at upstream. The last rule of nat's KUBE-SERVICES is its own matter. */
const SHARED = new Set(['KUBE-SERVICES', 'KUBE-EXTERNAL-SERVICES', 'KUBE-NODEPORTS', 'KUBE-PROXY-FIREWALL']);

/** The order of chains means nothing, that of rules does, except among Services in a shared chain. */
function normal(saved: string): string {
  const parts: string[] = [];
  for (const part of saved.split(/^\*/m).slice(1)) {
    const lines = part.split('\n');
    const chains = lines.filter((line) => line.startsWith(':')).map((line) => line.replace(/ \[\d+:\d+\]$/, ''));
    const rules = new Map<string, string[]>();
    for (const line of lines.filter((candidate) => candidate.startsWith('-A '))) {
      const chain = line.split(' ', 2)[1]!;
      rules.set(chain, [...(rules.get(chain) ?? []), line]);
    }
    for (const [chain, inChain] of rules) {
      if (!SHARED.has(chain)) continue;
      const last = / must be the last rule /.test(inChain.at(-1)!) ? [inChain.pop()!] : [];
      rules.set(chain, [...inChain.toSorted(), ...last]);
    }
    parts.push(`*${lines[0]}`, ...chains.toSorted(), ...[...rules].toSorted(([a], [b]) => (a < b ? -1 : 1)).flatMap(([, inChain]) => inChain));
  }
  return parts.join('\n');
}

interface Pair {
  readonly tell: (told: { resource: string; object: object; gone?: boolean }) => void;
  /** Waits until both have written the same, or fails with the difference; returns how many rules that are. */
  readonly agree: (what: string) => Promise<number>;
}

/** Both proxies with the zoo and this configuration, for the tests of one suite. */
function pair(given: object): Pair {
  const names = { upstream: `nfp-${process.pid}-up`, ours: `nfp-${process.pid}-our` };
  const sys = createSysClient({ path: sysPath, log: silentLog });
  const children: ChildProcess[] = [];
  const api = new FakeApi();
  const stop = new AbortController();
  let folder = '';
  let running: Promise<void> = Promise.resolve();
  let healthPorts: HealthPorts | undefined;
  let upstreamApi: ChildProcess;
  let proxy: Proxy | undefined;

  const run = async (argv: string[], netns?: string): Promise<string> => {
    const result = await sys.run({ argv, timeoutMs: 60_000, maxOutputBytes: 32 << 20, ...(netns === undefined ? {} : { netns: `/run/netns/${netns}` }) });
    assert.equal(result.code, 0, Buffer.from(result.stderr).toString());
    return Buffer.from(result.stdout).toString();
  };
  const start = (argv: string[], stdio: 'pipe' | 'ignore'): ChildProcess => {
    const child = spawn('nsenter', [`--net=/run/netns/${names.upstream}`, ...argv], {
      stdio: [stdio, stdio, process.env['NETFILTER_UPSTREAM_LOG'] === undefined ? 'ignore' : 'inherit'],
    });
    children.push(child);
    return child;
  };
  const tell = (told: { resource: string; object: object; gone?: boolean }): void => {
    upstreamApi.stdin!.write(`${JSON.stringify(told)}\n`);
    const { namespace, name } = (told.object as Told['object']).metadata;
    if (told.gone === true) api.remove(told.resource, namespace, name);
    else api.put(told.resource, told.object as never);
  };
  const agree = async (what: string): Promise<number> => {
    let rules = 0;
    // Before ours is written, both may be equal in what is old.
    assert.ok(await until(async () => proxy!.isIdle, Boolean, PATIENCE_MS), `${what}: ours is not written`);
    for (const command of ['iptables-save', 'ip6tables-save']) {
      const both = async (): Promise<string[]> => [normal(await run([command], names.ours)), normal(await run([command], names.upstream))];
      const [ours, upstream] = await until(both, ([one, two]) => one === two, PATIENCE_MS);
      assert.deepEqual(ours!.split('\n'), upstream!.split('\n'), `${what}: ${command}`);
      rules += ours!.match(/^-A/gm)?.length ?? 0;
    }
    return rules;
  };

  before(async () => {
    for (const name of Object.values(names)) {
      await run(['ip', 'netns', 'add', name]);
      const sysctls = 'echo 0 > /proc/sys/net/ipv6/conf/all/disable_ipv6; echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet';
      await run(['sh', '-c', `${sysctls}; ip link set lo up`], name);
    }
    folder = await mkdtemp(join(tmpdir(), 'netfilter-upstream-'));
    const file = join(folder, 'config.json');
    await writeFile(
      file,
      JSON.stringify({
        apiVersion: 'kubeproxy.config.k8s.io/v1alpha1',
        kind: 'KubeProxyConfiguration',
        ...given,
        hostnameOverride: 'node-a',
        clientConnection: { contentType: 'application/json', acceptContentTypes: 'application/json', qps: 1000, burst: 1000 },
        healthzBindAddress: '127.0.0.1:10256',
      }),
    );
    upstreamApi = start([process.execPath, join(import.meta.dirname, 'apiserver.ts')], 'pipe');
    await once(upstreamApi.stdout!, 'data');
    tell({ resource: 'nodes', object: { ...node, metadata: { ...node.metadata, uid: 'node-a' } } });
    for (const told of zoo()) tell(told);
    start([kubeProxy!, '--config', file, '--master', 'http://127.0.0.1:8001'], 'ignore');

    const config = { ...proxyConfig(given), minSyncPeriodMs: 5 };
    const metrics = proxyMetrics();
    const health = new ProxyHealth({ clock: realClock, timeoutMs: 2 * config.syncPeriodMs });
    healthPorts = new HealthPorts({ log: silentLog, isHealthy: () => health.healthy });
    const mode = await openMode(sys, { config, metrics, log: silentLog, netns: `/run/netns/${names.ours}` });
    const machineAddresses = (): string[] => ['127.0.0.1', '::1'];
    proxy = new Proxy({ ...mode, config, nodeName: 'node-a', healthPorts, health, metrics, clock: realClock, log: silentLog, machineAddresses });
    running = proxy.run(api.api, stop.signal);
  });
  after(async () => {
    stop.abort();
    await running;
    await healthPorts?.[Symbol.asyncDispose]();
    for (const child of children.toReversed()) {
      const ended = once(child, 'exit');
      if (child.exitCode === null && child.signalCode === null && child.kill()) await ended;
    }
    for (const name of Object.values(names)) await run(['ip', 'netns', 'delete', name]);
    await sys[Symbol.asyncDispose]();
    if (folder !== '') await rm(folder, { recursive: true });
  });
  return { tell, agree };
}

suite('Rules of iptables mode equal upstream’s', { skip: reason ?? false }, () => {
  const { tell, agree } = pair(CONFIG);

  test('for Services of every kind', async () => {
    const rules = await agree('the zoo');
    assert.ok(rules > 200, `${rules} rules`);
    console.log(`${zoo().length} objects, ${rules} rules, equal`);
  });

  test('after each of 40 random changes', async () => {
    const rng = seededRng(7);
    for (let step = 0; step < 40; step++) {
      const told = randomChange(rng);
      tell(told);
      await agree(`change ${step} (${told.gone === true ? 'without' : 'with'} ${told.resource} ${told.object.metadata.name})`);
    }
  });
});

/** How local traffic is told, and what else in the configuration changes rules. */
const OTHERS: readonly object[] = [
  { clusterCIDR: '' },
  { detectLocalMode: 'NodeCIDR' },
  { detectLocalMode: 'BridgeInterface', detectLocal: { bridgeInterface: 'cbr0' } },
  { detectLocalMode: 'InterfaceNamePrefix', detectLocal: { interfaceNamePrefix: 'veth' }, nodePortAddresses: ['127.0.0.0/8', '::1/128'] },
  { nodePortAddresses: ['primary', '198.51.100.0/24'], iptables: { ...CONFIG.iptables, masqueradeAll: true, masqueradeBit: 5, localhostNodePorts: false } },
  { featureGates: { AllowServiceExternalIPs: false } },
];

for (const other of OTHERS)
  suite(`Rules equal upstream’s with ${JSON.stringify(other)}`, { skip: reason ?? false }, () => {
    const { agree } = pair({ ...CONFIG, ...other });
    test('for Services of every kind', async () => {
      const rules = await agree('the zoo');
      assert.ok(rules > 150, `${rules} rules`);
    });
  });
