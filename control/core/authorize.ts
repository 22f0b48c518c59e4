import type { Obj } from './json.ts';

export interface User {
  name: string;
  uid?: string;
  groups: readonly string[];
  extra?: Readonly<Record<string, readonly string[]>>;
}

export interface Attributes {
  user: User;
  verb: string;
  isResource: boolean;
  group: string;
  resource: string;
  subresource: string;
  namespace: string;
  name: string;
  path: string;
}

export interface Decision {
  allowed: boolean;
  reason: string;
}

/** The stored objects that decisions need; reads only. */
export interface View {
  get(group: string, resource: string, namespace: string, name: string): Obj | undefined;
  list(group: string, resource: string, namespace?: string): Iterable<Obj>;
}

const matches = (list: readonly string[] | undefined, value: string): boolean => list !== undefined && (list.includes('*') || list.includes(value));

/** Does one rule allow this? */
export function ruleAllows(rule: Obj, asked: Attributes): boolean {
  if (!matches(rule['verbs'], asked.verb)) return false;
  if (!asked.isResource) {
    return (rule['nonResourceURLs'] ?? []).some(
      (url: string) => url === '*' || url === asked.path || (url.endsWith('*') && asked.path.startsWith(url.slice(0, -1))),
    );
  }
  if (!matches(rule['apiGroups'], asked.group)) return false;
  const wanted = asked.subresource === '' ? asked.resource : `${asked.resource}/${asked.subresource}`;
  const hasResource = (rule['resources'] ?? []).some(
    (name: string) => name === '*' || name === wanted || (asked.subresource !== '' && name === `*/${asked.subresource}`),
  );
  if (!hasResource) return false;
  const names: string[] = rule['resourceNames'] ?? [];
  return names.length === 0 || names.includes(asked.name);
}

function isSubject(subject: Obj, user: User, bindingNamespace: string): boolean {
  switch (subject['kind']) {
    case 'User':
      return subject['name'] === user.name;
    case 'Group':
      return user.groups.includes(subject['name']);
    case 'ServiceAccount':
      return user.name === `system:serviceaccount:${subject['namespace'] ?? bindingNamespace}:${subject['name']}`;
    default:
      return false;
  }
}

const hasLabels = (object: Obj, wanted: Obj | undefined): boolean =>
  Object.entries(wanted ?? {}).every(([key, value]) => object['metadata'].labels?.[key] === value);

/** A role's rules; those of an aggregated one are the rules of the roles it selects. */
export function rulesOf(view: View, role: Obj): Obj[] {
  const selectors: Obj[] | undefined = role['aggregationRule']?.clusterRoleSelectors;
  if (selectors === undefined) return role['rules'] ?? [];
  const parts = [...view.list('rbac.authorization.k8s.io', 'clusterroles')].filter(
    (other) => other !== role && selectors.some((selector) => hasLabels(other, selector['matchLabels'])),
  );
  return parts.flatMap((other) => rulesOf(view, other));
}

/** Every RBAC rule that holds for a user in a namespace ('' for the whole cluster only). */
export function* rulesFor(view: View, user: User, namespace: string): Generator<Obj> {
  const rules = (ref: Obj, from: string): Obj[] => {
    const role =
      ref['kind'] === 'Role'
        ? view.get('rbac.authorization.k8s.io', 'roles', from, ref['name'])
        : view.get('rbac.authorization.k8s.io', 'clusterroles', '', ref['name']);
    return role === undefined ? [] : rulesOf(view, role);
  };
  for (const binding of view.list('rbac.authorization.k8s.io', 'clusterrolebindings')) {
    if ((binding['subjects'] ?? []).some((subject: Obj) => isSubject(subject, user, ''))) yield* rules(binding['roleRef'], '');
  }
  if (namespace === '') return;
  for (const binding of view.list('rbac.authorization.k8s.io', 'rolebindings', namespace)) {
    if ((binding['subjects'] ?? []).some((subject: Obj) => isSubject(subject, user, namespace))) yield* rules(binding['roleRef'], namespace);
  }
}

/** May this user do this? system:masters, then the node rules, then RBAC. */
export function authorize(view: View, asked: Attributes): Decision {
  if (asked.user.groups.includes('system:masters')) return { allowed: true, reason: '' };
  let reason = '';
  const node = nodeOf(asked.user);
  if (node !== undefined) {
    const decided = authorizeNode(view, node, asked);
    if (decided.allowed) return decided;
    reason = decided.reason;
  }
  for (const rule of rulesFor(view, asked.user, asked.namespace)) if (ruleAllows(rule, asked)) return { allowed: true, reason: '' };
  return { allowed: false, reason };
}

export function nodeOf(user: User): string | undefined {
  return user.groups.includes('system:nodes') && user.name.startsWith('system:node:') ? user.name.slice('system:node:'.length) : undefined;
}

const READ = ['get', 'list', 'watch'];

/** What every kubelet may do whatever its name is (the rules of the system:node role). */
const NODE_RULES: readonly Obj[] = [
  { apiGroups: ['authentication.k8s.io'], resources: ['tokenreviews'], verbs: ['create'] },
  { apiGroups: ['authorization.k8s.io'], resources: ['localsubjectaccessreviews', 'subjectaccessreviews'], verbs: ['create'] },
  { apiGroups: [''], resources: ['services'], verbs: READ },
  { apiGroups: [''], resources: ['nodes'], verbs: ['create', ...READ] },
  { apiGroups: [''], resources: ['nodes/status'], verbs: ['patch', 'update'] },
  { apiGroups: [''], resources: ['nodes'], verbs: ['delete', 'patch', 'update'] },
  { apiGroups: ['', 'events.k8s.io'], resources: ['events'], verbs: ['create', 'patch', 'update'] },
  { apiGroups: [''], resources: ['pods'], verbs: ['create', 'delete', ...READ] },
  { apiGroups: [''], resources: ['pods/status'], verbs: ['patch', 'update'] },
  { apiGroups: [''], resources: ['pods/eviction'], verbs: ['create'] },
  { apiGroups: ['certificates.k8s.io'], resources: ['certificatesigningrequests'], verbs: ['create', ...READ] },
  { apiGroups: ['coordination.k8s.io'], resources: ['leases'], verbs: ['create', 'delete', 'get', 'patch', 'update'] },
  { apiGroups: ['node.k8s.io'], resources: ['runtimeclasses'], verbs: READ },
  { apiGroups: ['storage.k8s.io'], resources: ['csidrivers'], verbs: READ },
  { apiGroups: ['storage.k8s.io'], resources: ['csinodes'], verbs: ['create', 'delete', 'get', 'patch', 'update'] },
  { apiGroups: ['resource.k8s.io'], resources: ['resourceslices'], verbs: ['create', 'delete', 'deletecollection', 'patch', 'update', ...READ] },
];

/** Secrets, ConfigMaps, claims and tokens only for pods bound to this node; Leases and CSINodes only its own. */
function authorizeNode(view: View, node: string, asked: Attributes): Decision {
  const refused = (reason: string): Decision => ({ allowed: false, reason });
  const path = asked.subresource === '' ? asked.resource : `${asked.resource}/${asked.subresource}`;
  const unrelated = `no relationship found between node '${node}' and this object`;
  const podsHere = (): Obj[] => [...view.list('', 'pods', asked.namespace)].filter((pod) => pod['spec']?.nodeName === node);
  switch (path) {
    case 'secrets':
    case 'configmaps':
    case 'persistentvolumeclaims':
      if (asked.verb !== 'get' && asked.verb !== 'list' && asked.verb !== 'watch') return refused('can only read resources of this type');
      if (asked.name === '') return refused('No Object name found');
      return podsHere().some((pod) => refersTo(view, pod, asked.resource, asked.name)) ? { allowed: true, reason: '' } : refused(unrelated);
    case 'persistentvolumes':
      return asked.verb === 'get' ? { allowed: true, reason: '' } : refused('can only get individual resources of this type');
    case 'persistentvolumeclaims/status':
    case 'volumeattachments':
    case 'resourceclaims':
      return asked.verb === 'get' || asked.subresource === 'status' ? { allowed: true, reason: '' } : refused('can only get individual resources of this type');
    case 'serviceaccounts':
      return asked.verb === 'get' && podsHere().some((pod) => pod['spec'].serviceAccountName === asked.name)
        ? { allowed: true, reason: '' }
        : refused(unrelated);
    case 'serviceaccounts/token':
      if (asked.verb !== 'create') return refused('can only create tokens for individual service accounts');
      return podsHere().some((pod) => (pod['spec'].serviceAccountName ?? 'default') === asked.name) ? { allowed: true, reason: '' } : refused(unrelated);
    case 'leases':
      if (asked.namespace !== 'kube-node-lease') return refused(`can only access leases in the "kube-node-lease" system namespace`);
      if (asked.verb !== 'create' && asked.name !== node) return refused('can only access node lease with the same name as the requesting node');
      break;
    case 'csinodes':
      if (asked.verb !== 'create' && asked.name !== node) return refused('can only access CSINode with the same name as the requesting node');
      break;
    default:
      break;
  }
  return NODE_RULES.some((rule) => ruleAllows(rule, asked)) ? { allowed: true, reason: '' } : refused('');
}

/** Does a pod's spec name this Secret, ConfigMap or claim? */
function refersTo(view: View, pod: Obj, resource: string, name: string): boolean {
  const spec: Obj = pod['spec'];
  const volumes: Obj[] = spec['volumes'] ?? [];
  const containers: Obj[] = [...(spec['initContainers'] ?? []), ...(spec['containers'] ?? []), ...(spec['ephemeralContainers'] ?? [])];
  const sources = volumes.flatMap((volume) => [volume, ...(volume['projected']?.sources ?? [])]) as Obj[];
  if (resource === 'persistentvolumeclaims') {
    return volumes.some(
      (volume) =>
        volume['persistentVolumeClaim']?.claimName === name || (volume['ephemeral'] !== undefined && `${pod['metadata'].name}-${volume['name']}` === name),
    );
  }
  const isSecret = resource === 'secrets';
  const field = isSecret ? 'secret' : 'configMap';
  if (sources.some((source) => (isSecret ? (source['secret']?.secretName ?? source['secret']?.name) : source['configMap']?.name) === name)) return true;
  for (const container of containers) {
    if ((container['env'] ?? []).some((env: Obj) => env['valueFrom']?.[`${field}KeyRef`]?.name === name)) return true;
    if ((container['envFrom'] ?? []).some((from: Obj) => from[`${field}Ref`]?.name === name)) return true;
  }
  if (!isSecret) return false;
  if ((spec['imagePullSecrets'] ?? []).some((ref: Obj) => ref['name'] === name)) return true;
  if (
    sources.some((source) =>
      Object.values(source).some(
        (inner) => (inner as Obj | undefined)?.['secretRef']?.name === name || (inner as Obj | undefined)?.['nodePublishSecretRef']?.name === name,
      ),
    )
  )
    return true;
  const account = view.get('', 'serviceaccounts', pod['metadata'].namespace, spec['serviceAccountName'] ?? 'default');
  return (
    (account?.['secrets'] ?? []).some((ref: Obj) => ref['name'] === name) || (account?.['imagePullSecrets'] ?? []).some((ref: Obj) => ref['name'] === name)
  );
}

/** The sentence a refused client reads. */
export function denial(asked: Attributes, reason: string): string {
  const who = `User ${JSON.stringify(asked.user.name)}`;
  const because = reason === '' ? '' : `: ${reason}`;
  if (!asked.isResource) return `${who} cannot ${asked.verb} path ${JSON.stringify(asked.path)}${because}`;
  const what = asked.subresource === '' ? asked.resource : `${asked.resource}/${asked.subresource}`;
  const where = asked.namespace === '' ? 'at the cluster scope' : `in the namespace ${JSON.stringify(asked.namespace)}`;
  return `${who} cannot ${asked.verb} resource ${JSON.stringify(what)} in API group ${JSON.stringify(asked.group)} ${where}${because}`;
}
