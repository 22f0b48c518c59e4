import { podCidrsOf, type NodePlan, type SetPlan } from './plan.ts';

/** What the files of a node depend on beside its plan. */
export interface NodeFacts {
  /** Major version of containerd: its configuration file differs from 2 on. */
  readonly containerdMajor: number;
  readonly cniBinDir: string;
  readonly cgroupVersion: 1 | 2;
  /** False where the kernel refuses lowering oom_score_adj. */
  readonly mayLowerOomScore: boolean;
}

/** Paths as the node's own processes see them. */
export const inside = {
  containerdSocket: '/run/containerd/containerd.sock',
  cniConfDir: '/var/lib/cni/net.d',
  kubeletRoot: '/var/lib/kubelet',
} as const;

/** containerd's configuration (versions 2 and 3 of the file). */
export function containerdConfig(node: NodePlan, pauseImage: string, facts: NodeFacts): string {
  const restrict = facts.mayLowerOomScore ? 'false' : 'true';
  const common = ['root = "/var/lib/containerd"', 'state = "/run/containerd"', '[grpc]', `  address = "${inside.containerdSocket}"`];
  if (facts.containerdMajor >= 2) {
    return [
      'version = 3',
      ...common,
      // Else it makes /opt/containerd, which is the machine's.
      "[plugins.'io.containerd.internal.v1.opt']",
      '  path = "/var/lib/containerd/opt"',
      "[plugins.'io.containerd.cri.v1.images'.pinned_images]",
      `  sandbox = "${pauseImage}"`,
      "[plugins.'io.containerd.cri.v1.images'.registry]",
      `  config_path = "${node.dir}/certs.d"`,
      "[plugins.'io.containerd.cri.v1.runtime']",
      `  restrict_oom_score_adj = ${restrict}`,
      "  [plugins.'io.containerd.cri.v1.runtime'.cni]",
      `    bin_dirs = ["${facts.cniBinDir}"]`,
      `    conf_dir = "${inside.cniConfDir}"`,
      '',
    ].join('\n');
  }
  return [
    'version = 2',
    ...common,
    '[plugins."io.containerd.internal.v1.opt"]',
    '  path = "/var/lib/containerd/opt"',
    '[plugins."io.containerd.grpc.v1.cri"]',
    `  sandbox_image = "${pauseImage}"`,
    `  restrict_oom_score_adj = ${restrict}`,
    '  [plugins."io.containerd.grpc.v1.cri".cni]',
    `    bin_dir = "${facts.cniBinDir}"`,
    `    conf_dir = "${inside.cniConfDir}"`,
    '  [plugins."io.containerd.grpc.v1.cri".registry]',
    `    config_path = "${node.dir}/certs.d"`,
    '',
  ].join('\n');
}

/** Where containerd asks first for any image: the set's own image server; then the registry itself. */
export function mirrorHosts(mirror: string): string {
  return `[host."${mirror}"]\n  capabilities = ["pull", "resolve"]\n`;
}

/** Addresses by ptp and host-local: one range of the pods' for each node and family. */
export function cniConfig(node: NodePlan): string {
  const ranges = podCidrsOf(node).map((subnet) => [{ subnet }]);
  const routes = [{ dst: '0.0.0.0/0' }, ...(node.ipv6 === null ? [] : [{ dst: '::/0' }])];
  return `${JSON.stringify(
    {
      cniVersion: '0.4.0',
      name: 'nodelet',
      plugins: [
        {
          type: 'ptp',
          ipMasq: false,
          mtu: 1500,
          ipam: { type: 'host-local', dataDir: '/run/cni/networks', ranges, routes },
        },
        { type: 'portmap', capabilities: { portMappings: true }, snat: true },
      ],
    },
    null,
    2,
  )}\n`;
}

/** Where containerd looks for the network's configuration, as seen from outside the node. */
export const CNI_CONF = 'lib/cni/net.d/10-nodelet.conflist';

/** What our pod network's daemon on a node is told (`nodelet cni daemon --config`). */
export function cniDaemonConfig(set: SetPlan, node: NodePlan, facts: Pick<NodeFacts, 'containerdMajor'>): object {
  return {
    network: 'nodelet',
    confFile: `${inside.cniConfDir}/10-nodelet.conflist`,
    // containerd 1 knows no later version.
    cniVersion: facts.containerdMajor >= 2 ? '1.1.0' : '1.0.0',
    podCIDRs: podCidrsOf(node),
    clusterCIDRs: podCidrsOf(set),
    kubeconfig: `${node.dir}/proxy.kubeconfig`,
    nodeName: node.name,
  };
}

/** Folder of our plugin's executables; a set's own, since what stands in for the daemon runs the set's program. */
export function cniFolder(set: SetPlan): string {
  return `${set.state}/cni`;
}

/** Thresholds for a machine whose disk and memory are also others'. */
export const LAX_EVICTION = {
  'memory.available': '100Mi',
  'nodefs.available': '1%',
  'nodefs.inodesFree': '1%',
  'imagefs.available': '1%',
  'imagefs.inodesFree': '1%',
} as const;

/**
 * What a cluster that is judged has beside the rest: as kubeadm writes it, but with no file outside
 * the node's own folders, and no image taken away while tests run.
 */
function judged(node: NodePlan): object {
  return {
    enforceNodeAllocatable: ['pods'],
    imageGCHighThresholdPercent: 100,
    rotateCertificates: true,
    staticPodPath: `${node.dir}/manifests`,
    volumePluginDir: `${inside.kubeletRoot}/volumeplugins`,
  };
}

/** What of a judged node's kubelet is not upstream's default, in one line for a person. */
export const JUDGED_DIFFERS =
  'kubelet: eviction at 100Mi of memory and 1% of disk, images kept, oomScoreAdj 0, swap allowed, cgroup v1 allowed where that is what there is';

/** KubeletConfiguration v1beta1 of a node; JSON is YAML. */
export function agentConfig(set: SetPlan, node: NodePlan, facts: NodeFacts): string {
  return `${JSON.stringify(kubeletConfiguration(set, node, facts), null, 2)}\n`;
}

/** The same as an object. */
export function kubeletConfiguration(set: SetPlan, node: NodePlan, facts: Pick<NodeFacts, 'cgroupVersion'>): Record<string, unknown> {
  return {
    apiVersion: 'kubelet.config.k8s.io/v1beta1',
    kind: 'KubeletConfiguration',
    address: '0.0.0.0',
    authentication: { anonymous: { enabled: false }, webhook: { enabled: true }, x509: { clientCAFile: `${set.state}/pki/ca.crt` } },
    authorization: { mode: 'Webhook' },
    cgroupDriver: 'cgroupfs',
    cgroupRoot: node.cgroup,
    clusterDNS: [set.dnsIp],
    clusterDomain: 'cluster.local',
    containerRuntimeEndpoint: `unix://${inside.containerdSocket}`,
    evictionHard: LAX_EVICTION,
    ...(facts.cgroupVersion === 1 ? { failCgroupV1: false } : {}),
    failSwapOn: false,
    oomScoreAdj: 0,
    resolvConf: `${node.dir}/resolv.conf`,
    tlsCertFile: `${node.dir}/serving.crt`,
    tlsPrivateKeyFile: `${node.dir}/serving.key`,
    ...(set.join === 'token' ? judged(node) : {}),
  };
}

/** KubeProxyConfiguration v1alpha1 of a node. */
export function proxyConfig(set: SetPlan, node: NodePlan): string {
  const mode = node.proxy.endsWith('iptables') ? 'iptables' : 'nftables';
  return `${JSON.stringify(
    {
      apiVersion: 'kubeproxy.config.k8s.io/v1alpha1',
      kind: 'KubeProxyConfiguration',
      mode,
      // A set is small: new endpoints need not wait out the second that spares a large table. What is judged has the default.
      ...(set.join === 'token' ? {} : { [mode]: { minSyncPeriod: '100ms' } }),
      // How many flows there may be is the machine's and cannot be written in a node; how long they live is the node's own.
      ...(node.proxy.startsWith('upstream-') ? { conntrack: { maxPerCore: 0, min: 0 } } : {}),
      clusterCIDR: podCidrsOf(set).join(','),
      hostnameOverride: node.name,
      clientConnection: { kubeconfig: `${node.dir}/proxy.kubeconfig` },
    },
    null,
    2,
  )}\n`;
}
