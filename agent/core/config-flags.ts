import { tryDurationMs } from '../../base/duration.ts';
import { isLabelValue, isQualifiedName } from './labels.ts';

/** The kubelet's flags: which field of the configuration each sets, or that it is one of the program's own. */

export type FlagKind = 'bool' | 'int' | 'duration' | 'text' | 'list' | 'map' | 'boolMap' | 'taints' | 'headers' | 'reservations';

/** `own` flags are no part of the configuration; `ignored` ones are accepted so that existing units start. */
export interface Flag {
  readonly kind: FlagKind;
  readonly field: string | null;
  readonly ignored?: true;
}

const to = (kind: FlagKind, field: string): Flag => ({ kind, field });
const own = (kind: FlagKind): Flag => ({ kind, field: null });
const ignored = (kind: FlagKind): Flag => ({ kind, field: null, ignored: true });

export const flags: Readonly<Record<string, Flag>> = {
  address: to('text', 'address'),
  'allowed-unsafe-sysctls': to('list', 'allowedUnsafeSysctls'),
  'anonymous-auth': to('bool', 'authentication.anonymous.enabled'),
  'authentication-token-webhook': to('bool', 'authentication.webhook.enabled'),
  'authentication-token-webhook-cache-ttl': to('text', 'authentication.webhook.cacheTTL'),
  'authorization-mode': to('text', 'authorization.mode'),
  'authorization-webhook-cache-authorized-ttl': to('text', 'authorization.webhook.cacheAuthorizedTTL'),
  'authorization-webhook-cache-unauthorized-ttl': to('text', 'authorization.webhook.cacheUnauthorizedTTL'),
  'bootstrap-kubeconfig': own('text'),
  'cert-dir': own('text'),
  'cgroup-driver': to('text', 'cgroupDriver'),
  'cgroup-root': to('text', 'cgroupRoot'),
  'cgroups-per-qos': to('bool', 'cgroupsPerQOS'),
  'client-ca-file': to('text', 'authentication.x509.clientCAFile'),
  'cloud-provider': own('text'),
  'cluster-dns': to('list', 'clusterDNS'),
  'cluster-domain': to('text', 'clusterDomain'),
  config: own('text'),
  'config-dir': own('text'),
  'container-log-max-files': to('int', 'containerLogMaxFiles'),
  'container-log-max-size': to('text', 'containerLogMaxSize'),
  'container-runtime-endpoint': to('text', 'containerRuntimeEndpoint'),
  'contention-profiling': to('bool', 'enableContentionProfiling'),
  'cpu-cfs-quota': to('bool', 'cpuCFSQuota'),
  'cpu-cfs-quota-period': to('text', 'cpuCFSQuotaPeriod'),
  'cpu-manager-policy': to('text', 'cpuManagerPolicy'),
  'cpu-manager-policy-options': to('map', 'cpuManagerPolicyOptions'),
  'cpu-manager-reconcile-period': to('text', 'cpuManagerReconcilePeriod'),
  'enable-controller-attach-detach': to('bool', 'enableControllerAttachDetach'),
  'enable-debugging-handlers': to('bool', 'enableDebuggingHandlers'),
  'enable-server': to('bool', 'enableServer'),
  'enforce-node-allocatable': to('list', 'enforceNodeAllocatable'),
  'event-burst': to('int', 'eventBurst'),
  'event-qps': to('int', 'eventRecordQPS'),
  'eviction-hard': to('map', 'evictionHard'),
  'eviction-max-pod-grace-period': to('int', 'evictionMaxPodGracePeriod'),
  'eviction-minimum-reclaim': to('map', 'evictionMinimumReclaim'),
  'eviction-pressure-transition-period': to('text', 'evictionPressureTransitionPeriod'),
  'eviction-soft': to('map', 'evictionSoft'),
  'eviction-soft-grace-period': to('map', 'evictionSoftGracePeriod'),
  'exit-on-lock-contention': own('bool'),
  'experimental-allocatable-ignore-eviction': own('bool'),
  'experimental-mounter-path': ignored('text'),
  'fail-cgroupv1': to('bool', 'failCgroupV1'),
  'fail-swap-on': to('bool', 'failSwapOn'),
  'feature-gates': to('boolMap', 'featureGates'),
  'file-check-frequency': to('text', 'fileCheckFrequency'),
  'hairpin-mode': to('text', 'hairpinMode'),
  'healthz-bind-address': to('text', 'healthzBindAddress'),
  'healthz-port': to('int', 'healthzPort'),
  'hostname-override': own('text'),
  'housekeeping-interval': ignored('text'),
  'http-check-frequency': to('text', 'httpCheckFrequency'),
  'image-credential-provider-bin-dir': own('text'),
  'image-credential-provider-config': own('text'),
  'image-gc-high-threshold': to('int', 'imageGCHighThresholdPercent'),
  'image-gc-low-threshold': to('int', 'imageGCLowThresholdPercent'),
  'image-service-endpoint': to('text', 'imageServiceEndpoint'),
  'kernel-memcg-notification': to('bool', 'kernelMemcgNotification'),
  'kube-api-burst': to('int', 'kubeAPIBurst'),
  'kube-api-content-type': to('text', 'contentType'),
  'kube-api-qps': to('int', 'kubeAPIQPS'),
  'kube-reserved': to('map', 'kubeReserved'),
  'kube-reserved-cgroup': to('text', 'kubeReservedCgroup'),
  kubeconfig: own('text'),
  'kubelet-cgroups': to('text', 'kubeletCgroups'),
  'local-storage-capacity-isolation': to('bool', 'localStorageCapacityIsolation'),
  'lock-file': own('text'),
  'log-flush-frequency': ignored('text'),
  'log-json-info-buffer-size': ignored('text'),
  'log-json-split-stream': ignored('bool'),
  'log-text-info-buffer-size': ignored('text'),
  'log-text-split-stream': ignored('bool'),
  'logging-format': to('text', 'logging.format'),
  'make-iptables-util-chains': to('bool', 'makeIPTablesUtilChains'),
  'manifest-url': to('text', 'staticPodURL'),
  'manifest-url-header': to('headers', 'staticPodURLHeader'),
  'max-open-files': to('int', 'maxOpenFiles'),
  'max-pods': to('int', 'maxPods'),
  'maximum-dead-containers': own('int'),
  'maximum-dead-containers-per-container': own('int'),
  'memory-manager-policy': to('text', 'memoryManagerPolicy'),
  'minimum-container-ttl-duration': own('duration'),
  'minimum-image-ttl-duration': to('text', 'imageMinimumGCAge'),
  'node-ip': own('list'),
  'node-labels': own('map'),
  'node-status-max-images': to('int', 'nodeStatusMaxImages'),
  'node-status-update-frequency': to('text', 'nodeStatusUpdateFrequency'),
  'oom-score-adj': to('int', 'oomScoreAdj'),
  'pod-cidr': to('text', 'podCIDR'),
  'pod-manifest-path': to('text', 'staticPodPath'),
  'pod-max-pids': to('int', 'podPidsLimit'),
  'pods-per-core': to('int', 'podsPerCore'),
  port: to('int', 'port'),
  'protect-kernel-defaults': to('bool', 'protectKernelDefaults'),
  'provider-id': to('text', 'providerID'),
  'qos-reserved': to('map', 'qosReserved'),
  'read-only-port': to('int', 'readOnlyPort'),
  'register-node': to('bool', 'registerNode'),
  'register-with-taints': to('taints', 'registerWithTaints'),
  'registry-burst': to('int', 'registryBurst'),
  'registry-qps': to('int', 'registryPullQPS'),
  'reserved-cpus': to('text', 'reservedSystemCPUs'),
  'reserved-memory': to('reservations', 'reservedMemory'),
  'resolv-conf': to('text', 'resolvConf'),
  'root-dir': own('text'),
  'rotate-certificates': to('bool', 'rotateCertificates'),
  'rotate-server-certificates': to('bool', 'serverTLSBootstrap'),
  runonce: to('bool', 'runOnce'),
  'runtime-cgroups': own('text'),
  'runtime-request-timeout': to('text', 'runtimeRequestTimeout'),
  'seccomp-default': to('bool', 'seccompDefault'),
  'serialize-image-pulls': to('bool', 'serializeImagePulls'),
  'streaming-connection-idle-timeout': to('text', 'streamingConnectionIdleTimeout'),
  'sync-frequency': to('text', 'syncFrequency'),
  'system-cgroups': to('text', 'systemCgroups'),
  'system-reserved': to('map', 'systemReserved'),
  'system-reserved-cgroup': to('text', 'systemReservedCgroup'),
  'tls-cert-file': to('text', 'tlsCertFile'),
  'tls-cipher-suites': to('list', 'tlsCipherSuites'),
  'tls-min-version': to('text', 'tlsMinVersion'),
  'tls-private-key-file': to('text', 'tlsPrivateKeyFile'),
  'topology-manager-policy': to('text', 'topologyManagerPolicy'),
  'topology-manager-policy-options': to('map', 'topologyManagerPolicyOptions'),
  'topology-manager-scope': to('text', 'topologyManagerScope'),
  v: own('int'),
  vmodule: ignored('text'),
  wishes: own('list'),
  'volume-plugin-dir': to('text', 'volumePluginDir'),
  'volume-stats-agg-period': to('text', 'volumeStatsAggPeriod'),
};

/** The value of a flag from its text; `problem` in upstream's shape when it is none. */
export function flagValue(name: string, kind: FlagKind, text: string): { value: unknown } | { problem: string } {
  const wrong = (why: string): { problem: string } => ({ problem: `invalid argument ${JSON.stringify(text)} for "--${name}" flag: ${why}` });
  switch (kind) {
    case 'text':
      return { value: text };
    case 'bool':
      if (/^(1|t|T|true|TRUE|True)$/.test(text)) return { value: true };
      return /^(0|f|F|false|FALSE|False)$/.test(text) ? { value: false } : wrong('it is neither true nor false');
    case 'int':
      return /^-?\d+$/.test(text) ? { value: Number(text) } : wrong('it is not an integer');
    case 'duration':
      return tryDurationMs(text) === null ? wrong('it is no duration such as 1m30s') : { value: text };
    case 'list':
      return { value: text === '' ? [] : text.split(',').map((part) => part.trim()) };
    case 'taints':
      return taints(text, wrong);
    case 'headers':
      return headers(text, wrong);
    case 'reservations':
      return reservations(text, wrong);
    default:
      return pairs(text, kind, wrong);
  }
}

function pairs(text: string, kind: 'map' | 'boolMap', wrong: (why: string) => { problem: string }): { value: unknown } | { problem: string } {
  const out: Record<string, string | boolean> = {};
  for (const part of text.split(',').filter((each) => each !== '')) {
    // Eviction thresholds are written signal<quantity.
    const match = /^([^=<]+)([=<])(.*)$/.exec(part);
    if (match === null) return wrong(`malformed pair, expect string=${kind === 'boolMap' ? 'bool' : 'string'}`);
    const [key, value] = [(match[1] ?? '').trim(), (match[3] ?? '').trim()];
    if (kind === 'boolMap' && value !== 'true' && value !== 'false') return wrong(`invalid value of ${key}: ${value}, it is neither true nor false`);
    out[key] = kind === 'boolMap' ? value === 'true' : value;
  }
  return { value: out };
}

function taints(text: string, wrong: (why: string) => { problem: string }): { value: unknown } | { problem: string } {
  const out: { key: string; value: string; effect: string }[] = [];
  for (const part of text.split(',').filter((each) => each !== '')) {
    const match = /^([^=:]+)(?:=([^:]*))?:(\w+)$/.exec(part);
    if (match === null) return wrong(`invalid taint spec: ${part}`);
    out.push({ key: match[1] ?? '', value: match[2] ?? '', effect: match[3] ?? '' });
  }
  return { value: out };
}

type Wrong = (why: string) => { problem: string };

/** `a:hello,b:again`: values of one name add up in their order. */
function headers(text: string, wrong: Wrong): { value: unknown } | { problem: string } {
  const out: Record<string, string[]> = {};
  for (const part of text.split(',').filter((each) => each !== '')) {
    const colon = part.indexOf(':');
    if (colon < 0) return wrong('malformed pair, expect string:string');
    (out[part.slice(0, colon).trim()] ??= []).push(part.slice(colon + 1).trim());
  }
  return { value: out };
}

/** `0:memory=1Gi,hugepages-2Mi=2Gi;1:memory=2Gi`: what is kept of each NUMA node. */
function reservations(text: string, wrong: Wrong): { value: unknown } | { problem: string } {
  const out: { numaNode: number; limits: Record<string, string> }[] = [];
  for (const part of text.split(';').filter((each) => each !== '')) {
    const match = /^(\d+):([^:]+)$/.exec(part);
    if (match === null) return wrong('the reserved memory has incorrect format, expected numaNodeID:type=quantity[,type=quantity...]');
    const limits = pairs(match[2] ?? '', 'map', wrong);
    if ('problem' in limits) return limits;
    out.push({ numaNode: Number(match[1]), limits: limits.value as Record<string, string> });
  }
  return { value: out };
}

const allowedLabels = [
  'kubernetes.io/hostname',
  'topology.kubernetes.io/zone',
  'topology.kubernetes.io/region',
  'failure-domain.beta.kubernetes.io/zone',
  'failure-domain.beta.kubernetes.io/region',
  'beta.kubernetes.io/instance-type',
  'node.kubernetes.io/instance-type',
  'kubernetes.io/os',
  'kubernetes.io/arch',
  'beta.kubernetes.io/os',
  'beta.kubernetes.io/arch',
].toSorted();
const allowedPrefixes = ['kubelet.kubernetes.io', 'node.kubernetes.io'];

/** What `--node-labels` may not set, as upstream says it; null when all may be. */
export function nodeLabelsProblem(labels: Readonly<Record<string, string>>): string | null {
  const unknown = Object.keys(labels).filter((key) => {
    const [namespace = '', rest] = key.split('/');
    if (rest === undefined || !/(^|\.)(kubernetes|k8s)\.io$/.test(namespace)) return false;
    return !allowedLabels.includes(key) && !allowedPrefixes.some((prefix) => namespace === prefix || namespace.endsWith(`.${prefix}`));
  });
  const wrong = Object.entries(labels).flatMap(([key, value]) => [...(isQualifiedName(key) ? [] : [key]), ...(isLabelValue(value) ? [] : [value])]);
  if (unknown.length === 0)
    return wrong.length === 0 ? null : `invalid node labels: ${wrong.map((each) => `'${each}'`).join('; ')}: no name or value of a label`;
  return `unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [${unknown.toSorted().join(' ')}]; --node-labels in the 'kubernetes.io' namespace must begin with an allowed prefix (${allowedPrefixes.join(', ')}) or be in the specifically allowed set (${allowedLabels.join(', ')})`;
}
