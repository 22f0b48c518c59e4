import type { ResourceInfo } from '../../proto/kube/schema-types.ts';
import { forbidden } from './failure.ts';
import { same } from './json.ts';
import type { Obj } from './json.ts';
import type { View } from './authorize.ts';

/** Labels of the kubernetes.io and k8s.io domains that a kubelet may set on its own Node. */
const OWN_LABELS = new Set([
  'kubernetes.io/hostname',
  'kubernetes.io/os',
  'kubernetes.io/arch',
  'topology.kubernetes.io/zone',
  'topology.kubernetes.io/region',
  'node.kubernetes.io/instance-type',
  'node.kubernetes.io/windows-build',
  'failure-domain.beta.kubernetes.io/zone',
  'failure-domain.beta.kubernetes.io/region',
  'failure-domain.kubernetes.io/zone',
  'failure-domain.kubernetes.io/region',
  'beta.kubernetes.io/os',
  'beta.kubernetes.io/arch',
  'beta.kubernetes.io/instance-type',
]);
const OWN_DOMAINS = ['kubelet.kubernetes.io', 'node.kubernetes.io'];

const isWithin = (domain: string, parent: string): boolean => domain === parent || domain.endsWith(`.${parent}`);

function isForeignLabel(key: string): boolean {
  const slash = key.indexOf('/');
  const domain = slash < 0 ? '' : key.slice(0, slash);
  if (isWithin(domain, 'node-restriction.kubernetes.io')) return true;
  if (!isWithin(domain, 'kubernetes.io') && !isWithin(domain, 'k8s.io')) return false;
  return !OWN_LABELS.has(key) && !OWN_DOMAINS.some((own) => isWithin(domain, own));
}

function foreignLabels(next: Obj | undefined, old: Obj | undefined): string[] {
  const keys = new Set([...Object.keys(next ?? {}), ...Object.keys(old ?? {})]);
  return [...keys].filter((key) => next?.[key] !== old?.[key] && isForeignLabel(key)).toSorted();
}

/** What a kubelet may create: its Node, its Lease, its CSINode, and mirrors of its static pods (NodeRestriction). */
export function restrictNodeCreate(info: ResourceInfo, object: Obj, node: string): void {
  const name: string = object['metadata'].name ?? '';
  switch (`${info.group}/${info.resource}`) {
    case '/nodes': {
      onlyItself(info, name, node);
      const foreign = foreignLabels(object['metadata'].labels, {});
      if (foreign.length > 0) throw forbidden(info, name, `node ${JSON.stringify(node)} is not allowed to set the following labels: ${foreign.join(', ')}`);
      return;
    }
    case '/pods':
      if (object['metadata'].annotations?.['kubernetes.io/config.mirror'] === undefined)
        throw forbidden(info, name, `pod does not have "kubernetes.io/config.mirror" annotation, node ${JSON.stringify(node)} can only create mirror pods`);
      if (object['spec']?.nodeName !== node) throw forbidden(info, name, `node ${JSON.stringify(node)} can only create pods with spec.nodeName set to itself`);
      return;
    case 'coordination.k8s.io/leases':
      if (name !== node) throw forbidden(info, name, 'can only access node lease with the same name as the requesting node');
      return;
    case 'storage.k8s.io/csinodes':
      if (name !== node) throw forbidden(info, name, 'can only access CSINode with the same name as the requesting node');
      return;
    default:
      return;
  }
}

/** Holds for every path a write can take, status and other subresources too. */
export function restrictNodeUpdate(info: ResourceInfo, object: Obj, old: Obj, node: string): void {
  if (info.group !== '') return;
  const name: string = old['metadata'].name;
  if (info.resource === 'pods' && old['spec']?.nodeName !== node)
    throw forbidden(info, name, `node ${JSON.stringify(node)} can only update pod status for pods with spec.nodeName set to itself`);
  if (info.resource !== 'nodes') return;
  onlyItself(info, name, node);
  const refuse = (what: string): never => {
    throw forbidden(info, name, what);
  };
  if (!same(object['spec']?.taints ?? [], old['spec']?.taints ?? [])) refuse(`node ${JSON.stringify(node)} is not allowed to modify taints`);
  if (!same(object['metadata'].ownerReferences ?? [], old['metadata'].ownerReferences ?? []))
    refuse(`node ${JSON.stringify(node)} is not allowed to modify ownerReferences`);
  const foreign = foreignLabels(object['metadata'].labels, old['metadata'].labels);
  if (foreign.length > 0) refuse(`is not allowed to modify labels: ${foreign.join(', ')}`);
}

/** A kubelet ends pods that are bound to it, by delete or eviction, and nothing of other nodes. */
export function restrictNodeDelete(info: ResourceInfo, old: Obj, node: string): void {
  if (info.group !== '') return;
  const name: string = old['metadata'].name;
  if (info.resource === 'nodes') onlyItself(info, name, node);
  if (info.resource === 'pods' && old['spec']?.nodeName !== node)
    throw forbidden(info, name, `node ${JSON.stringify(node)} can only delete pods with spec.nodeName set to itself`);
}

/** A kubelet asks for tokens of pods that are bound to it, one by one. */
export function restrictNodeToken(info: ResourceInfo, namespace: string, account: string, request: Obj, node: string, view: View): void {
  const bound: Obj | undefined = request['spec']?.boundObjectRef;
  const refuse = (what: string): never => {
    throw forbidden(info, account, what);
  };
  if (bound === undefined || bound['kind'] !== 'Pod' || (bound['name'] ?? '') === '') return refuse('node requested token not bound to a pod');
  if ((bound['uid'] ?? '') === '') refuse('node requested token with a pod binding without a uid');
  const pod = view.get('', 'pods', namespace, bound['name']);
  // One that is gone is told as not found by whoever issues the token.
  if (pod === undefined) return;
  if (pod['metadata'].uid !== bound['uid']) refuse('the UID in the bound object reference does not match the UID in record');
  if (pod['spec'].nodeName !== node) refuse('node requested token bound to a pod scheduled on a different node');
}

function onlyItself(info: ResourceInfo, name: string, node: string): void {
  if (name !== node) throw forbidden(info, name, `node ${JSON.stringify(node)} is not allowed to modify node ${JSON.stringify(name)}`);
}
