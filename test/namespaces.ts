import { setTimeout as delay } from 'node:timers/promises';
import { OpError } from '../base/errors.ts';
import { isApiError } from '../base/kubeapi/errors.ts';
import type { KubeApi, ResourceRef } from '../base/kubeapi/types.ts';

const ACCOUNT_MS = 30_000;
const REMOVAL_MS = 180_000;

/** An empty namespace with its ServiceAccount; what an earlier run left is removed first. Throws OpError `deadline`. */
export async function freshNamespace(api: KubeApi, name: string, signal: AbortSignal): Promise<void> {
  await removeNamespace(api, name, signal);
  await api.create({ group: '', version: 'v1', resource: 'namespaces' }, { apiVersion: 'v1', kind: 'Namespace', metadata: { name } }, {}, signal);
  const account: ResourceRef = { group: '', version: 'v1', resource: 'serviceaccounts', namespace: name, name: 'default' };
  const deadlineMs = performance.now() + ACCOUNT_MS;
  while (!(await exists(api, account))) {
    if (performance.now() > deadlineMs) throw new OpError('deadline', 'making a namespace', `its ServiceAccount did not come in ${ACCOUNT_MS / 1000} s`);
    await delay(100, undefined, { signal });
  }
}

/** Removes a namespace, if it is there, with all that is in it. Throws OpError `deadline`. */
export async function removeNamespace(api: KubeApi, name: string, signal: AbortSignal): Promise<void> {
  const namespace: ResourceRef = { group: '', version: 'v1', resource: 'namespaces', name };
  if (!(await exists(api, namespace))) return;
  await api.delete(namespace).catch((error: unknown) => {
    if (!isApiError(error, 404) && !isApiError(error, 409)) throw error;
  });
  const deadlineMs = performance.now() + REMOVAL_MS;
  while (await exists(api, namespace)) {
    if (performance.now() > deadlineMs) throw new OpError('deadline', 'removing the namespace', `${name} is still there after ${REMOVAL_MS / 1000} s`);
    await delay(200, undefined, { signal });
  }
}

async function exists(api: KubeApi, what: ResourceRef): Promise<boolean> {
  try {
    await api.get(what);
    return true;
  } catch (error) {
    if (isApiError(error, 404)) return false;
    throw error;
  }
}
