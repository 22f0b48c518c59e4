import { mkdir, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../base/clock.ts';
import { durationMs } from '../base/duration.ts';
import { OpError } from '../base/errors.ts';
import type { Log } from '../base/log.ts';
import type { Sys } from '../base/sys/types.ts';
import type { Node } from '../proto/kube/types.ts';
import type { KubeletConfiguration } from './core/config.ts';
import { keyOf } from './core/containers.ts';
import { gateEnabled } from '../base/feature-gates.ts';
import type { MachineFacts, NodeFacts } from './core/node-status.ts';
import { valueOf } from './core/quantity.ts';
import { cpuOptionsProblem, readCpuOptions, readTopologyOptions } from './core/resources/cpu-options.ts';
import { allocatableCpus, noCpus, startCpuState, staticCpuRules } from './core/resources/cpu-static.ts';
import type { CpuState, StaticCpuRules } from './core/resources/cpu-static.ts';
import { decodeCpuState, encodeCpuState } from './core/resources/cpu-state.ts';
import { cpusOf } from './core/resources/cpu-topology.ts';
import { difference, formatCpuSet, parseCpuSet } from './core/resources/cpuset.ts';
import type { TopologyPolicy } from './core/resources/hints.ts';
import { hugePageName, topologyFrom } from './core/resources/machine.ts';
import { reservedByNode } from './core/resources/memory-reserved.ts';
import { decodeMemoryState, encodeMemoryState } from './core/resources/memory-state.ts';
import { allocatableMemory, freshMachine, noMemory, startMemoryState } from './core/resources/memory-static.ts';
import type { MemoryState } from './core/resources/memory-static.ts';
import { reservedMemoryOf, reservedMilliCpu } from './core/resources/reserved.ts';
import { Grants } from './grants.ts';
import type { StaticPart } from './grants.ts';
import { textFile } from './io/allocation-file.ts';
import type { Cri } from './io/cri.ts';
import { deviceCheckpoint, DevicePlugins } from './io/device-plugins.ts';
import { DevicePool } from './io/device-pool.ts';
import { readMachineTopology } from './io/machine-topology.ts';
import type { MachineTopology } from './io/machine-topology.ts';
import type { AgentMetrics } from './io/metrics.ts';
import type { PluginHandler } from './io/plugin-watcher.ts';
import { servePodResources } from './io/pod-resources.ts';
import type { PodResourcesOptions } from './io/pod-resources.ts';
import { servePods } from './io/pods-socket.ts';
import { StateFile } from './io/state-file.ts';
import type { Loop } from './loop.ts';
import type { AgentSettings } from './seams.ts';

export interface OpenGrantsOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly sys: Sys;
  readonly cri: Cri;
  readonly settings: Pick<AgentSettings, 'rootDir' | 'runtimeRequestTimeoutMs'>;
  readonly config: KubeletConfiguration;
  readonly machine: Pick<MachineFacts, 'memoryBytes'>;
  readonly metrics: Pick<AgentMetrics, 'resources'>;
  readonly loop: () => Loop;
  readonly kickNode: () => void;
  /** Claims of a container as prepared by their drivers. */
  readonly dynamic: PodResourcesOptions['dynamic'];
}

export interface OpenGrants extends AsyncDisposable {
  readonly grants: Grants;
  /** For device plugins that are found by their sockets. */
  readonly handler: PluginHandler;
  /** What the node status says of devices. */
  offer(): NonNullable<NodeFacts['devices']>;
  /** The Node as it must be seen at admission: it has what pods hold of it already. */
  seen(node: Node | undefined): Node | undefined;
  /** Serves plugins and those who ask what pods were given, until `signal` is aborted. */
  run(signal: AbortSignal): Promise<void>;
}

const cpuFile = 'cpu_manager_state';
const memoryFile = 'memory_manager_state';

/**
 * Reads the machine and the state files, by which pods keep what they were given. Throws OpError `invalid` in upstream's
 * words for policies that this machine or its state cannot have.
 */
export async function openGrants(options: OpenGrantsOptions): Promise<OpenGrants> {
  const { clock, log, config, settings } = options;
  const { rootDir } = settings;
  const { resources: metrics } = options.metrics;
  await mkdir(rootDir, { recursive: true });
  const policy = config.topologyManagerPolicy as TopologyPolicy;
  const needsMachine = policy !== 'none' || config.cpuManagerPolicy === 'static' || config.memoryManagerPolicy === 'Static' || config.reservedSystemCPUs !== '';
  const machine: MachineTopology = needsMachine ? await readMachineTopology(options.sys) : { nodes: [], usable: [] };
  const numaNodes = machine.nodes.map(({ node }) => node);
  const topology = readTopologyOptions(policy === 'none' ? {} : config.topologyManagerPolicyOptions);
  if (!topology.ok) throw wrong('topology', topology.message);
  if (policy !== 'none' && numaNodes.length > topology.options.maxNodes) {
    throw wrong('topology', `unsupported on machines with more than ${topology.options.maxNodes} NUMA Nodes`);
  }
  const cpus = await openCpus(options, machine);
  const memory = await openMemory(options, machine);
  const dir = join(rootDir, 'device-plugins');
  await mkdir(dir, { recursive: true, mode: 0o750 });
  // As upstream: whatever an earlier process left there says that this is no new machine.
  const isNew = (await readdir(dir)).length === 0;
  const pool = await DevicePool.open({
    clock,
    log: log.child('devices'),
    numaNodes,
    file: textFile(join(dir, deviceCheckpoint)),
    onHealth: (uids) => uids.forEach((uid) => options.loop().kick(uid)),
    onCapacity: options.kickNode,
    onAllocated: (resource, tookMs) => metrics.allocations.observe({ resource_name: resource }, tookMs / 1000),
  });
  const plugins = new DevicePlugins({
    clock,
    log: log.child('device-plugin'),
    dir,
    pool,
    onRegistered: (resource) => metrics.registrations.add({ resource_name: resource }),
  });
  const grants = new Grants({
    clock,
    log: log.child('grants'),
    runtime: options.cri.runtime,
    timeoutMs: settings.runtimeRequestTimeoutMs,
    pool,
    metrics,
    cpus,
    memory,
    topology: {
      policy,
      scope: config.topologyManagerScope === 'pod' ? 'pod' : 'container',
      preferClosest: topology.options.preferClosest,
      numa: { nodes: numaNodes, distances: new Map(machine.nodes.map(({ node, distances }) => [node, distances])) },
    },
    reconcileMs: durationMs(config.cpuManagerReconcilePeriod),
    tellsHealth: gateEnabled(config.featureGates, 'ResourceHealthStatus'),
    ofPods: podsOwn(config),
    pods: {
      synced: () => options.loop().synced(),
      list: () => options.loop().list(),
      facts: (uid) => options.loop().facts(uid),
      holdsResources: (uid) => options.loop().holdsResources(uid),
    },
  });
  const onlyActive = gateEnabled(config.featureGates, 'KubeletPodResourcesListUseActivePods');
  const podResources: PodResourcesOptions = {
    clock,
    pool,
    metrics,
    dir: join(rootDir, 'pod-resources'),
    pods: () =>
      options
        .loop()
        .list()
        .filter((pod) => !onlyActive || options.loop().holdsResources(keyOf(pod).uid)),
    podByName: (namespace, name) => options.loop().byName(namespace, name),
    cpus: (pod, container) => grants.cpusOf(pod, container),
    memory: (pod, container) => grants.memoryOf(pod, container),
    whole: (uid) => grants.wholeOf(uid),
    allocatableCpus: cpus === null ? [] : allocatableCpus(cpus.rules),
    allocatableMemory: memory === null ? [] : allocatableMemory(memory.state.machine),
    dynamic: options.dynamic,
    sweep: () => grants.sweep(),
  };
  return {
    grants,
    handler: plugins.handler,
    offer: () => ({ ...pool.capacity(), reset: isNew && pool.isFresh }),
    seen: (node) => withHeld(node, pool.held()),
    async run(signal) {
      await plugins.start();
      await using server = await servePodResources(podResources);
      void server;
      const pods = { clock, metrics, dir: join(rootDir, 'pods-api'), pods: () => options.loop().list(), synced: () => options.loop().synced() };
      await using podsServer = gateEnabled(config.featureGates, 'PodsAPI') ? await servePods(pods) : null;
      void podsServer;
      await grants.run(signal);
    },
    [Symbol.asyncDispose]: () => plugins[Symbol.asyncDispose](),
  };
}

function withHeld(node: Node | undefined, held: ReadonlyMap<string, number>): Node | undefined {
  const allocatable = node?.status?.allocatable;
  if (node === undefined || held.size === 0) return node;
  const raised = Object.fromEntries([...held].flatMap(([name, count]) => (valueOf(allocatable?.[name]) < BigInt(count) ? [[name, String(count)]] : [])));
  return { ...node, status: { ...node.status, allocatable: { ...allocatable, ...raised } } };
}

async function openCpus(options: OpenGrantsOptions, machine: MachineTopology): Promise<StaticPart<StaticCpuRules, CpuState> | null> {
  const { config, settings } = options;
  const { cpuManagerPolicy: policy } = config;
  const text = textFile(join(settings.rootDir, cpuFile));
  const saved = await text.read();
  const before = decodeCpuState(saved, policy);
  const specific = parseCpuSet(config.reservedSystemCPUs);
  if (specific === null) throw wrong('reservedSystemCPUs', `unable to parse reserved-cpus list: ${config.reservedSystemCPUs}`);
  const topology = topologyFrom(machine.nodes, machine.usable);
  if (difference(specific, cpusOf(topology.places)).length > 0) {
    throw wrong('reservedSystemCPUs', `reserved-cpus: ${config.reservedSystemCPUs} is not a subset of online-cpus: ${formatCpuSet(cpusOf(topology.places))}`);
  }
  if (policy !== 'static') {
    if (policy !== 'none') throw wrong('cpuManagerPolicy', `unknown policy: "${policy}"`);
    const extra = Object.entries(config.cpuManagerPolicyOptions).map(([name, value]) => `${name}:${value}`);
    if (extra.length > 0) throw wrong('cpuManagerPolicyOptions', `new none policy error: None policy: received unsupported options=map[${extra.join(' ')}]`);
    await new StateFile(text, () => encodeCpuState('none', noCpus), saved).save();
    return null;
  }
  const gate = (name: string): boolean => gateEnabled(config.featureGates, name);
  const read = readCpuOptions(config.cpuManagerPolicyOptions, { alpha: gate('CPUManagerPolicyAlphaOptions'), beta: gate('CPUManagerPolicyBetaOptions') });
  if (!read.ok) throw wrong('cpuManagerPolicyOptions', `new static policy error: ${read.message}`);
  const unfit = cpuOptionsProblem(read.options, topology, config.topologyManagerPolicy);
  if (unfit !== null) throw wrong('cpuManagerPolicyOptions', `new static policy error: ${unfit}`);
  const reserved = reservedMilliCpu(config);
  if (reserved === null) throw wrong('cpuManagerPolicy', '[cpumanager] unable to determine reserved CPU resources for static policy');
  if (reserved === 0n) throw wrong('cpuManagerPolicy', '[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero');
  const made = staticCpuRules(topology, read.options, Math.ceil(Number(reserved) / 1000), specific);
  if (!made.ok) throw wrong('cpuManagerPolicy', `new static policy error: ${made.message}`);
  const rules = { ...made.rules, ofPods: podsOwn(config) };
  const started = startCpuState(rules, before);
  if ('problem' in started) throw stale(cpuFile, started.problem);
  const part: StaticPart<StaticCpuRules, CpuState> = {
    rules,
    state: started.state,
    file: new StateFile(text, () => encodeCpuState('static', part.state, { baselines: gate('InPlacePodVerticalScalingExclusiveCPUs') }), saved),
  };
  await part.file.save();
  return part;
}

/** Without pod-level resources there is nothing that pods could own as a whole. */
function podsOwn({ featureGates }: KubeletConfiguration): boolean {
  return gateEnabled(featureGates, 'PodLevelResourceManagers') && gateEnabled(featureGates, 'PodLevelResources');
}

async function openMemory(options: OpenGrantsOptions, machine: MachineTopology): Promise<StaticPart<null, MemoryState> | null> {
  const { config, settings } = options;
  const { memoryManagerPolicy: policy } = config;
  const text = textFile(join(settings.rootDir, memoryFile));
  const saved = await text.read();
  const before = decodeMemoryState(saved, policy);
  if (policy !== 'Static') {
    if (policy !== 'None')
      throw wrong('memoryManagerPolicy', policy === 'BestEffort' ? 'policy "BestEffort" is not available for platform "linux"' : `unknown policy: "${policy}"`);
    await new StateFile(text, () => encodeMemoryState('None', noMemory), saved).save();
    return null;
  }
  const reserved = reservedByNode(
    machine.nodes.map(({ node }) => node),
    config.reservedMemory,
    reservedMemoryOf(config, options.machine.memoryBytes),
  );
  if (!reserved.ok) throw wrong('reservedMemory', reserved.message);
  const fresh = freshMachine(
    machine.nodes.map(({ node, memoryBytes, hugePages }) => ({
      node,
      memoryBytes,
      hugePages: hugePages.map(({ pageKiB, bytes }) => ({ name: hugePageName(pageKiB), bytes })),
      systemReserved: reserved.byNode.get(node) ?? {},
    })),
  );
  const started = startMemoryState(fresh, before);
  if ('problem' in started) throw stale(memoryFile, started.problem);
  const part: StaticPart<null, MemoryState> = {
    rules: null,
    state: started.state,
    file: new StateFile(text, () => encodeMemoryState('Static', part.state), saved),
  };
  await part.file.save();
  return part;
}

function wrong(field: string, why: string): OpError {
  return new OpError('invalid', `configure ${field}`, why);
}

function stale(file: string, why: string): OpError {
  return new OpError('invalid', `take over ${file}`, why, { advice: `Drain this node and delete ${file} in the root directory before starting again.` });
}
