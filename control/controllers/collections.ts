import type { KubeObject, ResourceRef } from '../../base/kubeapi/types.ts';
import type {
  ConfigMap,
  DaemonSet,
  Deployment,
  Endpoints,
  EndpointSlice,
  Lease,
  Namespace,
  Node,
  PersistentVolumeClaim,
  Pod,
  ReplicaSet,
  Service,
  ServiceAccount,
} from '../../proto/kube/types.ts';
import { controllerOf } from '../core/controllers/owners.ts';
import type { Store, Stores } from './store.ts';

const core = (resource: string): ResourceRef => ({ group: '', version: 'v1', resource });
const apps = (resource: string): ResourceRef => ({ group: 'apps', version: 'v1', resource });

export const PODS = core('pods');
export const NODES = core('nodes');
export const SERVICES = core('services');
export const ENDPOINTS = core('endpoints');
export const NAMESPACES = core('namespaces');
export const SERVICE_ACCOUNTS = core('serviceaccounts');
export const CONFIG_MAPS = core('configmaps');
export const CLAIMS = core('persistentvolumeclaims');
export const DEPLOYMENTS = apps('deployments');
export const REPLICA_SETS = apps('replicasets');
export const DAEMON_SETS = apps('daemonsets');
export const ENDPOINT_SLICES: ResourceRef = { group: 'discovery.k8s.io', version: 'v1', resource: 'endpointslices' };
export const LEASES: ResourceRef = { group: 'coordination.k8s.io', version: 'v1', resource: 'leases' };

/** One object of a collection. */
export function at(ref: ResourceRef, object: { metadata: { namespace?: string; name?: string } }, subresource?: string): ResourceRef {
  const { namespace, name } = object.metadata;
  return { ...ref, ...(namespace ? { namespace } : {}), ...(name === undefined ? {} : { name }), ...(subresource === undefined ? {} : { subresource }) };
}

export function inNamespace(ref: ResourceRef, namespace: string | undefined): ResourceRef {
  return namespace ? { ...ref, namespace } : ref;
}

/** Nobody here reads who owns which field, and it is half of an object. */
export function dropManagedFields<T extends KubeObject>(object: T): T {
  if (object.metadata.managedFields === undefined) return object;
  const { managedFields: _dropped, ...metadata } = object.metadata;
  return { ...object, metadata };
}

function namespaced<T extends KubeObject>(store: Store<T>): Store<T> {
  store.addIndex('namespace', (object) => [object.metadata.namespace ?? '']);
  return store;
}

/** Found by the UID of the controller, orphans under `orphan/<namespace>`. */
function owned<T extends KubeObject>(store: Store<T>): Store<T> {
  store.addIndex('controller', (object) => [controllerOf(object)?.uid ?? `orphan/${object.metadata.namespace ?? ''}`]);
  return namespaced(store);
}

export const podStore = (stores: Stores): Store<Pod> => {
  const store = owned(stores.of<Pod>(PODS, { trim: dropManagedFields }));
  store.addIndex('node', (pod) => (pod.spec.nodeName ? [pod.spec.nodeName] : []));
  return store;
};
export const nodeStore = (stores: Stores): Store<Node> => stores.of<Node>(NODES, { trim: dropManagedFields });
export const serviceStore = (stores: Stores): Store<Service> => namespaced(stores.of<Service>(SERVICES, { trim: dropManagedFields }));
export const endpointsStore = (stores: Stores): Store<Endpoints> => stores.of<Endpoints>(ENDPOINTS, { trim: dropManagedFields });
export const deploymentStore = (stores: Stores): Store<Deployment> => namespaced(stores.of<Deployment>(DEPLOYMENTS, { trim: dropManagedFields }));
export const replicaSetStore = (stores: Stores): Store<ReplicaSet> => owned(stores.of<ReplicaSet>(REPLICA_SETS, { trim: dropManagedFields }));
export const daemonSetStore = (stores: Stores): Store<DaemonSet> => stores.of<DaemonSet>(DAEMON_SETS, { trim: dropManagedFields });
export const namespaceStore = (stores: Stores): Store<Namespace> => stores.of<Namespace>(NAMESPACES, { trim: dropManagedFields });
export const serviceAccountStore = (stores: Stores): Store<ServiceAccount> => stores.of<ServiceAccount>(SERVICE_ACCOUNTS, { trim: dropManagedFields });
export const claimStore = (stores: Stores): Store<PersistentVolumeClaim> => stores.of<PersistentVolumeClaim>(CLAIMS, { trim: dropManagedFields });
export const leaseStore = (stores: Stores): Store<Lease> => stores.of<Lease>({ ...LEASES, namespace: 'kube-node-lease' }, { trim: dropManagedFields });
export const rootCaStore = (stores: Stores): Store<ConfigMap> =>
  stores.of<ConfigMap>(CONFIG_MAPS, { fieldSelector: 'metadata.name=kube-root-ca.crt', trim: dropManagedFields });
export const sliceStore = (stores: Stores): Store<EndpointSlice> => {
  const store = stores.of<EndpointSlice>(ENDPOINT_SLICES, { trim: dropManagedFields });
  store.addIndex('service', (slice) => [`${slice.metadata.namespace ?? ''}/${slice.metadata.labels?.['kubernetes.io/service-name'] ?? ''}`]);
  return store;
};
