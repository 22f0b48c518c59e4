import { isNodeConformance, type Spec } from './suites.ts';

/** Suites that are no SIG’s share of the judged specs; the scoreboard has a section for each. */
export const NODE_SUITES = ['e2e-node', 'node-features'] as const;
export type NodeSuite = (typeof NODE_SUITES)[number];
/** Suites of e2e.test that expressions choose. */
export const FEATURE_SUITES = ['features', 'network-features'] as const;
export type FeatureSuite = (typeof FEATURE_SUITES)[number];

export const isNodeSuite = (text: string): text is NodeSuite => (NODE_SUITES as readonly string[]).includes(text);
export const isFeatureSuite = (text: string): text is FeatureSuite => (FEATURE_SUITES as readonly string[]).includes(text);

/** Expressions on a spec's whole name: it must match the first, and must not match the second. */
export interface FeatureFocus {
  readonly focus: string;
  readonly skip: string;
}

/** On by default: neither alpha, nor a beta feature that somebody must turn on, nor what is on its way out. */
const NOT_DEFAULT = '\\[Alpha\\]|\\[Feature:OffByDefault\\]|\\[Deprecated\\]|\\[Flaky\\]';

/**
 * `--suite features`: what e2e.test asks of nodes and volumes for features that are GA or on by default, beyond what the
 * scoreboard counts already. Left out: what wants a cloud, a driver whose image cannot be had, another operating system,
 * or a hundred nodes.
 */
export const FEATURES: FeatureFocus = {
  focus: '^\\[sig-(node|storage)\\] .*\\[(Feature|FeatureGate):',
  skip: [
    NOT_DEFAULT,
    '\\[Conformance\\]|\\[NodeConformance\\]|\\[Disruptive\\]',
    '\\[Provider:|\\[Driver: |\\[Windows|Microsoft-Windows|CSI [Mm]ock|csi-hostpath',
    '\\[Feature:(Windows|GPU|vsphere|GKE|Volumes|Flexvolumes|StorageProvider|Recreate|StandaloneMode|PerformanceDNS|NodeProblemDetector)',
    '\\[Feature:(ExperimentalResourceUsageTracking|RegularResourceUsageTracking|PodGarbageCollector)',
  ].join('|'),
};

/** `--suite node-features`: the same of e2e_node.test, what restarts the kubelet with another configuration among it. */
export const NODE_FEATURES: FeatureFocus = {
  focus: '\\[(Feature|FeatureGate):|\\[Serial\\]',
  skip: [
    NOT_DEFAULT,
    '\\[NodeConformance\\]|\\[Conformance\\]',
    '\\[Feature:(GPUDevicePlugin|DevicePluginProbe|NodeProblemDetector|SriovDevicePlugin|StandaloneMode|LockContention|CriProxy|SystemNodeCriticalPod)',
    '\\[Feature:(PerformanceGauge|NodePerformance|ImageVolume|UserNamespacesSupport|NodeSwap|HugePages|SplitDisk|LSCIQuotaMonitoring)',
    'Resource-usage|Density|Node Performance|\\[Benchmark\\]|\\[Slow\\] \\[Benchmark\\]',
  ].join('|'),
};

/**
 * `--suite network-features`: what e2e.test asks of Services, names and pods' network beyond the scoreboard's specs, on
 * nodes with both families. Left out: what wants a cloud's load balancers, the Internet, SCTP or nfacct of the kernel,
 * thousands of Services, or a host to log in to; and NetworkPolicies, which the reference plugins of upstream's side ignore.
 */
export const NETWORK_FEATURES: FeatureFocus = {
  focus: '^\\[sig-network\\] ',
  skip: [
    NOT_DEFAULT,
    '\\[Conformance\\]|\\[NodeConformance\\]|\\[Disruptive\\]|\\[Provider:',
    '\\[Feature:(LoadBalancer|NetworkPolicy|SCTPConnectivity|KubeProxyNFAcct|Networking-|PerformanceDNS)',
    '\\bSCTP (service|HostPort)',
  ].join('|'),
};

/** The specs of a binary that an expression chooses. */
export function featureSpecs(specs: readonly Spec[], { focus, skip }: FeatureFocus): Spec[] {
  const [wanted, left] = [new RegExp(focus), new RegExp(skip)];
  return specs.filter(({ name }) => wanted.test(name) && !left.test(name));
}

/** What is counted in a section, of all specs of its binary. */
export const SECTION_SPECS = {
  'e2e-node': (specs: readonly Spec[]) => specs.filter(isNodeConformance),
  features: (specs: readonly Spec[]) => featureSpecs(specs, FEATURES),
  'network-features': (specs: readonly Spec[]) => featureSpecs(specs, NETWORK_FEATURES),
  'node-features': (specs: readonly Spec[]) => featureSpecs(specs, NODE_FEATURES),
} as const;
