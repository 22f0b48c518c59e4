import type { ResourceInfo } from '../../proto/kube/schema-types.ts';
import { checkEscalation } from './escalate.ts';
import { nodeOf } from './authorize.ts';
import type { User } from './authorize.ts';
import { Failure, forbidden, notFound } from './failure.ts';
import type { Obj } from './json.ts';
import type { Surroundings } from './strategy.ts';
import { restrictNodeCreate, restrictNodeDelete, restrictNodeUpdate } from './admission-node.ts';
import { admitPod } from './admission-pods.ts';
import { limitPod, checkQuota } from './admission-limits.ts';

/** The built-in admission that every create passes, between defaults and validation. Changes the object in place. */
export function admitCreate(info: ResourceInfo, object: Obj, user: User, around: Surroundings, warnings: string[]): void {
  if (info.namespaced) requireNamespace(info, object, around);
  checkEscalation(info, object, undefined, user, around.view);
  const isCore = info.group === '';
  const node = nodeOf(user);
  if (node !== undefined) restrictNodeCreate(info, object, node);
  if (isCore && info.resource === 'pods') {
    admitPod(object, user, around, warnings);
    limitPod(object, around);
  }
  if (isCore && info.resource === 'nodes') taintNewNode(object);
  if (isCore && (info.resource === 'persistentvolumeclaims' || info.resource === 'persistentvolumes')) protectStorage(info, object, around);
  if (info.resource === 'certificatesigningrequests') nameRequestor(object, user);
  if (info.group === 'networking.k8s.io' && info.resource === 'ingresses') defaultIngressClass(object, around);
  if (info.namespaced) checkQuota(info, object, around);
}

export function admitUpdate(info: ResourceInfo, object: Obj, old: Obj, user: User, around: Surroundings): void {
  checkEscalation(info, object, old, user, around.view);
  const node = nodeOf(user);
  if (node !== undefined) restrictNodeUpdate(info, object, old, node);
}

/** What a delete or an eviction passes before anything is changed. */
export function admitDelete(info: ResourceInfo, old: Obj, user: User): void {
  const node = nodeOf(user);
  if (node !== undefined) restrictNodeDelete(info, old, node);
}

function requireNamespace(info: ResourceInfo, object: Obj, around: Surroundings): void {
  const name: string = object['metadata'].namespace;
  const namespace = around.view.get('', 'namespaces', '', name);
  if (namespace === undefined) throw notFound({ group: '', resource: 'namespaces' }, name);
  if (namespace['metadata'].deletionTimestamp === undefined && namespace['status']?.phase !== 'Terminating') return;
  const refused = forbidden(info, object['metadata'].name ?? '', `unable to create new content in namespace ${name} because it is being terminated`);
  throw new Failure(403, 'Forbidden', refused.message, {
    ...refused.details,
    causes: [{ reason: 'NamespaceTerminating', message: `namespace ${name} is being terminated`, field: 'metadata.namespace' }],
  });
}

/** Who asks for a certificate is not for the request itself to say. */
function nameRequestor(object: Obj, user: User): void {
  const spec: Obj = (object['spec'] ??= {});
  spec['username'] = user.name;
  spec['groups'] = [...user.groups];
  if (user.uid === undefined) delete spec['uid'];
  else spec['uid'] = user.uid;
  if (user.extra === undefined) delete spec['extra'];
  else spec['extra'] = user.extra;
}

/** A node that just registered takes no pods until its first Ready is seen. */
function taintNewNode(node: Obj): void {
  node['spec'] ??= {};
  const taints: Obj[] = (node['spec'].taints ??= []);
  const key = 'node.kubernetes.io/not-ready';
  if (!taints.some((taint) => taint['key'] === key && taint['effect'] === 'NoSchedule')) taints.push({ key, effect: 'NoSchedule' });
}

function protectStorage(info: ResourceInfo, object: Obj, around: Surroundings): void {
  const finalizer = info.resource === 'persistentvolumes' ? 'kubernetes.io/pv-protection' : 'kubernetes.io/pvc-protection';
  const finalizers: string[] = (object['metadata'].finalizers ??= []);
  if (!finalizers.includes(finalizer)) finalizers.push(finalizer);
  const hasClass = object['spec']?.storageClassName !== undefined || object['metadata'].annotations?.['volume.beta.kubernetes.io/storage-class'] !== undefined;
  if (info.resource !== 'persistentvolumeclaims' || hasClass) return;
  const standard = [...around.view.list('storage.k8s.io', 'storageclasses')]
    .filter((item) => item['metadata'].annotations?.['storageclass.kubernetes.io/is-default-class'] === 'true')
    .toSorted((a, b) => (a['metadata'].creationTimestamp < b['metadata'].creationTimestamp ? 1 : -1))[0];
  if (standard !== undefined) object['spec'].storageClassName = standard['metadata'].name;
}

function defaultIngressClass(object: Obj, around: Surroundings): void {
  if (object['spec']?.ingressClassName !== undefined || object['metadata'].annotations?.['kubernetes.io/ingress.class'] !== undefined) return;
  const standard = [...around.view.list('networking.k8s.io', 'ingressclasses')].find(
    (item) => item['metadata'].annotations?.['ingressclass.kubernetes.io/is-default-class'] === 'true',
  );
  if (standard !== undefined) (object['spec'] ??= {}).ingressClassName = standard['metadata'].name;
}
