import type { ResourceInfo } from '../../proto/kube/schema-types.ts';
import { authorize, rulesFor } from '../core/authorize.ts';
import type { Attributes, User } from '../core/authorize.ts';
import { badRequest } from '../core/failure.ts';
import type { Obj } from '../core/json.ts';
import { decodeObject } from './body.ts';
import type { Answer, Call, Kernel } from './kernel.ts';
import type { Tokens } from './tokens.ts';

const KINDS = new Set([
  'tokenreviews',
  'selfsubjectreviews',
  'subjectaccessreviews',
  'localsubjectaccessreviews',
  'selfsubjectaccessreviews',
  'selfsubjectrulesreviews',
]);

/** Kinds that are questions: they are answered and never stored. */
export const isReview = (info: ResourceInfo): boolean =>
  KINDS.has(info.resource) && (info.group === 'authentication.k8s.io' || info.group === 'authorization.k8s.io');

export async function review(kernel: Kernel, tokens: Tokens, info: ResourceInfo, call: Call): Promise<Answer> {
  const warnings: string[] = [];
  const object = await decodeObject(kernel, info, call, warnings);
  const spec: Obj = object['spec'] ?? {};
  const answer = (status: Obj): Answer => ({
    status: 201,
    kind: 'object',
    object: { ...object, metadata: { ...object['metadata'], creationTimestamp: null }, status },
    warnings,
  });
  switch (info.resource) {
    case 'tokenreviews':
      return answer(reviewToken(tokens, spec));
    case 'selfsubjectreviews':
      return answer({ userInfo: userInfo(call.user) });
    case 'selfsubjectaccessreviews':
      return answer(reviewAccess(kernel, call.user, spec));
    case 'selfsubjectrulesreviews':
      return answer(reviewRules(kernel, call.user, spec['namespace'] ?? ''));
    default: {
      if ((spec['user'] ?? '') === '' && (spec['groups'] ?? []).length === 0) throw badRequest('at least one of user or group must be specified');
      const user: User = { name: spec['user'] ?? '', uid: spec['uid'], groups: spec['groups'] ?? [], extra: spec['extra'] };
      return answer(reviewAccess(kernel, user, spec));
    }
  }
}

function userInfo(user: User): Obj {
  return { username: user.name, uid: user.uid, groups: user.groups, extra: user.extra };
}

function reviewToken(tokens: Tokens, spec: Obj): Obj {
  const audiences: string[] | undefined = (spec['audiences'] ?? []).length > 0 ? spec['audiences'] : undefined;
  const verified = tokens.verify(spec['token'] ?? '', audiences);
  if (verified === undefined) return { user: {}, error: 'invalid bearer token' };
  return { authenticated: true, user: userInfo(verified.user), audiences: verified.audiences };
}

function reviewAccess(kernel: Kernel, user: User, spec: Obj): Obj {
  const { resourceAttributes: resource, nonResourceAttributes: path } = spec as { resourceAttributes?: Obj; nonResourceAttributes?: Obj };
  if ((resource === undefined) === (path === undefined)) throw badRequest('exactly one of nonResourceAttributes or resourceAttributes must be specified');
  const asked: Attributes = {
    user,
    verb: resource?.['verb'] ?? path?.['verb'] ?? '',
    isResource: resource !== undefined,
    group: resource?.['group'] ?? '',
    resource: resource?.['resource'] ?? '',
    subresource: resource?.['subresource'] ?? '',
    namespace: resource?.['namespace'] ?? '',
    name: resource?.['name'] ?? '',
    path: path?.['path'] ?? '',
    fieldSelector: fieldSelectorOf(resource),
  };
  const { allowed, reason } = authorize(kernel.view, asked);
  return reason === '' ? { allowed } : { allowed, reason };
}

/** A review names the selector as text or as requirements; of those only equality matters to a decision here. */
function fieldSelectorOf(resource: Obj | undefined): string {
  const selector: Obj = resource?.['fieldSelector'] ?? {};
  if (selector['rawSelector'] !== undefined) return selector['rawSelector'];
  const requirements: Obj[] = selector['requirements'] ?? [];
  return requirements
    .filter(({ operator, values }) => operator === 'In' && values?.length === 1)
    .map(({ key, values }) => `${key}=${values[0]}`)
    .join(',');
}

function reviewRules(kernel: Kernel, user: User, namespace: string): Obj {
  const everything = user.groups.includes('system:masters')
    ? [
        { verbs: ['*'], apiGroups: ['*'], resources: ['*'] },
        { verbs: ['*'], nonResourceURLs: ['*'] },
      ]
    : [];
  const rules: Obj[] = [...everything, ...rulesFor(kernel.view, user, namespace)];
  return {
    resourceRules: rules
      .filter((rule) => rule['nonResourceURLs'] === undefined)
      .map(({ verbs, apiGroups, resources, resourceNames }) => ({ verbs, apiGroups, resources, resourceNames })),
    nonResourceRules: rules.filter((rule) => rule['nonResourceURLs'] !== undefined).map(({ verbs, nonResourceURLs }) => ({ verbs, nonResourceURLs })),
    incomplete: false,
  };
}
