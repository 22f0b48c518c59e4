import { authorizeNode } from './authorize-node.ts';
import { ruleAllows } from './authorize-rule.ts';
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
  /** The field selector of a list or watch as it was written. */
  fieldSelector?: string;
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

/** A role's rules; those of an aggregated one are the rules of the roles it selects. Roles may select each other: each counts once. */
export function rulesOf(view: View, role: Obj, seen: Set<Obj> = new Set()): Obj[] {
  seen.add(role);
  const selectors: Obj[] | undefined = role['aggregationRule']?.clusterRoleSelectors;
  if (selectors === undefined) return role['rules'] ?? [];
  const parts = [...view.list('rbac.authorization.k8s.io', 'clusterroles')].filter((other) =>
    selectors.some((selector) => hasLabels(other, selector['matchLabels'])),
  );
  return parts.flatMap((other) => (seen.has(other) ? [] : rulesOf(view, other, seen)));
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
    reason = decided.reason === '' ? '' : `node: ${decided.reason}`;
  }
  for (const rule of rulesFor(view, asked.user, asked.namespace)) if (ruleAllows(rule, asked)) return { allowed: true, reason: '' };
  return { allowed: false, reason };
}

export function nodeOf(user: User): string | undefined {
  return user.groups.includes('system:nodes') && user.name.startsWith('system:node:') ? user.name.slice('system:node:'.length) : undefined;
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
