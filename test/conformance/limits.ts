/** Why a spec of a section did not pass or never ran, in one word group: the page counts by it. */
export interface Limit {
  readonly why: string;
  /** On the spec's name, or on what it said when it failed or was skipped; one of them is enough. */
  readonly name?: RegExp;
  readonly said?: RegExp;
}

/** What the machine or the node under test lacks, the most telling first. */
export const LIMITS: readonly Limit[] = [
  {
    why: 'needs cgroup v2',
    said: /cgroup ?v2|cgroupv2|unified (mode|hierarchy)|memory\.(high|swap)|swap(ping)? (is )?not|PSI|\/sys\/fs\/cgroup\/cgroup\.controllers/i,
  },
  { why: 'needs swap', name: /\[Feature:NodeSwap\]|\bSwap\b/, said: /swap/i },
  { why: 'needs AppArmor', name: /AppArmor/, said: /AppArmor/i },
  { why: 'needs systemd’s bus (logind, or the runtime as a unit)', name: /GracefulNodeShutdown/, said: /dbus|D-Bus|system_bus_socket|systemd-logind/i },
  {
    why: 'needs several NUMA nodes or more CPUs',
    said: /NUMA|not enough CPUs|requires? (at least )?\d+ (CPU|core)|CPUs? (capacity|available)|hyperthread|SMT|multi ?-?(NUMA|core)/i,
  },
  { why: 'needs huge pages', name: /\[Feature:HugePages\]/, said: /huge ?pages?/i },
  { why: 'needs SR-IOV, GPUs or other devices', name: /SRIOV|GPU|Nvidia/i, said: /SRIOV|GPU/i },
  { why: 'needs a registry to pull again what it removes', name: /ImageGarbageCollect/ },
  {
    why: 'needs an image that cannot be had',
    name: /temporarily failed termination due to volume failing to unmount|MutableCSINodeAllocatableCount|image credentials fetched from external|^\[sig-node\] \[DRA\] (kubelet|metadata|\[FeatureGate:DRAExtendedResource\])/,
    said: /ErrImagePull|ImagePullBackOff|failed to pull|pull image/i,
  },
  { why: 'needs the node log query, which is off by default', name: /\[Feature:NodeLogQuery\]/ },
  { why: 'needs user namespaces', said: /\buser ?namespaces?\b/i },
  {
    why: 'looks for cgroups below the machine’s root',
    name: /Kubelet Cgroup Manager|PodOverhead cgroup accounting/,
    said: /\/kubepods|\/sys\/fs\/cgroup/,
  },
  { why: 'needs all processes of the machine in a cgroup for it', name: /Summary API when querying \/stats\/summary should report resource usage/ },
  { why: 'needs a dummy network interface', said: /link add dummy\d* type dummy\]/ },
  { why: 'needs block devices’ counts by cgroup', name: /ContainerMetrics .*should report container metrics/ },
  { why: 'needs CAP_SYS_RESOURCE', said: /oom_score_adj/ },
  { why: 'needs the iptables mode (upstream’s other answer is alpha)', name: /\bLocalhostNodePorts\b/ },
  { why: 'needs the Internet', name: /\bForward PTR lookup\b/ },
  { why: 'needs three nodes, or zones', said: /at least 3 (schedulable nodes|zones)|>= 3 zones|more than one zone/ },
];

/** The limit that a spec met, or null: it says more than that something failed. */
export function limitOf(name: string, said: string): string | null {
  return LIMITS.find((one) => one.name?.test(name) === true || (said !== '' && one.said?.test(said) === true))?.why ?? null;
}
