import { rfc3339 } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import { isApiError } from '../../base/kubeapi/errors.ts';
import { pathOf } from '../../base/kubeapi/refs.ts';
import type { KubeObject } from '../../base/kubeapi/types.ts';
import type { Namespace, Pod } from '../../proto/kube/types.ts';
import { isSwept, namespaceConditions, type NamespaceSweep } from '../core/controllers/namespace.ts';
import { at, namespaceStore, NAMESPACES } from './collections.ts';
import { type Controller, runController } from './controller.ts';
import type { ControlDeps } from './deps.ts';
import { discover, type Served } from './discovery.ts';
import type { Store, Stores } from './store.ts';

const FINALIZER = 'kubernetes';
const FIRST_LOOK_MS = 500;
const LONGEST_WAIT_MS = 15_000;

/** A namespace that is deleted is emptied, kind by kind, and then let go. */
export function startNamespaceController(deps: ControlDeps, stores: Stores): Controller {
  const namespaces = namespaceStore(stores);
  const passes = new Map<string, number>();

  const sync = async (name: string, signal: AbortSignal): Promise<number | undefined> => {
    const namespace = namespaces.get(name);
    if (namespace?.metadata.deletionTimestamp === undefined) {
      passes.delete(name);
      return undefined;
    }
    if (!(namespace.spec.finalizers ?? []).includes(FINALIZER)) return undefined;
    const { sweep, graceMs } = await emptyNamespace(deps, name, signal);
    const latest = await showProgress(deps, namespaces, namespace, sweep, signal);
    if (isSwept(sweep)) {
      passes.delete(name);
      await finalize(deps, namespaces, latest, signal);
      return undefined;
    }
    const count = passes.get(name) ?? 0;
    passes.set(name, count + 1);
    return Math.min(FIRST_LOOK_MS * 2 ** count, Math.max(LONGEST_WAIT_MS, graceMs / 2 + 1000));
  };
  const controller = runController(deps, { name: 'namespace', needs: [namespaces] as never[], sync, retry: { baseMs: 5000, maxMs: 60_000 } });
  namespaces.onChange((namespace, before, type) => {
    if (type !== 'gone' && namespace.metadata.deletionTimestamp && before?.metadata.deletionTimestamp === undefined)
      controller.add(namespace.metadata.name ?? '');
  });
  return controller;
}

/** One pass: asks for the deletion of everything, then counts what is left. */
async function emptyNamespace(deps: ControlDeps, namespace: string, signal: AbortSignal): Promise<{ sweep: NamespaceSweep; graceMs: number }> {
  const found = await discover(deps, signal);
  const remaining = new Map<string, number>();
  const finalizers = new Map<string, number>();
  const deletionFailures: string[] = [];
  let graceMs = 0;
  for (const served of found.resources) {
    if (!served.namespaced || !served.verbs.includes('delete') || !served.verbs.includes('list')) continue;
    try {
      const left = await emptyCollection(deps, served, namespace, signal);
      if (left.length > 0) remaining.set(`${served.resource}.${served.group}`, left.length);
      for (const object of left) {
        for (const finalizer of object.metadata.finalizers ?? []) finalizers.set(finalizer, (finalizers.get(finalizer) ?? 0) + 1);
        if (served.resource === 'pods' && served.group === '')
          graceMs = Math.max(graceMs, ((object as unknown as Pod).spec.terminationGracePeriodSeconds ?? 0) * 1000);
      }
    } catch (error) {
      if (signal.aborted) throw error;
      deletionFailures.push(messageOf(error));
    }
  }
  const failures = [...found.failures].map(([group, reason]) => `${group}: ${reason}`);
  const discoveryFailure = failures.length === 0 ? undefined : `Discovery failed for some groups, ${failures.length} failing: ${failures.join(', ')}`;
  return { sweep: { discoveryFailure, deletionFailures, remaining, finalizers }, graceMs };
}

async function emptyCollection(deps: ControlDeps, served: Served, namespace: string, signal: AbortSignal): Promise<KubeObject[]> {
  const ref = { group: served.group, version: served.version, resource: served.resource, namespace };
  let { items } = await deps.api.list<KubeObject>(ref, {}, {}, signal);
  if (items.length === 0) return [];
  const policy = { kind: 'DeleteOptions', apiVersion: 'v1', propagationPolicy: 'Background' };
  const answer = served.verbs.includes('deletecollection')
    ? await deps.api.raw('DELETE', pathOf(ref), { body: policy, headers: { 'content-type': 'application/json' } }, signal)
    : { status: 405 };
  if (answer.status === 404 || answer.status === 405) {
    for (const item of items) await deleteOne(deps, ref, item, signal);
  }
  ({ items } = await deps.api.list<KubeObject>(ref, {}, {}, signal));
  return items;
}

async function deleteOne(
  deps: ControlDeps,
  ref: { group: string; version: string; resource: string; namespace: string },
  item: KubeObject,
  signal: AbortSignal,
): Promise<void> {
  if (item.metadata.deletionTimestamp) return;
  try {
    await deps.api.delete({ ...ref, name: item.metadata.name ?? '' }, { propagationPolicy: 'Background' }, {}, signal);
  } catch (error) {
    if (!isApiError(error, 404) && !isApiError(error, 409)) throw error;
  }
}

async function showProgress(
  deps: ControlDeps,
  namespaces: Store<Namespace>,
  namespace: Namespace,
  sweep: NamespaceSweep,
  signal: AbortSignal,
): Promise<Namespace> {
  const latest = namespaces.get(namespace.metadata.name ?? '') ?? namespace;
  const conditions = namespaceConditions(latest, sweep, rfc3339(deps.clock.nowMs()));
  if (conditions === undefined && latest.status?.phase === 'Terminating') return latest;
  const body: Namespace = { ...latest, status: { ...latest.status, phase: 'Terminating', ...(conditions === undefined ? {} : { conditions }) } };
  const written = await deps.api.update<Namespace>(at(NAMESPACES, latest, 'status'), body, {}, signal);
  namespaces.wrote(written);
  return written;
}

async function finalize(deps: ControlDeps, namespaces: Store<Namespace>, namespace: Namespace, signal: AbortSignal): Promise<void> {
  const finalizers = (namespace.spec.finalizers ?? []).filter((finalizer) => finalizer !== FINALIZER);
  try {
    await deps.api.update<Namespace>(at(NAMESPACES, namespace, 'finalize'), { ...namespace, spec: { ...namespace.spec, finalizers } }, {}, signal);
  } catch (error) {
    if (!isApiError(error, 404)) throw error;
    namespaces.vanished(namespace);
  }
}
