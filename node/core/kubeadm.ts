import { inside, LAX_EVICTION } from './files.ts';
import { podCidrsOf, serviceCidrsOf, type SetPlan } from './plan.ts';

const JOINING = 'system:bootstrappers:kubeadm:default-node-token';
const RBAC = 'rbac.authorization.k8s.io';

/** A bootstrap token: `id.secret`, six and sixteen lower-case letters and digits. */
export interface BootstrapToken {
  readonly id: string;
  readonly secret: string;
}

export const tokenText = (token: BootstrapToken): string => `${token.id}.${token.secret}`;

/** The token in a text, or null when it is none. */
export function parseToken(text: string): BootstrapToken | null {
  const match = /^([a-z0-9]{6})\.([a-z0-9]{16})$/.exec(text.trim());
  return match === null ? null : { id: match[1] ?? '', secret: match[2] ?? '' };
}

type Subject = { kind: 'Group' | 'User'; name: string };
const group = (name: string): Subject => ({ kind: 'Group', name });

const clusterRoleBinding = (name: string, role: string, subject: Subject): Record<string, unknown> => ({
  apiVersion: `${RBAC}/v1`,
  kind: 'ClusterRoleBinding',
  metadata: { name },
  roleRef: { apiGroup: RBAC, kind: 'ClusterRole', name: role },
  subjects: [{ ...subject, apiGroup: RBAC }],
});

/** Lets subjects read one ConfigMap. */
function mayRead(name: string, namespace: string, configMap: string, subjects: readonly Subject[]): Record<string, unknown>[] {
  return [
    {
      apiVersion: `${RBAC}/v1`,
      kind: 'Role',
      metadata: { name, namespace },
      rules: [{ apiGroups: [''], resources: ['configmaps'], resourceNames: [configMap], verbs: ['get'] }],
    },
    {
      apiVersion: `${RBAC}/v1`,
      kind: 'RoleBinding',
      metadata: { name, namespace },
      roleRef: { apiGroup: RBAC, kind: 'Role', name },
      subjects: subjects.map((subject) => ({ ...subject, apiGroup: RBAC })),
    },
  ];
}

const configMap = (name: string, namespace: string, data: Record<string, string>): Record<string, unknown> => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name, namespace },
  data,
});

const yaml = (value: unknown): string => `${JSON.stringify(value, null, 2)}\n`;

export interface KubeadmFacts {
  readonly token: BootstrapToken;
  /** The API server's, `v1.37.2`. */
  readonly version: string;
  /** In base 64. */
  readonly caBase64: string;
  readonly cgroupVersion: 1 | 2;
}

/** What `kubeadm init` leaves in a cluster for nodes that join: the token, who may do what with it, and what they read. */
export function kubeadmObjects(set: SetPlan, facts: KubeadmFacts): Record<string, unknown>[] {
  const { token } = facts;
  const clusterConfiguration = {
    apiVersion: 'kubeadm.k8s.io/v1beta4',
    kind: 'ClusterConfiguration',
    apiServer: {},
    certificatesDir: '/etc/kubernetes/pki',
    clusterName: 'kubernetes',
    controlPlaneEndpoint: set.server.replace('https://', ''),
    controllerManager: {},
    dns: {},
    encryptionAlgorithm: 'ECDSA-P256',
    etcd: { local: { dataDir: '/var/lib/etcd' } },
    imageRepository: 'registry.k8s.io',
    kubernetesVersion: facts.version,
    networking: { dnsDomain: 'cluster.local', podSubnet: podCidrsOf(set).join(','), serviceSubnet: serviceCidrsOf(set).join(',') },
    proxy: {},
    scheduler: {},
  };
  const clusterInfo = {
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name: '', cluster: { 'certificate-authority-data': facts.caBase64, server: set.server } }],
    contexts: null,
    users: null,
    'current-context': '',
  };
  return [
    {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name: `bootstrap-token-${token.id}`, namespace: 'kube-system' },
      type: 'bootstrap.kubernetes.io/token',
      stringData: {
        'token-id': token.id,
        'token-secret': token.secret,
        'usage-bootstrap-authentication': 'true',
        'usage-bootstrap-signing': 'true',
        'auth-extra-groups': JOINING,
      },
    },
    clusterRoleBinding('kubeadm:cluster-admins', 'cluster-admin', group('kubeadm:cluster-admins')),
    clusterRoleBinding('kubeadm:kubelet-bootstrap', 'system:node-bootstrapper', group(JOINING)),
    clusterRoleBinding('kubeadm:node-autoapprove-bootstrap', 'system:certificates.k8s.io:certificatesigningrequests:nodeclient', group(JOINING)),
    clusterRoleBinding(
      'kubeadm:node-autoapprove-certificate-rotation',
      'system:certificates.k8s.io:certificatesigningrequests:selfnodeclient',
      group('system:nodes'),
    ),
    {
      apiVersion: `${RBAC}/v1`,
      kind: 'ClusterRole',
      metadata: { name: 'kubeadm:get-nodes' },
      rules: [{ apiGroups: [''], resources: ['nodes'], verbs: ['get'] }],
    },
    clusterRoleBinding('kubeadm:get-nodes', 'kubeadm:get-nodes', group(JOINING)),
    ...mayRead('kubeadm:bootstrap-signer-clusterinfo', 'kube-public', 'cluster-info', [{ kind: 'User', name: 'system:anonymous' }]),
    configMap('cluster-info', 'kube-public', { kubeconfig: yaml(clusterInfo) }),
    ...mayRead('kubeadm:nodes-kubeadm-config', 'kube-system', 'kubeadm-config', [group(JOINING), group('system:nodes')]),
    configMap('kubeadm-config', 'kube-system', { ClusterConfiguration: yaml(clusterConfiguration) }),
    ...mayRead('kubeadm:kubelet-config', 'kube-system', 'kubelet-config', [group('system:nodes'), group(JOINING)]),
    configMap('kubelet-config', 'kube-system', { kubelet: yaml(joiningConfiguration(set, facts)) }),
  ];
}

/** What `kubeadm join` gives a kubelet that it sets up, with kubeadm's own paths. */
function joiningConfiguration(set: SetPlan, facts: KubeadmFacts): Record<string, unknown> {
  return {
    apiVersion: 'kubelet.config.k8s.io/v1beta1',
    kind: 'KubeletConfiguration',
    authentication: { anonymous: { enabled: false }, webhook: { enabled: true }, x509: { clientCAFile: '/etc/kubernetes/pki/ca.crt' } },
    authorization: { mode: 'Webhook' },
    cgroupDriver: 'cgroupfs',
    clusterDNS: [set.dnsIp],
    clusterDomain: 'cluster.local',
    containerRuntimeEndpoint: `unix://${inside.containerdSocket}`,
    ...(facts.cgroupVersion === 1 ? { failCgroupV1: false } : {}),
    evictionHard: LAX_EVICTION,
    failSwapOn: false,
    oomScoreAdj: 0,
    rotateCertificates: true,
    staticPodPath: '/etc/kubernetes/manifests',
  };
}
