import ipaddr from 'ipaddr.js';
import { isApiError } from '../../base/kubeapi/errors.ts';
import type { KubeObject } from '../../base/kubeapi/types.ts';
import type { EndpointSlice, Service } from '../../proto/kube/types.ts';
import { at, ENDPOINT_SLICES, inNamespace, serviceStore, sliceStore } from '../controllers/collections.ts';
import { type Controller, runController } from '../controllers/controller.ts';
import type { ControlDeps } from '../controllers/deps.ts';
import type { Store, Stores } from '../controllers/store.ts';
import { controllerRef } from '../core/controllers/owners.ts';
import { semanticEqual } from '../core/controllers/equal.ts';
import { parseUpstream } from './forward.ts';

const NAMESPACE = 'kube-system';
const NAME = 'kube-dns';
const KEY = `${NAMESPACE}/${NAME}`;
const SLICE_NAME = 'kube-dns-control';
const MANAGED_BY = 'control.nodelet.dev';
/** The place of the DNS Service in the Service range, as installers agree on it. */
const DNS_OFFSET = 10;

/** The tenth address of the Service range. */
export function dnsServiceIp(serviceCIDR: string): string {
  const [network] = ipaddr.parseCIDR(serviceCIDR.split(',')[0] ?? '');
  const bytes = network.toByteArray();
  const last = bytes.length - 1;
  bytes[last] = (bytes[last] ?? 0) + DNS_OFFSET;
  return ipaddr.fromByteArray(bytes).toString();
}

/** Keeps Service kube-system/kube-dns and the slice that leads from it to this process. */
export function startDnsService(deps: ControlDeps, stores: Stores): Controller {
  const services = serviceStore(stores);
  const slices = sliceStore(stores);
  const sync = async (_key: string, signal: AbortSignal): Promise<void> => {
    const service = services.get(KEY) ?? (await create(deps, services, serviceObject(deps), signal));
    if (service.metadata.deletionTimestamp) return;
    const wanted = sliceObject(deps, service);
    const current = slices.get(`${NAMESPACE}/${SLICE_NAME}`);
    if (current === undefined) await create(deps, slices, wanted, signal);
    else if (
      !semanticEqual(
        [current.endpoints, current.ports, current.metadata.labels, current.metadata.ownerReferences],
        [wanted.endpoints, wanted.ports, wanted.metadata.labels, wanted.metadata.ownerReferences],
      )
    ) {
      const { labels, ownerReferences } = wanted.metadata;
      slices.wrote(
        await deps.api.update<EndpointSlice>(
          at(ENDPOINT_SLICES, current),
          { ...wanted, metadata: { ...current.metadata, labels, ownerReferences } },
          {},
          signal,
        ),
      );
    }
  };
  // kube-system may come a moment later than we do.
  const controller = runController(deps, {
    name: 'dns-service',
    needs: [services, slices] as never[],
    concurrency: 1,
    sync,
    retry: { baseMs: 100, maxMs: 5000 },
  });
  controller.add(KEY);
  services.onChange((service, _before, type) => {
    if (type === 'gone' && service.metadata.name === NAME && service.metadata.namespace === NAMESPACE) controller.add(KEY);
  });
  slices.onChange((slice) => {
    if (slice.metadata.name === SLICE_NAME && slice.metadata.namespace === NAMESPACE) controller.add(KEY);
  });
  return controller;
}

async function create<T extends KubeObject>(deps: ControlDeps, store: Store<T>, object: T, signal: AbortSignal): Promise<T> {
  try {
    const made = await deps.api.create<T>(inNamespace(store.ref, NAMESPACE), object, {}, signal);
    store.wrote(made);
    return made;
  } catch (error) {
    if (!isApiError(error, 409)) throw error;
    const taken = await deps.api.get<T>(at(store.ref, object), {}, signal);
    store.wrote(taken);
    return taken;
  }
}

function serviceObject(deps: ControlDeps): Service {
  const clusterIP = dnsServiceIp(deps.config.serviceCIDR);
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: NAME, namespace: NAMESPACE, labels: { 'k8s-app': 'kube-dns', 'kubernetes.io/cluster-service': 'true', 'kubernetes.io/name': 'CoreDNS' } },
    spec: {
      clusterIP,
      clusterIPs: [clusterIP],
      ports: [
        { name: 'dns', port: 53, protocol: 'UDP', targetPort: 53 },
        { name: 'dns-tcp', port: 53, protocol: 'TCP', targetPort: 53 },
      ],
    },
  };
}

function sliceObject(deps: ControlDeps, service: Service): EndpointSlice {
  const { host, port } = parseUpstream(deps.config.dnsListen);
  // The API refuses loopback addresses here, rightly: nobody else could reach them.
  const address = /^(|0\.0\.0\.0|::|::1|127\..*)$/.test(host) ? deps.config.advertiseAddress : host;
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: {
      name: SLICE_NAME,
      namespace: NAMESPACE,
      labels: { 'kubernetes.io/service-name': NAME, 'endpointslice.kubernetes.io/managed-by': MANAGED_BY },
      ownerReferences: [controllerRef(service, 'v1', 'Service')],
    },
    addressType: address.includes(':') ? 'IPv6' : 'IPv4',
    endpoints: [{ addresses: [address], conditions: { ready: true, serving: true, terminating: false } }],
    ports: [
      { name: 'dns', port, protocol: 'UDP' },
      { name: 'dns-tcp', port, protocol: 'TCP' },
    ],
  };
}
