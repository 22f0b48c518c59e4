import { authorize, denial } from '../core/authorize.ts';
import type { Attributes } from '../core/authorize.ts';
import { forbidden, methodNotAllowed, noSuchPath } from '../core/failure.ts';
import type { Answer, Call, Kernel } from './kernel.ts';
import type { PlainPaths } from './plain-paths.ts';
import { get, list } from './read.ts';
import { acceptedBy, watchForm } from './render.ts';
import { isReview, review } from './reviews.ts';
import { bind, subresource } from './subresources.ts';
import type { Tokens } from './tokens.ts';
import { watch } from './watch.ts';
import { create, patch, remove, removeCollection, update } from './write.ts';

/** The one request path behind every door: the HTTPS server and callers inside the process. */
export interface Api {
  /** Authorizes and carries out; throws Failure for what the client is told. */
  handle(call: Call): Promise<Answer>;
  /** Throws a 403 when this user may not do that. */
  check(call: Call, verb?: string): void;
}

export function createApi(kernel: Kernel, tokens: Tokens, plain: PlainPaths): Api {
  const check = (call: Call, verb = call.info.verb): void => {
    const { info, user } = call;
    const asked: Attributes = {
      user,
      verb,
      isResource: info.isResource,
      group: info.group,
      resource: info.resource,
      subresource: info.subresource,
      namespace: info.namespace,
      name: info.name,
      path: info.path,
      fieldSelector: call.query.get('fieldSelector') ?? '',
    };
    const { allowed, reason } = authorize(kernel.view, asked);
    if (allowed) return;
    const of = info.isResource ? { group: info.group, resource: info.resource } : { group: '', resource: '' };
    throw forbidden(of, info.isResource ? info.name : '', denial(asked, reason));
  };
  const handle = async (call: Call): Promise<Answer> => {
    const { info } = call;
    check(call);
    if (!info.isResource) return plain.handle(call);
    const resource = kernel.registry.find(info.group, info.version, info.resource);
    if (resource === undefined) throw noSuchPath();
    if (isReview(resource)) return review(kernel, tokens, resource, call);
    if (resource.resource === 'bindings' && resource.group === '') return bind(kernel, kernel.registry.find('', 'v1', 'pods')!, call);
    if (info.subresource !== '') {
      if (resource.subresources?.some((sub) => sub.name === info.subresource) !== true) throw noSuchPath();
      return subresource(kernel, tokens, resource, call);
    }
    // A namespace's own name stands where other objects have theirs.
    const namespace = resource.namespaced ? info.namespace : '';
    const isNamed = info.name !== '' && info.verb !== 'list' && info.verb !== 'watch' && info.verb !== 'deletecollection';
    if (!resource.verbs.includes(info.verb)) throw methodNotAllowed(resource);
    switch (info.verb) {
      case 'get':
        return get(kernel, resource, call);
      case 'list': {
        const { entries, metadata } = await list(kernel, resource, namespace, call.query);
        return { status: 200, kind: 'list', resource, entries, metadata };
      }
      case 'watch':
        return watch(kernel, resource, namespace, onlyNamed(call), watchForm(kernel, resource, acceptedBy(call.accept, true), call.query));
      case 'create':
        if (isNamed) throw methodNotAllowed(resource);
        return create(kernel, resource, call);
      case 'update':
        return update(kernel, resource, call);
      case 'patch':
        return patch(kernel, resource, call);
      case 'delete':
        return remove(kernel, resource, call);
      case 'deletecollection':
        return removeCollection(kernel, resource, call);
      default:
        throw methodNotAllowed(resource);
    }
  };
  return {
    check,
    async handle(call) {
      const answer = await handle(call);
      if (call.info.resource !== 'endpoints' || call.info.group !== '') return answer;
      return { ...answer, warnings: [...(answer.warnings ?? []), 'v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice'] };
    },
  };
}

/** A watch on one object's own path is a watch of the collection with the name selected. */
function onlyNamed(call: Call): Call {
  const { name, path } = call.info;
  if (name === '' || !path.endsWith(`/${name}`) || call.query.has('fieldSelector')) return call;
  const query = new URLSearchParams(call.query);
  query.set('fieldSelector', `metadata.name=${name}`);
  return { ...call, query };
}
