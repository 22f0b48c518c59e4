import { isApiError } from '../../base/kubeapi/errors.ts';
import type { ConfigMap, Namespace, ServiceAccount } from '../../proto/kube/types.ts';
import { CONFIG_MAPS, inNamespace, at, namespaceStore, rootCaStore, SERVICE_ACCOUNTS, serviceAccountStore } from './collections.ts';
import { type Controller, runController } from './controller.ts';
import { isNamespaceEnding } from './deployment.ts';
import type { ControlDeps } from './deps.ts';
import type { Stores } from './store.ts';

const ROOT_CA_NAME = 'kube-root-ca.crt';
const ROOT_CA_DESCRIPTION =
  'Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.';

const isActive = (namespace: Namespace | undefined): namespace is Namespace =>
  namespace !== undefined && namespace.status?.phase !== 'Terminating' && !namespace.metadata.deletionTimestamp;

/** A namespace that ends or has just been made by somebody else's write is no failure. */
async function tolerant(work: Promise<unknown>): Promise<void> {
  try {
    await work;
  } catch (error) {
    if (!isApiError(error, 409) && !isApiError(error, 404) && !isNamespaceEnding(error)) throw error;
  }
}

/** Each namespace has a ServiceAccount `default`. */
export function startServiceAccountController(deps: ControlDeps, stores: Stores): Controller {
  const namespaces = namespaceStore(stores);
  const accounts = serviceAccountStore(stores);
  const sync = async (name: string, signal: AbortSignal): Promise<void> => {
    if (!isActive(namespaces.get(name)) || accounts.get(`${name}/default`) !== undefined) return;
    const body = { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'default', namespace: name } } as ServiceAccount;
    await tolerant(deps.api.create<ServiceAccount>(inNamespace(SERVICE_ACCOUNTS, name), body, {}, signal).then((made) => accounts.wrote(made)));
  };
  const controller = runController(deps, { name: 'serviceaccount', needs: [namespaces, accounts] as never[], sync });
  namespaces.onChange((namespace) => controller.add(namespace.metadata.name ?? ''));
  accounts.onChange((account, _before, type) => {
    if (type === 'gone' && account.metadata.name === 'default') controller.add(account.metadata.namespace ?? '');
  });
  return controller;
}

/** Each namespace has a ConfigMap with the authority that signed the API server's certificate. */
export function startRootCaPublisher(deps: ControlDeps, stores: Stores): Controller {
  const namespaces = namespaceStore(stores);
  const maps = rootCaStore(stores);
  const data = { 'ca.crt': deps.config.rootCA };
  const sync = async (name: string, signal: AbortSignal): Promise<void> => {
    if (!isActive(namespaces.get(name))) return;
    const current = maps.get(`${name}/${ROOT_CA_NAME}`);
    const annotations = { 'kubernetes.io/description': ROOT_CA_DESCRIPTION };
    if (current === undefined) {
      const body: ConfigMap = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: ROOT_CA_NAME, namespace: name, annotations }, data };
      await tolerant(deps.api.create<ConfigMap>(inNamespace(CONFIG_MAPS, name), body, {}, signal).then((made) => maps.wrote(made)));
      return;
    }
    const isRight =
      Object.keys(current.data ?? {}).length === 1 &&
      current.data?.['ca.crt'] === deps.config.rootCA &&
      current.metadata.annotations?.['kubernetes.io/description'] === ROOT_CA_DESCRIPTION;
    if (isRight) return;
    const body: ConfigMap = { ...current, metadata: { ...current.metadata, annotations: { ...current.metadata.annotations, ...annotations } }, data };
    maps.wrote(await deps.api.update<ConfigMap>(at(CONFIG_MAPS, current), body, {}, signal));
  };
  const controller = runController(deps, { name: 'root-ca', needs: [namespaces, maps] as never[], sync });
  namespaces.onChange((namespace) => controller.add(namespace.metadata.name ?? ''));
  maps.onChange((map) => controller.add(map.metadata.namespace ?? ''));
  return controller;
}
