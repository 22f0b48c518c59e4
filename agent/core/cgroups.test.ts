import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  cgroupLayout,
  cgroupParent,
  cgroupPath,
  cgroupWrites,
  childCgroups,
  cpuQuotaUs,
  cpuShares,
  cpuWeight,
  podCgroupResources,
  podName,
  rootName,
  uidOfCgroup,
  versionProblem,
  wantedControllers,
} from './cgroups.ts';
import type { CgroupLayout } from './cgroups.ts';
import { parseMountinfo } from './mountinfo.ts';

const uid = '11111111-2222-3333-4444-555555555555';
const settings = { cpuCFSQuota: true, cpuPeriodUs: 100_000n, podPidsLimit: -1n };
const v2: CgroupLayout = { version: 2, hierarchies: [{ mount: '/sys/fs/cgroup', controllers: [] }], unified: null };
const v1: CgroupLayout = {
  version: 1,
  unified: null,
  hierarchies: [
    { mount: '/sys/fs/cgroup/cpu,cpuacct', controllers: ['cpu', 'cpuacct'] },
    { mount: '/sys/fs/cgroup/memory', controllers: ['memory'] },
    { mount: '/sys/fs/cgroup/pids', controllers: ['pids'] },
  ],
};

test('names by driver', () => {
  const burstable = podName(rootName('/'), 'Burstable', uid);
  assert.equal(cgroupPath('cgroupfs', burstable), `/kubepods/burstable/pod${uid}`);
  assert.equal(cgroupParent('cgroupfs', burstable), `/kubepods/burstable/pod${uid}`);
  const slice = `kubepods-burstable-pod${uid.replaceAll('-', '_')}.slice`;
  assert.equal(cgroupPath('systemd', burstable), `/kubepods.slice/kubepods-burstable.slice/${slice}`);
  assert.equal(cgroupParent('systemd', burstable), slice);
  const kind = podName(rootName('/kubelet'), 'Guaranteed', uid);
  assert.equal(cgroupPath('cgroupfs', kind), `/kubelet/kubepods/pod${uid}`);
  assert.equal(cgroupPath('systemd', kind), `/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod${uid.replaceAll('-', '_')}.slice`);
  assert.equal(uidOfCgroup('cgroupfs', `pod${uid}`), uid);
  assert.equal(uidOfCgroup('systemd', slice), uid);
  assert.equal(uidOfCgroup('cgroupfs', 'burstable'), null);
});

test('layouts: unified, separate hierarchies, hybrid', () => {
  const line = (target: string, fstype: string, options: string): string => `1 1 0:1 / ${target} rw - ${fstype} cgroup ${options}`;
  assert.deepEqual(cgroupLayout(parseMountinfo(line('/sys/fs/cgroup', 'cgroup2', 'rw,nsdelegate'))), v2);
  const hybrid = [
    line('/sys/fs/cgroup/cpu,cpuacct', 'cgroup', 'rw,cpu,cpuacct'),
    line('/sys/fs/cgroup/memory', 'cgroup', 'rw,memory'),
    line('/sys/fs/cgroup/pids', 'cgroup', 'rw,pids'),
    line('/sys/fs/cgroup/systemd', 'cgroup', 'rw,xattr,name=systemd'),
    line('/sys/fs/cgroup/unified', 'cgroup2', 'rw'),
    line('/other/memory', 'cgroup', 'rw,memory'),
  ];
  const layout = cgroupLayout(parseMountinfo(hybrid.join('\n')));
  assert.deepEqual(layout, {
    ...v1,
    hierarchies: [...v1.hierarchies, { mount: '/sys/fs/cgroup/systemd', controllers: ['name=systemd'] }],
    unified: '/sys/fs/cgroup/unified',
  });
  assert.equal(cgroupLayout([]), null);
});

test('shares, quota and weight', () => {
  const shares: [bigint, bigint][] = [
    [0n, 2n],
    [1n, 2n],
    [100n, 102n],
    [200n, 204n],
    [300n, 307n],
    [1000n, 1024n],
    [1_000_000n, 262_144n],
  ];
  for (const [milli, expected] of shares) assert.equal(cpuShares(milli), expected);
  const quotas: [bigint, bigint][] = [
    [0n, 0n],
    [5n, 1000n],
    [200n, 20_000n],
    [1500n, 150_000n],
  ];
  for (const [milli, expected] of quotas) assert.equal(cpuQuotaUs(milli, 100_000n), expected);
  const weights: [bigint, bigint][] = [
    [0n, 0n],
    [2n, 1n],
    [102n, 4n],
    [1024n, 39n],
    [262_144n, 10_000n],
  ];
  for (const [input, expected] of weights) assert.equal(cpuWeight(input), expected, String(input));
});

test('a pod is limited where all its containers are', () => {
  const limited = { spec: { containers: [{ resources: { requests: { cpu: '200m', memory: '64Mi' }, limits: { cpu: '200m', memory: '64Mi' } } }] } };
  const half = { spec: { containers: [...limited.spec.containers, { resources: { limits: { memory: '1Mi' } } }] } };
  const path = '/kubepods/podx';
  const shown = (layout: CgroupLayout, pod: Parameters<typeof podCgroupResources>[0], own = settings) =>
    cgroupWrites(layout, path, podCgroupResources(pod, own)).map((write) => `${write.path.slice('/sys/fs/cgroup'.length)}=${write.data}`);
  assert.deepEqual(shown(v2, limited), ['/kubepods/podx/cpu.weight=8', '/kubepods/podx/cpu.max=20000 100000', '/kubepods/podx/memory.max=67108864']);
  assert.deepEqual(shown(v1, limited, { ...settings, podPidsLimit: 100n }), [
    '/cpu,cpuacct/kubepods/podx/cpu.shares=204',
    '/cpu,cpuacct/kubepods/podx/cpu.cfs_period_us=100000',
    '/cpu,cpuacct/kubepods/podx/cpu.cfs_quota_us=20000',
    '/memory/kubepods/podx/memory.limit_in_bytes=67108864',
    '/pids/kubepods/podx/pids.max=100',
  ]);
  assert.deepEqual(shown(v2, half), ['/kubepods/podx/cpu.weight=8', '/kubepods/podx/memory.max=68157440']);
  assert.deepEqual(shown(v2, { spec: { containers: [{}] } }), ['/kubepods/podx/cpu.weight=1']);
  assert.deepEqual(shown(v2, limited, { ...settings, cpuCFSQuota: false })[1], '/kubepods/podx/cpu.max=max 100000');
});

test('children, controllers and the version check', () => {
  assert.deepEqual(childCgroups(['cgroup.procs', 'tasks', 'memory.max', 'notify_on_release', '0123abcd', 'cri-containerd-1.scope', 'podx']), [
    '0123abcd',
    'cri-containerd-1.scope',
    'podx',
  ]);
  assert.equal(wantedControllers('cpu memory pids misc\n'), '+cpu +memory +pids');
  assert.equal(versionProblem(2, true), null);
  assert.equal(versionProblem(1, false), null);
  assert.match(versionProblem(1, true) ?? '', /cgroup v1/);
});
