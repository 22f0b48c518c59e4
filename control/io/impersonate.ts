import type { IncomingHttpHeaders } from 'node:http';
import type { User } from '../core/authorize.ts';
import { badRequest } from '../core/failure.ts';
import { parseRequest } from '../core/request.ts';
import type { Api } from './api.ts';
import type { Call } from './kernel.ts';

const EXTRA = 'impersonate-extra-';

const list = (value: string | string[] | undefined): string[] =>
  value === undefined ? [] : Array.isArray(value) ? value : value.split(',').map((item) => item.trim());

/** `kubectl --as`: the user a call speaks for, after checking that the caller may do so. */
export function impersonate(api: Api, call: Call, headers: IncomingHttpHeaders): User {
  const name = headers['impersonate-user'];
  const groups = list(headers['impersonate-group']);
  const extras = Object.keys(headers).filter((key) => key.startsWith(EXTRA));
  if (name === undefined || Array.isArray(name)) {
    if (groups.length > 0 || extras.length > 0 || headers['impersonate-uid'] !== undefined)
      throw badRequest('requested impersonation without impersonating a user');
    return call.user;
  }
  const may = (group: string, resource: string, namespace: string, subject: string, subresource = ''): void => {
    const info = {
      ...parseRequest('POST', '/api/v1/x', new URLSearchParams()),
      isResource: true,
      group,
      version: 'v1',
      resource,
      subresource,
      namespace,
      name: subject,
      verb: 'impersonate',
    };
    api.check({ ...call, info });
  };
  const account = /^system:serviceaccount:([^:]+):([^:]+)$/.exec(name);
  if (account !== null) may('', 'serviceaccounts', account[1]!, account[2]!);
  else may('', 'users', '', name);
  for (const group of groups) may('', 'groups', '', group);
  const extra: Record<string, string[]> = {};
  for (const key of extras) {
    const field = decodeURIComponent(key.slice(EXTRA.length));
    extra[field] = list(headers[key]);
    for (const value of extra[field]) may('authentication.k8s.io', 'userextras', '', value, field);
  }
  const implied = account === null ? [] : ['system:serviceaccounts', `system:serviceaccounts:${account[1]}`];
  const own = groups.length > 0 ? groups : implied;
  const basic = name === 'system:anonymous' ? 'system:unauthenticated' : 'system:authenticated';
  return { name, groups: own.includes(basic) ? own : [...own, basic], extra };
}
