import { rfc3339 } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import { isApiError } from '../../base/kubeapi/errors.ts';
import type { Endpoints, EndpointSlice, Node, Pod, Service } from '../../proto/kube/types.ts';
import { planEndpoints } from '../core/controllers/endpoints.ts';
import { MANAGED_BY_LABEL, planSlices, SLICE_CONTROLLER } from '../core/controllers/endpointslice.ts';
import { keyOf, splitKey } from '../core/controllers/owners.ts';
import { mapMatches } from '../core/controllers/selector.ts';
import { type TriggerState, triggerTime } from '../core/controllers/service-ports.ts';
import { semanticEqual } from '../core/controllers/equal.ts';
import { at, ENDPOINT_SLICES, ENDPOINTS, endpointsStore, inNamespace, nodeStore, podStore, serviceStore, sliceStore } from './collections.ts';
import { type Controller, runController } from './controller.ts';
import { isNamespaceEnding } from './deployment.ts';
import type { ControlDeps } from './deps.ts';
import { createRecorder, type Recorder, subjectOf } from './recorder.ts';
import type { Store, Stores } from './store.ts';

const NODE_UNKNOWN_RETRY_MS = 1000;

/** Calls `add` for each Service whose endpoints a change of a pod or of the Service itself can touch. */
function watchServices(services: Store<Service>, pods: Store<Pod>, add: (key: string) => void): void {
  services.onChange((service) => add(keyOf(service)));
  pods.onChange((pod, before, type) => {
    if (type === 'changed' && before !== undefined && !touchesEndpoints(before, pod)) return;
    for (const service of services.by('namespace', pod.metadata.namespace ?? '')) {
      const selector = service.spec.selector ?? {};
      if (Object.keys(selector).length === 0) continue;
      if (mapMatches(selector, pod.metadata.labels) || (before !== undefined && mapMatches(selector, before.metadata.labels))) add(keyOf(service));
    }
  });
}

function touchesEndpoints(before: Pod, after: Pod): boolean {
  const view = (pod: Pod): unknown => [
    pod.metadata.labels,
    Boolean(pod.metadata.deletionTimestamp),
    pod.spec.nodeName,
    pod.status?.phase,
    pod.status?.podIPs ?? pod.status?.podIP,
    pod.status?.conditions?.find((condition) => condition.type === 'Ready')?.status,
  ];
  return !semanticEqual(view(before), view(after));
}

function selectedPods(service: Service, pods: Store<Pod>): Pod[] {
  return pods.by('namespace', service.metadata.namespace ?? '').filter((pod) => mapMatches(service.spec.selector, pod.metadata.labels));
}

/** Services that name their endpoints elsewhere, or have none, are nobody's business here. */
function isManaged(service: Service): boolean {
  return service.spec.type !== 'ExternalName' && service.spec.selector !== undefined && service.spec.selector !== null;
}

/** Remembers per Service which changes have already been told. */
class Triggers {
  readonly #states = new Map<string, TriggerState>();

  next(service: Service, pods: readonly Pod[]): string | undefined {
    const { state, triggerMs } = triggerTime(service, pods, this.#states.get(keyOf(service)));
    this.#states.set(keyOf(service), state);
    return triggerMs === undefined ? undefined : rfc3339(triggerMs);
  }

  forget(key: string): void {
    this.#states.delete(key);
  }
}

export function startEndpointSliceController(deps: ControlDeps, stores: Stores): Controller {
  const services = serviceStore(stores);
  const pods = podStore(stores);
  const slices = sliceStore(stores);
  const nodes: Store<Node> = nodeStore(stores);
  const recorder = createRecorder('endpoint-slice-controller', deps.api, deps.clock, deps.log, stores.signal);
  const triggers = new Triggers();

  const sync = async (key: string, signal: AbortSignal): Promise<number | undefined> => {
    const service = services.get(key);
    if (service === undefined) {
      // The slices go with their owner.
      triggers.forget(key);
      return undefined;
    }
    if (!isManaged(service)) return undefined;
    const selected = selectedPods(service, pods);
    const mine = slices
      .by('service', key)
      .filter((slice) => slice.metadata.labels?.[MANAGED_BY_LABEL] === SLICE_CONTROLLER && !slice.metadata.deletionTimestamp);
    const plan = planSlices({ service, pods: selected, node: (name) => nodes.get(name), slices: mine, trigger: triggers.next(service, selected) });
    try {
      await writeSlices(deps, slices, service, plan, signal);
    } catch (error) {
      if (isNamespaceEnding(error)) return undefined;
      if (!isApiError(error, 409) && !signal.aborted) {
        const message = `Error updating Endpoint Slices for Service ${key}: ${messageOf(error)}`;
        recorder.event(subjectOf(service, 'v1', 'Service'), { type: 'Warning', reason: 'FailedToUpdateEndpointSlices', message });
      }
      throw error;
    }
    return plan.incomplete ? NODE_UNKNOWN_RETRY_MS : undefined;
  };
  const controller = runController(deps, {
    name: 'endpointslice',
    needs: [services, pods, slices, nodes] as never[],
    sync,
    retry: { baseMs: 1000, maxMs: 100_000 },
  });

  watchServices(services, pods, (key) => controller.add(key));
  slices.onChange((slice, _before, type) => {
    const name = slice.metadata.labels?.['kubernetes.io/service-name'];
    if (name !== undefined && (type === 'gone' || slice.metadata.labels?.[MANAGED_BY_LABEL] === SLICE_CONTROLLER))
      controller.add(`${slice.metadata.namespace}/${name}`);
  });
  return controller;
}

async function writeSlices(
  deps: ControlDeps,
  slices: Store<EndpointSlice>,
  service: Service,
  plan: { create: EndpointSlice[]; update: EndpointSlice[]; remove: EndpointSlice[] },
  signal: AbortSignal,
): Promise<void> {
  for (const slice of plan.create) {
    slices.wrote(await deps.api.create<EndpointSlice>(inNamespace(ENDPOINT_SLICES, service.metadata.namespace), slice, {}, signal));
  }
  for (const slice of plan.update) {
    slices.wrote(await deps.api.update<EndpointSlice>(at(ENDPOINT_SLICES, slice), slice, {}, signal));
  }
  for (const slice of plan.remove) {
    try {
      slices.deleting(slice, await deps.api.delete(at(ENDPOINT_SLICES, slice), {}, {}, signal));
    } catch (error) {
      if (!isApiError(error, 404)) throw error;
      slices.vanished(slice);
    }
  }
}

export function startEndpointsController(deps: ControlDeps, stores: Stores): Controller {
  const services = serviceStore(stores);
  const pods = podStore(stores);
  const endpoints = endpointsStore(stores);
  const recorder = createRecorder('endpoint-controller', deps.api, deps.clock, deps.log, stores.signal);
  const triggers = new Triggers();

  const sync = async (key: string, signal: AbortSignal): Promise<void> => {
    const service = services.get(key);
    const current = endpoints.get(key);
    if (service === undefined) {
      triggers.forget(key);
      if (current !== undefined) await removeLeftOver(deps, endpoints, current, signal);
      return;
    }
    if (!isManaged(service) || service.metadata.deletionTimestamp) return;
    const selected = selectedPods(service, pods);
    const wanted = planEndpoints(service, selected, current, triggers.next(service, selected));
    if (wanted === undefined) return;
    try {
      const written =
        current === undefined
          ? await deps.api.create<Endpoints>(inNamespace(ENDPOINTS, service.metadata.namespace), wanted, {}, signal)
          : await deps.api.update<Endpoints>(at(ENDPOINTS, wanted), wanted, {}, signal);
      endpoints.wrote(written);
    } catch (error) {
      if (isNamespaceEnding(error)) return;
      tellFailure(recorder, wanted, current === undefined, error, signal);
      throw error;
    }
  };
  const controller = runController(deps, { name: 'endpoints', needs: [services, pods, endpoints] as never[], sync, retry: { baseMs: 1000, maxMs: 100_000 } });

  watchServices(services, pods, (key) => controller.add(key));
  endpoints.onChange((object, before, type) => {
    const { namespace, name } = splitKey(keyOf(object));
    if (type !== 'changed' || before === undefined) controller.add(`${namespace}/${name}`);
  });
  return controller;
}

/** Leases of old kinds of leader election live in Endpoints without a Service. */
async function removeLeftOver(deps: ControlDeps, endpoints: Store<Endpoints>, object: Endpoints, signal: AbortSignal): Promise<void> {
  if (object.metadata.annotations?.['control-plane.alpha.kubernetes.io/leader'] !== undefined) return;
  try {
    endpoints.deleting(object, await deps.api.delete(at(ENDPOINTS, object), { preconditions: { uid: object.metadata.uid ?? '' } }, {}, signal));
  } catch (error) {
    if (!isApiError(error, 404) && !isApiError(error, 409)) throw error;
  }
}

function tellFailure(recorder: Recorder, endpoints: Endpoints, isNew: boolean, error: unknown, signal: AbortSignal): void {
  if (isApiError(error, 409) || signal.aborted) return;
  const { namespace, name } = endpoints.metadata;
  const [reason, doing] = isNew ? ['FailedToCreateEndpoint', `create endpoint for service`] : ['FailedToUpdateEndpoint', `update endpoint`];
  recorder.event(subjectOf(endpoints, 'v1', 'Endpoints'), { type: 'Warning', reason, message: `Failed to ${doing} ${namespace}/${name}: ${messageOf(error)}` });
}
