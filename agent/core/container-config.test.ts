import assert from 'node:assert/strict';
import { test } from 'node:test';
import { userNamespaceOf } from './user-namespaces.ts';
import type { Container, Pod } from '../../proto/kube/types.ts';
import { containerConfig, containerResources, linuxResources, quotaOf, sandboxConfig, sharesOf, signalName, signalOf } from './container-config.ts';
import type { ConfigContext } from './config-context.ts';
import { hostnameOf } from './hostname.ts';

const context: ConfigContext = {
  podLogsDir: '/var/log/pods',
  rootDir: '/var/lib/kubelet',
  cpuCFSQuota: true,
  cpuCFSQuotaPeriodUs: 100_000,
  seccompDefault: false,
  cgroupVersion: 1,
  singleProcessOOMKill: null,
  memoryCapacityBytes: 1n << 33n,
  hugePageSizes: ['2MB'],
  swapControllerAvailable: false,
  hasSelinux: false,
  maskedPaths: ['/proc/kcore'],
  nodeName: 'node-1',
};

const container: Container = {
  name: 'c',
  image: 'web:1',
  command: ['run', '$(A)'],
  resources: { requests: { cpu: '100m', memory: '64Mi' }, limits: { cpu: '500m', memory: '128Mi' } },
  ports: [{ containerPort: 80, protocol: 'TCP', name: 'http' }],
  lifecycle: { preStop: { exec: { command: ['bye'] } } },
  terminationMessagePath: '/dev/termination-log',
  terminationMessagePolicy: 'File',
  securityContext: { capabilities: { drop: ['ALL'] }, allowPrivilegeEscalation: false, readOnlyRootFilesystem: true },
};
const pod: Pod = {
  metadata: { name: 'web', namespace: 'shop', uid: 'u1', labels: { app: 'web' } },
  spec: { containers: [container], terminationGracePeriodSeconds: 30, securityContext: { fsGroup: 2000, supplementalGroups: [3000], runAsUser: 1000 } },
};

test('a container carries what another kubelet needs to take it over', () => {
  const config = containerConfig(context, {
    pod,
    container,
    attempt: 2,
    imageRef: 'sha256:abc',
    imageUser: { uid: 0, username: '' },
    env: [{ name: 'A', value: 'ü' }],
    mounts: [],
    devices: [],
    cdiDevices: [],
    targetId: null,
  });
  assert.deepEqual(config.metadata, { name: 'c', attempt: 2 });
  assert.equal(config.logPath, 'c/2.log');
  assert.deepEqual(config.command, ['run', 'ü']);
  assert.deepEqual(Buffer.from(config.envs![0]!.value!).toString(), 'ü');
  assert.deepEqual(config.labels, {
    'io.kubernetes.container.name': 'c',
    'io.kubernetes.pod.name': 'web',
    'io.kubernetes.pod.namespace': 'shop',
    'io.kubernetes.pod.uid': 'u1',
  });
  assert.deepEqual(
    Object.keys(config.annotations!).toSorted(),
    ['hash', 'ports', 'preStopHandler', 'restartCount', 'terminationMessagePath', 'terminationMessagePolicy']
      .map((each) => `io.kubernetes.container.${each}`)
      .concat('io.kubernetes.pod.terminationGracePeriod'),
  );
  assert.equal(config.annotations!['io.kubernetes.container.ports'], '[{"name":"http","containerPort":80,"protocol":"TCP"}]');
  assert.deepEqual(
    { ...config.linux?.resources, oomScoreAdj: 0 },
    {
      cpuShares: '102',
      cpuQuota: '50000',
      cpuPeriod: '100000',
      memoryLimitInBytes: '134217728',
      oomScoreAdj: 0,
      hugepageLimits: [{ pageSize: '2MB', limit: '0' }],
    },
  );
  const security = config.linux?.securityContext;
  assert.deepEqual(security?.supplementalGroups, [2000, 3000]);
  assert.deepEqual(security?.runAsUser, { value: 1000 });
  assert.equal(security?.noNewPrivs, true);
  assert.equal(security?.readonlyRootfs, true);
  assert.deepEqual(security?.seccomp, { profileType: 'Unconfined' });
  assert.deepEqual(security?.namespaceOptions, { network: 'POD', ipc: 'POD', pid: 'CONTAINER', usernsOptions: { mode: 'NODE' } });
});

test('a pod with users of its own: sandbox and container have them, and what is mounted is seen under the same IDs', () => {
  const userNamespace = userNamespaceOf({ firstId: 65_536, idsPerPod: 65_536, slots: 2 }, 1);
  const ofSandbox = sandboxConfig(context, { pod, attempt: 0, cgroupParent: '/x', hostname: 'web', dns: null, userNamespace });
  assert.deepEqual(ofSandbox.linux?.securityContext?.namespaceOptions?.usernsOptions, userNamespace);
  const mounts = [{ hostPath: '/v', containerPath: '/v' }];
  const [container] = pod.spec.containers;
  const input = {
    pod,
    container: container!,
    attempt: 0,
    imageRef: 'i',
    imageUser: { uid: 0, username: '' },
    env: [],
    devices: [],
    cdiDevices: [],
    targetId: null,
  };
  const config = containerConfig(context, { ...input, mounts, userNamespace });
  assert.deepEqual(config.linux?.securityContext?.namespaceOptions?.usernsOptions, userNamespace);
  assert.deepEqual(config.mounts, [{ ...mounts[0], uidMappings: userNamespace.uids, gidMappings: userNamespace.gids }]);
  assert.deepEqual(containerConfig(context, { ...input, mounts, userNamespace: { mode: 'NODE' } }).mounts, mounts);
});

test("the sandbox has the pod's own labels, its log directory and DNS", () => {
  const config = sandboxConfig(context, {
    pod,
    attempt: 1,
    cgroupParent: '/kubepods/burstable/podu1',
    hostname: 'web',
    dns: { servers: ['10.96.0.10'], searches: [], options: ['ndots:5'] },
  });
  assert.equal(config.logDirectory, '/var/log/pods/shop_web_u1');
  assert.equal(config.labels?.['app'], 'web');
  assert.equal(config.hostname, 'web');
  assert.deepEqual(config.metadata, { name: 'web', namespace: 'shop', uid: 'u1', attempt: 1 });
  assert.equal(config.linux?.cgroupParent, '/kubepods/burstable/podu1');
});

test("shares and quotas keep to the kernel's bounds", () => {
  assert.deepEqual([0n, 1n, 1000n, 10_000_000n].map(sharesOf), [2n, 2n, 1024n, 262_144n]);
  assert.deepEqual(
    [0n, 1n, 1500n].map((milli) => quotaOf(milli, 100_000n)),
    [0n, 1000n, 150_000n],
  );
});

test('over its memory limit a container ends as a whole on cgroup v2, unless asked otherwise', () => {
  const groupOf = (cgroupVersion: 1 | 2, singleProcessOOMKill: boolean | null): string | undefined =>
    linuxResources({ ...context, cgroupVersion, singleProcessOOMKill }, 100n, 0n, 1n << 26n).unified?.['memory.oom.group'];
  assert.deepEqual([groupOf(2, null), groupOf(2, false), groupOf(2, true), groupOf(1, null)], ['1', '1', undefined, undefined]);
});

test('signals go over by name', () => {
  assert.equal(signalOf('SIGRTMIN+1'), 'SIGNAL_SIGRTMINPLUS1');
  for (const name of ['SIGTERM', 'SIGRTMIN+15', 'SIGRTMAX-14']) assert.equal(signalName(signalOf(name)), name);
  assert.equal(signalName('SIGNAL_RUNTIME_DEFAULT'), null);
});

test('host names follow hostname, subdomain and setHostnameAsFQDN', () => {
  const named = (spec: Partial<Pod['spec']>): string => {
    const result = hostnameOf({ ...pod, spec: { ...pod.spec, ...spec } }, 'cluster.local');
    return result.ok ? `${result.host} ${result.domain} ${result.kernel}` : result.message;
  };
  assert.equal(named({}), 'web  web');
  assert.equal(named({ hostname: 'h', subdomain: 's' }), 'h s.shop.svc.cluster.local h');
  assert.equal(named({ hostname: 'h', subdomain: 's', setHostnameAsFQDN: true }), 'h s.shop.svc.cluster.local h.s.shop.svc.cluster.local');
  assert.match(named({ hostname: 'h', subdomain: 's'.repeat(60), setHostnameAsFQDN: true }), /is too long/);
});

test('limits grow by what claims bring, requests do not; what is not limited stays so, but for huge pages', () => {
  const claim = {
    resourceClaimName: 'c',
    containers: ['c', 'd'],
    mapping: [
      { name: 'cpu', quantity: '1' },
      { name: 'memory', quantity: '64Mi' },
      { name: 'hugepages-2Mi', quantity: '2Mi' },
    ],
    overhead: [{ name: 'cpu', perPod: '100m', perContainer: '50m' }],
  };
  const claimed: Pod = { ...pod, status: { nodeAllocatableResourceClaimStatuses: [claim] } };
  const pages = (bytes: string): object[] => [{ pageSize: '2MB', limit: bytes }];
  const own = containerResources(context, claimed, container);
  assert.deepEqual([own.cpuShares, own.cpuQuota, own.memoryLimitInBytes, own.hugepageLimits], ['102', '165000', String(192 << 20), pages('2097152')]);
  const free: Container = { name: 'd' };
  const open = containerResources(context, claimed, free);
  assert.deepEqual([open.cpuShares, open.cpuQuota, open.memoryLimitInBytes, open.hugepageLimits], ['2', '0', undefined, pages('2097152')]);
  const whole: Pod = { ...claimed, spec: { ...pod.spec, resources: { limits: { cpu: '2', 'hugepages-2Mi': '8Mi' } } } };
  const ofPod = containerResources(context, whole, { ...free, resources: { limits: { cpu: '0' } } });
  assert.deepEqual([ofPod.cpuQuota, ofPod.hugepageLimits], ['200000', pages('8388608')]);
  const sandbox = sandboxConfig(context, { pod: claimed, attempt: 0, cgroupParent: '/k', hostname: 'h', dns: null });
  assert.deepEqual([sandbox.linux?.resources?.cpuQuota, sandbox.linux?.resources?.memoryLimitInBytes], ['170000', String(192 << 20)]);
  const other = containerResources(context, claimed, { ...container, name: 'e' });
  assert.equal(other.cpuQuota, '50000');
});

test('a port that a container has twice is mapped once, two containers may have the same', () => {
  const ports = [
    { containerPort: 80 },
    { containerPort: 80, name: 'web' },
    { containerPort: 80, protocol: 'TCP' },
    { containerPort: 81, name: 'web' },
    { containerPort: 80, protocol: 'UDP' },
  ];
  const mapped = (containers: Container[]): unknown =>
    sandboxConfig(context, { pod: { ...pod, spec: { containers } }, attempt: 0, cgroupParent: '/k', hostname: 'h', dns: null }).portMappings?.map(
      ({ protocol, containerPort }) => `${protocol} ${containerPort}`,
    );
  assert.deepEqual(mapped([{ name: 'a', ports }]), ['TCP 80', 'TCP 80', 'UDP 80']);
  assert.deepEqual(
    mapped([
      { name: 'a', ports: [{ containerPort: 80 }] },
      { name: 'b', ports: [{ containerPort: 80 }] },
    ]),
    ['TCP 80', 'TCP 80'],
  );
});

test('oom_score_adj goes no lower than the kernel grants', () => {
  const least = (leastOomScoreAdj: number | null): unknown => containerResources({ ...context, leastOomScoreAdj }, pod, container).oomScoreAdj;
  assert.deepEqual([least(null), least(995), least(-1000)], [993, 995, 993]);
});

test('swap: none on version 2 but by LimitedSwap, on version 1 nothing above the memory limit, and no word without the controller', () => {
  const has = (more: Partial<ConfigContext>): unknown => {
    const { unified, memorySwapLimitInBytes } = containerResources({ ...context, swapControllerAvailable: true, ...more }, pod, container);
    return [unified?.['memory.swap.max'], memorySwapLimitInBytes];
  };
  const swap = { behavior: 'LimitedSwap', capacityBytes: 1n << 33n } as const;
  assert.deepEqual(has({ cgroupVersion: 2 }), ['0', undefined]);
  // 64Mi of 8Gi: the same share of 8Gi of swap.
  assert.deepEqual(has({ cgroupVersion: 2, swap }), [String(64 << 20), undefined]);
  assert.deepEqual(has({ cgroupVersion: 2, swap: { ...swap, behavior: 'NoSwap' } }), ['0', undefined]);
  assert.deepEqual(has({ cgroupVersion: 1, swap }), [undefined, String(128 << 20)]);
  assert.deepEqual(has({ cgroupVersion: 2, swap, swapControllerAvailable: false }), [undefined, undefined]);
});

test('what a RuntimeClass costs beside the containers is told apart from them', () => {
  const costly: Pod = { ...pod, spec: { ...pod.spec, overhead: { cpu: '250m', memory: '32Mi' } } };
  const { linux } = sandboxConfig(context, { pod: costly, attempt: 0, cgroupParent: '/k', hostname: 'h', dns: null });
  assert.deepEqual(linux?.overhead, { cpuShares: '256', cpuQuota: '25000', cpuPeriod: '100000', memoryLimitInBytes: String(32 << 20) });
  assert.deepEqual([linux?.resources?.cpuQuota, linux?.resources?.memoryLimitInBytes], ['50000', String(128 << 20)]);
});
