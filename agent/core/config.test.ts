import assert from 'node:assert/strict';
import { test } from 'node:test';
import { configzOf, readConfiguration, type KubeletConfiguration } from './config.ts';
import { checkConfiguration, checkMachine } from './config-check.ts';
import { nodeLabelsProblem } from './config-flags.ts';
import { durationMs, goDuration, tryDurationMs } from '../../base/duration.ts';
import { checkFeatureGates, featureGates, gateEnabled } from '../../base/feature-gates.ts';

const head = { apiVersion: 'kubelet.config.k8s.io/v1beta1', kind: 'KubeletConfiguration' };
const read = (fields: object = {}): KubeletConfiguration => {
  const { config, problems } = readConfiguration({ ...head, ...fields });
  assert.deepEqual(problems, []);
  return config;
};
const problemsOf = (document: unknown): string[] => readConfiguration(document).problems;

test('defaults are those of v1beta1', () => {
  const config = read();
  assert.deepEqual(checkConfiguration(config), []);
  const {
    address,
    port,
    readOnlyPort,
    authentication,
    authorization,
    syncFrequency,
    nodeStatusUpdateFrequency,
    nodeStatusReportFrequency,
    nodeLeaseDurationSeconds,
    maxPods,
    podPidsLimit,
    containerLogMaxSize,
    containerLogMaxFiles,
    serializeImagePulls,
    evictionHard,
    failCgroupV1,
    singleProcessOOMKill,
    crashLoopBackOff,
    enforceNodeAllocatable,
  } = config;
  assert.deepEqual([address, port, readOnlyPort], ['0.0.0.0', 10250, 0]);
  assert.deepEqual(authentication, { x509: { clientCAFile: '' }, webhook: { enabled: true, cacheTTL: '2m0s' }, anonymous: { enabled: false } });
  assert.deepEqual(authorization, { mode: 'Webhook', webhook: { cacheAuthorizedTTL: '5m0s', cacheUnauthorizedTTL: '30s' } });
  assert.deepEqual([syncFrequency, nodeStatusUpdateFrequency, nodeStatusReportFrequency, nodeLeaseDurationSeconds], ['1m0s', '10s', '5m0s', 40]);
  assert.deepEqual([maxPods, podPidsLimit, containerLogMaxSize, containerLogMaxFiles, serializeImagePulls], [110, -1, '10Mi', 5, true]);
  assert.deepEqual(evictionHard, {
    'memory.available': '100Mi',
    'nodefs.available': '10%',
    'nodefs.inodesFree': '5%',
    'imagefs.available': '15%',
    'imagefs.inodesFree': '5%',
  });
  assert.deepEqual([failCgroupV1, singleProcessOOMKill, crashLoopBackOff.maxContainerRestartPeriod, enforceNodeAllocatable], [true, null, '5m0s', ['pods']]);
});

test('a configuration as kubeadm writes it', () => {
  const config = read({
    authentication: { anonymous: { enabled: false }, webhook: { cacheTTL: '0s', enabled: true }, x509: { clientCAFile: '/etc/kubernetes/pki/ca.crt' } },
    authorization: { mode: 'Webhook', webhook: { cacheAuthorizedTTL: '0s', cacheUnauthorizedTTL: '0s' } },
    cgroupDriver: 'systemd',
    clusterDNS: ['10.96.0.10'],
    clusterDomain: 'cluster.local',
    containerRuntimeEndpoint: '',
    cpuManagerReconcilePeriod: '0s',
    crashLoopBackOff: {},
    evictionPressureTransitionPeriod: '0s',
    fileCheckFrequency: '0s',
    healthzBindAddress: '127.0.0.1',
    healthzPort: 10248,
    imageMaximumGCAge: '0s',
    logging: { flushFrequency: 0, options: { json: { infoBufferSize: '0' }, text: { infoBufferSize: '0' } }, verbosity: 0 },
    memorySwap: {},
    nodeStatusReportFrequency: '0s',
    nodeStatusUpdateFrequency: '0s',
    rotateCertificates: true,
    staticPodPath: '/etc/kubernetes/manifests',
    volumeStatsAggPeriod: '0s',
  });
  assert.deepEqual(checkConfiguration(config), []);
  assert.equal(config.authentication.webhook.cacheTTL, '2m0s');
  assert.equal(config.nodeStatusReportFrequency, '5m0s');
  assert.equal(config.containerRuntimeEndpoint, 'unix:///run/containerd/containerd.sock');
});

test('defaults that follow from other fields', () => {
  assert.equal(read({ nodeStatusUpdateFrequency: '4s' }).nodeStatusReportFrequency, '4s');
  assert.equal(read({ maxParallelImagePulls: 3 }).serializeImagePulls, false);
  assert.deepEqual(read({ evictionHard: { 'memory.available': '1Gi' } }).evictionHard, { 'memory.available': '1Gi' });
  assert.equal(read({ evictionHard: { 'memory.available': '1Gi' }, mergeDefaultEvictionSettings: true }).evictionHard['nodefs.available'], '10%');
  assert.deepEqual(read({ evictionHard: {} }).evictionHard, {});
  assert.equal(read({ port: 0 }).port, 10250);
  assert.equal(read({ healthzPort: 0 }).healthzPort, 0);
  assert.equal(read({ resolvConf: '' }).resolvConf, '');
});

test('unknown fields and wrong values are named with their path', () => {
  assert.deepEqual(problemsOf({ ...head, maxPodz: 1, authentication: { x510: {} } }), ['unknown field "maxPodz"', 'unknown field "authentication.x510"']);
  assert.deepEqual(problemsOf({ ...head, maxPods: '5' }), ['maxPods: "5" is not an integer']);
  assert.deepEqual(problemsOf({ ...head, syncFrequency: '1 minute' }), ['syncFrequency: "1 minute" is not a duration such as 1m30s']);
  assert.deepEqual(problemsOf({ ...head, clusterDNS: '10.96.0.10' }), ['clusterDNS: "10.96.0.10" is not a list of strings']);
  assert.match(String(problemsOf({ kind: 'KubeletConfiguration', apiVersion: 'kubelet.config.k8s.io/v1' })), /no kind/);
  assert.match(String(problemsOf({})), /'Kind' is missing/);
  assert.match(String(problemsOf([])), /no map/);
});

test('what upstream refuses is refused in its words', () => {
  const cases: [object, RegExp][] = [
    [
      { crashLoopBackOff: { maxContainerRestartPeriod: '301s' } },
      /CrashLoopBackOff.MaxContainerRestartPeriod \(got: 301 seconds\) must be set between 1s and 300s/,
    ],
    [{ crashLoopBackOff: { maxContainerRestartPeriod: '500ms' } }, /between 1s and 300s/],
    [{ syncFrequency: '-1s' }, /syncFrequency \(--sync-frequency\) -1s must be greater than 0/],
    [{ imageGCLowThresholdPercent: 90 }, /must be less than imageGCHighThresholdPercent/],
    [{ containerLogMaxFiles: 1 }, /containerLogMaxFiles must be greater than 1/],
    [{ containerLogMonitorInterval: '1s' }, /greater than or equal to 3s/],
    [{ containerLogMaxSize: 'many' }, /containerLogMaxSize/],
    [{ enforceNodeAllocatable: ['system-reserved'] }, /systemReservedCgroup \(--system-reserved-cgroup\) must be specified/],
    [{ enforceNodeAllocatable: ['none', 'pods'] }, /may not contain additional enforcements/],
    [{ enforceNodeAllocatable: ['podz'] }, /option "podz" specified/],
    [{ maxParallelImagePulls: 2, serializeImagePulls: true }, /cannot be larger than 1/],
    [{ hairpinMode: 'x' }, /hairpinMode/],
    [{ port: 70_000 }, /port \(--port\) 70000 must be between/],
    [{ evictionHard: { 'memory.availabel': '1Gi' } }, /unknown eviction signal/],
    [{ evictionSoft: { 'memory.available': '1Gi' } }, /has no grace period/],
    [{ kubeReserved: { memory: 'x' } }, /kubeReserved/],
    [{ cpuCFSQuotaPeriod: '10ms', featureGates: { CustomCPUCFSQuotaPeriod: false } }, /requires feature gate CustomCPUCFSQuotaPeriod/],
    [{ featureGates: { Nope: true } }, /unrecognized feature gate: Nope/],
    [{ featureGates: { ExecProbeTimeout: false } }, /cannot set feature gate ExecProbeTimeout to false, feature is locked to true/],
    [{ registerWithTaints: [{ key: 'a', effect: 'Never' }] }, /registerWithTaints/],
  ];
  for (const [fields, expected] of cases) assert.match(checkConfiguration(read(fields)).join('; '), expected, JSON.stringify(fields));
  assert.deepEqual(checkConfiguration(read({ cpuCFSQuotaPeriod: '10ms' })), []);
});

test('what the machine rules out: cgroup v1, single process kills, swap', () => {
  const v1 = { cgroupVersion: 1, swapBytes: 0 } as const;
  assert.match(checkMachine(read(), v1).join(), /configured to not run on a host using cgroup v1/);
  assert.deepEqual(checkMachine(read({ failCgroupV1: false }), v1), []);
  assert.deepEqual(checkMachine(read({ failCgroupV1: false, singleProcessOOMKill: true }), v1), []);
  assert.match(
    checkMachine(read({ failCgroupV1: false, memorySwap: { swapBehavior: 'LimitedSwap' } }), v1).join(),
    /LimitedSwap but it is only supported with cgroupv2/,
  );
  assert.match(
    checkMachine(read({ failCgroupV1: false, singleProcessOOMKill: false }), v1).join(),
    /singleProcessOOMKill must not be explicitly set to false when using cgroup v1/,
  );
  assert.deepEqual(checkMachine(read({ singleProcessOOMKill: false }), { cgroupVersion: 2, swapBytes: 0 }), []);
  assert.match(checkMachine(read(), { cgroupVersion: 2, swapBytes: 1 }).join(), /running with swap on is not supported/);
});

test('configz leaves out what is empty', () => {
  const shown = configzOf(read({ clusterDNS: ['10.96.0.10'] }));
  assert.deepEqual(shown['clusterDNS'], ['10.96.0.10']);
  assert.ok(!('staticPodPath' in shown) && !('singleProcessOOMKill' in shown));
  assert.equal(shown['enableServer'], true);
  assert.ok(!('podsPerCore' in shown) && !('runOnce' in shown) && !('readOnlyPort' in shown), 'zeros that Go leaves out');
  assert.deepEqual([shown['memorySwap'], configzOf(read({ registryPullQPS: 0, failSwapOn: false }))['registryPullQPS']], [{}, 0]);
  const logging = configzOf(read({ logging: { verbosity: 0 } }))['logging'];
  assert.deepEqual(logging, { format: 'text', flushFrequency: '5s', verbosity: 0, options: { text: { infoBufferSize: '0' }, json: { infoBufferSize: '0' } } });
});

test('durations as Go reads and prints them', () => {
  const cases: [string, number, string][] = [
    ['1m', 60_000, '1m0s'],
    ['2h', 7_200_000, '2h0m0s'],
    ['1.5s', 1_500, '1.5s'],
    ['100ms', 100, '100ms'],
    ['0', 0, '0s'],
    ['1h2m3s', 3_723_000, '1h2m3s'],
    ['-5s', -5_000, '-5s'],
    ['250us', 0.25, '250µs'],
  ];
  for (const [source, ms, text] of cases) {
    assert.equal(durationMs(source), ms, source);
    assert.equal(goDuration(ms), text, source);
  }
  for (const wrong of ['', '5', 's', '1x', '1 s']) assert.equal(tryDurationMs(wrong), null, wrong);
});

test('feature gates: all of upstream’s, whole stages, locks', () => {
  assert.equal(featureGates.size, 254);
  assert.equal(gateEnabled({}, 'KubeletCrashLoopBackOffMax'), true);
  assert.equal(gateEnabled({ AllBeta: false }, 'KubeletCrashLoopBackOffMax'), false);
  assert.equal(gateEnabled({ AllBeta: false, KubeletCrashLoopBackOffMax: true }, 'KubeletCrashLoopBackOffMax'), true);
  assert.deepEqual(checkFeatureGates({ ExecProbeTimeout: true, AllAlpha: false }), []);
});

test('node labels in Kubernetes’ own namespaces are limited', () => {
  assert.equal(
    nodeLabelsProblem({ 'a/b': 'c', plain: 'x', 'node.kubernetes.io/x': 'y', 'foo.kubelet.kubernetes.io/x': 'y', 'topology.kubernetes.io/zone': 'z' }),
    null,
  );
  assert.match(
    nodeLabelsProblem({ 'node-role.kubernetes.io/worker': '' }) ?? '',
    /unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: \[node-role.kubernetes.io\/worker\]/,
  );
});

test('a label that no API server would take is refused before the node asks for it', () => {
  assert.equal(nodeLabelsProblem({ 'example.com/role': 'web_1', empty: '' }), null);
  assert.match(nodeLabelsProblem({ 'a b': 'x', ok: 'no/slash' }) ?? '', /^invalid node labels: 'a b'; 'no\/slash'/);
  assert.match(nodeLabelsProblem({ 'a/b/c': 'x' }) ?? '', /'a\/b\/c'/);
  assert.match(nodeLabelsProblem({ k: 'v'.repeat(64) }) ?? '', /invalid node labels/);
});
