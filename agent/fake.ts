import type { ConfigMap, Node, Pod, PodStatus, Secret, Service } from '../proto/kube/types.ts';
import { podCgroupResources } from './core/cgroups.ts';
import type { CgroupResources } from './core/cgroups.ts';
import type { PodCgroupValues } from './core/resize/moves.ts';
import type { ContainerFacts, Failure, ProbeOutcome, ProbeResults } from './core/types.ts';
import type { PodFiles } from './io/files.ts';
import type { PullRecords } from './io/pull-records.ts';
import type { Cgroups, Dns, EnvSources, EventTarget, Events, NodeInfo, Probes, Volumes } from './seams.ts';

/** Volumes that are always there, until a test says what is wrong with them. */
export class FakeVolumes implements Volumes {
  readonly dirs = new Set<string>();
  readonly log: string[] = [];
  failure: Failure | null = null;
  mountFailure: Failure | null = null;

  async prepare(pod: Pod): Promise<{ ok: true } | Failure> {
    if (this.failure !== null) return this.failure;
    this.dirs.add(pod.metadata.uid ?? '');
    return { ok: true };
  }
  async containerMounts(): Promise<{ ok: true; mounts: [] } | Failure> {
    return this.mountFailure ?? { ok: true, mounts: [] };
  }
  async refresh(pod: Pod): Promise<void> {
    this.log.push(`refresh ${pod.metadata.uid}`);
  }
  async teardown(uid: string): Promise<void> {
    if (this.dirs.delete(uid)) this.log.push(`teardown ${uid}`);
  }
  async sweep(): Promise<void> {}
  async uidsOnDisk(): Promise<readonly string[]> {
    return [...this.dirs];
  }
}

export class FakeCgroups implements Cgroups {
  readonly driver = 'cgroupfs';
  readonly version = 2;
  readonly pods = new Set<string>();

  async ensureRoots(): Promise<void> {}
  /** Memory in use, by the name of the pod. */
  readonly usageBytes = new Map<string, bigint>();
  readonly #values = new Map<string, PodCgroupValues>();
  /** What was changed after a pod's start, as a person reads it. */
  onChange: ((line: string) => void) | null = null;

  async ensurePod(pod: Pod, _signal?: AbortSignal, isRunning = false): Promise<string> {
    const uid = pod.metadata.uid ?? '';
    this.pods.add(uid);
    if (!isRunning || !this.#values.has(uid)) this.#put(uid, this.limitsOf(pod));
    return this.parentOf(pod);
  }
  limitsOf(pod: Pod): CgroupResources {
    return podCgroupResources(pod, { cpuCFSQuota: true, cpuPeriodUs: 100_000n, podPidsLimit: -1n });
  }
  async values(pod: Pod): Promise<PodCgroupValues | null> {
    const values = this.#values.get(pod.metadata.uid ?? '');
    return values === undefined ? null : { ...values, memoryUsageBytes: this.usageBytes.get(pod.metadata.name ?? '') ?? 0n };
  }
  async setLimits(pod: Pod, resources: CgroupResources): Promise<void> {
    const { cpuShares, cpuQuotaUs, memoryBytes } = resources;
    const parts = [
      ...(cpuShares === null ? [] : [`shares=${cpuShares}`]),
      ...(cpuQuotaUs === null ? [] : [`quota=${cpuQuotaUs}`]),
      ...(memoryBytes === null ? [] : [`memory=${memoryBytes}`]),
    ];
    this.onChange?.(`cgroup of ${pod.metadata.name} ${parts.join(' ')}`);
    this.#put(pod.metadata.uid ?? '', resources);
  }
  #put(uid: string, { cpuShares, cpuQuotaUs, cpuPeriodUs, memoryBytes }: CgroupResources): void {
    const before = this.#values.get(uid) ?? { cpuShares: 2n, cpuQuotaUs: null, cpuPeriodUs, memoryBytes: null, memoryUsageBytes: 0n };
    this.#values.set(uid, {
      ...before,
      cpuShares: cpuShares ?? before.cpuShares,
      cpuQuotaUs: cpuQuotaUs === null ? before.cpuQuotaUs : cpuQuotaUs <= 0n ? null : cpuQuotaUs,
      memoryBytes: memoryBytes ?? before.memoryBytes,
    });
  }
  parentOf(pod: Pod): string {
    return `/kubepods/pod${pod.metadata.uid}`;
  }
  async removePod(uid: string): Promise<void> {
    this.#values.delete(uid);
    this.pods.delete(uid);
  }
  async podUids(): Promise<readonly string[]> {
    return [...this.pods];
  }
}

/** Probes whose results a test sets by hand; like the real ones they begin with what the pod's status says of the same run. */
export class FakeProbes implements Probes {
  readonly #results = new Map<string, Record<string, ProbeResults[string]>>();
  readonly #callbacks: ((uid: string) => void)[] = [];
  readonly terminating = new Set<string>();

  /** Pods whose readiness stays what it was. */
  readonly #keeping = new Set<string>();

  sync(pod: Pod, containers: readonly ContainerFacts[], context: { terminating: boolean; keepsReadiness?: boolean }): void {
    const uid = pod.metadata.uid ?? '';
    if (context.keepsReadiness === true) this.#keeping.add(uid);
    if (context.terminating) this.terminating.add(uid);
    const before = this.#results.get(uid) ?? {};
    const after: Record<string, ProbeResults[string]> = {};
    const specs = [...(pod.spec.initContainers ?? []), ...pod.spec.containers];
    for (const facts of containers) {
      const spec = specs.find((each) => each.name === facts.name);
      const known = before[facts.name];
      if (known?.containerId === facts.id) after[facts.name] = known;
      else if (spec !== undefined) {
        const told = [...(pod.status?.initContainerStatuses ?? []), ...(pod.status?.containerStatuses ?? [])].find(
          (each) => each.containerID?.endsWith(`//${facts.id}`) === true,
        );
        after[facts.name] = {
          containerId: facts.id,
          ...(spec.startupProbe === undefined ? {} : { startup: told?.started === true ? ('success' as const) : ('unknown' as const) }),
          ...(spec.readinessProbe === undefined ? {} : { readiness: told?.ready === true ? ('success' as const) : ('unknown' as const) }),
          ...(spec.livenessProbe === undefined ? {} : { liveness: 'unknown' as const }),
        };
      }
    }
    this.#results.set(uid, after);
  }
  adopt(uid: string, status: PodStatus): void {
    const results = this.#results.get(uid) ?? {};
    for (const told of [...(status.initContainerStatuses ?? []), ...(status.containerStatuses ?? [])]) {
      const known = results[told.name];
      if (known === undefined || told.containerID?.endsWith(`//${known.containerId}`) !== true) continue;
      results[told.name] = {
        ...known,
        ...(known.startup === 'unknown' && told.started === true ? { startup: 'success' as const } : {}),
        ...(known.readiness === 'unknown' && told.ready ? { readiness: 'success' as const } : {}),
      };
    }
  }
  remove(uid: string): void {
    this.#results.delete(uid);
  }
  results(uid: string): ProbeResults {
    return this.#results.get(uid) ?? {};
  }
  forget(uid: string, containerId: string): void {
    const results = this.#results.get(uid) ?? {};
    for (const [name, each] of Object.entries(results)) {
      if (each.containerId !== containerId) continue;
      const { startup: _startup, liveness: _liveness, ...rest } = each;
      results[name] = rest;
    }
  }
  onChange(callback: (uid: string) => void): void {
    this.#callbacks.push(callback);
  }
  /** What a probe has found now. */
  set(uid: string, container: string, kind: 'startup' | 'readiness' | 'liveness', outcome: ProbeOutcome): void {
    const results = this.#results.get(uid)?.[container];
    if (results === undefined || (kind === 'readiness' && this.#keeping.has(uid))) return;
    this.#results.get(uid)![container] = { ...results, [kind]: outcome };
    for (const callback of this.#callbacks) callback(uid);
  }
}

export class FakeEvents implements Events {
  /** `Normal Pulled web: text` each. */
  readonly lines: string[] = [];
  onEvent: ((line: string) => void) | null = null;

  event(target: EventTarget, type: 'Normal' | 'Warning', reason: string, message: string): void {
    const container = target.fieldPath === undefined ? '' : ` ${target.fieldPath.slice(target.fieldPath.indexOf('{') + 1, -1)}`;
    const line = `${type} ${reason} ${target.name}${container}: ${message}`;
    this.lines.push(line);
    this.onEvent?.(line);
  }
}

export class FakeSources implements EnvSources {
  readonly configMaps = new Map<string, ConfigMap>();
  readonly secrets = new Map<string, Secret>();
  serviceList: Service[] = [];
  readonly held = new Set<string>();
  readonly #callbacks: ((uid: string) => void)[] = [];

  async configMap(namespace: string, name: string): Promise<ConfigMap | null> {
    return this.configMaps.get(`${namespace}/${name}`) ?? null;
  }
  async secret(namespace: string, name: string): Promise<Secret | null> {
    return this.secrets.get(`${namespace}/${name}`) ?? null;
  }
  async services(namespace: string): Promise<readonly Service[]> {
    return this.serviceList.filter((service) => service.metadata.namespace === namespace);
  }
  hold(pod: Pod): void {
    this.held.add(pod.metadata.uid ?? '');
  }
  release(uid: string): void {
    this.held.delete(uid);
  }
  onChange(callback: (uid: string) => void): void {
    this.#callbacks.push(callback);
  }
  /** Something that a held pod names has changed. */
  changed(): void {
    for (const uid of this.held) for (const callback of this.#callbacks) callback(uid);
  }
}

export class FakeDns implements Dns {
  async forPod(): Promise<{ servers: string[]; searches: string[]; options: string[]; events: [] }> {
    return { servers: ['10.96.0.10'], searches: ['default.svc.cluster.local'], options: ['ndots:5'], events: [] };
  }
}

export class FakeNode implements NodeInfo {
  readonly name = 'node-1';
  current: Node = {
    metadata: { name: 'node-1', uid: 'node-uid', labels: { 'kubernetes.io/hostname': 'node-1', 'kubernetes.io/os': 'linux' } },
    spec: {},
    status: { allocatable: { cpu: '4', memory: '8Gi', pods: '110', 'ephemeral-storage': '100Gi' } },
  };
  readonly #callbacks: (() => void)[] = [];

  node(): Node {
    return this.current;
  }
  hostIPs(): readonly string[] {
    return ['192.0.2.1'];
  }
  async ready(): Promise<Node> {
    return this.current;
  }
  onChange(callback: () => void): void {
    this.#callbacks.push(callback);
  }
}

/** Log directories and termination files in memory. */
export class FakePodFiles implements PodFiles {
  readonly dirs = new Set<string>();
  readonly attempts = new Map<string, number>();
  #count = 0;

  async mkdir(path: string): Promise<void> {
    this.dirs.add(path);
  }
  async terminationLog(rootDir: string, uid: string, container: string): Promise<string> {
    this.#count += 1;
    return `${rootDir}/pods/${uid}/containers/${container}/${this.#count.toString(16).padStart(8, '0')}`;
  }
  async nextAttempt(logDir: string): Promise<number> {
    return this.attempts.get(logDir) ?? 0;
  }
  async linkLog(): Promise<void> {}
  async unlinkLog(): Promise<void> {}
  async removeTree(path: string): Promise<void> {
    for (const dir of this.dirs) if (dir === path || dir.startsWith(`${path}/`)) this.dirs.delete(dir);
  }
}

/** Records of pulls that let every pod have every image. */
export const everybodyMay: PullRecords = {
  begin: async () => undefined,
  done: async () => undefined,
  failed: async () => undefined,
  mustPull: async () => false,
  prune: async () => undefined,
  recover: async () => undefined,
};
