import { messageOf, OpError } from '../../base/errors.ts';
import type { ResourceRef } from '../../base/kubeapi/types.ts';
import type { ControlDeps } from './deps.ts';

/** A collection the server has. */
export interface Served extends ResourceRef {
  kind: string;
  namespaced: boolean;
  verbs: readonly string[];
}

export interface Discovered {
  resources: Served[];
  /** Groups whose resources could not be read, with the reason. */
  failures: Map<string, string>;
}

interface ResourceList {
  resources?: { name: string; kind: string; namespaced: boolean; verbs?: string[]; version?: string }[];
}

interface GroupList {
  groups?: { name: string; preferredVersion?: { version: string }; versions?: { version: string }[] }[];
}

/** All collections of the server in their groups' preferred versions. A group that does not answer is named, not fatal. */
export async function discover(deps: ControlDeps, signal: AbortSignal): Promise<Discovered> {
  const found: Discovered = { resources: [], failures: new Map() };
  const groups = (await read<GroupList>(deps, '/apis', signal)).groups ?? [];
  const paths = groups.map(({ name, preferredVersion, versions }) => ({ group: name, version: preferredVersion?.version ?? versions?.[0]?.version ?? 'v1' }));
  for (const { group, version } of [{ group: '', version: 'v1' }, ...paths]) {
    try {
      const list = await read<ResourceList>(deps, group === '' ? `/api/${version}` : `/apis/${group}/${version}`, signal);
      for (const { name, kind, namespaced, verbs = [] } of list.resources ?? []) {
        if (!name.includes('/')) found.resources.push({ group, version, resource: name, kind, namespaced, verbs });
      }
    } catch (error) {
      if (signal.aborted) throw error;
      found.failures.set(`${group}/${version}`, messageOf(error));
    }
  }
  return found;
}

async function read<T>(deps: ControlDeps, path: string, signal: AbortSignal): Promise<T> {
  const answer = await deps.api.raw('GET', path, { headers: { accept: 'application/json' } }, signal);
  if (answer.status !== 200) throw new OpError('failed', 'discovery', `GET ${path} answered ${answer.status}`);
  return JSON.parse(new TextDecoder().decode(answer.body)) as T;
}
