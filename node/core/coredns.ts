import type { SetPlan } from './plan.ts';
import type { ImageRecipe } from './oci.ts';
import type { RealPrograms } from './real.ts';

export const COREDNS_IMAGE = 'registry.k8s.io/coredns/coredns:v1.14.6';

/** Whether CoreDNS answers for the set's names; otherwise a server of ours at the hub does. */
export const hasCoreDns = (set: SetPlan, real: RealPrograms | null): boolean => set.join === 'token' && real?.coredns !== undefined;

/** The image that CoreDNS publishes: one static program on nothing, which may bind port 53. */
export function coreDnsRecipe(program: string): ImageRecipe {
  return {
    files: [
      { path: '/coredns', mode: 0o755, content: { kind: 'file', from: program } },
      { path: '/tmp', mode: 0o1777, content: { kind: 'directory' } },
    ],
    settings: { entrypoint: ['/coredns'], workingDir: '/', exposedPorts: ['53/tcp', '53/udp'] },
  };
}

/** What kubeadm puts there (`addons/dns`), for Kubernetes 1.37. */
const COREFILE = `.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf {
       max_concurrent 1000
    }
    cache 30 {
       disable success cluster.local
       disable denial cluster.local
    }
    loop
    reload
    loadbalance
}
`;

const LABELS = { 'k8s-app': 'kube-dns' };
const SYSTEM = { namespace: 'kube-system' };

/** CoreDNS as kubeadm makes it: a Deployment behind the Service kube-dns. */
export function coreDnsObjects(set: SetPlan): Record<string, unknown>[] {
  const ports = [
    { name: 'dns', port: 53, protocol: 'UDP', targetPort: 53 },
    { name: 'dns-tcp', port: 53, protocol: 'TCP', targetPort: 53 },
    { name: 'metrics', port: 9153, protocol: 'TCP', targetPort: 9153 },
  ];
  return [
    { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'coredns', ...SYSTEM } },
    {
      apiVersion: 'rbac.authorization.k8s.io/v1',
      kind: 'ClusterRole',
      metadata: { name: 'system:coredns' },
      rules: [
        { apiGroups: [''], resources: ['endpoints', 'services', 'pods', 'namespaces'], verbs: ['list', 'watch'] },
        { apiGroups: ['discovery.k8s.io'], resources: ['endpointslices'], verbs: ['list', 'watch'] },
      ],
    },
    {
      apiVersion: 'rbac.authorization.k8s.io/v1',
      kind: 'ClusterRoleBinding',
      metadata: { name: 'system:coredns' },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'system:coredns' },
      subjects: [{ kind: 'ServiceAccount', name: 'coredns', ...SYSTEM }],
    },
    { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'coredns', ...SYSTEM }, data: { Corefile: COREFILE } },
    {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: {
        name: 'kube-dns',
        ...SYSTEM,
        labels: { ...LABELS, 'kubernetes.io/cluster-service': 'true', 'kubernetes.io/name': 'CoreDNS' },
        annotations: { 'prometheus.io/port': '9153', 'prometheus.io/scrape': 'true' },
      },
      spec: { clusterIP: set.dnsIp, ports, selector: LABELS },
    },
    {
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      metadata: { name: 'coredns', ...SYSTEM, labels: LABELS },
      spec: {
        replicas: 2,
        strategy: { type: 'RollingUpdate', rollingUpdate: { maxUnavailable: 1 } },
        selector: { matchLabels: LABELS },
        template: { metadata: { labels: LABELS }, spec: podSpec() },
      },
    },
  ];
}

function podSpec(): Record<string, unknown> {
  const probe = (path: string, port: string): object => ({ httpGet: { path, port, scheme: 'HTTP' } });
  return {
    priorityClassName: 'system-cluster-critical',
    serviceAccountName: 'coredns',
    affinity: {
      podAntiAffinity: {
        preferredDuringSchedulingIgnoredDuringExecution: [
          {
            weight: 100,
            podAffinityTerm: {
              labelSelector: { matchExpressions: [{ key: 'k8s-app', operator: 'In', values: ['kube-dns'] }] },
              topologyKey: 'kubernetes.io/hostname',
            },
          },
        ],
      },
    },
    tolerations: [
      { key: 'CriticalAddonsOnly', operator: 'Exists' },
      { key: 'node-role.kubernetes.io/control-plane', effect: 'NoSchedule' },
    ],
    nodeSelector: { 'kubernetes.io/os': 'linux' },
    containers: [
      {
        name: 'coredns',
        image: COREDNS_IMAGE,
        imagePullPolicy: 'IfNotPresent',
        resources: { limits: { memory: '170Mi' }, requests: { cpu: '100m', memory: '70Mi' } },
        args: ['-conf', '/etc/coredns/Corefile'],
        volumeMounts: [{ name: 'config-volume', mountPath: '/etc/coredns', readOnly: true }],
        ports: [
          { containerPort: 53, name: 'dns', protocol: 'UDP' },
          { containerPort: 53, name: 'dns-tcp', protocol: 'TCP' },
          { containerPort: 9153, name: 'metrics', protocol: 'TCP' },
          { containerPort: 8080, name: 'liveness-probe', protocol: 'TCP' },
          { containerPort: 8181, name: 'readiness-probe', protocol: 'TCP' },
        ],
        livenessProbe: { ...probe('/health', 'liveness-probe'), initialDelaySeconds: 60, timeoutSeconds: 5, successThreshold: 1, failureThreshold: 5 },
        readinessProbe: probe('/ready', 'readiness-probe'),
        securityContext: {
          allowPrivilegeEscalation: false,
          capabilities: { add: ['NET_BIND_SERVICE'], drop: ['ALL'] },
          readOnlyRootFilesystem: true,
        },
      },
    ],
    dnsPolicy: 'Default',
    volumes: [{ name: 'config-volume', configMap: { name: 'coredns', items: [{ key: 'Corefile', path: 'Corefile' }] } }],
  };
}
