import { Buffer } from 'node:buffer';
import type { Clock } from '../../base/clock.ts';
import { hasCode, messageOf, OpError } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import type { Sys } from '../../base/sys/types.ts';
import type { KubeletConfiguration } from '../core/config.ts';
import { checkMachine } from '../core/config-check.ts';
import { durationMs } from '../../base/duration.ts';
import type { MachineFacts } from '../core/node-status.ts';
import { gateEnabled } from '../../base/feature-gates.ts';
import { hugePageLimits } from '../core/huge-pages.ts';
import { readQosReserved } from '../core/qos-reserved.ts';
import { memoryQosOf, mostPids, PID_FILES, podsAllocatable, reservedCgroups } from '../core/settings.ts';
import { openCgroups } from './cgroups.ts';
import type { CgroupsOptions, PodCgroups } from './cgroups.ts';
import type { Cri } from './cri.ts';
import { hugePageSizes } from './kernel-facts.ts';
import type { Systemd } from './systemd.ts';

/** Both are started together: at first it is asked often, later it may be away for long. */
const firstRetryMs = 20;
const lastRetryMs = 500;
const callTimeoutMs = 10_000;

export interface RuntimeWait {
  readonly cri: Cri;
  readonly clock: Clock;
  readonly log: Log;
  /** `cgroupDriver`. */
  readonly fallback: string;
  /** The runtime is too old for kubelets from this version of Kubernetes on. */
  readonly onLosing: (version: string) => void;
}

/**
 * Waits until the runtime answers, and returns the cgroup driver: what it says itself wins over the configuration, and
 * only a runtime that does not know the question (containerd 1.x) leaves it to the file.
 */
export async function waitForRuntime(deps: RuntimeWait, signal: AbortSignal): Promise<'cgroupfs' | 'systemd'> {
  const { cri, clock, log, fallback } = deps;
  let told = false;
  for (let retryMs = firstRetryMs; ; retryMs = Math.min(lastRetryMs, retryMs * 1.5)) {
    try {
      const { runtimeName, runtimeVersion } = await cri.runtime.version({ version: '0.1.0' }, { timeoutMs: callTimeoutMs, signal });
      log.info('Container runtime initialized', { containerRuntime: runtimeName, version: runtimeVersion });
      break;
    } catch (error) {
      signal.throwIfAborted();
      if (!told) log.warn('Waiting for the container runtime', { err: messageOf(error) });
      told = true;
      await clock.sleep(retryMs, signal);
    }
  }
  try {
    const { linux } = await cri.runtime.runtimeConfig({}, { timeoutMs: callTimeoutMs, signal });
    if (linux !== null) return linux.cgroupDriver === 'SYSTEMD' ? 'systemd' : 'cgroupfs';
  } catch (error) {
    if (!hasCode(error, 'unsupported')) throw error;
    deps.onLosing('1.38.0');
    log.info('CRI implementation should be updated to support RuntimeConfig. Falling back to using cgroupDriver from kubelet config.');
  }
  return fallback === 'systemd' ? 'systemd' : 'cgroupfs';
}

export interface NodeCgroupsOptions {
  sys: Sys;
  clock: Clock;
  log: Log;
  config: KubeletConfiguration;
  machine: MachineFacts;
  driver: 'cgroupfs' | 'systemd';
  /** Null: this machine was not booted by systemd. */
  systemd: Systemd | null;
  /** Whether containers of the pod own their CPUs. */
  readonly hasOwnCpus: (uid: string) => boolean;
  readonly onDone: NonNullable<CgroupsOptions['onDone']>;
}

/** The cgroups that pods get theirs in, made and limited. Throws OpError `unsupported` for a machine that the configuration rules out. */
export async function openNodeCgroups(deps: NodeCgroupsOptions, signal: AbortSignal): Promise<PodCgroups> {
  const { sys, clock, log, config, machine, driver, systemd, hasOwnCpus, onDone } = deps;
  const [controllers] = await sys.readFiles(['/sys/fs/cgroup/cgroup.controllers']);
  const version = controllers === null || controllers === undefined ? 1 : 2;
  const problems = checkMachine(config, { cgroupVersion: version, swapBytes: machine.swapBytes });
  if (problems.length > 0)
    throw new OpError('unsupported', 'start the agent', problems.join('; '), { advice: 'Change the machine, or say in the configuration that it may be so.' });
  const memoryQos = version === 2 ? memoryQosOf(config, machine) : null;
  const limitsHugePages =
    version === 1 ||
    Buffer.from(controllers ?? [])
      .toString('utf8')
      .split(/\s+/)
      .includes('hugetlb');
  const sizes = limitsHugePages ? await hugePageSizes() : [];
  const allocatable = podsAllocatable(config, { ...machine, maxPids: await readMostPids(sys) });
  const pages = Object.fromEntries(Object.entries(machine.hugepages).map(([size, bytes]) => [`hugepages-${size}`, bytes]));
  const cgroups = await openCgroups({
    sys,
    clock,
    log,
    driver,
    ...(systemd === null ? {} : { systemd }),
    hasOwnCpus,
    onDone,
    qosReservedPercent: gateEnabled(config.featureGates, 'QOSReserved') ? qosPercent(config.qosReserved) : null,
    cgroupRoot: config.cgroupRoot,
    failCgroupV1: config.failCgroupV1,
    perQos: config.cgroupsPerQOS,
    pod: {
      cpuCFSQuota: config.cpuCFSQuota,
      cpuPeriodUs: BigInt(durationMs(config.cpuCFSQuotaPeriod) * 1000),
      podPidsLimit: BigInt(config.podPidsLimit),
      hugePageSizes: sizes,
      memoryQos,
    },
    allocatable: { ...allocatable, ...(sizes.length === 0 ? {} : { hugePages: hugePageLimits(sizes, pages) }) },
    reserved: reservedCgroups(config, version, memoryQos !== null),
  });
  await cgroups.ensureRoots(signal);
  await cgroups.enforceReserved(signal);
  return cgroups;
}

/** What is wrong with it was told before. */
function qosPercent(reserved: Readonly<Record<string, string>>): bigint | null {
  const read = readQosReserved(reserved);
  return typeof read === 'string' || read === null ? null : read.percent;
}

async function readMostPids(sys: Sys): Promise<number | null> {
  const limits = await sys.readFiles(PID_FILES);
  return mostPids(limits.map((bytes) => Buffer.from(bytes ?? []).toString('utf8')));
}
