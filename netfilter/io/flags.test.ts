import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { hasCode, messageOf } from '../../base/errors.ts';
import { readCommand } from './flags.ts';

async function run(...args: string[]): Promise<Awaited<ReturnType<typeof readCommand>> & { kind: 'run' }> {
  const command = await readCommand(args);
  assert.equal(command.kind, 'run');
  return command;
}

test('flags as kube-proxy takes them', async () => {
  const { config, verbosity, master } = await run(
    '--kubeconfig=/k',
    '--proxy-mode=nftables',
    '-v=2',
    '--cluster-cidr',
    '10.244.0.0/16',
    '--masquerade-all',
    '--nodeport-addresses=primary,10.0.0.0/8',
    '--master',
    'https://x:6443',
    '--conntrack-max-per-core=0',
    '--feature-gates=ContextualLogging=false',
    '--iptables-min-sync-period=2s',
    '--profiling=false',
  );
  assert.equal(verbosity, 2);
  assert.equal(master, 'https://x:6443');
  assert.deepEqual(
    [config.kubeconfig, config.clusterCIDRs, config.masqueradeAll, config.nodePortAddresses, config.conntrack.maxPerCore, config.minSyncPeriodMs],
    ['/k', ['10.244.0.0/16'], true, ['primary', '10.0.0.0/8'], 0, 2000],
  );
});

test('the flags of iptables go to its section, and a boolean can be false', async () => {
  const { config } = await run('--kubeconfig=/k', '--iptables-localhost-nodeports=false', '--iptables-masquerade-bit=3', '--iptables-sync-period=9s');
  assert.deepEqual([config.mode, config.localhostNodePorts, config.masqueradeBit, config.syncPeriodMs], ['iptables', false, 3, 9000]);
  await assert.rejects(readCommand(['--no-masquerade-all']), /unknown flag --no-masquerade-all/);
});

test('a period of 0 is one on the command line, and the old flags of ports count as upstream has them', async () => {
  assert.equal((await run('--iptables-min-sync-period=0')).config.minSyncPeriodMs, 0);
  await assert.rejects(readCommand(['--iptables-sync-period=0s']), /--iptables-sync-period must be greater than 0/);
  const addresses = async (...args: string[]): Promise<string[]> => {
    const { config } = await run(...args);
    return [config.healthzBindAddress, config.metricsBindAddress];
  };
  assert.deepEqual(await addresses('--healthz-port=0', '--metrics-port=0'), ['', '']);
  assert.deepEqual(await addresses('--healthz-port=9', '--metrics-port=8'), ['0.0.0.0:10256', '127.0.0.1:10249']);
  assert.deepEqual(await addresses('--healthz-bind-address=192.0.2.1', '--healthz-port=9', '--metrics-bind-address=::1'), ['192.0.2.1:9', '[::1]:10249']);
  await assert.rejects(readCommand(['--healthz-port=x']), /--healthz-port needs a whole number/);
});

test('gates that upstream does not start with are refused, in a file too', async () => {
  const refusals: [string, RegExp][] = [
    ['Nope=true', /unrecognized feature gate: Nope/],
    ['NFTablesProxyMode=false', /cannot set feature gate NFTablesProxyMode to false, feature is locked to true/],
    ['AllAlpha=true', /WorkloadWithJob is enabled, but depends on features that are disabled: \[GenericWorkload\]/],
  ];
  for (const [gates, words] of refusals)
    await assert.rejects(readCommand([`--feature-gates=${gates}`]), (error) => hasCode(error, 'invalid') && words.test(messageOf(error)));
  const dir = await mkdtemp(join(tmpdir(), 'proxy-gates-'));
  try {
    await writeFile(join(dir, 'config'), 'featureGates: {Nope: true}\n');
    await assert.rejects(readCommand(['--config', join(dir, 'config')]), /unrecognized feature gate: Nope/);
    // As upstream: flags are not looked at where a file covers them.
    await writeFile(join(dir, 'config'), 'featureGates: {AllAlpha: true, GenericWorkload: true, AllBeta: true}\nmode: nftables\n');
    assert.equal((await run('--config', join(dir, 'config'), '--feature-gates=Nope=true')).config.loopbackListeners, true);
  } finally {
    await rm(dir, { recursive: true });
  }
});

/** What kube-proxy 1.37.2 told at /flagz when it was given the flags of the test, but for addresses that it takes from the Node. */
const TOLD = `
bind-address=0.0.0.0 bind-address-hard-fail=false cleanup=false cluster-cidr= config= config-sync-period=15m0s conntrack-max-per-core=0
conntrack-min=0 conntrack-tcp-be-liberal=false conntrack-tcp-timeout-close-wait=1h0m0s conntrack-tcp-timeout-established=24h0m0s
conntrack-udp-timeout=0s conntrack-udp-timeout-stream=0s detect-local-mode=ClusterCIDR feature-gates=WatchListClient=false
healthz-bind-address=0.0.0.0:10256 healthz-port=10256 help=false hostname-override=n1 init-only=false iptables-localhost-nodeports=true
iptables-masquerade-bit=14 iptables-min-sync-period=1s iptables-sync-period=30s ipvs-exclude-cidrs=[] ipvs-min-sync-period=1s
ipvs-scheduler= ipvs-strict-arp=false ipvs-sync-period=30s ipvs-tcp-timeout=0s ipvs-tcpfin-timeout=0s ipvs-udp-timeout=0s
kube-api-burst=10 kube-api-content-type=application/json kube-api-qps=5 kubeconfig= log-flush-frequency=5s log-json-info-buffer-size=0
log-json-split-stream=false log-text-info-buffer-size=0 log-text-split-stream=false logging-format=text masquerade-all=false
master=http://127.0.0.1:1 metrics-bind-address=127.0.0.1:10249 metrics-port=10249 nodeport-addresses=[primary] oom-score-adj=-999
pod-bridge-interface= pod-interface-name-prefix= profiling=true proxy-mode=nftables show-hidden-metrics-for-version= v=1 version=false
vmodule= write-config-to=
`;

test('flags as they are told at /flagz, and the gates of its page', async () => {
  const { flagz, config } = await run(
    ...['--master=http://127.0.0.1:1', '--kube-api-content-type=application/json', '--feature-gates=WatchListClient=false', '--proxy-mode=nftables'],
    ...['--conntrack-max-per-core=0', '--conntrack-min=0', '--hostname-override=n1', '-v=1', '--profiling', '--nodeport-addresses=primary'],
  );
  assert.deepEqual(
    Object.entries(flagz())
      .map(([name, value]) => `${name}=${value}`)
      .toSorted(),
    TOLD.trim().split(/\s+/).toSorted(),
  );
  assert.deepEqual([config.flagz, config.statusz], [true, true]);
  const off = (await run('--feature-gates=ComponentFlagz=false,ComponentStatusz=false')).config;
  assert.deepEqual([off.flagz, off.statusz], [false, false]);
});

test('the gate of external addresses', async () => {
  assert.equal((await run('--feature-gates=AllowServiceExternalIPs=false')).config.externalIPs, false);
  assert.equal((await run()).config.externalIPs, true);
});

test('other commands', async () => {
  assert.equal((await readCommand(['--help'])).kind, 'help');
  assert.equal((await readCommand(['--version'])).kind, 'version');
  assert.equal((await readCommand(['--cleanup'])).kind, 'cleanup');
});

test('a typo is refused with the flag named', async () => {
  await assert.rejects(readCommand(['--proxy-mod', 'nftables']), /--proxy-mod/);
  await assert.rejects(readCommand(['--proxy-mode=nftables', '--oom-score-adj=low']), /--oom-score-adj needs a whole number/);
  await assert.rejects(readCommand(['--proxy-mode=nftables', 'extra']), /extra/);
  await assert.rejects(readCommand(['--feature-gates=A=maybe']), /--feature-gates needs true or false for A, not "maybe"/);
  await assert.rejects(readCommand(['--masquerade-all=yes']), /--masquerade-all is true or false, not "yes"/);
  await assert.rejects(readCommand(['--v=loud']), /--v needs a whole number/);
  await assert.rejects(readCommand(['--hostname-override= ']), /--hostname-override is blank/);
  assert.equal((await run('--masquerade-all=1')).config.masqueradeAll, true);
});

test('a configuration file decides over the flags it covers, the host name and the kubeconfig aside', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'netfilter-flags-'));
  const file = join(folder, 'config.yaml');
  try {
    await writeFile(
      file,
      'apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\nclusterCIDR: 10.1.0.0/16\nhostnameOverride: from-file\nnftables: {masqueradeAll: yes, syncPeriod: 1m0s}\n',
    );
    const { config, ignored } = await run(
      '--config',
      file,
      '--proxy-mode=ipvs',
      '--cluster-cidr=10.2.0.0/16',
      '--hostname-override=from-flag',
      '--kubeconfig=/k',
    );
    assert.deepEqual(
      [config.mode, config.clusterCIDRs, config.hostnameOverride, config.kubeconfig, config.masqueradeAll, config.syncPeriodMs],
      ['nftables', ['10.1.0.0/16'], 'from-flag', '/k', true, 60_000],
    );
    assert.deepEqual(ignored, ['--proxy-mode', '--cluster-cidr']);
    await writeFile(file, 'mode: nftables\nnftables: {syncperiod: 1m}\nclusterCidr: 10.1.0.0/16\n');
    await writeFile(file, 'logging: {verbosity: 4}\n');
    assert.deepEqual([(await run('--config', file)).verbosity, (await run('--config', file, '--v=1')).verbosity], [4, 1]);
    await writeFile(file, 'mode: nftables\nnftables: {syncperiod: 1m}\nclusterCidr: 10.1.0.0/16\n');
    assert.deepEqual((await run('--config', file)).unknown, ['nftables.syncperiod', 'clusterCidr']);
    await writeFile(file, 'mode: [nftables\n');
    await assert.rejects(readCommand(['--config', file]), (error: Error) => error.message.includes(file));
    await assert.rejects(readCommand(['--config', join(folder, 'missing')]), /missing/);
  } finally {
    await rm(folder, { recursive: true });
  }
});

test('--write-config-to gives the configuration with what flags say', async () => {
  const command = await readCommand([
    '--write-config-to=/f',
    '--kube-api-qps=7',
    '--feature-gates=ContextualLogging=false,QOSReserved=true',
    '--profiling',
    '--hostname-override=Node-A',
    '--masquerade-all',
    '-v=4',
  ]);
  assert.ok(command.kind === 'write');
  const { document, path } = command;
  assert.equal(path, '/f');
  assert.deepEqual(
    [document['hostnameOverride'], document['enableProfiling'], document['featureGates'], document['clientConnection'], document['iptables']],
    [
      'node-a',
      true,
      { ContextualLogging: false, QOSReserved: true },
      { kubeconfig: '', acceptContentTypes: '', contentType: 'application/vnd.kubernetes.protobuf', qps: 7, burst: 10 },
      { masqueradeBit: 14, masqueradeAll: true, localhostNodePorts: true, syncPeriod: '30s', minSyncPeriod: '1s' },
    ],
  );
  assert.equal((document['logging'] as { verbosity: number }).verbosity, 4);
});

test('health and metrics follow the bind address of a file, not that of the command line', async (t) => {
  const addresses = async (...args: string[]): Promise<string[]> => {
    const { config } = await run(...args);
    return [config.healthzBindAddress, config.metricsBindAddress];
  };
  assert.deepEqual(await addresses('--kubeconfig=/k', '--bind-address=::'), ['0.0.0.0:10256', '127.0.0.1:10249']);
  const dir = await mkdtemp(join(tmpdir(), 'flags-'));
  t.after(() => rm(dir, { recursive: true }));
  await writeFile(join(dir, 'config'), 'bindAddress: "::"\n');
  assert.deepEqual(await addresses(`--config=${join(dir, 'config')}`), ['[::]:10256', '[::1]:10249']);
});

/** What kube-proxy 1.37.2 --help lists, help and version aside. */
const UPSTREAM = `
  bind-address bind-address-hard-fail cleanup cluster-cidr config config-sync-period conntrack-max-per-core conntrack-min
  conntrack-tcp-be-liberal conntrack-tcp-timeout-close-wait conntrack-tcp-timeout-established conntrack-udp-timeout
  conntrack-udp-timeout-stream detect-local-mode feature-gates healthz-bind-address hostname-override init-only iptables-localhost-nodeports
  iptables-masquerade-bit iptables-min-sync-period iptables-sync-period ipvs-exclude-cidrs ipvs-min-sync-period ipvs-scheduler ipvs-strict-arp
  ipvs-sync-period ipvs-tcp-timeout ipvs-tcpfin-timeout ipvs-udp-timeout kube-api-burst kube-api-content-type kube-api-qps kubeconfig
  log-flush-frequency log-json-info-buffer-size log-json-split-stream log-text-info-buffer-size log-text-split-stream logging-format
  masquerade-all master metrics-bind-address nodeport-addresses oom-score-adj pod-bridge-interface pod-interface-name-prefix profiling
  proxy-mode show-hidden-metrics-for-version v vmodule write-config-to
`;

test('every flag of upstream is taken', async () => {
  for (const name of UPSTREAM.trim().split(/\s+/)) {
    const trouble = await readCommand([`--${name}=1`]).then(
      () => '',
      (error: Error) => error.message,
    );
    assert.doesNotMatch(trouble, /unknown (option|flag)/i, name);
  }
});
