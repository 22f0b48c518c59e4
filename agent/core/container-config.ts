import type {
  ContainerConfig,
  LinuxContainerResourcesInput,
  LinuxPodSandboxConfig,
  MountInput,
  NamespaceOptionInput,
  PodSandboxConfig,
  PortMapping,
  Protocol,
  Signal,
  UserNamespaceInput,
} from '../../proto/cri/types.ts';
import type { Container, Pod } from '../../proto/kube/types.ts';
import { defaultSysctlsOf } from './admit-sysctls.ts';
import type { ConfigContext } from './config-context.ts';
import { keyOf } from './containers.ts';
import { claimedByContainer } from './dra/node-allocatable.ts';
import { expandAll } from './env.ts';
import type { EnvPair } from './env.ts';
import { containerHash } from './hash.ts';
import { hugePageLimits } from './huge-pages.ts';
import { containerMemoryQos } from './memory-qos.ts';
import { hasPodLevelResources, memoryOf, milliCpuOf, oomScoreAdj, podLimits, podRequests } from './qos.ts';
import type { ResourceLists } from './qos.ts';
import { milliValueOf, valueOf } from './quantity.ts';
import type { Quantity } from './quantity.ts';
import { containerSecurity, namespacesOf } from './security.ts';
import type { ImageUser } from './security.ts';
import { swapBytes } from './swap.ts';
import { utf8Bytes } from '../../base/utf8.ts';

export interface SandboxInput {
  readonly pod: Pod;
  readonly attempt: number;
  readonly cgroupParent: string;
  readonly hostname: string;
  readonly dns: { readonly servers: readonly string[]; readonly searches: readonly string[]; readonly options: readonly string[] } | null;
  /** Absent: the machine's own. */
  readonly userNamespace?: UserNamespaceInput;
}

/** `<podLogsDir>/<namespace>_<name>_<uid>`. */
export function podLogDir(context: Pick<ConfigContext, 'podLogsDir'>, pod: Pod): string {
  const { namespace, name, uid } = keyOf(pod);
  return `${context.podLogsDir}/${namespace}_${name}_${uid}`;
}

/** Where one run of a container logs, below the pod's directory. */
export function logPathOf(name: string, attempt: number): string {
  return `${name}/${attempt}.log`;
}

export function sandboxConfig(context: ConfigContext, input: SandboxInput): PodSandboxConfig {
  const { pod, attempt, dns } = input;
  const { uid, namespace, name } = keyOf(pod);
  const ports = portMappings(pod);
  return {
    metadata: { name, namespace, uid, attempt },
    ...(pod.spec.hostNetwork === true ? {} : { hostname: input.hostname }),
    logDirectory: podLogDir(context, pod),
    ...(dns === null ? {} : { dnsConfig: { servers: [...dns.servers], searches: [...dns.searches], options: [...dns.options] } }),
    ...(ports.length === 0 ? {} : { portMappings: ports }),
    labels: { ...pod.metadata.labels, 'io.kubernetes.pod.name': name, 'io.kubernetes.pod.namespace': namespace, 'io.kubernetes.pod.uid': uid },
    annotations: { ...pod.metadata.annotations },
    linux: linuxSandbox(context, input),
  };
}

function linuxSandbox(context: ConfigContext, input: SandboxInput): LinuxPodSandboxConfig {
  const { pod } = input;
  const security = pod.spec.securityContext;
  const containers = [...pod.spec.containers, ...(pod.spec.initContainers ?? [])];
  const sysctls = defaultSysctlsOf(pod, context.defaultPodSysctls ?? {});
  // The runtime separates with dots only.
  for (const sysctl of security?.sysctls ?? []) sysctls[dotted(sysctl.name)] = sysctl.value;
  const groups = [...(security?.fsGroup === undefined ? [] : [security.fsGroup]), ...(security?.supplementalGroups ?? [])];
  const plain = { ...pod, spec: { ...pod.spec, overhead: {} } };
  const [requests, limits] = [podRequests(plain), podLimits(plain)];
  const overhead = pod.spec.overhead;
  return {
    cgroupParent: input.cgroupParent,
    sysctls,
    securityContext: {
      privileged: containers.some((container) => container.securityContext?.privileged === true),
      seccomp: { profileType: 'RuntimeDefault' },
      namespaceOptions: { ...namespacesOf(pod), ...(input.userNamespace === undefined ? {} : { usernsOptions: input.userNamespace }) },
      ...(security?.runAsUser === undefined ? {} : { runAsUser: { value: security.runAsUser } }),
      ...(security?.runAsGroup === undefined ? {} : { runAsGroup: { value: security.runAsGroup } }),
      ...(groups.length === 0 ? {} : { supplementalGroups: groups }),
      ...(security?.supplementalGroupsPolicy === 'Strict' ? { supplementalGroupsPolicy: 'Strict' as const } : {}),
      ...(security?.seLinuxOptions === undefined ? {} : { selinuxOptions: security.seLinuxOptions }),
    },
    resources: linuxResources(context, requests.has('cpu') ? milliCpuOf(requests) : null, milliCpuOf(limits), memoryOf(limits)),
    overhead: overhead === undefined ? {} : linuxResources(context, milliValueOf(overhead['cpu']), milliValueOf(overhead['cpu']), valueOf(overhead['memory'])),
  };
}

function dotted(name: string): string {
  const firstSlash = name.indexOf('/');
  const firstDot = name.indexOf('.');
  if (firstSlash < 0 || (firstDot >= 0 && firstDot < firstSlash)) return name;
  return name.replaceAll(/[./]/g, (separator) => (separator === '/' ? '.' : '/'));
}

/** By name, or by all that a port without one is: what a container has twice is passed on once. */
function portKey({ name = '', hostIP = '', protocol = 'TCP', containerPort, hostPort = 0 }: NonNullable<Container['ports']>[number]): string {
  return name === '' ? `${protocol}-${hostIP}:${containerPort}:${hostPort}` : name;
}

function portMappings(pod: Pod): PortMapping[] {
  return pod.spec.containers.flatMap((container) =>
    [...new Map((container.ports ?? []).toReversed().map((port) => [portKey(port), port])).values()].toReversed().map((port) => ({
      protocol: (port.protocol ?? 'TCP') as Protocol,
      containerPort: port.containerPort,
      hostPort: port.hostPort ?? 0,
      ...(port.hostIP === undefined ? {} : { hostIp: port.hostIP }),
    })),
  );
}

export interface ContainerInput {
  readonly pod: Pod;
  readonly container: Container;
  readonly attempt: number;
  /** What the image was resolved to. */
  readonly imageRef: string;
  readonly imageUser: ImageUser;
  readonly env: readonly EnvPair[];
  readonly mounts: readonly MountInput[];
  readonly devices: readonly { readonly hostPath: string; readonly containerPath: string; readonly permissions: string }[];
  /** Names of devices that claims give it. */
  readonly cdiDevices: readonly string[];
  /** Absent: the machine's own. */
  readonly userNamespace?: UserNamespaceInput;
  /** Ephemeral containers: whose processes are to be seen. */
  readonly targetId: string | null;
}

export function containerConfig(context: ConfigContext, input: ContainerInput): ContainerConfig {
  const { pod, container, attempt, env } = input;
  const { uid, namespace, name } = keyOf(pod);
  const stopSignal = container.lifecycle?.stopSignal;
  return {
    metadata: { name: container.name, attempt },
    image: { image: input.imageRef, userSpecifiedImage: container.image ?? '' },
    command: expandAll(container.command, env),
    args: expandAll(container.args, env),
    workingDir: container.workingDir ?? '',
    envs: env.map((pair) => ({ key: pair.name, value: utf8Bytes(pair.value) })),
    mounts: input.mounts.map((mount) => ({ ...mount, ...mappedIds(input.userNamespace) })),
    ...(input.cdiDevices.length === 0 ? {} : { CDIDevices: input.cdiDevices.map((device) => ({ name: device })) }),
    ...(input.devices.length === 0 ? {} : { devices: input.devices.map((device) => ({ ...device })) }),
    labels: {
      'io.kubernetes.container.name': container.name,
      'io.kubernetes.pod.name': name,
      'io.kubernetes.pod.namespace': namespace,
      'io.kubernetes.pod.uid': uid,
    },
    annotations: containerAnnotations(pod, container, attempt),
    logPath: logPathOf(container.name, attempt),
    stdin: container.stdin ?? false,
    stdinOnce: container.stdinOnce ?? false,
    tty: container.tty ?? false,
    linux: {
      resources: containerResources(context, pod, container),
      securityContext: withUsers(containerSecurity(context, pod, container, input.imageUser, input.targetId), input.userNamespace),
    },
    ...(stopSignal === undefined ? {} : { stopSignal: signalOf(stopSignal) }),
  };
}

/** What lies on the machine under an ID is seen in the pod under the same: the runtime mounts it with mapped IDs. */
function mappedIds(users: UserNamespaceInput | undefined): Pick<MountInput, 'uidMappings' | 'gidMappings'> {
  return users?.mode === 'POD' ? { uidMappings: users.uids, gidMappings: users.gids } : {};
}

function withUsers<T extends { namespaceOptions?: NamespaceOptionInput | null }>(security: T, users: UserNamespaceInput | undefined): T {
  return users === undefined ? security : { ...security, namespaceOptions: { ...security.namespaceOptions, usernsOptions: users } };
}

/** What another kubelet needs to take the container over: restart count, hash, how to stop it, where its last words are. */
export function containerAnnotations(pod: Pod, container: Container, attempt: number): Record<string, string> {
  const prefix = 'io.kubernetes.container.';
  const preStop = container.lifecycle?.preStop;
  const ports = container.ports ?? [];
  return {
    [`${prefix}hash`]: containerHash(container),
    [`${prefix}restartCount`]: String(attempt),
    [`${prefix}terminationMessagePath`]: container.terminationMessagePath ?? '',
    [`${prefix}terminationMessagePolicy`]: container.terminationMessagePolicy ?? '',
    ...(pod.metadata.deletionGracePeriodSeconds === undefined
      ? {}
      : { 'io.kubernetes.pod.deletionGracePeriod': String(pod.metadata.deletionGracePeriodSeconds) }),
    ...(pod.spec.terminationGracePeriodSeconds === undefined
      ? {}
      : { 'io.kubernetes.pod.terminationGracePeriod': String(pod.spec.terminationGracePeriodSeconds) }),
    ...(preStop === undefined ? {} : { [`${prefix}preStopHandler`]: JSON.stringify(preStop) }),
    ...(ports.length === 0 ? {} : { [`${prefix}ports`]: JSON.stringify(ports.map(orderedPort)) }),
  };
}

/** In the order in which the API's own types are written out, so that the text is the same whoever writes it. */
function orderedPort(port: NonNullable<Container['ports']>[number]): Record<string, unknown> {
  const { name, hostPort, containerPort, protocol, hostIP } = port;
  return {
    ...(name === undefined ? {} : { name }),
    ...(hostPort === undefined ? {} : { hostPort }),
    containerPort,
    ...(protocol === undefined ? {} : { protocol }),
    ...(hostIP === undefined ? {} : { hostIP }),
  };
}

export function containerResources(context: ConfigContext, pod: Pod, container: Container): LinuxContainerResourcesInput {
  const own = container.resources;
  const ofPod = hasPodLevelResources(pod) ? pod.spec.resources?.limits : undefined;
  const claimed = claimedByContainer(pod.status?.nodeAllocatableResourceClaimStatuses ?? [], container.name);
  const [ownCpu, ownMemory] = [milliValueOf(own?.limits?.['cpu']), valueOf(own?.limits?.['memory'])];
  const cpuWanted = ownCpu || milliValueOf(ofPod?.['cpu']);
  const cpuLimit = ownCpu > 0n ? ownCpu + milliCpuOf(claimed) : cpuWanted;
  const memoryLimit = ownMemory > 0n ? ownMemory + memoryOf(claimed) : valueOf(ofPod?.['memory']);
  const cpuRequest = own?.requests?.['cpu'] === undefined ? cpuWanted : milliValueOf(own.requests['cpu']);
  const resources = linuxResources(context, cpuRequest, cpuLimit, memoryLimit);
  const swap = context.swapControllerAvailable ? swapLimit(context, pod, container, memoryLimit) : {};
  const sizes = hugePageLimits(context.hugePageSizes, ofPod, withClaimed(own?.limits, ofPod, claimed));
  return {
    ...resources,
    ...swap,
    oomScoreAdj: Math.max(oomScoreAdj(pod, container, context.memoryCapacityBytes), context.leastOomScoreAdj ?? -1000),
    hugepageLimits: [...sizes].map(([pageSize, bytes]) => ({ pageSize, limit: String(bytes) })),
    ...(context.cgroupVersion === 2
      ? { unified: { ...resources.unified, ...('unified' in swap ? swap.unified : {}), ...containerMemoryQos(pod, own, context.memoryQos, memoryOf(claimed)) } }
      : {}),
  };
}

/** Huge pages by claims add to what the container is limited to; where it is not, the pod's own limit stands before them. */
function withClaimed(own: ResourceLists['limits'], ofPod: ResourceLists['limits'], claimed: ReadonlyMap<string, Quantity>): ResourceLists['limits'] {
  const added = [...claimed].filter(([name]) => name.startsWith('hugepages-') && (own?.[name] !== undefined || ofPod?.[name] === undefined));
  return { ...own, ...Object.fromEntries(added.map(([name, { nano }]) => [name, `${nano + valueOf(own?.[name]) * 1_000_000_000n}n`])) };
}

function swapLimit(context: ConfigContext, pod: Pod, container: Container, memoryLimit: bigint): LinuxContainerResourcesInput {
  if (context.cgroupVersion === 2) return { unified: { 'memory.swap.max': String(swapBytes(context, pod, container)) } };
  return memoryLimit > 0n ? { memorySwapLimitInBytes: String(memoryLimit) } : {};
}

/** CPU in thousandths, memory in bytes, 0 is "no limit"; without a request the limit stands in for it. */
export function linuxResources(context: ConfigContext, cpuRequest: bigint | null, cpuLimit: bigint, memoryLimit: bigint): LinuxContainerResourcesInput {
  const period = context.cpuCFSQuotaPeriodUs;
  const resources: LinuxContainerResourcesInput = { cpuShares: String(sharesOf(cpuRequest ?? cpuLimit)) };
  if (memoryLimit > 0n) resources.memoryLimitInBytes = String(memoryLimit);
  if (context.cpuCFSQuota) {
    resources.cpuQuota = String(quotaOf(cpuLimit, BigInt(period)));
    resources.cpuPeriod = String(period);
  }
  // Unset means false here: over its limit a container ends as a whole. Version 1 knows no such thing.
  if (context.cgroupVersion === 2 && context.singleProcessOOMKill !== true) resources.unified = { 'memory.oom.group': '1' };
  return resources;
}

/** cpu.shares between 2 and 262144. */
export function sharesOf(milli: bigint): bigint {
  const shares = (milli * 1024n) / 1000n;
  return shares < 2n ? 2n : shares > 262_144n ? 262_144n : shares;
}

/** cpu.cfs_quota_us of at least 1 ms; 0 is "no limit". */
export function quotaOf(milli: bigint, periodUs: bigint): bigint {
  if (milli === 0n) return 0n;
  const quota = (milli * periodUs) / 1000n;
  return quota < 1000n ? 1000n : quota;
}

/** The other way round; null where a runtime says nothing of it. */
export function signalName(signal: string): string | null {
  const name = /^SIGNAL_(SIG\w+)$/.exec(signal)?.[1];
  return name === undefined ? null : name.replace('PLUS', '+').replace('MINUS', '-');
}

/** `SIGRTMIN+1` is SIGNAL_SIGRTMINPLUS1 in the runtime's language. */
export function signalOf(name: string): Signal {
  return `SIGNAL_${name.replace('+', 'PLUS').replace('-', 'MINUS')}` as Signal;
}
