import { rfc3339 } from '../../base/clock.ts';
import type { Obj } from '../core/json.ts';
import { addressAt } from '../core/strategy-services.ts';
import type { Kernel } from './kernel.ts';
import roles from './bootstrap-roles.json' with { type: 'json' };

const RBAC = 'rbac.authorization.k8s.io';
const PLURAL: Record<string, string> = { ClusterRole: 'clusterroles', ClusterRoleBinding: 'clusterrolebindings', Role: 'roles', RoleBinding: 'rolebindings' };

/** Puts in place what every cluster has: namespaces, roles, priority classes, the API server's own Service. Harmless when repeated. */
export async function bootstrap(kernel: Kernel): Promise<void> {
  for (const name of ['default', 'kube-node-lease', 'kube-public', 'kube-system']) ensure(kernel, '/namespaces', '', name, namespace(name));
  for (const role of roles as Obj[]) {
    const { kind, name, namespace: space = '', labels = {}, ...rest } = role;
    ensure(kernel, `${RBAC}/${PLURAL[kind]}`, space, name, {
      apiVersion: `${RBAC}/v1`,
      kind,
      metadata: {
        name,
        ...(space === '' ? {} : { namespace: space }),
        labels: { 'kubernetes.io/bootstrapping': 'rbac-defaults', ...labels },
        annotations: { 'rbac.authorization.kubernetes.io/autoupdate': 'true' },
      },
      ...rest,
    });
  }
  priorityClass(kernel, 'system-node-critical', 2_000_001_000, 'Used for system critical pods that must not be moved from their current node.');
  priorityClass(
    kernel,
    'system-cluster-critical',
    2_000_000_000,
    'Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.',
  );
  ownService(kernel);
  await kernel.store.committed();
}

function ensure(kernel: Kernel, collection: string, namespace_: string, name: string, object: Obj): void {
  if (kernel.store.get(collection, namespace_, name) !== undefined) return;
  const metadata = { ...object['metadata'], uid: kernel.rng.uuid(), creationTimestamp: rfc3339(kernel.clock.nowMs()) };
  kernel.store.put(collection, namespace_, name, { ...object, metadata });
}

function namespace(name: string): Obj {
  return {
    apiVersion: 'v1',
    kind: 'Namespace',
    metadata: { name, labels: { 'kubernetes.io/metadata.name': name } },
    spec: { finalizers: ['kubernetes'] },
    status: { phase: 'Active' },
  };
}

function priorityClass(kernel: Kernel, name: string, value: number, description: string): void {
  ensure(kernel, 'scheduling.k8s.io/priorityclasses', '', name, {
    apiVersion: 'scheduling.k8s.io/v1',
    kind: 'PriorityClass',
    metadata: { name, generation: 1 },
    value,
    description,
    preemptionPolicy: 'PreemptLowerPriority',
  });
}

/** `kubernetes` in `default`: how pods reach the API server. Its endpoints follow the advertised address at each start. */
function ownService(kernel: Kernel): void {
  const { config, store } = kernel;
  const labels = { component: 'apiserver', provider: 'kubernetes' };
  const address = addressAt(config.serviceCidr, 1);
  ensure(kernel, '/services', 'default', 'kubernetes', {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'kubernetes', namespace: 'default', labels },
    spec: {
      clusterIP: address,
      clusterIPs: [address],
      internalTrafficPolicy: 'Cluster',
      ipFamilies: ['IPv4'],
      ipFamilyPolicy: 'SingleStack',
      ports: [{ name: 'https', port: 443, protocol: 'TCP', targetPort: config.securePort }],
      sessionAffinity: 'None',
      type: 'ClusterIP',
    },
    status: { loadBalancer: {} },
  });
  const endpoints = { subsets: [{ addresses: [{ ip: config.advertiseAddress }], ports: [{ name: 'https', port: config.securePort, protocol: 'TCP' }] }] };
  const slice = {
    addressType: 'IPv4',
    endpoints: [{ addresses: [config.advertiseAddress], conditions: { ready: true } }],
    ports: [{ name: 'https', port: config.securePort, protocol: 'TCP' }],
  };
  follow(kernel, '/endpoints', {
    apiVersion: 'v1',
    kind: 'Endpoints',
    metadata: { name: 'kubernetes', namespace: 'default', labels: { 'endpointslice.kubernetes.io/skip-mirror': 'true' } },
    ...endpoints,
  });
  follow(kernel, 'discovery.k8s.io/endpointslices', {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { name: 'kubernetes', namespace: 'default', labels: { 'kubernetes.io/service-name': 'kubernetes' }, generation: 1 },
    ...slice,
  });
  const service = store.get('/services', 'default', 'kubernetes')!;
  const port = service.object['spec'].ports[0];
  if (port.targetPort !== config.securePort)
    store.put('/services', 'default', 'kubernetes', {
      ...service.object,
      spec: { ...service.object['spec'], ports: [{ ...port, targetPort: config.securePort }] },
    });
}

function follow(kernel: Kernel, collection: string, object: Obj): void {
  const current = kernel.store.get(collection, 'default', 'kubernetes');
  if (current === undefined) {
    ensure(kernel, collection, 'default', 'kubernetes', object);
    return;
  }
  const { metadata: _, ...rest } = object;
  if (JSON.stringify(Object.values(rest)) !== JSON.stringify(Object.keys(rest).map((key) => current.object[key])))
    kernel.store.put(collection, 'default', 'kubernetes', { ...current.object, ...rest });
}
