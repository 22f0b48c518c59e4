import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { cgroupPath, cgroupWrites, cpuShares, podCgroupResources, podName, qosName, rootName } from '../../agent/core/cgroups.ts';
import type { CgroupDriver, CgroupLayout } from '../../agent/core/cgroups.ts';
import type { ConfigContext } from '../../agent/core/config-context.ts';
import { containerResources } from '../../agent/core/container-config.ts';
import { qosClassOf } from '../../agent/core/qos.ts';
import { valueOf } from '../../agent/core/quantity.ts';
import { limitProperties, sliceOf, sliceProperties } from '../../agent/core/systemd-units.ts';
import type { UnitProperty } from '../../agent/core/systemd-units.ts';
import type { Container, Pod } from '../../proto/kube/types.ts';
import type { CgroupFacts } from '../machine/lone/facts.ts';
import { PODS } from './upstream/pods.ts';

/*
 * The cgroups that upstream's kubelet makes on cgroup v2 for the six pods (recorded by `nodelet machine run kubelets`), and
 * what our agent plans for the same pods; with the systemd driver also the properties of the pods' slices.
 */

type UnitFacts = Readonly<Record<string, Readonly<Record<string, string>>>>;

/** A property as systemctl shows it. */
function shown({ name, value: { value } }: UnitProperty): string {
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (Array.isArray(value)) return value.join(' ');
  if (value === 0xffff_ffff_ffff_ffffn) return 'infinity';
  return name.endsWith('USec') ? `${(value as bigint) / 1000n}ms` : `${value as bigint | string}`;
}

interface Recording {
  readonly versions: { readonly allocatable: { readonly cpu: string }; readonly capacity: { readonly memory: string }; readonly maxPids: number };
  readonly classes: CgroupFacts;
  readonly pods: Readonly<Record<string, { readonly running: CgroupFacts; readonly resized?: CgroupFacts; readonly units?: UnitFacts }>>;
}

const layout: CgroupLayout = { version: 2, hierarchies: [{ mount: '', controllers: [] }], unified: null };
const root = rootName('/');
/** As the kernel has a cgroup to which nothing was written. */
const UNTOUCHED: Readonly<Record<string, string>> = {
  'cpu.weight': '100',
  'cpu.max': 'max 100000',
  'cpu.idle': '0',
  'memory.max': 'max',
  'memory.high': 'max',
  'memory.min': '0',
  'memory.low': '0',
  'memory.oom.group': '0',
  'memory.swap.max': 'max',
  'pids.max': 'max',
};
const settings = { cpuCFSQuota: true, cpuPeriodUs: 100_000n, podPidsLimit: -1n };

/** What is planned and what was seen, of every control that a cgroup has here. */
function controls(seen: Readonly<Record<string, string>>, planned: ReadonlyMap<string, string>): [Record<string, string>, Record<string, string>] {
  const names = Object.keys(seen).filter((name) => UNTOUCHED[name] !== undefined);
  const pick = (of: (name: string) => string | undefined): Record<string, string> => Object.fromEntries(names.map((name) => [name, of(name) ?? '']));
  return [pick((name) => planned.get(name) ?? UNTOUCHED[name]), pick((name) => seen[name])];
}

function planOf(path: string, resources: Parameters<typeof cgroupWrites>[2]): Map<string, string> {
  return new Map(cgroupWrites(layout, path, resources).map((write) => [write.path.slice(path.length + 1), write.data]));
}

const onlyShares = (shares: bigint): Parameters<typeof cgroupWrites>[2] => ({
  ...{ cpuShares: shares, cpuQuotaUs: null, cpuPeriodUs: 100_000n },
  ...{ memoryBytes: null, pidsMax: null },
});

/** What a runtime makes of the request that our agent sends it; weights are its own affair. */
function ofContainer(
  pod: Pod,
  container: Container,
  seen: Readonly<Record<string, string>>,
  context: ConfigContext,
  driver: CgroupDriver,
): Map<string, string> {
  const asked = containerResources(context, pod, container);
  const quota = Number(asked.cpuQuota ?? 0);
  return new Map<string, string>([
    ['cpu.weight', seen['cpu.weight'] ?? ''],
    // A scope that says nothing of it gets systemd's own default, a part of what the machine has.
    ['pids.max', driver === 'systemd' ? (seen['pids.max'] ?? '') : 'max'],
    ['cpu.max', `${quota <= 0 ? 'max' : quota} ${asked.cpuPeriod ?? 100_000}`],
    ['memory.max', String(asked.memoryLimitInBytes ?? 'max')],
    ...Object.entries(asked.unified ?? {}).map(([key, value]): [string, string] => [key, value]),
  ]);
}

for (const driver of ['cgroupfs', 'systemd'] as const satisfies CgroupDriver[]) {
  const file = new URL(`upstream/v2/${driver}.json`, import.meta.url);
  if (!existsSync(file)) {
    console.log(`skipped: no recording of ${driver} on cgroup v2: make it with nodelet machine run kubelets`);
    continue;
  }
  const recording = JSON.parse(readFileSync(file, 'utf8')) as Recording;
  const uid = driver === 'systemd' ? '<pod_uid>' : '<pod uid>';
  const context: ConfigContext = {
    ...{ podLogsDir: '/var/log/pods', rootDir: '/var/lib/kubelet', cpuCFSQuota: true, cpuCFSQuotaPeriodUs: 100_000, seccompDefault: false },
    ...{ cgroupVersion: 2, singleProcessOOMKill: null, memoryCapacityBytes: valueOf(recording.versions.capacity.memory), hugePageSizes: ['2MB'] },
    ...{ swapControllerAvailable: true, hasSelinux: false, maskedPaths: [], nodeName: 'machine' },
  };

  describe(`cgroup v2, driver ${driver}: our plan beside what upstream's kubelet made`, () => {
    for (const { name, pod, resizeTo } of PODS) {
      const seen = recording.pods[name];
      for (const [when, facts] of [
        ['running', seen?.running],
        ['resized', seen?.resized],
      ] as const) {
        if (facts === undefined) {
          assert.ok(when === 'resized' && resizeTo === undefined, `${name}: ${when} is recorded`);
          continue;
        }
        test(`${name}, ${when}`, () => {
          const spec = pod.spec ?? { containers: [] };
          const now: Pod =
            when === 'running' || resizeTo === undefined
              ? pod
              : { ...pod, spec: { ...spec, containers: spec.containers.map((container) => ({ ...container, resources: resizeTo })) } };
          const path = cgroupPath(driver, podName(root, qosClassOf(pod), uid));
          const own = facts[path];
          assert.ok(own !== undefined, `${path} is among ${Object.keys(facts).join(', ')}`);
          const [planned, made] = controls(own, planOf(path, podCgroupResources(now, settings)));
          assert.deepEqual(planned, made);
          const containers = [...(now.spec?.initContainers ?? []), ...(now.spec?.containers ?? [])];
          for (const container of containers) {
            const entry = Object.entries(facts).find(([each]) => each.includes(`<container ${container.name}>`));
            if (entry === undefined) continue;
            assert.ok(entry[0].startsWith(`${path}/`), entry[0]);
            const [asked, got] = controls(entry[1], ofContainer(now, container, entry[1], context, driver));
            assert.deepEqual(asked, got, container.name);
          }
          assert.ok(
            name === 'crash' || containers.some((container) => Object.keys(facts).some((each) => each.includes(`<container ${container.name}>`))),
            'a container is recorded',
          );
        });
      }
    }

    for (const { name, pod, resizeTo } of driver === 'systemd' ? PODS : []) {
      test(`${name}: properties of its slice`, () => {
        const cgroup = podName(root, qosClassOf(pod), uid);
        const seen = recording.pods[name]?.units?.[sliceOf(cgroup)];
        assert.ok(seen !== undefined, sliceOf(cgroup));
        const spec = pod.spec ?? { containers: [] };
        // They were read after the resize.
        const now: Pod =
          resizeTo === undefined ? pod : { ...pod, spec: { ...spec, containers: spec.containers.map((each) => ({ ...each, resources: resizeTo })) } };
        const ours = [...sliceProperties(cgroup, 2), ...limitProperties(podCgroupResources(now, settings), 2, 252)];
        const told = Object.fromEntries(ours.filter((each) => each.name !== 'Description').map((each) => [each.name, shown(each)]));
        assert.deepEqual(told, Object.fromEntries(Object.keys(told).map((each) => [each, seen[each]])));
        const unset = Object.keys(seen).filter((each) => told[each] === undefined && seen[each] !== 'infinity');
        assert.deepEqual(unset.toSorted(), ['Delegate', 'Slice', 'Transient']);
      });
    }

    test('all pods together and their classes, with no pod', () => {
      const { allocatable, capacity, maxPids } = recording.versions;
      const milli = BigInt(allocatable.cpu) * 1000n;
      const burstable = cgroupPath(driver, qosName(root, 'Burstable'));
      const expected = new Map([
        [cgroupPath(driver, qosName(root, 'Guaranteed')), { ...onlyShares(cpuShares(milli)), memoryBytes: valueOf(capacity.memory), pidsMax: BigInt(maxPids) }],
        [burstable, onlyShares(2n)],
        [cgroupPath(driver, qosName(root, 'BestEffort')), onlyShares(2n)],
      ]);
      assert.deepEqual(Object.keys(recording.classes).sort(), [...expected.keys()].sort());
      for (const [path, resources] of expected) {
        const seen = recording.classes[path] ?? {};
        const plan = planOf(path, resources);
        // Upstream may still have there what the last pods asked for: it brings this up to date once a minute.
        if (path === burstable) plan.set('cpu.weight', seen['cpu.weight'] ?? '');
        const [planned, made] = controls(seen, plan);
        assert.deepEqual(planned, made, path);
      }
    });
  });
}
