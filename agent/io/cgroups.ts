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
  childCgroups,
  cpuShares,
  kubepods,
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
import { parseMountinfo } from '../core/mountinfo.ts';
import { milliCpuOf, podRequests, qosClassOfStatus } from '../core/qos.ts';
import type { QosClass } from '../core/qos.ts';
import type { PodCgroupValues } from '../core/resize/moves.ts';
import type { Cgroups, Pods } from '../seams.ts';

export interface CgroupsOptions {
  readonly sys: Sys;
  readonly clock: Clock;
  readonly log: Log;
  /** What the runtime's RuntimeConfig says, else the configuration file. */
  readonly driver: CgroupDriver;
  readonly cgroupRoot: string;
  readonly failCgroupV1: boolean;
  readonly pod: PodCgroupSettings;
  /** What all pods together may use (`enforceNodeAllocatable: [pods]`): capacity without what is reserved; null: unbounded. */
  readonly allocatable: { readonly milliCpu: bigint; readonly memoryBytes: bigint; readonly pids: bigint | null } | null;
  readonly kill?: (pid: number) => void;
}

const killWaitMs = 50;
const killTries = 200;
const firstQosMs = 1000;
const qosPeriodMs = 60_000;

/** Finds how cgroups are mounted and makes the owner of the pods' part of them. Throws OpError `unsupported` with one sentence. */
export async function openCgroups(options: CgroupsOptions): Promise<PodCgroups> {
  const doing = 'use the cgroups of this machine';
  if (options.driver === 'systemd') {
    throw new OpError('unsupported', doing, 'the runtime uses the systemd cgroup driver, which this version does not speak yet', {
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
  return new PodCgroups(options, layout);
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
  /** CPU requests of Burstable pods: together they are the weight of their class. */
  readonly #burstable = new Map<string, bigint>();
  /** Until all pods are known the class keeps what it has: an agent that starts anew must not starve running pods. */
  #knowsPods = false;

  constructor(options: CgroupsOptions, layout: CgroupLayout) {
    this.#options = options;
    this.layout = layout;
    this.driver = options.driver;
    this.version = layout.version;
    this.#root = rootName(options.cgroupRoot);
  }

  async ensureRoots(): Promise<void> {
    const names: CgroupName[] = [kubepods(this.#root), qosName(this.#root, 'Burstable'), qosName(this.#root, 'BestEffort')];
    for (const name of names) await this.#make(name, 1);
    if (this.version === 2) await this.#enableControllers(qosName(this.#root, 'Burstable'), qosName(this.#root, 'BestEffort'));
    const { allocatable, log } = this.#options;
    if (allocatable !== null) {
      try {
        await this.#write([
          [kubepods(this.#root), { ...sharesOnly(cpuShares(allocatable.milliCpu)), memoryBytes: allocatable.memoryBytes, pidsMax: allocatable.pids }],
        ]);
      } catch (error) {
        // Pods that use more already are left to eviction: the node starts all the same.
        log.warn('Failed to enforce Node Allocatable limits', { err: messageOf(error) });
      }
    }
    await this.#write([[qosName(this.#root, 'BestEffort'), sharesOnly(2n)]]);
  }

  async ensurePod(pod: Pod, _signal?: AbortSignal, isRunning = false): Promise<string> {
    const name = this.#nameOf(pod);
    const path = cgroupPath(this.driver, name);
    if (!this.#written.has(path)) await this.#make(name, name.length);
    this.#count(pod);
    await this.#write([...(isRunning ? [] : [[name, this.limitsOf(pod)] as const]), ...this.#burstableLimits()]);
    return cgroupParent(this.driver, name);
  }

  limitsOf(pod: Pod): CgroupResources {
    return podCgroupResources(pod, this.#options.pod);
  }

  async values(pod: Pod): Promise<PodCgroupValues | null> {
    const files = await this.#options.sys.readFiles(cgroupReads(this.layout, cgroupPath(this.driver, this.#nameOf(pod))));
    return cgroupValues(
      this.version,
      files.map((bytes) => Buffer.from(bytes ?? []).toString('utf8')),
    );
  }

  async setLimits(pod: Pod, resources: CgroupResources): Promise<void> {
    const path = cgroupPath(this.driver, this.#nameOf(pod));
    this.#written.delete(path);
    this.#count(pod);
    await this.#put(cgroupWrites(this.layout, path, resources));
    await this.#write(this.#burstableLimits());
  }

  parentOf(pod: Pod): string {
    return cgroupParent(this.driver, this.#nameOf(pod));
  }

  async removePod(uid: string, signal: AbortSignal): Promise<void> {
    assert(uid !== '', 'a pod without UID has no cgroup');
    const mounts = [...this.layout.hierarchies.map((each) => each.mount), ...(this.layout.unified === null ? [] : [this.layout.unified])];
    const paths = podNames(this.#root, uid).map((name) => cgroupPath(this.driver, name));
    for (const path of paths) this.#written.delete(path);
    const directories = mounts.flatMap((mount) => paths.map((path) => `${mount}${path}`));
    await this.#removeEmpty(directories, signal);
    if (this.#burstable.delete(uid)) await this.#write(this.#burstableLimits());
  }

  async podUids(): Promise<readonly string[]> {
    const mount = this.layout.hierarchies.find((each) => each.controllers.includes('memory'))?.mount ?? this.layout.hierarchies[0]?.mount ?? '';
    const uids = new Set<string>();
    for (const qos of ['Guaranteed', 'Burstable', 'BestEffort'] as const) {
      for (const child of await this.#children(`${mount}${cgroupPath(this.driver, qosName(this.#root, qos))}`)) {
        const uid = uidOfCgroup(this.driver, child);
        if (uid !== null) uids.add(uid);
      }
    }
    return [...uids];
  }

  /** Takes over which pods there are: adopted ones never came through ensurePod. Writes the weight of their class. */
  async syncQos(pods: readonly Pod[]): Promise<void> {
    this.#burstable.clear();
    for (const pod of pods) if (qosClassOfStatus(pod) === 'Burstable') this.#burstable.set(pod.metadata.uid ?? '', milliCpuOf(podRequests(pod)));
    this.#knowsPods = true;
    await this.#write(this.#burstableLimits());
  }

  /** Keeps the classes' weights in step with the pods, once all are known. Runs until `signal` is aborted. */
  async followPods(pods: Pick<Pods, 'list' | 'synced' | 'mayRun'>, signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#options;
    try {
      for (;;) {
        await clock.sleep(this.#knowsPods ? qosPeriodMs : firstQosMs, signal);
        if (!pods.synced()) continue;
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
    if (qosClassOfStatus(pod) === 'Burstable') this.#burstable.set(pod.metadata.uid ?? '', milliCpuOf(podRequests(pod)));
  }

  #nameOf(pod: Pod): CgroupName {
    const qos: QosClass = qosClassOfStatus(pod);
    return podName(this.#root, qos, pod.metadata.uid ?? '');
  }

  /** Makes the directories from part `from` of the name on; where those above are missing, all of them. */
  async #make(name: CgroupName, from: number): Promise<void> {
    const ops: FileOp[] = [];
    for (const { mount } of this.layout.hierarchies) {
      for (let depth = from; depth <= name.length; depth += 1)
        ops.push({ op: 'mkdir', path: `${mount}${cgroupPath(this.driver, name.slice(0, depth))}`.slice(1), mode: 0o755 });
    }
    const results = await this.#options.sys.fileOps({ root: '/', ops, timeoutMs: 10_000 });
    const last = results.at(-1);
    if (last?.errno === 'ENOENT' && from > 1) return await this.#make(name, 1);
    if (results.length < ops.length || last?.errno !== '') throw errnoError(`make the cgroup /${ops[results.length - 1]?.path ?? ''}`, last?.errno ?? 'EIO');
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
  async #write(limits: readonly (readonly [CgroupName, CgroupResources])[]): Promise<void> {
    const open = limits
      .map(([name, resources]) => ({ path: cgroupPath(this.driver, name), writes: cgroupWrites(this.layout, cgroupPath(this.driver, name), resources) }))
      .filter(({ path, writes }) => this.#written.get(path) !== JSON.stringify(writes));
    if (open.length === 0) return;
    for (const { path } of open) this.#written.delete(path);
    await this.#put(open.flatMap(({ writes }) => writes));
    for (const { path, writes } of open) this.#written.set(path, JSON.stringify(writes));
  }

  async #put(writes: readonly { path: string; data: string }[]): Promise<void> {
    const results = await this.#options.sys.writeFiles(writes);
    for (const [index, failure] of results.entries()) {
      if (failure !== null) throw errnoError(`write ${writes[index]?.data ?? ''} to ${writes[index]?.path ?? ''}`, failure.errno);
    }
  }

  #burstableLimits(): (readonly [CgroupName, CgroupResources])[] {
    if (!this.#knowsPods) return [];
    const sum = [...this.#burstable.values()].reduce((total, milli) => total + milli, 0n);
    return [[qosName(this.#root, 'Burstable'), sharesOnly(cpuShares(sum))]];
  }

  async #removeEmpty(directories: readonly string[], signal: AbortSignal): Promise<void> {
    let left = [...directories];
    for (let attempt = 0; attempt < killTries; attempt += 1) {
      const stuck: string[] = [];
      // Each batch stops at the first directory that is not empty; that one is emptied, the rest goes on.
      while (left.length > 0) {
        const ops = left.map((path): FileOp => ({ op: 'unlink', path: path.slice(1) }));
        const results = await this.#options.sys.fileOps({ root: '/', ops, timeoutMs: 10_000 });
        const last = results.at(-1);
        if (results.length === ops.length && last?.errno === '') break;
        const failed = left[results.length - 1];
        if (failed === undefined || last === undefined || !['EBUSY', 'ENOTEMPTY', 'ENOENT', 'ENODEV'].includes(last.errno))
          throw errnoError(`remove the cgroup ${failed ?? ''}`, last?.errno ?? 'EIO');
        if (last.errno === 'EBUSY' || last.errno === 'ENOTEMPTY') stuck.push(failed);
        left = left.slice(results.length);
      }
      if (stuck.length === 0) return;
      for (const directory of stuck) await this.#empty(directory);
      await this.#options.clock.sleep(killWaitMs, signal);
      left = stuck;
    }
    throw new OpError('deadline', "remove a pod's cgroup", `${left.join(', ')} still holds processes`);
  }

  /** Kills what runs in a cgroup and below it, and removes the children that are empty. */
  async #empty(directory: string): Promise<void> {
    for (const child of await this.#children(directory)) await this.#empty(`${directory}/${child}`);
    const [bytes] = await this.#options.sys.readFiles([`${directory}/cgroup.procs`]);
    const kill = this.#options.kill ?? killHard;
    for (const line of Buffer.from(bytes ?? [])
      .toString('utf8')
      .split('\n')) {
      const pid = Number(line);
      // 0 is a process of another PID namespace; 1 is the node's own first.
      if (Number.isSafeInteger(pid) && pid > 1 && pid !== process.pid) kill(pid);
    }
    const names = await this.#children(directory);
    if (names.length === 0) return;
    for (const child of names)
      await this.#options.sys.fileOps({ root: '/', ops: [{ op: 'unlink', path: `${directory}/${child}`.slice(1) }], timeoutMs: 10_000 });
  }

  async #children(directory: string): Promise<string[]> {
    const [result] = await this.#options.sys.fileOps({ root: '/', ops: [{ op: 'list', path: directory.slice(1) }], timeoutMs: 10_000 });
    return result?.errno === '' ? childCgroups(result.names ?? []) : [];
  }
}

function sharesOnly(shares: bigint): CgroupResources {
  return { cpuShares: shares, cpuQuotaUs: null, cpuPeriodUs: 100_000n, memoryBytes: null, pidsMax: null };
}

function killHard(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It ended by itself meanwhile; what could not be killed shows at the next attempt.
  }
}
