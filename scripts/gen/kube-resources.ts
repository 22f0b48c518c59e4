import type { ResourceInfo, Schema, SubresourceInfo } from '../../proto/kube/schema-types.ts';
import type { Swagger } from './kube-schema.ts';

/** The description says nothing about these two; upstream's registries do. */
const shortNames: Readonly<Record<string, readonly string[]>> = {
  componentstatuses: ['cs'],
  configmaps: ['cm'],
  endpoints: ['ep'],
  events: ['ev'],
  limitranges: ['limits'],
  namespaces: ['ns'],
  nodes: ['no'],
  persistentvolumeclaims: ['pvc'],
  persistentvolumes: ['pv'],
  pods: ['po'],
  replicationcontrollers: ['rc'],
  resourcequotas: ['quota'],
  serviceaccounts: ['sa'],
  services: ['svc'],
  'customresourcedefinitions.apiextensions.k8s.io': ['crd', 'crds'],
  'daemonsets.apps': ['ds'],
  'deployments.apps': ['deploy'],
  'replicasets.apps': ['rs'],
  'statefulsets.apps': ['sts'],
  'horizontalpodautoscalers.autoscaling': ['hpa'],
  'cronjobs.batch': ['cj'],
  'certificatesigningrequests.certificates.k8s.io': ['csr'],
  'events.events.k8s.io': ['ev'],
  'ingresses.networking.k8s.io': ['ing'],
  'networkpolicies.networking.k8s.io': ['netpol'],
  'ipaddresses.networking.k8s.io': ['ip'],
  'poddisruptionbudgets.policy': ['pdb'],
  'priorityclasses.scheduling.k8s.io': ['pc'],
  'storageclasses.storage.k8s.io': ['sc'],
  'volumeattributesclasses.storage.k8s.io': ['vac'],
};

const inAll: ReadonlySet<string> = new Set([
  'pods',
  'replicationcontrollers',
  'services',
  'daemonsets.apps',
  'deployments.apps',
  'replicasets.apps',
  'statefulsets.apps',
  'horizontalpodautoscalers.autoscaling',
  'cronjobs.batch',
  'jobs.batch',
]);

const inApiExtensions: ReadonlySet<string> = new Set([
  'customresourcedefinitions.apiextensions.k8s.io',
  'apiservices.apiregistration.k8s.io',
  'mutatingwebhookconfigurations.admissionregistration.k8s.io',
  'validatingwebhookconfigurations.admissionregistration.k8s.io',
  'validatingadmissionpolicies.admissionregistration.k8s.io',
  'validatingadmissionpolicybindings.admissionregistration.k8s.io',
  'mutatingadmissionpolicies.admissionregistration.k8s.io',
  'mutatingadmissionpolicybindings.admissionregistration.k8s.io',
]);

const verbs: Readonly<Record<string, string>> = {
  get: 'get',
  list: 'list',
  post: 'create',
  put: 'update',
  patch: 'patch',
  delete: 'delete',
  deletecollection: 'deletecollection',
  watchlist: 'watch',
  connect: 'connect',
};

/** Discovery names a connect subresource by the HTTP methods that reach it. */
const connectVerbs: Readonly<Record<string, string>> = { get: 'get', post: 'create', put: 'update', patch: 'patch', delete: 'delete' };

const methods: ReadonlySet<string> = new Set(['get', 'put', 'post', 'patch', 'delete']);

interface Found {
  group: string;
  version: string;
  resource: string;
  kind: string;
  namespaced: boolean;
  verbs: Set<string>;
  subresources: Map<string, { kind: string; group: string; version: string; verbs: Set<string> }>;
}

function splitPath(path: string): { group: string; version: string; namespaced: boolean; watch: boolean; rest: string[] } | undefined {
  const parts = path.split('/').slice(1);
  const core = parts[0] === 'api';
  if (!core && parts[0] !== 'apis') return undefined;
  const group = core ? '' : (parts[1] ?? '');
  const version = parts[core ? 1 : 2];
  let rest = parts.slice(core ? 2 : 3);
  if (version === undefined || rest.length === 0) return undefined;
  const watch = rest[0] === 'watch';
  if (watch) rest = rest.slice(1);
  const namespaced = rest[0] === 'namespaces' && rest[1] === '{namespace}';
  if (namespaced) rest = rest.slice(2);
  return { group, version, namespaced, watch, rest };
}

function note(found: Map<string, Found>, path: string, item: Swagger['paths'][string]): void {
  const at = splitPath(path);
  const resource = at?.rest[0];
  if (at === undefined || resource === undefined || resource === '' || resource.includes('{')) return;
  const key = `${at.group}/${at.version}/${resource}`;
  const entry = found.get(key) ?? {
    group: at.group,
    version: at.version,
    resource,
    kind: '',
    namespaced: false,
    verbs: new Set<string>(),
    subresources: new Map(),
  };
  found.set(key, entry);
  entry.namespaced ||= at.namespaced;
  const subresource = at.rest[1] === '{name}' ? at.rest[2] : undefined;
  for (const [method, operation] of Object.entries(item)) {
    if (!methods.has(method)) continue;
    const gvk = operation['x-kubernetes-group-version-kind'];
    const action = operation['x-kubernetes-action'] ?? '';
    const verb = action === 'connect' ? connectVerbs[method] : verbs[action];
    if (gvk === undefined || verb === undefined) continue;
    if (subresource === undefined) {
      entry.verbs.add(verb);
      if (verb !== 'deletecollection') entry.kind ||= gvk.kind;
      continue;
    }
    // Paths below a proxy carry the proxy's own verbs once more.
    if (at.rest.length > 3) continue;
    const sub = entry.subresources.get(subresource) ?? { kind: gvk.kind, group: gvk.group, version: gvk.version, verbs: new Set<string>() };
    sub.verbs.add(verb);
    entry.subresources.set(subresource, sub);
  }
}

function finish(entry: Found, schema: Schema): ResourceInfo | undefined {
  const definition = Object.entries(schema.definitions).find(([, candidate]) =>
    candidate['x-kubernetes-group-version-kind']?.some((gvk) => gvk.group === entry.group && gvk.version === entry.version && gvk.kind === entry.kind),
  );
  if (definition === undefined) return undefined;
  const name = entry.group === '' ? entry.resource : `${entry.resource}.${entry.group}`;
  const info: ResourceInfo = {
    group: entry.group,
    version: entry.version,
    resource: entry.resource,
    singular: entry.kind.toLowerCase(),
    kind: entry.kind,
    namespaced: entry.namespaced,
    verbs: [...entry.verbs].sort(),
    definition: definition[0],
  };
  const short = shortNames[name];
  if (short !== undefined) info.shortNames = [...short];
  if (inAll.has(name)) info.categories = ['all'];
  if (inApiExtensions.has(name)) info.categories = ['api-extensions'];
  const subresources = [...entry.subresources].sort(([a], [b]) => (a < b ? -1 : 1));
  if (subresources.length > 0) {
    info.subresources = subresources.map(([sub, from]) => {
      const out: SubresourceInfo = { name: sub, kind: from.kind, verbs: [...from.verbs].sort() };
      if (from.group !== entry.group) out.group = from.group;
      if (from.group !== entry.group || from.version !== entry.version) out.version = from.version;
      return out;
    });
  }
  return info;
}

/** What can be done with each resource, read from the paths of the description. */
export function buildResources(swagger: Swagger, schema: Schema): ResourceInfo[] {
  const found = new Map<string, Found>();
  for (const [path, item] of Object.entries(swagger.paths)) note(found, path, item);
  const all = [...found.values()].map((entry) => finish(entry, schema)).filter((info) => info !== undefined);
  const key = (info: ResourceInfo): string => `${info.group}/${info.version}/${info.resource}`;
  return all.sort((a, b) => (key(a) < key(b) ? -1 : 1));
}

export function printResources(resources: readonly ResourceInfo[]): string {
  return `[\n${resources.map((info) => JSON.stringify(info)).join(',\n')}\n]\n`;
}
