import { ruleAllows } from './authorize-rule.ts';
import type { Attributes, Decision, View } from './authorize.ts';
import type { Obj } from './json.ts';
import { parseFieldSelector } from './selectors.ts';

const READ = ['get', 'list', 'watch'];

/** What every kubelet may do whatever its name is (the rules of the system:node role). Admission holds writes to its own objects. */
const NODE_RULES: readonly Obj[] = [
  { apiGroups: ['authentication.k8s.io'], resources: ['tokenreviews'], verbs: ['create'] },
  { apiGroups: ['authorization.k8s.io'], resources: ['localsubjectaccessreviews', 'subjectaccessreviews'], verbs: ['create'] },
  { apiGroups: [''], resources: ['services'], verbs: READ },
  { apiGroups: [''], resources: ['nodes'], verbs: ['create', 'patch', 'update', ...READ] },
  { apiGroups: [''], resources: ['nodes/status'], verbs: ['patch', 'update'] },
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

const refused = (reason: string): Decision => ({ allowed: false, reason });
const allowed: Decision = { allowed: true, reason: '' };

/** A node reads itself, the pods bound to it and what those name; Leases and CSINodes only its own (KEP-279, KEP-4601). */
export function authorizeNode(view: View, node: string, asked: Attributes): Decision {
  const path = asked.subresource === '' ? asked.resource : `${asked.resource}/${asked.subresource}`;
  const unrelated = refused(`no relationship found between node '${node}' and this object`);
  const podsHere = (): Obj[] => [...view.list('', 'pods', asked.namespace)].filter((pod) => pod['spec']?.nodeName === node);
  const isRead = READ.includes(asked.verb);
  switch (path) {
    case 'nodes':
      if (isRead && asked.name === '') return refused(`node '${node}' cannot read all nodes, only its own Node object`);
      if (isRead && asked.name !== node) return refused(`node '${node}' cannot read '${asked.name}', only its own Node object`);
      break;
    case 'pods':
      if (isRead) return readsPods(view, node, asked) ?? unrelated;
      break;
    case 'secrets':
    case 'configmaps':
    case 'persistentvolumeclaims':
      if (!isRead) return refused('can only read resources of this type');
      if (asked.namespace === '') return refused('can only read namespaced object of this type');
      if (asked.name === '') return refused('No Object name found');
      return podsHere().some((pod) => refersTo(view, pod, asked.resource, asked.name)) ? allowed : unrelated;
    case 'persistentvolumeclaims/status':
      if (!['get', 'update', 'patch'].includes(asked.verb)) return refused('can only get, update, or patch status of this type');
      return podsHere().some((pod) => refersTo(view, pod, asked.resource, asked.name)) ? allowed : unrelated;
    case 'persistentvolumes':
      if (asked.verb !== 'get') return refused('can only get individual resources of this type');
      return hasVolume(view, node, asked.name) ? allowed : unrelated;
    case 'volumeattachments':
      if (asked.verb !== 'get') return refused('can only get individual resources of this type');
      return view.get(asked.group, 'volumeattachments', '', asked.name)?.['spec']?.nodeName === node ? allowed : unrelated;
    case 'resourceclaims':
      if (asked.verb !== 'get') return refused('can only get individual resources of this type');
      return podsHere().some((pod) => claimsOf(pod).includes(asked.name)) ? allowed : unrelated;
    case 'serviceaccounts':
      return asked.verb === 'get' && podsHere().some((pod) => pod['spec'].serviceAccountName === asked.name) ? allowed : unrelated;
    case 'serviceaccounts/token':
      if (asked.verb !== 'create') return refused('can only create tokens for individual service accounts');
      return podsHere().some((pod) => (pod['spec'].serviceAccountName ?? 'default') === asked.name) ? allowed : unrelated;
    case 'leases':
      if (asked.namespace !== 'kube-node-lease') return refused(`can only access leases in the "kube-node-lease" system namespace`);
      if (['list', 'watch', 'deletecollection'].includes(asked.verb)) return refused('can only get, create, update, patch, or delete a node lease');
      if (asked.verb !== 'create' && asked.name !== node) return refused('can only access node lease with the same name as the requesting node');
      break;
    case 'csinodes':
      if (asked.verb !== 'create' && asked.name !== node) return refused('can only access CSINode with the same name as the requesting node');
      break;
    default:
      break;
  }
  return NODE_RULES.some((rule) => ruleAllows(rule, asked)) ? allowed : refused('');
}

/** undefined: nothing ties this pod to the node. One that is not there may be asked for, or its end would go unseen. */
function readsPods(view: View, node: string, asked: Attributes): Decision | undefined {
  if (asked.verb === 'get') {
    const pod = view.get('', 'pods', asked.namespace, asked.name);
    return pod === undefined || pod['spec']?.nodeName === node ? allowed : undefined;
  }
  const selects = parseFieldSelector(asked.fieldSelector ?? '').some(({ path, equal, value }) => path === 'spec.nodeName' && equal && value === node);
  return selects ? allowed : refused('can only list/watch pods with spec.nodeName field selector');
}

function hasVolume(view: View, node: string, name: string): boolean {
  const claims = [...view.list('', 'persistentvolumeclaims')].filter((claim) => claim['spec']?.volumeName === name);
  return claims.some((claim) => {
    const { namespace, name: own } = claim['metadata'] as { namespace: string; name: string };
    return [...view.list('', 'pods', namespace)].some((pod) => pod['spec']?.nodeName === node && refersTo(view, pod, 'persistentvolumeclaims', own));
  });
}

function claimsOf(pod: Obj): string[] {
  const named: Obj[] = [...(pod['spec'].resourceClaims ?? []), ...(pod['status']?.resourceClaimStatuses ?? [])];
  return named.map((claim) => claim['resourceClaimName']).filter((name) => name !== undefined);
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
