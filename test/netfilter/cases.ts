import { seededRng, type Rng } from '../../base/rng.ts';
import type { Protocol } from '../../netfilter/core/names.ts';
import { service, slice, type EndpointSpec, type Place } from './lab.ts';
import type { Told } from './zoo.ts';

/** Services of every kind with the packets that go to them: hand-written ones, most after faults that people reported, and generated ones. */

export interface Sender {
  place: Exclude<Place, 'far'>;
  v4: string;
  v6: string;
}

export const SENDERS: readonly Sender[] = [
  { place: 'cli', v4: '10.244.0.2', v6: 'fd00:10:244::2' },
  { place: 'srv', v4: '10.244.0.3', v6: 'fd00:10:244::3' },
  { place: 'ext', v4: '192.0.2.200', v6: '2001:db8::200' },
  { place: 'node', v4: '192.0.2.10', v6: '2001:db8::10' },
];

export interface Addressed {
  /** What the Service is, for the reader of a failure. */
  name: string;
  protocol: Protocol;
  address: string;
  port: number;
}

export interface CaseTable {
  objects: Told[];
  addresses: Addressed[];
}

type Spec = Record<string, unknown>;

interface Shape {
  name: string;
  spec?: Spec;
  protocol?: 'TCP' | 'UDP' | 'SCTP';
  vip?: boolean;
  ipMode?: string;
  external?: boolean;
  endpoints: EndpointSpec[];
  /** A second slice, of another port. */
  more?: { port: number; endpoints: EndpointSpec[] };
  headless?: boolean;
  /** Of one family alone. */
  only?: 'IPv4' | 'IPv6';
  /** Also asked on a port that the Service does not have. */
  otherPort?: number;
}

const srv: EndpointSpec = { ip: '10.244.0.3' };
const srv2: EndpointSpec = { ip: '10.244.0.4' };
const far: EndpointSpec = { ip: '10.244.1.5', node: 'node-b' };
const gone = { ready: false, serving: false, terminating: true };
const ending = { ready: false, serving: true, terminating: true };
const unready = { ready: false, serving: false, terminating: false };

const LB = { type: 'LoadBalancer' };
const LOCAL = { externalTrafficPolicy: 'Local' };
const INSIDE = { internalTrafficPolicy: 'Local' };

export const WRITTEN: readonly Shape[] = [
  { name: 'one pod', endpoints: [srv] },
  { name: 'two pods, one of them the caller (PB-14)', endpoints: [srv, srv2], otherPort: 81 },
  { name: 'only an unready pod (PB-04)', spec: LB, vip: true, external: true, endpoints: [{ ...srv, ...unready }] },
  { name: 'no pod', spec: LB, vip: true, external: true, endpoints: [] },
  { name: 'internal policy Local, nothing local (PB-08)', spec: { type: 'NodePort', ...INSIDE }, endpoints: [far] },
  { name: 'internal policy Local', spec: INSIDE, endpoints: [srv, far] },
  { name: 'source ranges (PB-10)', spec: { ...LB, loadBalancerSourceRanges: ['192.0.2.128/26'] }, vip: true, endpoints: [srv] },
  { name: 'source ranges with the node in', spec: { ...LB, loadBalancerSourceRanges: ['192.0.2.0/26', '10.244.0.0/24'] }, vip: true, endpoints: [srv] },
  { name: 'source ranges for anybody', spec: { ...LB, loadBalancerSourceRanges: ['0.0.0.0/0', '::/0'] }, vip: true, endpoints: [srv] },
  { name: 'headless (PB-16)', spec: {}, headless: true, external: true, endpoints: [srv] },
  { name: 'ports of slices (PB-17)', endpoints: [srv2], more: { port: 9090, endpoints: [srv] } },
  {
    name: 'terminating pods only (PB-18)',
    endpoints: [
      { ...srv, ...ending },
      { ...srv2, ...gone },
    ],
  },
  { name: 'a terminating pod beside a ready one', endpoints: [{ ...srv, ...ending }, srv2] },
  {
    name: 'policy Local with a terminating local pod',
    spec: { ...LB, ...LOCAL, healthCheckNodePort: 32101 },
    vip: true,
    endpoints: [{ ...srv, ...ending }, far],
  },
  { name: 'policy Local', spec: { ...LB, ...LOCAL, healthCheckNodePort: 32102 }, vip: true, external: true, endpoints: [srv, far] },
  { name: 'policy Local, nothing local (PB-S1)', spec: { ...LB, ...LOCAL, healthCheckNodePort: 32103 }, vip: true, external: true, endpoints: [far] },
  { name: 'policy Local, no pod', spec: { ...LB, ...LOCAL, healthCheckNodePort: 32104 }, vip: true, external: true, endpoints: [] },
  { name: 'both policies Local', spec: { type: 'NodePort', ...LOCAL, ...INSIDE }, endpoints: [srv, far] },
  { name: 'both policies Local, nothing local', spec: { type: 'NodePort', ...LOCAL, ...INSIDE }, endpoints: [far] },
  {
    name: 'hints of zones (PB-24)',
    endpoints: [
      { ...srv, zones: ['a'] },
      { ...srv2, zones: ['b'] },
    ],
  },
  {
    name: 'hints of another zone',
    endpoints: [
      { ...srv, zones: ['b'] },
      { ...srv2, zones: ['b'] },
    ],
  },
  { name: 'a hint missing', endpoints: [{ ...srv, zones: ['a'] }, srv2] },
  {
    name: 'hints of nodes',
    endpoints: [
      { ...srv, zones: ['a'], nodes: ['node-a'] },
      { ...far, zones: ['a'], nodes: ['node-b'] },
    ],
  },
  { name: 'affinity', spec: { type: 'NodePort', sessionAffinity: 'ClientIP' }, endpoints: [srv, srv2] },
  { name: 'affinity, policy Local', spec: { ...LB, ...LOCAL, sessionAffinity: 'ClientIP', healthCheckNodePort: 32105 }, vip: true, endpoints: [srv, far] },
  { name: 'a proxy of the cloud (PB-S3)', spec: LB, vip: true, ipMode: 'Proxy', endpoints: [srv] },
  { name: 'external addresses on a ClusterIP Service', spec: {}, external: true, endpoints: [srv] },
  { name: 'a pod of another node', spec: { type: 'NodePort' }, endpoints: [far] },
  { name: 'unready pods that are published', endpoints: [srv2] },
  { name: 'UDP', protocol: 'UDP', spec: { type: 'NodePort' }, endpoints: [srv, far] },
  { name: 'SCTP (PB-S6)', protocol: 'SCTP', spec: LB, vip: true, endpoints: [srv] },
  { name: 'IPv6 alone', only: 'IPv6', spec: LB, vip: true, external: true, endpoints: [srv, srv2] },
  { name: 'IPv6 alone, no pod', only: 'IPv6', spec: { type: 'NodePort' }, endpoints: [] },
  { name: 'IPv4 alone', only: 'IPv4', spec: { type: 'NodePort' }, endpoints: [srv] },
  { name: 'a pod in two slices, terminating in one', endpoints: [{ ...srv, ...ending }], more: { port: 8080, endpoints: [srv, srv2, srv2] } },
  { name: 'SCTP without a pod', protocol: 'SCTP', spec: { type: 'NodePort' }, endpoints: [] },
];

/** Any combination at random. */
export function generated(rng: Rng, count: number): Shape[] {
  return Array.from({ length: count }, (_, index): Shape => {
    const type = rng.pick(['ClusterIP', 'NodePort', 'LoadBalancer']);
    const local = type !== 'ClusterIP' && rng.int(2) === 0;
    const endpoints = [srv, srv2, far]
      .filter(() => rng.int(3) > 0)
      .map((endpoint) => ({
        ...endpoint,
        ...rng.pick([{}, {}, {}, ending, unready]),
        ...(rng.int(3) === 0 ? { zones: [rng.pick(['a', 'b'])] } : {}),
      }));
    return {
      name: `generated ${index}`,
      protocol: rng.pick(['TCP', 'TCP', 'TCP', 'UDP']),
      spec: {
        type,
        ...(rng.int(3) === 0 ? INSIDE : {}),
        ...(local ? LOCAL : {}),
        ...(local && type === 'LoadBalancer' ? { healthCheckNodePort: 32_200 + index } : {}),
        ...(rng.int(4) === 0 ? { sessionAffinity: 'ClientIP' } : {}),
        ...(type === 'LoadBalancer' && rng.int(3) === 0
          ? { loadBalancerSourceRanges: rng.pick([['192.0.2.0/24', '2001:db8::/64'], ['10.244.0.0/16'], ['172.16.0.0/12']]) }
          : {}),
      },
      vip: type === 'LoadBalancer' && rng.int(4) > 0,
      external: type !== 'ClusterIP' && rng.int(3) === 0,
      endpoints,
    };
  });
}

function v6Of(endpoint: EndpointSpec): EndpointSpec[] {
  // The pod of the other node has no IPv6 address.
  return endpoint.ip.startsWith('10.244.0.') ? [{ ...endpoint, ip: `fd00:10:244::${endpoint.ip.split('.')[3]}` }] : [];
}

function defaulted(shape: Shape): Spec {
  const spec = shape.spec ?? {};
  const type = spec['type'] ?? 'ClusterIP';
  return {
    type,
    sessionAffinity: 'None',
    internalTrafficPolicy: 'Cluster',
    ...(shape.only === undefined
      ? { ipFamilies: ['IPv4', 'IPv6'], ipFamilyPolicy: 'RequireDualStack' }
      : { ipFamilies: [shape.only], ipFamilyPolicy: 'SingleStack' }),
    ...(type !== 'ClusterIP' || shape.external === true ? { externalTrafficPolicy: 'Cluster' } : {}),
    ...(spec['sessionAffinity'] === 'ClientIP' ? { sessionAffinityConfig: { clientIP: { timeoutSeconds: 10_800 } } } : {}),
    ...spec,
  };
}

/** The table of all shapes; the number of a Service is in all of its addresses. */
export function caseTable(shapes: readonly Shape[]): CaseTable {
  const objects: Told[] = [];
  const addresses: Addressed[] = [];
  for (const [index, shape] of shapes.entries()) {
    const number = index + 1;
    const name = `c${number}`;
    const protocol = shape.protocol ?? 'TCP';
    const isOf = (address: string): boolean => shape.only === undefined || (shape.only === 'IPv6') === address.includes(':');
    const clusterIPs = shape.headless === true ? ['None'] : [`10.96.1.${number}`, `fd00:96::${(256 + number).toString(16)}`].filter(isOf);
    const externalIPs = shape.external === true ? [`198.51.100.${number + 20}`, `2001:db8:1::${number}`].filter(isOf) : [];
    const vips = shape.vip === true ? [`203.0.113.${number + 20}`, `2001:db8:3::${number}`].filter(isOf) : [];
    const spec = defaulted(shape);
    const nodePort = spec['type'] === 'ClusterIP' ? {} : { nodePort: 30_100 + number };
    const port = { name: 'p', port: 80, protocol, ...nodePort };
    const ingress = vips.map((ip) => ({ ip, ...(shape.ipMode === undefined ? {} : { ipMode: shape.ipMode }) }));
    const more = { spec: { ...spec, ...(externalIPs.length === 0 ? {} : { externalIPs }) }, ...(ingress.length === 0 ? {} : { ingress }) };
    objects.push({ resource: 'services', object: service(name, clusterIPs, [port], more) });
    const put = (suffix: string, number: number, list: EndpointSpec[]): void => {
      for (const [addressType, endpoints] of [
        ['IPv4', list],
        ['IPv6', list.flatMap(v6Of)],
      ] as const) {
        if (shape.only !== undefined && shape.only !== addressType) continue;
        objects.push({
          resource: 'endpointslices',
          object: slice(name, { name: 'p', port: number, protocol }, endpoints, { name: `${name}-${suffix}-${addressType.toLowerCase()}`, addressType }),
        });
      }
    };
    put('a', 8080, shape.endpoints);
    if (shape.more !== undefined) put('b', shape.more.port, shape.more.endpoints);
    const to = (address: string, at: number): void =>
      void addresses.push({ name: shape.name, protocol: protocol.toLowerCase() as Protocol, address, port: at });
    if (shape.headless !== true) for (const address of clusterIPs) to(address, 80);
    for (const address of [...externalIPs, ...vips]) to(address, 80);
    if (shape.otherPort !== undefined) for (const address of clusterIPs) to(address, shape.otherPort);
    if (spec['type'] !== 'ClusterIP') for (const address of ['192.0.2.10', '2001:db8::10', '198.51.100.10']) to(address, 30_100 + number);
  }
  return { objects, addresses };
}

export function allShapes(): Shape[] {
  return [...WRITTEN, ...generated(seededRng(11), 40)];
}
