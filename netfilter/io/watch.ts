import * as refs from '../../base/kubeapi/refs.ts';
import { isApiError } from '../../base/kubeapi/errors.ts';
import type { KubeApi, KubeObject } from '../../base/kubeapi/types.ts';
import type { Log } from '../../base/log.ts';
import type { EndpointSlice, Node, Service, ServiceCIDR } from '../../proto/kube/types.ts';
import { HEADLESS_LABEL, SERVICE_NAME_LABEL, SERVICE_PROXY_NAME_LABEL, type EndpointSliceObject, type ServiceObject } from '../core/model.ts';
import type { NodeObject } from '../core/node.ts';

/** Copies of what the rules depend on, trimmed to the fields that are read. */

export interface WatchEvents {
  services(change: 'all' | 'one' | 'gone', services: readonly ServiceObject[]): void;
  slices(change: 'all' | 'one' | 'gone', slices: readonly EndpointSliceObject[]): void;
  node(node: NodeObject | null): void;
  serviceCIDRs(cidrs: readonly string[]): void;
}

export const TRIGGER_ANNOTATION = 'endpoints.kubernetes.io/last-change-trigger-time';

function only(from: Record<string, string> | undefined, keys: readonly string[]): Record<string, string> {
  const kept: Record<string, string> = {};
  for (const key of keys) if (from?.[key] !== undefined) kept[key] = from[key];
  return kept;
}

/** Only what the rules depend on: of 10,000 Services everything else would be kept in memory. */
function trimService(service: Service): Service {
  const { name, namespace, labels } = service.metadata;
  const { spec, status } = service;
  const ingress = status?.loadBalancer?.ingress;
  return {
    metadata: { name, namespace, labels: only(labels, [SERVICE_PROXY_NAME_LABEL]) },
    spec: {
      type: spec.type,
      clusterIP: spec.clusterIP,
      clusterIPs: spec.clusterIPs,
      ports: spec.ports?.map((port) => ({ name: port.name, protocol: port.protocol, port: port.port, nodePort: port.nodePort })),
      ...(spec.externalIPs === undefined ? {} : { externalIPs: spec.externalIPs }),
      ...(spec.loadBalancerSourceRanges === undefined ? {} : { loadBalancerSourceRanges: spec.loadBalancerSourceRanges }),
      ...(spec.sessionAffinity === 'ClientIP' ? { sessionAffinity: spec.sessionAffinity, sessionAffinityConfig: spec.sessionAffinityConfig } : {}),
      ...(spec.externalTrafficPolicy === 'Local' ? { externalTrafficPolicy: spec.externalTrafficPolicy } : {}),
      ...(spec.internalTrafficPolicy === 'Local' ? { internalTrafficPolicy: spec.internalTrafficPolicy } : {}),
      ...(spec.healthCheckNodePort === undefined ? {} : { healthCheckNodePort: spec.healthCheckNodePort }),
    },
    ...(ingress === undefined ? {} : { status: { loadBalancer: { ingress: ingress.map(({ ip, ipMode }) => ({ ip, ipMode })) } } }),
  };
}

type Conditions = NonNullable<NonNullable<EndpointSlice['endpoints']>[number]['conditions']>;

/** One object for each of the few states an endpoint can be in, and one text for each node. */
class Shared {
  readonly #conditions = new Map<string, Conditions>();
  readonly #names = new Map<string, string>();

  conditions(of: Conditions | undefined): Conditions | undefined {
    if (of === undefined) return undefined;
    const { ready, serving, terminating } = of;
    const key = `${ready} ${serving} ${terminating}`;
    let known = this.#conditions.get(key);
    if (known === undefined) this.#conditions.set(key, (known = { ready, serving, terminating }));
    return known;
  }

  name(text: string | undefined): string | undefined {
    if (text === undefined) return undefined;
    const known = this.#names.get(text);
    if (known !== undefined) return known;
    // Nodes come and go: the memory of their names is no more than a saving.
    if (this.#names.size > 20_000) this.#names.clear();
    this.#names.set(text, text);
    return text;
  }
}

function trimSlice(slice: EndpointSlice, shared: Shared): EndpointSlice {
  const { name, namespace, labels, annotations } = slice.metadata;
  const endpoints = (slice.endpoints ?? []).map(({ addresses, nodeName, conditions, hints }) => ({
    addresses: addresses.length === 1 ? addresses : addresses.slice(0, 1),
    nodeName: shared.name(nodeName),
    conditions: shared.conditions(conditions),
    ...(hints === undefined ? {} : { hints }),
  }));
  return {
    metadata: { name, namespace, labels: only(labels, [SERVICE_NAME_LABEL, HEADLESS_LABEL]), annotations: only(annotations, [TRIGGER_ANNOTATION]) },
    addressType: slice.addressType,
    ports: slice.ports?.map(({ name: portName, protocol, port }) => ({ name: portName, protocol, port })),
    endpoints,
  };
}

function trimNode(node: Node): Node {
  const { name, labels, deletionTimestamp } = node.metadata;
  return {
    metadata: { name, labels, deletionTimestamp },
    spec: { podCIDRs: node.spec?.podCIDRs, podCIDR: node.spec?.podCIDR, taints: node.spec?.taints },
    status: { addresses: node.status?.addresses },
  };
}

/** Whoever listens hears all from the beginning; the promise is that of the watching, which disposing ends. */
export interface Watching extends Disposable {
  listen(events: WatchEvents): Promise<void>;
}

/**
 * Watches from now on until disposed or `signal` is aborted. What is heard before anybody listens waits for them, in its order: lists
 * may come while the rest of a program still starts.
 */
export function startWatching(api: KubeApi, nodeName: string, log: Log, signal: AbortSignal): Watching {
  let waiting: ((events: WatchEvents) => void)[] = [];
  let listener: WatchEvents | null = null;
  const tell = (what: (events: WatchEvents) => void): void => {
    if (listener === null) waiting.push(what);
    else what(listener);
  };
  const events: WatchEvents = {
    services: (change, services) => tell((to) => to.services(change, services)),
    slices: (change, slices) => tell((to) => to.slices(change, slices)),
    node: (node) => tell((to) => to.node(node)),
    serviceCIDRs: (cidrs) => tell((to) => to.serviceCIDRs(cidrs)),
  };
  const ending = new AbortController();
  const ended = watchAll(api, nodeName, log, events, AbortSignal.any([signal, ending.signal]));
  // Whoever listens hears of a failure.
  ended.catch(() => {});
  return {
    listen: (to) => {
      listener = to;
      for (const what of waiting) what(to);
      waiting = [];
      return ended;
    },
    [Symbol.dispose]: () => ending.abort(),
  };
}

async function watchAll(api: KubeApi, nodeName: string, log: Log, events: WatchEvents, signal: AbortSignal): Promise<void> {
  const shared = new Shared();
  const trouble = (what: string) => (error: unknown) => log.debug(1, 'Watch interrupted', { what, error });
  await Promise.all([
    api.reflect<Service>(
      refs.services(),
      { labelSelector: `!${SERVICE_PROXY_NAME_LABEL}` },
      {
        replaced: (items) => events.services('all', items as readonly ServiceObject[]),
        changed: (type, object) => events.services(type === 'DELETED' ? 'gone' : 'one', [object as ServiceObject]),
        trouble: trouble('services'),
        trim: trimService,
      },
      signal,
    ),
    api.reflect<EndpointSlice>(
      refs.endpointSlices(),
      { labelSelector: `!${HEADLESS_LABEL}` },
      {
        replaced: (items) => events.slices('all', items as readonly EndpointSliceObject[]),
        changed: (type, object) => events.slices(type === 'DELETED' ? 'gone' : 'one', [object as EndpointSliceObject]),
        trouble: trouble('endpointslices'),
        trim: (slice) => trimSlice(slice, shared),
      },
      signal,
    ),
    api.reflect<Node>(
      refs.nodes(),
      { fieldSelector: `metadata.name=${nodeName}` },
      {
        replaced: (items) => events.node((items[0] as NodeObject | undefined) ?? null),
        changed: (type, object) => events.node(type === 'DELETED' ? null : (object as NodeObject)),
        trouble: trouble('nodes'),
        trim: trimNode,
      },
      signal,
    ),
    watchServiceCIDRs(api, log, events, signal),
  ]);
}

async function watchServiceCIDRs(api: KubeApi, log: Log, events: WatchEvents, signal: AbortSignal): Promise<void> {
  if (!(await serves(api, signal))) return events.serviceCIDRs([]);
  const byName = new Map<string, readonly string[]>();
  const note = (object: ServiceCIDR): void => void byName.set(object.metadata.name ?? '', object.spec.cidrs ?? []);
  const tell = (): void => events.serviceCIDRs([...new Set([...byName.values()].flat())].sort());
  await api.reflect<ServiceCIDR>(
    refs.serviceCidrs(),
    {},
    {
      replaced: (items) => {
        byName.clear();
        for (const item of items) note(item);
        tell();
      },
      changed: (type, object) => {
        if (type === 'DELETED') byName.delete(object.metadata.name ?? '');
        else note(object);
        tell();
      },
      trouble: (error) => log.debug(1, 'Watch interrupted', { what: 'servicecidrs', error }),
    },
    signal,
  );
}

/** Whether the server has ServiceCIDRs and lets us read them; older ones do not. */
async function serves(api: KubeApi, signal: AbortSignal): Promise<boolean> {
  try {
    await api.list<KubeObject>(refs.serviceCidrs(), { limit: 1 }, {}, signal);
    return true;
  } catch (error) {
    return !(isApiError(error, 404) || isApiError(error, 403));
  }
}
