import type { ResourceInfo } from '../../proto/kube/schema-types.ts';
import { authorize, rulesFor, rulesOf } from './authorize.ts';
import { ruleAllows } from './authorize-rule.ts';
import type { Attributes, User, View } from './authorize.ts';
import { forbidden } from './failure.ts';
import { same } from './json.ts';
import type { Obj } from './json.ts';

/**
 * Nobody gives away more than he has: writing a role needs its permissions (or `escalate`), writing a binding needs
 * those of the role it names (or `bind`). Throws a 403 that lists what is missing.
 */
export function checkEscalation(info: ResourceInfo, object: Obj, old: Obj | undefined, user: User, view: View): void {
  if (info.group !== 'rbac.authorization.k8s.io' || user.groups.includes('system:masters')) return;
  const namespace: string = object['metadata'].namespace ?? '';
  const may = (verb: string, resource: string, name: string): boolean =>
    authorize(view, { user, verb, isResource: true, group: info.group, resource, subresource: '', namespace, name, path: '' }).allowed;
  let granted: Obj[];
  if (info.resource === 'roles' || info.resource === 'clusterroles') {
    if (old !== undefined && same(object['rules'], old['rules']) && same(object['aggregationRule'], old['aggregationRule'])) return;
    if (may('escalate', info.resource, object['metadata'].name)) return;
    granted = object['aggregationRule'] === undefined ? (object['rules'] ?? []) : EVERYTHING;
  } else {
    if (old !== undefined && same(object['subjects'], old['subjects'])) return;
    const { kind, name } = object['roleRef'] ?? {};
    if (may('bind', kind === 'Role' ? 'roles' : 'clusterroles', name)) return;
    const role = view.get(info.group, kind === 'Role' ? 'roles' : 'clusterroles', kind === 'Role' ? namespace : '', name);
    granted = role === undefined ? EVERYTHING : rulesOf(view, role);
  }
  const own = [...rulesFor(view, user, namespace)];
  const missing = granted.filter((rule) => !isCovered(rule, own, user));
  if (missing.length === 0) return;
  const list = missing.map((rule) => describe(rule)).join('\n');
  throw forbidden(
    info,
    object['metadata'].name,
    `user ${JSON.stringify(user.name)} (groups=${JSON.stringify(user.groups)}) is attempting to grant RBAC permissions not currently held:\n${list}`,
  );
}

const EVERYTHING: Obj[] = [{ apiGroups: ['*'], resources: ['*'], verbs: ['*'] }];

/** Each single permission of a rule must be allowed by one of `own`. */
function isCovered(rule: Obj, own: readonly Obj[], user: User): boolean {
  const asked: Attributes[] = [];
  const base = { user, namespace: '', group: '', resource: '', subresource: '', name: '', path: '' };
  for (const verb of rule['verbs'] ?? []) {
    for (const path of rule['nonResourceURLs'] ?? []) asked.push({ ...base, verb, isResource: false, path });
    for (const group of rule['apiGroups'] ?? []) {
      for (const text of rule['resources'] ?? []) {
        const [resource, subresource = ''] = String(text).split('/') as [string, string?];
        for (const name of (rule['resourceNames'] ?? []).length > 0 ? rule['resourceNames'] : [''])
          asked.push({ ...base, verb, isResource: true, group, resource, subresource, name });
      }
    }
  }
  return asked.every((attributes) => own.some((have) => ruleAllows(have, attributes)));
}

function describe(rule: Obj): string {
  const list = (name: string, values: unknown): string | undefined =>
    Array.isArray(values) && values.length > 0 ? `${name}:[${values.map((value) => JSON.stringify(value)).join(' ')}]` : undefined;
  const parts = [
    list('APIGroups', rule['apiGroups']),
    list('Resources', rule['resources']),
    list('ResourceNames', rule['resourceNames']),
    list('NonResourceURLs', rule['nonResourceURLs']),
    list('Verbs', rule['verbs']),
  ];
  return `{${parts.filter((part) => part !== undefined).join(', ')}}`;
}
