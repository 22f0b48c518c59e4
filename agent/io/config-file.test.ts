import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile, mkdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { readCommand, type AgentCommand } from './config-file.ts';
import { agentSettings, nodeSettings } from './settings.ts';

const head = 'apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n';

async function setUp(t: TestContext, yaml = '') {
  const dir = await mkdtemp(join(tmpdir(), 'config-'));
  t.after(() => rm(dir, { recursive: true }));
  const kubeconfig = join(dir, 'kubeconfig');
  await writeFile(kubeconfig, 'apiVersion: v1\nkind: Config\n');
  const file = join(dir, 'config.yaml');
  await writeFile(file, head + yaml);
  return { dir, file, kubeconfig, base: ['--kubeconfig', kubeconfig, '--config', file] };
}

async function run(args: string[]): Promise<AgentCommand & { kind: 'run' }> {
  const command = await readCommand(args);
  assert.equal(command.kind, 'run');
  return command;
}

test('the version is what kubeadm reads', async () => {
  const command = await readCommand(['--version']);
  assert.ok(command.kind === 'version');
  assert.match(command.text, /^\s*Kubernetes v((0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*))([-\w.+]*)?\s*$/);
  assert.match(command.text, /v1\.37\.2\+nodelet/);
  assert.equal((await readCommand(['-h'])).kind, 'help');
});

test('flags override the file, gates add up, and own flags are kept apart', async (t) => {
  const { base } = await setUp(t, 'maxPods: 50\nfeatureGates: {AllAlpha: false}\nclusterDNS: [10.96.0.10]\n');
  const { config, flags } = await run([
    ...base,
    '--max-pods=20',
    '--feature-gates',
    'AllBeta=true',
    '--hostname-override',
    'N1',
    '--node-ip=10.0.0.5',
    '--v=4',
    '--fail-swap-on=false',
    '--anonymous-auth',
    '--eviction-hard=memory.available<200Mi,nodefs.available<5%',
    '--node-labels=a=b,c=d',
    '--register-with-taints=k=v:NoSchedule',
  ]);
  assert.equal(config.maxPods, 20);
  assert.deepEqual(config.featureGates, { AllAlpha: false, AllBeta: true });
  assert.deepEqual([config.failSwapOn, config.authentication.anonymous.enabled], [false, true]);
  assert.deepEqual(config.evictionHard, { 'memory.available': '200Mi', 'nodefs.available': '5%' });
  assert.deepEqual([flags.hostnameOverride, flags.nodeIPs, flags.v, flags.nodeLabels], ['n1', ['10.0.0.5'], 4, { a: 'b', c: 'd' }]);
  assert.equal(flags.certDir, '/var/lib/kubelet/pki');
  const settings = agentSettings(config, flags, 'machine');
  assert.deepEqual([settings.nodeName, settings.crashLoopMaxMs, settings.clusterDNS], ['n1', 300_000, ['10.96.0.10']]);
  assert.deepEqual(nodeSettings(config, flags, 'machine').taints, [{ key: 'k', value: 'v', effect: 'NoSchedule' }]);
});

test('a kubeadm drop-in starts it: its flags, and what it writes into kubeadm-flags.env', async (t) => {
  const { base } = await setUp(
    t,
    'cgroupDriver: systemd\nlogging: {flushFrequency: 0, options: {json: {infoBufferSize: "0"}, text: {infoBufferSize: "0"}}, verbosity: 0}\nmemorySwap: {}\nrotateCertificates: true\nstaticPodPath: /etc/kubernetes/manifests\nvolumeStatsAggPeriod: 0s\n',
  );
  const { config, flags } = await run([
    '--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf',
    ...base,
    '--container-runtime-endpoint=unix:///run/containerd/containerd.sock',
    '--hostname-override=n1',
    '--register-with-taints=node-role.kubernetes.io/control-plane=:NoSchedule,drain:NoExecute',
    '--manifest-url-header=a:hello,b:again',
    '--manifest-url-header',
    'b:beautiful',
    '--reserved-memory=0:memory=1Gi,hugepages-2Mi=2Gi;1:memory=2Gi',
  ]);
  assert.deepEqual([config.rotateCertificates, flags.bootstrapKubeconfig], [true, '/etc/kubernetes/bootstrap-kubelet.conf']);
  assert.deepEqual(config.registerWithTaints, [
    { key: 'node-role.kubernetes.io/control-plane', value: '', effect: 'NoSchedule' },
    { key: 'drain', value: '', effect: 'NoExecute' },
  ]);
  assert.deepEqual(config.staticPodURLHeader, { a: ['hello'], b: ['again', 'beautiful'] });
  assert.deepEqual(config.reservedMemory, [
    { numaNode: 0, limits: { memory: '1Gi', 'hugepages-2Mi': '2Gi' } },
    { numaNode: 1, limits: { memory: '2Gi' } },
  ]);
});

test('octal numbers and yes mean what they mean to Go', async (t) => {
  const { base } = await setUp(t, 'maxPods: 0x20\nfailSwapOn: no\nregisterNode: on\n');
  const { config } = await run(base);
  assert.deepEqual([config.maxPods, config.failSwapOn, config.registerNode], [32, false, true]);
});

test('the files of --config-dir come after the file, in order of their names', async (t) => {
  const { dir, base } = await setUp(t, 'maxPods: 50\nauthentication: {anonymous: {enabled: true}}\n');
  await mkdir(join(dir, 'd'));
  await writeFile(join(dir, 'd', '20-b.conf'), `${head}maxPods: 70\n`);
  await writeFile(join(dir, 'd', '10-a.conf'), `${head}maxPods: 60\nauthentication: {x509: {clientCAFile: /ca}}\n`);
  await writeFile(join(dir, 'd', 'note.txt'), 'not read');
  await mkdir(join(dir, 'd', '15-c'));
  await writeFile(join(dir, 'd', '15-c', 'x.conf'), `${head}maxPods: 65\nport: 10350\n`);
  const { config } = await run([...base, '--config-dir', join(dir, 'd')]);
  assert.deepEqual([config.maxPods, config.port], [70, 10_350]);
  assert.deepEqual([config.authentication.anonymous.enabled, config.authentication.x509.clientCAFile], [true, '/ca']);
});

test('paths in the file are meant from its folder; in its parts and in flags they stay', async (t) => {
  const { dir, base } = await setUp(t, 'staticPodPath: manifests\nauthentication: {x509: {clientCAFile: ../ca.crt}}\ntlsCertFile: /abs\nresolvConf: ""\n');
  await mkdir(join(dir, 'd'));
  await writeFile(join(dir, 'd', 'a.conf'), `${head}tlsPrivateKeyFile: key\n`);
  const { config } = await run([...base, '--config-dir', join(dir, 'd')]);
  assert.deepEqual([config.staticPodPath, config.authentication.x509.clientCAFile], [join(dir, 'manifests'), join(dir, '..', 'ca.crt')]);
  assert.deepEqual([config.tlsCertFile, config.resolvConf, config.tlsPrivateKeyFile], ['/abs', '', 'key']);
  assert.equal((await run([...base, '--pod-manifest-path=here'])).config.staticPodPath, 'here');
});

test('what is no address of a cluster DNS is left out with a word, as upstream does', async (t) => {
  const { base } = await setUp(t, 'clusterDNS: [10.96.0.10, kube-dns, "fd00::a"]\n');
  const { config, flags, warnings } = await run(base);
  assert.deepEqual(agentSettings(config, flags, 'm').clusterDNS, ['10.96.0.10', 'fd00::a']);
  assert.match(warnings.join(), /clusterDNS: "kube-dns" is no IP address/);
});

test('who is to end when others want the lock file says which one', async (t) => {
  const { base } = await setUp(t);
  await assert.rejects(readCommand([...base, '--exit-on-lock-contention']), /cannot exit on lock file contention: no lock file specified/);
  const { flags } = await run([...base, '--exit-on-lock-contention', '--lock-file=/run/lock']);
  assert.deepEqual([flags.lockFile, flags.exitOnLockContention], ['/run/lock', true]);
});

test('a cloud provider is an external one or none', async (t) => {
  const { base } = await setUp(t);
  const { config, flags } = await run([...base, '--cloud-provider=external', '--node-ip=10.0.0.5']);
  assert.deepEqual(nodeSettings(config, flags, 'm').cloud, { nodeIPs: ['10.0.0.5'] });
  const none = await run([...base, '--cloud-provider=']);
  assert.equal(nodeSettings(none.config, none.flags, 'm').cloud, undefined);
  await assert.rejects(readCommand([...base, '--cloud-provider=aws']), /cloud provider "aws" was specified, but built-in cloud providers are disabled/);
});

test('how much of dead containers stays, and what thresholds take off, are flags alone', async (t) => {
  const { base } = await setUp(t);
  const usual = (await run(base)).flags;
  assert.deepEqual([usual.deadContainers, usual.allocatableIgnoresEviction], [{ maxPerPodContainer: 1, maxContainers: -1, minAgeMs: 0 }, false]);
  const more = ['--maximum-dead-containers-per-container=3', '--maximum-dead-containers=100', '--minimum-container-ttl-duration=1m'];
  assert.equal(agentSettings((await run(base)).config, usual, 'm').runtimeCgroups, '');
  const { config, flags, warnings } = await run([
    ...base,
    ...more,
    '--runtime-cgroups=/system.slice/containerd.service',
    '--experimental-allocatable-ignore-eviction',
  ]);
  assert.deepEqual(flags.deadContainers, { maxPerPodContainer: 3, maxContainers: 100, minAgeMs: 60_000 });
  assert.deepEqual(nodeSettings(config, flags, 'm').evictionHard, {});
  assert.equal(config.evictionHard['memory.available'], '100Mi', 'pods are evicted all the same');
  assert.deepEqual(warnings, []);
  assert.equal(agentSettings(config, flags, 'm').runtimeCgroups, '/system.slice/containerd.service');
  await assert.rejects(readCommand([...base, '--minimum-container-ttl-duration=soon']), /invalid argument "soon" for "--minimum-container-ttl-duration" flag/);
  await assert.rejects(readCommand([...base, '--minimum-container-ttl-duration=-1m']), /invalid minimum garbage collection age: -1m0s/);
});

test('a flag may have underscores for dashes, its value keeps them', async (t) => {
  const { base } = await setUp(t);
  const { config, flags } = await run([...base, '--max_pods=7', '--hostname_override', 'a_b', '--node_labels=x_y=z_z']);
  assert.deepEqual([config.maxPods, flags.hostnameOverride, flags.nodeLabels], [7, 'a_b', { x_y: 'z_z' }]);
});

test('without a file the defaults are the same, and that is said', async (t) => {
  const { kubeconfig } = await setUp(t);
  const { config, warnings } = await run(['--kubeconfig', kubeconfig]);
  assert.equal(config.authentication.anonymous.enabled, false);
  assert.match(warnings.join('\n'), /No --config file/);
});

test('bad input is one sentence that names it', async (t) => {
  const { dir, file, kubeconfig, base } = await setUp(t, 'maxPodz: 1\n');
  const refused = async (args: string[], expected: RegExp): Promise<void> =>
    assert.rejects(readCommand(args), { code: /invalid|unsupported/, message: expected });
  await refused(base, /config\.yaml, error: strict decoding error: unknown field "maxPodz"/);
  await writeFile(file, 'kind: [');
  await refused(base, /config\.yaml/);
  await writeFile(file, `${head}imageGCLowThresholdPercent: 90\n`);
  await refused(base, /failed to validate kubelet configuration, error: invalid configuration: imageGCLowThresholdPercent/);
  await writeFile(file, head);
  await refused([...base, '--no-such-flag'], /unknown flag: --no-such-flag/);
  await refused([...base, '--max-pods=many'], /invalid argument "many" for "--max-pods" flag/);
  await refused([...base, '--max-pods'], /flag needs an argument: --max-pods/);
  await refused([...base, '--feature-gates=Nope=true'], /unrecognized feature gate: Nope/);
  await refused([...base, '--node-labels=kubernetes.io/x=y'], /unknown 'kubernetes.io'/);
  await refused([...base, 'run'], /unknown command "run"/);
  await refused(['--config', join(dir, 'absent'), '--kubeconfig', kubeconfig], /failed to load kubelet config file/);
  await refused(['--config', file, '--bootstrap-kubeconfig', '/b'], /--bootstrap-kubeconfig needs --kubeconfig/);
  assert.equal((await readCommand(['--config', file])).kind, 'run', 'standalone');
  await refused(['--config', file, '--kubeconfig', join(dir, 'absent'), '--bootstrap-kubeconfig', '/b'], /unable to load bootstrap kubeconfig: .*\/b/);
});
