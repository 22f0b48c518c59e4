import { badRequest } from './failure.ts';

/** What a request asks for, read from its method and path alone: authorization and dispatch use the same answer. */
export interface RequestInfo {
  isResource: boolean;
  /** get list watch create update patch delete deletecollection; the lower-case method for other paths. */
  verb: string;
  path: string;
  group: string;
  version: string;
  namespace: string;
  resource: string;
  name: string;
  subresource: string;
  /** What follows a proxy subresource, with its slash. */
  rest: string;
}

const VERBS: Record<string, string> = { GET: 'get', HEAD: 'get', POST: 'create', PUT: 'update', PATCH: 'patch', DELETE: 'delete' };

/** A namespace's own subresources; anything else behind a namespace's name is a resource inside it. */
const NAMESPACE_SUBRESOURCES = new Set(['status', 'finalize']);

export function parseRequest(method: string, path: string, query: URLSearchParamsLike): RequestInfo {
  const info: RequestInfo = {
    isResource: false,
    verb: method.toLowerCase(),
    path,
    group: '',
    version: '',
    namespace: '',
    resource: '',
    name: '',
    subresource: '',
    rest: '',
  };
  const parts = path.split('/').filter((part) => part !== '');
  let at: number;
  if (parts[0] === 'api' && parts.length > 2) {
    info.version = parts[1]!;
    at = 2;
  } else if (parts[0] === 'apis' && parts.length > 3) {
    info.group = parts[1]!;
    info.version = parts[2]!;
    at = 3;
  } else return info;
  info.isResource = true;
  info.verb = VERBS[method] ?? info.verb;
  let isWatchPath = false;
  if (parts[at] === 'watch' && parts.length > at + 1) {
    isWatchPath = true;
    at++;
  }
  if (parts[at] === 'namespaces' && parts.length > at + 2 && !NAMESPACE_SUBRESOURCES.has(parts[at + 2]!)) {
    info.namespace = decoded(parts[at + 1]!);
    at += 2;
  }
  info.resource = parts[at] ?? '';
  info.name = decoded(parts[at + 1] ?? '');
  info.subresource = parts[at + 2] ?? '';
  if (info.subresource === 'proxy') {
    const marker = `/${parts[at]}/${parts[at + 1]}/proxy`;
    info.rest = path.slice(path.indexOf(marker) + marker.length);
  }
  if (info.resource === 'namespaces' && info.namespace === '' && info.name !== '') info.namespace = info.name;
  if (info.verb === 'get' && info.subresource === '') {
    const isWatch = isWatchPath || ['true', '1'].includes(query.get('watch') ?? '');
    if (isWatch) info.verb = 'watch';
    else if (info.name === '') info.verb = 'list';
  }
  if (info.verb === 'delete' && info.name === '') info.verb = 'deletecollection';
  if (info.name === '' && ['list', 'watch', 'deletecollection'].includes(info.verb)) {
    const named = /^metadata\.name==?([a-z0-9.:-]+)$/.exec(query.get('fieldSelector') ?? '');
    if (named !== null) info.name = named[1]!;
  }
  return info;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    throw badRequest(`invalid URL escape in ${JSON.stringify(part)}`);
  }
}

export interface URLSearchParamsLike {
  get(name: string): string | null;
}
