import { Buffer } from 'node:buffer';
import { assert } from '../../base/assert.ts';
import type { Clock } from '../../base/clock.ts';
import { messageOf, OpError } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import { errnoError } from '../../base/sys/errno.ts';
import type { FileOp, Sys } from '../../base/sys/types.ts';
import type { Pod } from '../../proto/kube/types.ts';
import {
  cgroupLayout,
  cgroupParent,
  cgroupPath,
  cgroupReads,
  cgroupValues,
  cgroupWrites,
  cpuShares,
  kubepods,
  parsedName,
  podCgroupResources,
  podName,
  podNames,
  qosName,
  rootName,
  uidOfCgroup,
  versionProblem,
  wantedControllers,
} from '../core/cgroups.ts';
import type { CgroupDriver, CgroupLayout, CgroupName, CgroupResources, PodCgroupSettings } from '../core/cgroups.ts';
import { classMemoryQos } from '../core/memory-qos.ts';
import type { ProtectedMemory } from '../core/memory-qos.ts';
import { parseMountinfo } from '../core/mountinfo.ts';
import { qosMemoryLimits } from '../core/qos-reserved.ts';
import { memoryOf, milliCpuOf, podRequests, qosClassOfStatus } from '../core/qos.ts';
import type { QosClass } from '../core/qos.ts';
import type { PodCgroupValues } from '../core/resize/moves.ts';
import type { ReservedCgroup } from '../core/settings.ts';
import { heldBySystemd, limitProperties, sliceOf, sliceProperties } from '../core/systemd-units.ts';
import type { Cgroups, Pods } from '../seams.ts';
import { CgroupRemoval } from './cgroup-removal.ts';
import type { Systemd } from './systemd.ts';

export interface CgroupsOptions {
  readonly sys: Sys;
  readonly clock: Clock;
  readonly log: Log;
  /** What the runtime's RuntimeConfig says, else the configuration file. */
  readonly driver: CgroupDriver;
  readonly cgroupRoot: string;
  readonly failCgroupV1: boolean;
  /** `cgroupsPerQOS`; false: pods have no cgroups of their own, and where their containers stand is the runtime's to say. */
  readonly perQos?: boolean;
  readonly pod: PodCgroupSettings;
  /** What all pods together may use (`enforceNodeAllocatable: [pods]`): capacity without what is reserved; null: unbounded. */
  readonly allocatable: {
    readonly milliCpu: bigint;
    readonly memoryBytes: bigint;
    readonly pids: bigint | null;
    readonly hugePages?: ReadonlyMap<string, bigint>;
  } | null;
  /** Who owns the cgroups with the systemd driver. */
  readonly systemd?: Systemd;
  /** Cgroups that are there for other things, and what they may use of the machine. */
  readonly reserved?: readonly ReservedCgroup[];
  readonly kill?: (pid: number) => void;
  /** `qosReserved`: so many percent of the memory that better classes ask for are kept from those below; null: nothing is. */
  readonly qosReservedPercent?: bigint | null;
  /** Whether containers of the pod own their CPUs: then it has no quota (DisableCPUQuotaWithExclusiveCPUs). */
  readonly hasOwnCpus?: (uid: string) => boolean;
  readonly onDone?: (operation: 'create' | 'update' | 'destroy', tookMs: number) => void;
}

interface Asked {
  readonly qos: QosClass;
  readonly milliCpu: bigint;
  readonly memoryBytes: bigint;
}

const firstQosMs = 1000;
const systemdPatienceMs = 60_000;
const qosPeriodMs = 60_000;

/** Finds how cgroups are mounted and makes the owner of the pods' part of them. Throws OpError `unsupported` with one sentence. */
export async function openCgroups(options: CgroupsOptions): Promise<PodCgroups> {
  const doing = 'use the cgroups of this machine';
  if (options.driver === 'systemd' && options.systemd === undefined) {
    throw new OpError('unsupported', doing, 'the runtime uses the systemd cgroup driver, and this machine was not booted by systemd', {
      advice: "Set SystemdCgroup = false in the runtime's configuration and cgroupDriver: cgroupfs in the kubelet's.",
    });
  }
  const [bytes] = await options.sys.readFiles(['/proc/self/mountinfo'], { maxBytesEach: 16 << 20 });
  const layout = cgroupLayout(parseMountinfo(Buffer.from(bytes ?? []).toString('utf8')));
  if (layout === null)
    throw new OpError('unsupported', doing, 'no cgroup file system is mounted below /sys/fs/cgroup', {
      advice: 'Start the agent where /sys/fs/cgroup is mounted.',
    });
  const problem = versionProblem(layout.version, options.failCgroupV1);
  if (problem !== null) throw new OpError('unsupported', doing, problem, { advice: 'Use a machine with cgroup v2, or set failCgroupV1: false.' });
  const systemd = options.driver === 'systemd' ? ((await options.systemd?.version(AbortSignal.timeout(systemdPatienceMs))) ?? 0) : 0;
  return new PodCgroups(options, layout, systemd);
}

/** The cgroups of all pods: made before the sandbox, removed after it, with what is left inside killed. */
export class PodCgroups implements Cgroups {
  readonly driver: CgroupDriver;
  readonly version: 1 | 2;
  readonly layout: CgroupLayout;
  readonly #options: CgroupsOptions;
  readonly #root: CgroupName;
  /** What was written last, so that a sync without a change writes nothing. */
  readonly #written = new Map<string, string>();
  /** What the pods ask for: together it is the weight of their class, and the memory that is protected. */
  readonly #asked = new Map<string, Asked>();
  /** Until all pods are known the class keeps what it has: an agent that starts anew must not starve running pods. */
  #knowsPods = false;

  /** How the last try to bound all pods together went; null: well. */
  enforcementProblem: string | null = null;
  /** Told of each further try. */
  onEnforcement: ((problem: string | null) => void) | null = null;
  /** What could not be written at the start. */
  #unenforced: (() => Promise<void>) | null = null;
  readonly #off: boolean;
  readonly #removal: CgroupRemoval;
  /** systemd's version, where it owns the cgroups; else 0. */
  readonly #systemdVersion: number;

  constructor(options: CgroupsOptions, layout: CgroupLayout, systemdVersion = 0) {
    this.#options = options;
    this.#systemdVersion = systemdVersion;
    this.#off = options.perQos === false;
    this.#removal = new CgroupRemoval(options);
    this.layout = layout;
    this.driver = options.driver;
    this.version = layout.version;
    this.#root = rootName(options.cgroupRoot);
  }

  async ensureRoots(signal: AbortSignal = AbortSignal.timeout(systemdPatienceMs)): Promise<void> {
    if (this.#off) return;
    const [all, burstable, bestEffort] = [kubepods(this.#root), qosName(this.#root, 'Burstable'), qosName(this.#root, 'BestEffort')];
    for (const name of [all, burstable, bestEffort]) await this.#make(name, 1, signal);
    if (this.version === 2) await this.#enableControllers(burstable, bestEffort);
    const { allocatable, pod } = this.#options;
    const sizes = pod.hugePageSizes ?? [];
    // What an earlier agent protected stays until all pods are known.
    const isUnprotected = this.version === 2 && !this.#isProtecting;
    const unprotected = isUnprotected ? { unified: { 'memory.min': '0', 'memory.low': '0' } } : {};
    if (allocatable !== null) {
      const { milliCpu, memoryBytes, pids: pidsMax, hugePages } = allocatable;
      const pages = hugePages === undefined ? {} : { hugePages };
      const cpus = this.driver === 'systemd' ? await this.#allCpus() : {};
      const enforce = async (): Promise<void> => {
        await this.#write([[all, { ...sharesOnly(cpuShares(milliCpu)), memoryBytes, pidsMax, ...pages, ...cpus, ...unprotected }]], forever);
      };
      await this.#tryEnforce(enforce);
    }
    const unbounded = sizes.length === 0 ? {} : { hugePages: new Map(sizes.map((size) => [size, 1n << 62n])) };
    await this.#write([[bestEffort, { ...sharesOnly(2n), ...unbounded }]], signal);
    const without = isUnprotected ? { unified: { 'memory.low': '0' } } : {};
    await this.#write([[burstable, { ...sharesOnly(2n), cpuShares: null, ...unbounded, ...without }]], signal);
  }

  /** Pods that use more already are left to eviction: the node starts all the same, and it is tried again each minute. */
  async #tryEnforce(enforce: () => Promise<void>): Promise<void> {
    try {
      await enforce();
      this.#unenforced = this.enforcementProblem = null;
    } catch (error) {
      this.enforcementProblem = messageOf(error);
      this.#options.log.warn('Failed to enforce Node Allocatable limits', { err: this.enforcementProblem });
      this.#unenforced = enforce;
    }
    this.onEnforcement?.(this.enforcementProblem);
  }

  /** Gives the cgroups of the system and of Kubernetes' own programs what is reserved for them. Throws OpError where one is not there. */
  async enforceReserved(signal: AbortSignal): Promise<void> {
    for (const { cgroup, resources } of this.#options.reserved ?? []) {
      const name = parsedName(this.driver, cgroup);
      const path = cgroupPath(this.driver, name);
      const { cpuShares: shares, memoryBytes, pidsMax } = resources;
      const limited = new Set([...(shares === null ? [] : ['cpu']), ...(memoryBytes === null ? [] : ['memory']), ...(pidsMax === null ? [] : ['pids'])]);
      for (const { mount, controllers } of this.layout.hierarchies) {
        // systemd keeps its slices only where it limits something.
        if (this.version === 1 && !controllers.some((each) => limited.has(each))) continue;
        const [listed] = await this.#options.sys.fileOps({ root: '/', ops: [{ op: 'list', path: `${mount}${path}`.slice(1) }], timeoutMs: 10_000 });
        if (listed?.errno !== '') throw new OpError('not-found', `enforce limits on the cgroup ${cgroup}`, `${mount}${path} is not there`);
      }
      await this.#write([[name, resources]], signal);
    }
  }

  async ensurePod(pod: Pod, signal: AbortSignal = forever, isRunning = false): Promise<string> {
    if (this.#off) return '';
    const name = this.#nameOf(pod);
    const path = cgroupPath(this.driver, name);
    if (!this.#written.has(path)) await this.#timed('create', () => this.#make(name, name.length, signal));
    this.#count(pod);
    await this.#write([...(isRunning ? [] : [[name, this.limitsOf(pod)] as const]), ...this.#classLimits()], signal);
    return cgroupParent(this.driver, name);
  }

  limitsOf(pod: Pod): CgroupResources {
    const all = podCgroupResources(pod, this.#options.pod);
    const hasOwnCpus = all.cpuQuotaUs !== null && this.#options.hasOwnCpus?.(pod.metadata.uid ?? '') === true;
    const limits = hasOwnCpus ? { ...all, cpuQuotaUs: -1n } : all;
    return this.driver === 'systemd' ? heldBySystemd(limits) : limits;
  }

  async values(pod: Pod): Promise<PodCgroupValues | null> {
    if (this.#off) return null;
    const files = await this.#options.sys.readFiles(cgroupReads(this.layout, cgroupPath(this.driver, this.#nameOf(pod))));
    return cgroupValues(
      this.version,
      files.map((bytes) => Buffer.from(bytes ?? []).toString('utf8')),
    );
  }

  async setLimits(pod: Pod, resources: CgroupResources, signal: AbortSignal = forever): Promise<void> {
    if (this.#off) return;
    const name = this.#nameOf(pod);
    const path = cgroupPath(this.driver, name);
    this.#written.delete(path);
    this.#count(pod);
    await this.#tellSystemd(name, resources, signal);
    await this.#put(cgroupWrites(this.layout, path, resources));
    await this.#write(this.#classLimits(), signal);
  }

  parentOf(pod: Pod): string {
    return this.#off ? '' : cgroupParent(this.driver, this.#nameOf(pod));
  }

  async removePod(uid: string, signal: AbortSignal): Promise<void> {
    if (this.#off) return;
    await this.#timed('destroy', () => this.#removePod(uid, signal));
  }

  async #timed<T>(operation: 'create' | 'update' | 'destroy', work: () => Promise<T>): Promise<T> {
    const { clock, onDone } = this.#options;
    const beganMs = clock.monoMs();
    try {
      return await work();
    } finally {
      onDone?.(operation, clock.monoMs() - beganMs);
    }
  }

  async #removePod(uid: string, signal: AbortSignal): Promise<void> {
    assert(uid !== '', 'a pod without UID has no cgroup');
    const mounts = [...this.layout.hierarchies.map((each) => each.mount), ...(this.layout.unified === null ? [] : [this.layout.unified])];
    const paths = podNames(this.#root, uid).map((name) => cgroupPath(this.driver, name));
    for (const path of paths) this.#written.delete(path);
    const directories = mounts.flatMap((mount) => paths.map((path) => `${mount}${path}`));
    await this.#stopSlices(uid, signal);
    await this.#removal.remove(directories, signal);
    if (this.#asked.delete(uid)) await this.#write(this.#classLimits(), signal);
  }

  async podUids(): Promise<readonly string[]> {
    if (this.#off) return [];
    const mount = this.layout.hierarchies.find((each) => each.controllers.includes('memory'))?.mount ?? this.layout.hierarchies[0]?.mount ?? '';
    const uids = new Set<string>();
    for (const qos of ['Guaranteed', 'Burstable', 'BestEffort'] as const) {
      for (const child of await this.#removal.children(`${mount}${cgroupPath(this.driver, qosName(this.#root, qos))}`)) {
        const uid = uidOfCgroup(this.driver, child);
        if (uid !== null) uids.add(uid);
      }
    }
    return [...uids];
  }

  /** Takes over which pods there are: adopted ones never came through ensurePod. Writes what their classes get by them. */
  async syncQos(pods: readonly Pod[]): Promise<void> {
    if (this.#off) return;
    this.#asked.clear();
    for (const pod of pods) this.#count(pod);
    this.#knowsPods = true;
    const limits = this.#classLimits();
    // What is protected is written whatever stands there.
    if (this.#isProtecting) for (const [name] of limits) this.#written.delete(cgroupPath(this.driver, name));
    await this.#write(limits, forever);
    await this.#reserveMemory(pods);
  }

  /** A class that uses more already keeps what it uses, and gets no more. */
  async #reserveMemory(pods: readonly Pod[]): Promise<void> {
    const { allocatable, qosReservedPercent = null, log } = this.#options;
    if (qosReservedPercent === null || allocatable === null) return;
    const limits = qosMemoryLimits(pods, allocatable.memoryBytes, qosReservedPercent);
    for (const [qos, memoryBytes] of [['Burstable', limits.burstable] as const, ['BestEffort', limits.bestEffort] as const]) {
      const name = qosName(this.#root, qos);
      const put = async (bytes: bigint): Promise<void> => {
        const resources = { ...sharesOnly(2n), cpuShares: null, memoryBytes: bytes < 0n ? 0n : bytes };
        await this.#tellSystemd(name, resources, forever);
        await this.#put(cgroupWrites(this.layout, cgroupPath(this.driver, name), resources));
      };
      try {
        await put(memoryBytes);
      } catch (error) {
        const used = await this.#memoryUsed(name);
        log.warn('Memory could not be kept from a class of pods', { qos, limit: String(memoryBytes), usage: String(used), err: messageOf(error) });
        if (used !== null && used > memoryBytes) await put(used);
      }
    }
  }

  async #memoryUsed(name: CgroupName): Promise<bigint | null> {
    const mount = this.layout.hierarchies.find((each) => each.controllers.includes('memory'))?.mount ?? this.layout.hierarchies[0]?.mount ?? '';
    const file = this.version === 2 ? 'memory.current' : 'memory.usage_in_bytes';
    const [bytes] = await this.#options.sys.readFiles([`${mount}${cgroupPath(this.driver, name)}/${file}`]);
    const text = Buffer.from(bytes ?? [])
      .toString('utf8')
      .trim();
    return /^\d+$/.test(text) ? BigInt(text) : null;
  }

  /** Keeps the classes' weights in step with the pods, once all are known. Runs until `signal` is aborted. */
  async followPods(pods: Pick<Pods, 'list' | 'synced' | 'mayRun'>, signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#options;
    try {
      for (;;) {
        await clock.sleep(this.#knowsPods ? qosPeriodMs : firstQosMs, signal);
        if (!pods.synced()) continue;
        if (this.#unenforced !== null) await this.#tryEnforce(this.#unenforced);
        try {
          await this.syncQos(pods.list().filter((pod) => pods.mayRun(pod.metadata.uid ?? '')));
        } catch (error) {
          log.warn('The weight of Burstable pods was not written', { err: messageOf(error) });
        }
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  /** Directories of one pod's cgroup, for readers of usage. */
  directoriesOf(pod: Pod): string[] {
    const path = cgroupPath(this.driver, this.#nameOf(pod));
    return this.layout.hierarchies.map((each) => `${each.mount}${path}`);
  }

  #count(pod: Pod): void {
    const requests = podRequests(pod);
    this.#asked.set(pod.metadata.uid ?? '', { qos: qosClassOfStatus(pod), milliCpu: milliCpuOf(requests), memoryBytes: memoryOf(requests) });
  }

  get #isProtecting(): boolean {
    return this.version === 2 && this.#options.pod.memoryQos?.policy === 'TieredReservation';
  }

  /** What pods' cgroups protect of memory. */
  get memoryQos(): ProtectedMemory {
    const isKnown = this.#isProtecting && this.#knowsPods;
    return { minBytes: isKnown ? this.#sum('Guaranteed', 'memoryBytes') : 0n, lowBytes: isKnown ? this.#sum('Burstable', 'memoryBytes') : 0n };
  }

  #sum(qos: QosClass, of: 'milliCpu' | 'memoryBytes'): bigint {
    return [...this.#asked.values()].reduce((total, asked) => (asked.qos === qos ? total + asked[of] : total), 0n);
  }

  #nameOf(pod: Pod): CgroupName {
    const qos: QosClass = qosClassOfStatus(pod);
    return podName(this.#root, qos, pod.metadata.uid ?? '');
  }

  /** Makes the directories from part `from` of the name on; where those above are missing, all of them. */
  async #make(name: CgroupName, from: number, signal: AbortSignal): Promise<void> {
    const { systemd } = this.#options;
    if (this.driver === 'systemd' && systemd !== undefined) {
      // systemd makes the slices above by itself, but without counting what they use.
      for (let depth = from; depth <= name.length; depth += 1)
        await systemd.startSlice(sliceOf(name.slice(0, depth)), sliceProperties(name.slice(0, depth), this.version), signal);
    }
    const ops: FileOp[] = [];
    for (const { mount, controllers } of this.layout.hierarchies) {
      // That one is systemd's own.
      if (this.driver === 'systemd' && controllers.includes('name=systemd')) continue;
      for (let depth = from; depth <= name.length; depth += 1)
        ops.push({ op: 'mkdir', path: `${mount}${cgroupPath(this.driver, name.slice(0, depth))}`.slice(1), mode: 0o755 });
    }
    const results = await this.#options.sys.fileOps({ root: '/', ops, timeoutMs: 10_000 });
    const last = results.at(-1);
    if (last?.errno === 'ENOENT' && from > 1) return await this.#make(name, 1, signal);
    if (results.length < ops.length || last?.errno !== '') throw errnoError(`make the cgroup /${ops[results.length - 1]?.path ?? ''}`, last?.errno ?? 'EIO');
    // systemd hands on what its own units count, and takes back the rest (cpuset, hugetlb) whenever it makes a unit.
    if (this.driver === 'systemd' && this.version === 2 && name.length > 1) await this.#enableControllers(name.slice(0, -1));
  }

  /** The processors of the machine, so that systemd knows that this cgroup bounds them and keeps the controller. */
  async #allCpus(): Promise<{ cpus?: string }> {
    const mount = this.layout.hierarchies.find((each) => this.version === 2 || each.controllers.includes('cpuset'))?.mount;
    if (mount === undefined) return {};
    const [bytes] = await this.#options.sys.readFiles([`${mount}/${this.version === 2 ? 'cpuset.cpus.effective' : 'cpuset.cpus'}`]);
    const cpus = Buffer.from(bytes ?? [])
      .toString('utf8')
      .trim();
    return cpus === '' ? {} : { cpus };
  }

  async #tellSystemd(name: CgroupName, resources: CgroupResources, signal: AbortSignal): Promise<void> {
    const { systemd } = this.#options;
    if (this.driver !== 'systemd' || systemd === undefined) return;
    await systemd.setProperties(sliceOf(name), limitProperties(resources, this.version, this.#systemdVersion), signal);
  }

  /** Kills what is left in a pod's slices and has systemd take them away. */
  async #stopSlices(uid: string, signal: AbortSignal): Promise<void> {
    const { systemd, sys } = this.#options;
    if (this.driver !== 'systemd' || systemd === undefined) return;
    const mount = this.layout.hierarchies.find((each) => each.controllers.includes('memory'))?.mount ?? this.layout.hierarchies[0]?.mount ?? '';
    const names = podNames(this.#root, uid);
    const there = await sys.readFiles(names.map((name) => `${mount}${cgroupPath(this.driver, name)}/cgroup.procs`));
    for (const [index, name] of names.entries()) {
      if ((there[index] ?? null) === null) continue;
      await this.#removal.empty(`${mount}${cgroupPath(this.driver, name)}`);
      await systemd.stop(sliceOf(name), signal);
    }
  }

  /** Version 2 gives controllers to children only where the parent hands them on. */
  async #enableControllers(...leaves: CgroupName[]): Promise<void> {
    const mount = this.layout.hierarchies[0]?.mount ?? '';
    const [available] = await this.#options.sys.readFiles([`${mount}/cgroup.controllers`]);
    const wanted = wantedControllers(Buffer.from(available ?? []).toString('utf8'));
    if (wanted === '') return;
    const directories = new Set<string>([mount]);
    for (const leaf of leaves)
      for (let depth = 1; depth <= leaf.length; depth += 1) directories.add(`${mount}${cgroupPath(this.driver, leaf.slice(0, depth))}`);
    for (const directory of directories) {
      const [failure] = await this.#options.sys.writeFiles([{ path: `${directory}/cgroup.subtree_control`, data: wanted }]);
      if (failure === null || failure === undefined) continue;
      // The kernel lets a cgroup either hold processes or hand controllers on.
      const advice = failure.errno === 'EBUSY' ? `Move the processes in ${directory} to a child cgroup, or set cgroupRoot to one without processes.` : '';
      throw new OpError('failed', `hand ${wanted} on in ${directory}`, failure.errno, { advice });
    }
  }

  /** Writes the limits of several cgroups in one go, those that are not written already. */
  async #write(limits: readonly (readonly [CgroupName, CgroupResources])[], signal: AbortSignal): Promise<void> {
    const open = limits
      .map(([name, wanted]) => {
        const resources = this.driver === 'systemd' ? heldBySystemd(wanted) : wanted;
        const path = cgroupPath(this.driver, name);
        return { name, resources, path, writes: cgroupWrites(this.layout, path, resources) };
      })
      .filter(({ path, writes }) => this.#written.get(path) !== JSON.stringify(writes));
    if (open.length === 0) return;
    for (const { path } of open) this.#written.delete(path);
    for (const { name, resources } of open) await this.#tellSystemd(name, resources, signal);
    await this.#put(open.flatMap(({ writes }) => writes));
    for (const { path, writes } of open) this.#written.set(path, JSON.stringify(writes));
  }

  async #put(writes: readonly { path: string; data: string }[]): Promise<void> {
    const results = await this.#timed('update', () => this.#options.sys.writeFiles(writes));
    for (const [index, failure] of results.entries()) {
      if (failure !== null) throw errnoError(`write ${writes[index]?.data ?? ''} to ${writes[index]?.path ?? ''}`, failure.errno);
    }
  }

  #classLimits(): (readonly [CgroupName, CgroupResources])[] {
    if (!this.#knowsPods) return [];
    const name = qosName(this.#root, 'Burstable');
    const shares = sharesOnly(cpuShares(this.#sum('Burstable', 'milliCpu')));
    if (!this.#isProtecting) return [[name, shares]];
    const { all, burstable } = classMemoryQos(this.memoryQos);
    return [
      [kubepods(this.#root), { ...shares, cpuShares: null, unified: all }],
      [name, { ...shares, unified: burstable }],
    ];
  }
}

/** For what is not bounded by its caller: every call to systemd has a deadline of its own. */
const forever = new AbortController().signal;

function sharesOnly(shares: bigint): CgroupResources {
  return { cpuShares: shares, cpuQuotaUs: null, cpuPeriodUs: 100_000n, memoryBytes: null, pidsMax: null };
}
