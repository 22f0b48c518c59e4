import { service, slice } from './lab.ts';
import type { Told } from './bench-subject.ts';

/** What both proxies are told: selectorless Services of one port with one slice each, and one Service that leads to a real listener. */

/** The Service whose endpoint listens in the namespace itself. */
export const PROBE = { ip: '10.96.255.1', port: 80 };

function serviceIp(number: number): string {
  return `10.${97 + (number >> 16)}.${(number >> 8) & 255}.${number & 255}`;
}

function endpointIp(number: number): string {
  return `10.${128 + (number >> 16)}.${(number >> 8) & 255}.${number & 255}`;
}

function meta(object: object, uid: string): object {
  const { metadata } = object as { metadata: object };
  return { ...object, metadata: { ...metadata, uid, creationTimestamp: '2026-01-01T00:00:00Z' } };
}

function serviceOf(name: string, ip: string, port: number): Told {
  const spec = { type: 'ClusterIP', sessionAffinity: 'None', internalTrafficPolicy: 'Cluster', ipFamilies: ['IPv4'], ipFamilyPolicy: 'SingleStack' };
  const object = service(name, [ip], [{ name: 'web', port, targetPort: 8080, protocol: 'TCP' }], { spec, namespace: 'bench' });
  return { resource: 'services', object: meta(object, `service-${name}`) };
}

function sliceOf(name: string, ips: readonly string[]): Told {
  const endpoints = ips.map((ip) => ({ ip, node: 'node-b' }));
  return {
    resource: 'endpointslices',
    object: meta(slice(name, { name: 'web', port: 8080, protocol: 'TCP' }, endpoints, { namespace: 'bench' }), `slice-${name}`),
  };
}

function* all(services: number, endpoints: number): Generator<Told> {
  const addresses = [
    { type: 'InternalIP', address: '192.0.2.10' },
    { type: 'Hostname', address: 'node-a' },
  ];
  yield { resource: 'nodes', object: { metadata: { name: 'node-a', uid: 'node-a', labels: {} }, spec: {}, status: { addresses } } };
  yield serviceOf('probe', PROBE.ip, PROBE.port);
  yield sliceOf('probe', ['10.1.0.1']);
  for (let number = 0; number < services; number++) {
    yield serviceOf(`svc-${number}`, serviceIp(number), 80);
    yield endpointsOf(number, endpoints, 0);
  }
}

/** The slice of one Service; another `round` replaces its last endpoint. */
export function endpointsOf(number: number, endpoints: number, round: number): Told {
  const ips = Array.from({ length: endpoints }, (_, index) => endpointIp(number * endpoints + index));
  if (round > 0) ips[endpoints - 1] = `10.2.${round & 255}.${number & 255}`;
  return sliceOf(`svc-${number}`, ips);
}

export const objects = (services: number, endpoints: number): Iterable<Told> => all(services, endpoints);
