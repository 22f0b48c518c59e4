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
    name: /^\[sig-node\] (MemoryQoS|Cgroup reconciliation|Pod Level Resources) /,
    said: /cgroups? ?v2|not supported on cgroupv1|cgroupv2|unified (mode|hierarchy)|memory\.(high|swap)|swap(ping)? (is )?not|PSI|\/sys\/fs\/cgroup\/cgroup\.controllers/i,
  },
  { why: 'needs swap', name: /\[Feature:NodeSwap\]|\bSwap\b/, said: /swap/i },
  { why: 'needs AppArmor', name: /AppArmor/, said: /AppArmor/i },
  {
    why: 'would fill the machine’s disk, memory or process ids',
    name: /\[Feature:Eviction\]|MemoryAllocatableEviction|PriorityMemoryEviction|KubeletSeparateDiskGC.* disk pressure/,
  },
  {
    why: 'needs systemd’s bus (logind, or the runtime as a unit)',
    name: /GracefulNodeShutdown|Restart Container Runtime/,
    said: /dbus|D-Bus|system_bus_socket|systemd-logind/i,
  },
  {
    why: 'needs several NUMA nodes or more CPUs',
    name: /^\[sig-node\] Topology Manager /,
    said: /NUMA|not allocatable \d+ full CPUs|CPU( \d+)? allocatable <|not enough CPUs|requires? (at least )?\d+ (CPU|core)|CPUs? (capacity|available)|hyperthread|SMT|multi ?-?(NUMA|core)/i,
  },
  { why: 'needs huge pages', name: /\[Feature:HugePages\]|DownwardAPIHugePages|Pod Level HugePages/, said: /huge ?pages?/i },
  { why: 'needs SR-IOV, GPUs or other devices', name: /SRIOV|GPU|Nvidia/i, said: /SRIOV|GPU/i },
  { why: 'needs a registry to pull again what it removes', name: /ImageGarbageCollect/ },
  {
    why: 'needs an image that cannot be had',
    name: /temporarily failed termination due to volume failing to unmount|\[Feature:ImageID\]|MutableCSINodeAllocatableCount|image credentials fetched from external/,
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
  { why: 'needs CAP_SYS_RESOURCE', name: /\[Feature:OOMScoreAdj\]/, said: /oom_score_adj/ },
  { why: 'needs CRIU', name: /\[Feature:CheckpointContainer\]/ },
  { why: 'needs SCTP of the kernel', name: /\[Feature:SCTPConnectivity\]/ },
  { why: 'needs a second handler of the runtime', said: /runtime class handler preconfigured/ },
  { why: 'needs a file system for images beside the node’s', said: /split filesystem/ },
  { why: 'is skipped by upstream wherever it runs', name: /^\[sig-node\] Node Container Manager / },
  { why: 'is skipped where its feature is on, as it is by default', said: /^feature \w+ is (already )?enabled/ },
  { why: 'needs the iptables mode (upstream’s other answer is alpha)', name: /\bLocalhostNodePorts\b/ },
  {
    why: 'needs versions of an API that are off by default',
    name: /\[DRA\].* with v1beta[12] API /,
    said: /^FATAL ERROR: create \*v1beta\d\..*could not find the requested resource/,
  },
  { why: 'needs the Internet', name: /\bForward PTR lookup\b/ },
  { why: 'needs three nodes, or zones', said: /at least 3 (schedulable nodes|zones)|>= 3 zones|more than one zone/ },
];

/** The limit that a spec met, or null: it says more than that something failed. */
export function limitOf(name: string, said: string): string | null {
  return LIMITS.find((one) => one.name?.test(name) === true || (said !== '' && one.said?.test(said) === true))?.why ?? null;
}
