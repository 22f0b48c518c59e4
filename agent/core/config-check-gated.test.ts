import assert from 'node:assert/strict';
import { test } from 'node:test';
import { crashLoopMaxMs } from './backoff.ts';
import { readConfiguration, type KubeletConfiguration } from './config.ts';
import { checkConfiguration } from './config-check.ts';
import { gateNeedsFaults } from '../../base/feature-gate-needs.ts';

const read = (fields: object): KubeletConfiguration => {
  const { config, problems } = readConfiguration({ apiVersion: 'kubelet.config.k8s.io/v1beta1', kind: 'KubeletConfiguration', ...fields });
  assert.deepEqual(problems, [], JSON.stringify(fields));
  return config;
};
const problemsOf = (fields: object): string[] => checkConfiguration(read(fields));
const off = (...names: string[]): object => ({ featureGates: Object.fromEntries(names.map((name) => [name, false])) });

test('what needs a gate is refused without it', () => {
  const cases: [object, string[]][] = [
    [
      { ...off('GracefulNodeShutdownBasedOnPodPriority', 'GracefulNodeShutdown', 'WindowsGracefulNodeShutdown'), shutdownGracePeriod: '5s' },
      ['specifying shutdownGracePeriod'],
    ],
    [
      { ...off('GracefulNodeShutdownBasedOnPodPriority'), shutdownGracePeriodByPodPriority: [{ priority: 1, shutdownGracePeriodSeconds: 2 }] },
      ['Specifying shutdownGracePeriodByPodPriority requires feature gate'],
    ],
    [{ ...off('KubeletCrashLoopBackOffMax'), crashLoopBackOff: { maxContainerRestartPeriod: '10s' } }, ['FeatureGate KubeletCrashLoopBackOffMax not enabled']],
    [
      { ...off('KubeletEnsureSecretPulledImages'), imagePullCredentialsVerificationPolicy: 'NeverVerify' },
      ['`imagePullCredentialsVerificationPolicy` must not be set if KubeletEnsureSecretPulledImages'],
    ],
    [{ ...off('MemoryQoS'), memoryThrottlingFactor: 0.5 }, ['memoryThrottlingFactor must not be set when MemoryQoS']],
    [{ ...off('MemoryQoS'), memoryReservationPolicy: 'TieredReservation' }, ['memoryReservationPolicy "TieredReservation" requires MemoryQoS']],
    [{ ...off('MemoryQoS'), memoryThrottlingFactor: 0.9 }, []],
    [off('KubeletCrashLoopBackOffMax'), []],
    [off('KubeletEnsureSecretPulledImages'), []],
  ];
  for (const [fields, expected] of cases) {
    const problems = problemsOf(fields);
    assert.equal(problems.length, expected.length, `${JSON.stringify(fields)}: ${problems.join('; ')}`);
    for (const [index, each] of expected.entries()) assert.ok(problems[index]?.startsWith(`invalid configuration: ${each}`), problems[index]);
  }
});

test('the longest wait between restarts follows file and gates', () => {
  assert.equal(crashLoopMaxMs(read({})), 300_000);
  assert.equal(crashLoopMaxMs(read({ crashLoopBackOff: { maxContainerRestartPeriod: '20s' } })), 20_000);
  assert.equal(crashLoopMaxMs(read(off('KubeletCrashLoopBackOffMax'))), 300_000);
  assert.equal(crashLoopMaxMs(read({ featureGates: { KubeletCrashLoopBackOffMax: false, ReduceDefaultCrashLoopBackOffDecay: true } })), 60_000);
});

test('a gate needs those that it depends on', () => {
  assert.deepEqual(gateNeedsFaults(), []);
  assert.deepEqual(problemsOf(off('ContainerRestartRules')), [
    'RestartAllContainersOnContainerExits is enabled, but depends on features that are disabled: [ContainerRestartRules]',
  ]);
  assert.deepEqual(problemsOf({ featureGates: { CompositePodGroup: true } }), [
    'CompositePodGroup is enabled, but depends on features that are disabled: [GenericWorkload TopologyAwareWorkloadScheduling]',
  ]);
  assert.deepEqual(problemsOf(off('ContainerRestartRules', 'RestartAllContainersOnContainerExits')), []);
  assert.deepEqual(problemsOf({ featureGates: { AllAlpha: true, AllBeta: true } }), []);
});

test('reservations and paths that cannot be are named', () => {
  const cases: [object, RegExp][] = [
    [{ reservedSystemCPUs: '0', systemReservedCgroup: '/system' }, /can't use reservedSystemCPUs \(--reserved-cpus\) with systemReservedCgroup/],
    [{ reservedSystemCPUs: '0-' }, /unable to parse reservedSystemCPUs \(--reserved-cpus\) 0-/],
    [{ reservedMemory: [{ numaNode: 0, limits: { cpu: '1' } }] }, /the limit type "cpu" for NUMA node 0 is not supported/],
    [{ reservedMemory: [{ numaNode: 1, limits: { memory: '0' } }] }, /reserved memory may not be zero for NUMA node 1 and resource "memory"/],
    [{ reservedMemory: [{ numaNode: 1, limits: { memory: 'much' } }] }, /reservedMemory: "much" is no quantity/],
    [
      {
        reservedMemory: [
          { numaNode: 0, limits: { memory: '1Gi' } },
          { numaNode: 0, limits: { memory: '2Gi' } },
        ],
      },
      /has a duplicate value for NUMA node 0 and resource "memory"/,
    ],
    [{ podLogsDir: 'logs' }, /pod logs path "logs" must be absolute path/],
    [{ podLogsDir: '/var/../log' }, /pod logs path "\/var\/..\/log" must be normalized/],
    [{ podLogsDir: '/var/log/' }, /must be normalized/],
    [{ podLogsDir: '/var/lög' }, /ASCII characters only/],
    [{ showHiddenMetricsForVersion: '1.35' }, /showHiddenMetricsForVersion: Invalid value: "1.35": must be omitted or have the value '1.36'/],
    [{ registerWithTaints: [{ key: 'a b', effect: 'NoSchedule' }] }, /registerWithTaints: invalid taint "a b"/],
    [{ hairpinMode: 'x' }, /option "x" specified for hairpinMode \(--hairpin-mode\). Valid options are "none", "hairpin-veth" or "promiscuous-bridge"/],
    [{ memoryReservationPolicy: 'x' }, /option "x" specified for memoryReservationPolicy. Valid options are "None" or "TieredReservation"/],
  ];
  for (const [fields, expected] of cases) assert.match(problemsOf(fields).join('; '), expected, JSON.stringify(fields));
  assert.deepEqual(problemsOf({ reservedSystemCPUs: '0-3,7', reservedMemory: [{ numaNode: 0, limits: { memory: '1Gi', 'hugepages-2Mi': '2Mi' } }] }), []);
  assert.deepEqual(problemsOf({ registerWithTaints: [{ key: 'node-role.kubernetes.io/control-plane', effect: 'NoSchedule' }] }), []);
});

test('logging is read strictly', () => {
  const cases: [object, RegExp][] = [
    [{ format: 'xml' }, /logging.format: Invalid value: "xml": Unsupported log format/],
    [{ verbosity: 2 ** 31 }, /logging.verbosity: Invalid value: 2147483648/],
    [{ format: 'json', vmodule: [{ filePattern: 'a', verbosity: 1 }] }, /logging.vmodule: Forbidden: Only supported for text log format/],
    [{ vmodule: [{ filePattern: 'a=b', verbosity: 1 }] }, /logging.vmodule\[0\]: Invalid value: "a=b"/],
    [{ options: { json: { splitStream: true } } }, /logging.options.json.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled/],
    [{ options: { text: { infoBufferSize: '1Mi' } } }, /logging.options.text.infoBufferSize: Forbidden/],
    [{ options: { text: { infoBufferSize: 'big' } } }, /logging.options.text.infoBufferSize: Invalid value: "big"/],
  ];
  for (const [logging, expected] of cases) assert.match(problemsOf({ logging }).join('; '), expected, JSON.stringify(logging));
  assert.equal(read({ logging: { flushFrequency: 2_000_000_000 } }).logging.flushFrequency, '2s');
  assert.equal(read({ logging: { flushFrequency: 0 } }).logging.flushFrequency, '5s');
  const wrong = (logging: object): string[] =>
    readConfiguration({ apiVersion: 'kubelet.config.k8s.io/v1beta1', kind: 'KubeletConfiguration', logging }).problems;
  assert.deepEqual(wrong({ options: { text: { splitStreem: true } } }), ['unknown field "logging.options.text.splitStreem"']);
  assert.deepEqual(wrong({ flushFrequency: 'soon' }), ['logging.flushFrequency: "soon" is not a duration such as 1m30s']);
});
