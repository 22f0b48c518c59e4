import type { Node, NodeCondition, NodeStatus, NodeSystemInfo } from '../../proto/kube/types.ts';
import type { PressureCondition } from './evict-thresholds.ts';
import { withRuntime, type RuntimeAbilities } from './feature-gate-state.ts';
import { isExtendedResource } from './resources/requests.ts';
import { addQuantities, compareQuantities, formatQuantity, parseQuantity, quantityOf, subtractQuantities, type Quantity } from './quantity.ts';

/** What was found out about the machine, once at start. */
export interface MachineFacts {
  /** Lower case, as uname says. */
  readonly hostname: string;
  /** Go's word: amd64, arm64, … */
  readonly architecture: string;
  readonly kernelVersion: string;
  readonly osImage: string;
  readonly machineID: string;
  readonly systemUUID: string;
  readonly bootID: string;
  readonly cpus: number;
  readonly memoryBytes: number;
  readonly swapBytes: number;
  /** Page size name (`2Mi`) to bytes reserved. */
  readonly hugepages: Readonly<Record<string, number>>;
  /** Whether the agent runs in a user namespace; undefined where that cannot be told. */
  readonly inUserNamespace?: boolean;
}

/** Whether a process whose `/proc/self/uid_map` this is runs in a user namespace. A map that is still empty belongs to one. */
export const inUserNamespace = (uidMap: string): boolean => !/^\s*0\s+0\s+4294967295\s*$/.test(uidMap);

/** What the runtime's Status said last. */
export interface RuntimeFacts {
  /** `containerd://1.6.20`; empty until known. */
  readonly version: string;
  readonly handlers: readonly { name: string; features: Readonly<Record<string, boolean>> }[];
  readonly supplementalGroupsPolicy: boolean;
  /** What features to declare depend on. */
  readonly abilities?: RuntimeAbilities;
  /** Upstream's sentences for everything about the runtime and its network that is wrong now. */
  readonly troubles: readonly string[];
}

/** A runtime's version without what does not belong to a version, as upstream parses and prints it; unreadable ones as they are. */
export function versionText(told: string): string {
  const [, numbers, extra = ''] = /^\s*v?(\d+(?:\.\d+)*)(.*)$/.exec(told) ?? [];
  if (numbers === undefined) return told;
  return /^(?:-[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?$/.test(extra.trimEnd()) ? numbers + extra.trimEnd() : numbers;
}

export interface Pressures {
  readonly memory: boolean;
  readonly disk: boolean;
  readonly pid: boolean;
}

export function pressuresOf(conditions: readonly PressureCondition[]): Pressures {
  return { memory: conditions.includes('MemoryPressure'), disk: conditions.includes('DiskPressure'), pid: conditions.includes('PIDPressure') };
}

export interface NodeAddress {
  readonly type: 'InternalIP' | 'ExternalIP' | 'Hostname';
  readonly address: string;
}

export interface NodeFacts {
  readonly machine: MachineFacts;
  readonly runtime: RuntimeFacts;
  readonly pressures: Pressures;
  readonly addresses: readonly NodeAddress[];
  /** Size of the file system the root directory is on; null while unknown. */
  readonly ephemeralBytes: number | null;
  readonly images: readonly { names: readonly string[]; sizeBytes: number }[];
  /** What device plugins offer. `reset`: nothing is known of what was there before, see `resetPatch`. */
  readonly devices?: { readonly capacity: Readonly<Record<string, string>>; readonly allocatable: Readonly<Record<string, string>>; readonly reset: boolean };
  /** Unique names in order; undefined while it is not known. */
  readonly volumesInUse?: readonly string[];
}

export interface NodeSettings {
  readonly nodeName: string;
  readonly kubeletVersion: string;
  /** KubeletInUserNamespace: `nodeInfo` says whether the agent is in one. */
  readonly tellsUserNamespace?: boolean;
  /** 0: no server, no daemonEndpoints. */
  readonly port: number;
  readonly maxPods: number;
  /** 0: no bound by cores. */
  readonly podsPerCore: number;
  readonly kubeReserved: Readonly<Record<string, string>>;
  readonly systemReserved: Readonly<Record<string, string>>;
  /** Hard eviction thresholds: signal to quantity or percentage. */
  readonly evictionHard: Readonly<Record<string, string>>;
  /** `--node-labels`; only for a Node that is created. */
  readonly labels: Readonly<Record<string, string>>;
  /** `registerWithTaints`; only for a Node that is created. */
  readonly taints: readonly { key: string; value?: string; effect: string }[];
  readonly providerID: string;
  /** `--cloud-provider=external`: a controller of the cloud says when the node may be used, and which addresses it has. `--node-ip` is a hint for it. */
  readonly cloud?: { readonly nodeIPs: readonly string[] };
  /** What the API server and the scheduler may count on, sorted. */
  readonly declaredFeatures: readonly string[];
}

/** Labels that are the agent's own: reconciled on a Node that exists. */
export function defaultLabels(settings: NodeSettings, machine: MachineFacts): Record<string, string> {
  return {
    'beta.kubernetes.io/arch': machine.architecture,
    'beta.kubernetes.io/os': 'linux',
    'kubernetes.io/arch': machine.architecture,
    'kubernetes.io/hostname': settings.nodeName,
    'kubernetes.io/os': 'linux',
  };
}

const providedIPsAnnotation = 'alpha.kubernetes.io/provided-node-ip';
/** Taken away by the cloud's controller when it has looked at the node. */
const uninitialized = { key: 'node.cloudprovider.kubernetes.io/uninitialized', value: 'true', effect: 'NoSchedule' };

const attachDetachAnnotation = 'volumes.kubernetes.io/controller-managed-attach-detach';

/** The Node as it is created when the API server has none. */
export function newNode(settings: NodeSettings, facts: NodeFacts, now: string): Node {
  return {
    apiVersion: 'v1',
    kind: 'Node',
    metadata: {
      name: settings.nodeName,
      labels: { ...defaultLabels(settings, facts.machine), ...settings.labels },
      annotations: { [attachDetachAnnotation]: 'true', ...providedIPs(settings) },
    },
    spec: {
      ...(settings.providerID === '' ? {} : { providerID: settings.providerID }),
      ...taintsOf(settings),
    },
    status: nodeStatus(settings, facts, undefined, now),
  };
}

function taintsOf({ taints, cloud }: NodeSettings): Pick<NonNullable<Node['spec']>, 'taints'> {
  const all = [...taints, ...(cloud === undefined ? [] : [uninitialized])];
  return all.length === 0 ? {} : { taints: all.map((taint) => ({ ...taint })) };
}

function providedIPs({ cloud }: NodeSettings): Record<string, string> {
  const given = (cloud?.nodeIPs ?? []).filter((ip) => ip !== '0.0.0.0' && ip !== '::');
  return given.length === 0 ? {} : { [providedIPsAnnotation]: given.join(',') };
}

/** What a cloud's controller has told stands; until then a node that was told none has its name alone. */
function addressesOf({ cloud, nodeName }: NodeSettings, facts: NodeFacts, previous: NodeStatus | undefined): readonly { type: string; address: string }[] {
  if (cloud === undefined) return facts.addresses;
  const told = previous?.addresses ?? [];
  if (told.length > 0) return told;
  return cloud.nodeIPs.length === 0 ? [{ type: 'Hostname', address: nodeName }] : facts.addresses;
}

/** A merge patch of metadata that puts our labels and annotation on an existing Node; null when they are there. */
export function metadataPatch(
  node: Node,
  settings: NodeSettings,
  machine: MachineFacts,
): { metadata: { labels?: Record<string, string>; annotations?: Record<string, string | null> } } | null {
  const labels = differing(node.metadata.labels, defaultLabels(settings, machine));
  const provided = providedIPs(settings);
  const stale = provided[providedIPsAnnotation] === undefined && node.metadata.annotations?.[providedIPsAnnotation] !== undefined;
  const missing = differing(node.metadata.annotations, { [attachDetachAnnotation]: 'true', ...provided });
  const annotations = stale ? { ...missing, [providedIPsAnnotation]: null } : missing;
  if (labels === null && annotations === null) return null;
  return { metadata: { ...(labels === null ? {} : { labels }), ...(annotations === null ? {} : { annotations }) } };
}

/** The labels that pods are placed by, as somebody has changed them on a running node, put right; null when they are right. */
export function strayedLabels(node: Node, machine: MachineFacts): Record<string, string> | null {
  return differing(node.metadata.labels, { 'kubernetes.io/arch': machine.architecture, 'kubernetes.io/os': 'linux' });
}

function differing(have: Record<string, string> | undefined, want: Record<string, string>): Record<string, string> | null {
  const changed = Object.entries(want).filter(([key, value]) => have?.[key] !== value);
  return changed.length === 0 ? null : Object.fromEntries(changed);
}

/** The whole status. What is not ours (extended resources, foreign conditions, attached volumes) comes over from `previous`. */
export function nodeStatus(settings: NodeSettings, facts: NodeFacts, previous: NodeStatus | undefined, now: string): NodeStatus {
  const own = capacityOf(settings, facts);
  const foreign = foreignResources(previous?.capacity, own);
  const capacity = { ...foreign, ...own, ...facts.devices?.capacity };
  // What somebody else has put into the capacity can be had in full.
  const allocatable = { ...foreign, ...allocatableOf(settings, own), ...facts.devices?.allocatable };
  return {
    ...(previous?.volumesAttached === undefined ? {} : { volumesAttached: previous.volumesAttached }),
    ...inUse(facts.volumesInUse ?? previous?.volumesInUse ?? []),
    capacity,
    allocatable,
    conditions: conditions(facts, previous?.conditions ?? [], now),
    addresses: addressesOf(settings, facts, previous).map((address) => ({ ...address })),
    daemonEndpoints: { kubeletEndpoint: { Port: settings.port } },
    nodeInfo: systemInfo(settings, facts),
    ...(facts.images.length === 0 ? {} : { images: facts.images.map(({ names, sizeBytes }) => ({ names: [...names], sizeBytes })) }),
    ...(facts.runtime.handlers.length === 0
      ? {}
      : { runtimeHandlers: facts.runtime.handlers.map(({ name, features }) => ({ name, features: { ...features } })) }),
    ...(facts.runtime.supplementalGroupsPolicy ? { features: { supplementalGroupsPolicy: true } } : {}),
    ...declared(settings.declaredFeatures, facts.runtime),
  };
}

function declared(features: readonly string[], { abilities = {} }: RuntimeFacts): Pick<NodeStatus, 'declaredFeatures'> {
  const declaredFeatures = withRuntime(features, abilities);
  return declaredFeatures.length === 0 ? {} : { declaredFeatures };
}

function inUse(names: readonly string[]): Pick<NodeStatus, 'volumesInUse'> {
  return names.length === 0 ? {} : { volumesInUse: [...names] };
}

function systemInfo(settings: NodeSettings, { machine, runtime }: NodeFacts): NodeSystemInfo {
  return {
    machineID: machine.machineID,
    systemUUID: machine.systemUUID,
    bootID: machine.bootID,
    kernelVersion: machine.kernelVersion,
    osImage: machine.osImage,
    containerRuntimeVersion: runtime.version,
    kubeletVersion: settings.kubeletVersion,
    kubeProxyVersion: '',
    operatingSystem: 'linux',
    architecture: machine.architecture,
    ...(machine.swapBytes === 0 ? {} : { swap: { capacity: machine.swapBytes } }),
    ...(settings.tellsUserNamespace !== true || machine.inUserNamespace === undefined ? {} : { runningInUserNamespace: machine.inUserNamespace }),
  };
}

function foreignResources(have: Record<string, string> | undefined, own: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(have ?? {}).filter(([resource]) => !(resource in own) && !resource.startsWith('hugepages-')));
}

/**
 * A patch that sets the extended resources of a Node that was there before to 0, for a node that knows of no plugin:
 * what it had belongs to another life of the machine. Null when there are none.
 */
export function resetPatch(node: Node): { status: { capacity: Record<string, string>; allocatable: Record<string, string> } } | null {
  const names = Object.entries(node.status?.capacity ?? {}).flatMap(([name, amount]) => (isExtendedResource(name) && amount !== '0' ? [name] : []));
  const zeros = Object.fromEntries(names.map((name) => [name, '0']));
  return names.length === 0 ? null : { status: { capacity: zeros, allocatable: zeros } };
}

function capacityOf(settings: NodeSettings, { machine, ephemeralBytes }: NodeFacts): Record<string, string> {
  const perCore = settings.podsPerCore > 0 ? Math.min(settings.maxPods, settings.podsPerCore * machine.cpus) : settings.maxPods;
  const capacity: Record<string, string> = { cpu: String(machine.cpus) };
  if (ephemeralBytes !== null) capacity['ephemeral-storage'] = bytesText(ephemeralBytes);
  for (const [size, bytes] of Object.entries(machine.hugepages)) capacity[`hugepages-${size}`] = bytesText(bytes);
  capacity['memory'] = bytesText(machine.memoryBytes);
  capacity['pods'] = String(perCore);
  return capacity;
}

const bytesText = (bytes: number): string => formatQuantity(quantityOf(BigInt(Math.trunc(bytes)), 'BinarySI'));

/** capacity − kube and system reserved − hard eviction thresholds, huge pages off memory; never below zero. */
function allocatableOf(settings: NodeSettings, capacity: Record<string, string>): Record<string, string> {
  const zero = quantityOf(0);
  const out: Record<string, string> = {};
  for (const [resource, text] of Object.entries(capacity)) {
    const whole = parseQuantity(text);
    let reserved = [settings.kubeReserved[resource], settings.systemReserved[resource]].reduce(
      (sum, each) => (each === undefined ? sum : addQuantities(sum, parseQuantity(each))),
      zero,
    );
    const signal = evictionSignalOf[resource];
    const threshold = signal === undefined ? undefined : settings.evictionHard[signal];
    if (threshold !== undefined) reserved = addQuantities(reserved, shareOf(threshold, whole));
    if (resource === 'memory') reserved = hugepageTotal(capacity, reserved);
    const left = subtractQuantities(whole, reserved);
    out[resource] = formatQuantity(compareQuantities(left, zero) < 0 ? { ...zero, format: whole.format } : { ...left, format: whole.format });
  }
  return out;
}

const evictionSignalOf: Readonly<Record<string, string>> = { memory: 'memory.available', 'ephemeral-storage': 'nodefs.available' };

function hugepageTotal(capacity: Record<string, string>, start: Quantity): Quantity {
  return Object.entries(capacity).reduce((sum, [resource, text]) => (resource.startsWith('hugepages-') ? addQuantities(sum, parseQuantity(text)) : sum), start);
}

/** A threshold as a quantity: `10%` is of the whole, rounded down to bytes. */
export function shareOf(threshold: string, whole: Quantity): Quantity {
  const percent = /^([\d.]+)%$/.exec(threshold);
  if (percent === null) return parseQuantity(threshold);
  const parts = BigInt(Math.round(Number(percent[1]) * 1_000_000));
  const units = (whole.nano * parts) / (100_000_000n * 1_000_000_000n);
  return quantityOf(units, whole.format);
}

/** The same conditions, with the times moved: transition only where the status changed, heartbeat always. */
function conditions(facts: NodeFacts, previous: readonly NodeCondition[], now: string): NodeCondition[] {
  const { memory, disk, pid } = facts.pressures;
  const wanted: Omit<NodeCondition, 'lastHeartbeatTime' | 'lastTransitionTime'>[] = [
    memory
      ? { type: 'MemoryPressure', status: 'True', reason: 'KubeletHasInsufficientMemory', message: 'kubelet has insufficient memory available' }
      : { type: 'MemoryPressure', status: 'False', reason: 'KubeletHasSufficientMemory', message: 'kubelet has sufficient memory available' },
    disk
      ? { type: 'DiskPressure', status: 'True', reason: 'KubeletHasDiskPressure', message: 'kubelet has disk pressure' }
      : { type: 'DiskPressure', status: 'False', reason: 'KubeletHasNoDiskPressure', message: 'kubelet has no disk pressure' },
    pid
      ? { type: 'PIDPressure', status: 'True', reason: 'KubeletHasInsufficientPID', message: 'kubelet has insufficient PID available' }
      : { type: 'PIDPressure', status: 'False', reason: 'KubeletHasSufficientPID', message: 'kubelet has sufficient PID available' },
    ready(facts),
  ];
  const own = wanted.map((condition) => {
    const before = previous.find(({ type }) => type === condition.type);
    const transition = before?.status === condition.status ? (before.lastTransitionTime ?? now) : now;
    return { ...condition, lastHeartbeatTime: now, lastTransitionTime: transition };
  });
  const foreign = previous.filter(({ type }) => !wanted.some((condition) => condition.type === type));
  return [...foreign, ...own];
}

function ready(facts: NodeFacts): Omit<NodeCondition, 'lastHeartbeatTime' | 'lastTransitionTime'> {
  const { troubles } = facts.runtime;
  if (troubles.length === 0) return { type: 'Ready', status: 'True', reason: 'KubeletReady', message: 'kubelet is posting ready status' };
  return { type: 'Ready', status: 'False', reason: 'KubeletNotReady', message: aggregate(troubles) };
}

/** Several errors in one message, each once, as apimachinery's Aggregate prints them. */
export function aggregate(messages: readonly string[]): string {
  const unique = [...new Set(messages)];
  return unique.length === 1 ? (unique[0] ?? '') : `[${unique.join(', ')}]`;
}

export interface NodeEvent {
  readonly type: 'Normal' | 'Warning';
  readonly reason: string;
  readonly message: string;
}

/** The Events that upstream tells about a change of conditions or of the boot. */
export function nodeEvents(nodeName: string, previous: NodeStatus | undefined, next: NodeStatus): NodeEvent[] {
  const events: NodeEvent[] = [];
  for (const condition of next.conditions ?? []) {
    const words = eventWords[condition.type];
    const before = previous?.conditions?.find(({ type }) => type === condition.type);
    if (words === undefined || before?.status === condition.status) continue;
    // A node that never was ready tells nothing until it is.
    if (before === undefined && condition.type === 'Ready' && condition.status !== 'True') continue;
    const reason = condition.status === 'True' ? words.whenTrue : words.whenFalse;
    events.push({ type: 'Normal', reason, message: `Node ${nodeName} status is now: ${reason}` });
  }
  const bootID = next.nodeInfo?.bootID ?? '';
  const oldBootID = previous?.nodeInfo?.bootID ?? '';
  if (oldBootID !== '' && oldBootID !== bootID) {
    events.push({ type: 'Warning', reason: 'Rebooted', message: `Node ${nodeName} has been rebooted, boot id: ${bootID}` });
  }
  return events;
}

const eventWords: Readonly<Record<string, { whenTrue: string; whenFalse: string }>> = {
  MemoryPressure: { whenTrue: 'NodeHasInsufficientMemory', whenFalse: 'NodeHasSufficientMemory' },
  DiskPressure: { whenTrue: 'NodeHasDiskPressure', whenFalse: 'NodeHasNoDiskPressure' },
  PIDPressure: { whenTrue: 'NodeHasInsufficientPID', whenFalse: 'NodeHasSufficientPID' },
  Ready: { whenTrue: 'NodeReady', whenFalse: 'NodeNotReady' },
};

/** Whether anything but heartbeat times differs. */
export function statusDiffers(left: NodeStatus | undefined, right: NodeStatus): boolean {
  return left === undefined || JSON.stringify(sorted(withoutHeartbeats(left))) !== JSON.stringify(sorted(withoutHeartbeats(right)));
}

function withoutHeartbeats(status: NodeStatus): NodeStatus {
  const own = (status.conditions ?? []).map((condition): NodeCondition => ({ ...condition, lastHeartbeatTime: undefined }));
  return { ...status, conditions: own.toSorted((a, b) => (a.type < b.type ? -1 : 1)) };
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== 'object') return value;
  const entries = Object.entries(value).filter(([, each]) => each !== undefined);
  return Object.fromEntries(entries.toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([key, each]) => [key, sorted(each)]));
}

/**
 * A strategic-merge patch of the status from what the API holds to `next`: changed conditions by type, maps by key,
 * addresses as a whole (their merge key is not unique).
 */
export function statusPatch(previous: NodeStatus | undefined, next: NodeStatus): { status: Record<string, unknown> } {
  const before = (previous ?? {}) as Record<string, unknown>;
  const status: Record<string, unknown> = {};
  for (const [field, value] of Object.entries(next)) {
    if (same(before[field], value)) continue;
    if (field === 'conditions') {
      const old = (previous?.conditions ?? []).map((condition) => JSON.stringify(sorted(condition)));
      status[field] = (value as NodeCondition[]).filter((condition) => !old.includes(JSON.stringify(sorted(condition))));
    } else if (field === 'addresses') status[field] = [...(value as NodeAddress[]), { $patch: 'replace' }];
    else if (field === 'capacity' || field === 'allocatable' || field === 'nodeInfo') status[field] = mapPatch(before[field], value);
    else status[field] = value;
  }
  for (const field of ['runtimeHandlers', 'images', 'features', 'declaredFeatures', 'volumesInUse']) {
    if (before[field] !== undefined && !(field in next)) status[field] = null;
  }
  return { status };
}

const same = (left: unknown, right: unknown): boolean => JSON.stringify(sorted(left)) === JSON.stringify(sorted(right));

function mapPatch(before: unknown, after: unknown): Record<string, unknown> {
  const old = (before ?? {}) as Record<string, unknown>;
  const next = after as Record<string, unknown>;
  const patch: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(next)) if (!same(old[key], value)) patch[key] = value;
  for (const key of Object.keys(old)) if (!(key in next)) patch[key] = null;
  return patch;
}
