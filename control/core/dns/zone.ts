import type { Endpoint, EndpointSlice, Service } from '../../../proto/kube/types.ts';
import { ipv6Groups, type Question, RCODE, type RecordData, type ResourceRecord, type Response, TYPE } from './wire.ts';

/** What the zone is made of. */
export interface ZoneView {
  /** `cluster.local` */
  domain: string;
  /** Address of the DNS Service itself. */
  serverAddress: string;
  service(namespace: string, name: string): Service | undefined;
  slices(namespace: string, name: string): readonly EndpointSlice[];
  hasNamespace(name: string): boolean;
  servicesWithIp(ip: string): readonly Service[];
  slicesWithIp(ip: string): readonly EndpointSlice[];
}

export type ZoneAnswer =
  | ({ kind: 'answer' } & Response)
  /** Somebody else's name. `chain` is the way there, when one of our names points at it. */
  | { kind: 'forward'; name: string; chain: ResourceRecord[] };

const TTL = 30;
/** The version of the DNS specification that Kubernetes' names follow. */
const DNS_VERSION = '1.1.0';
const MAX_ALIASES = 8;

/** Answers one question from the cluster's zone, or says that it has to be forwarded. `turn` rotates equal records. */
export function answerQuestion(question: Question, view: ZoneView, turn: number): ZoneAnswer {
  const name = question.name.toLowerCase();
  const reverse = addressOfReverse(name);
  if (reverse !== undefined) {
    const targets = reverseNames(reverse, view);
    if (targets.length === 0) return { kind: 'forward', name: question.name, chain: [] };
    const records = targets.map((target): RecordData => ({ type: 'PTR', target }));
    return found(question, view, question.type === TYPE.PTR || question.type === TYPE.ANY ? records : [], []);
  }
  if (!isWithin(name, view.domain)) return { kind: 'forward', name: question.name, chain: [] };
  const node = lookUp(name, view);
  if (node === undefined)
    return { kind: 'answer', rcode: RCODE.nameError, authoritative: true, answers: [], authority: [startOfAuthority(view)], additional: [] };
  const alias = node.find((data) => data.type === 'CNAME');
  if (alias?.type === 'CNAME' && question.type !== TYPE.CNAME) return followAlias(question, alias.target, view, turn);
  const matching = node.filter((data) => question.type === TYPE.ANY || TYPE[data.type] === question.type);
  const rotated = matching.map((_, index) => matching[(index + turn) % matching.length] as RecordData);
  return found(question, view, rotated, additionalFor(rotated, view));
}

function found(question: Question, view: ZoneView, records: readonly RecordData[], additional: ResourceRecord[]): ZoneAnswer {
  const answers = records.map((data) => ({ name: question.name, ttl: TTL, data }));
  return { kind: 'answer', rcode: RCODE.noError, authoritative: true, answers, authority: answers.length === 0 ? [startOfAuthority(view)] : [], additional };
}

function followAlias(question: Question, first: string, view: ZoneView, turn: number): ZoneAnswer {
  const chain: ResourceRecord[] = [{ name: question.name, ttl: TTL, data: { type: 'CNAME', target: first } }];
  let target = first;
  while (chain.length <= MAX_ALIASES && isWithin(target.toLowerCase(), view.domain)) {
    const next = answerQuestion({ ...question, name: target }, view, turn);
    if (next.kind === 'forward') return { ...next, chain: [...chain, ...next.chain] };
    const alias = next.answers.find((record) => record.data.type === 'CNAME');
    if (alias?.data.type !== 'CNAME') return { ...next, answers: [...chain, ...next.answers] };
    chain.push(alias);
    target = alias.data.target;
  }
  return { kind: 'forward', name: target, chain };
}

function isWithin(name: string, domain: string): boolean {
  return name === domain || name.endsWith(`.${domain}`);
}

function startOfAuthority(view: ZoneView): ResourceRecord {
  const { domain } = view;
  return {
    name: domain,
    ttl: TTL,
    data: { type: 'SOA', primary: `ns.dns.${domain}`, mailbox: `hostmaster.${domain}`, serial: 1, refresh: 7200, retry: 1800, expire: 86400, minimum: TTL },
  };
}

/** All records of a name of the zone; empty when the name exists without any; undefined when it does not exist. */
function lookUp(name: string, view: ZoneView): RecordData[] | undefined {
  const { domain } = view;
  const labels = name === domain ? [] : name.slice(0, -domain.length - 1).split('.');
  const top = labels.at(-1);
  if (top === undefined) return [{ type: 'NS', target: `ns.dns.${domain}` }, startOfAuthority(view).data];
  const below = labels.slice(0, -1);
  switch (top) {
    case 'dns-version':
      return below.length === 0 ? [{ type: 'TXT', text: DNS_VERSION }] : undefined;
    case 'dns':
      if (below.length === 0) return [];
      return below.length === 1 && below[0] === 'ns' ? [addressRecord(view.serverAddress)] : undefined;
    case 'pod':
      return lookUpPod(below, view);
    case 'svc':
      return lookUpService(below, view);
    default:
      return undefined;
  }
}

/** `10-244-1-5.shop.pod`: the address in the name is the answer. */
function lookUpPod(labels: readonly string[], view: ZoneView): RecordData[] | undefined {
  const namespace = labels.at(-1);
  if (namespace === undefined) return [];
  if (!view.hasNamespace(namespace) || labels.length > 2) return undefined;
  if (labels.length === 1) return [];
  const address = dashedAddress(labels[0] ?? '');
  return address === undefined ? undefined : [addressRecord(address)];
}

function dashedAddress(label: string): string | undefined {
  if (/^\d{1,3}(-\d{1,3}){3}$/.test(label)) {
    const parts = label.split('-').map(Number);
    return parts.every((part) => part <= 255) ? parts.join('.') : undefined;
  }
  return /^[0-9a-f]{0,4}(-[0-9a-f]{0,4}){2,7}$/.test(label) ? label.replaceAll('-', ':') : undefined;
}

function lookUpService(labels: readonly string[], view: ZoneView): RecordData[] | undefined {
  const namespace = labels.at(-1);
  if (namespace === undefined) return [];
  if (!view.hasNamespace(namespace)) return undefined;
  const name = labels.at(-2);
  if (name === undefined) return [];
  const service = view.service(namespace, name);
  if (service === undefined) return undefined;
  const rest = labels.slice(0, -2);
  const full = `${name}.${namespace}.svc.${view.domain}`;
  if (service.spec.type === 'ExternalName')
    return rest.length === 0 ? [{ type: 'CNAME', target: (service.spec.externalName ?? '').replace(/\.$/, '') }] : undefined;
  const isHeadless = service.spec.clusterIP === 'None';
  const backends = isHeadless ? backendsOf(view.slices(namespace, name)) : [];
  if (rest.length === 0)
    return [
      ...(isHeadless ? unique(backends.map((backend) => addressRecord(backend.address))) : clusterIps(service).map(addressRecord)),
      ...serviceRecords(service, backends, full, undefined),
    ];
  if (rest.length === 1 && rest[0]?.startsWith('_') === true)
    return serviceRecords(service, backends, full, { protocol: rest[0].slice(1) }).length > 0 ? [] : undefined;
  if (rest.length === 1) {
    const addresses = backends.filter((backend) => backend.label === rest[0]).map((backend) => addressRecord(backend.address));
    return addresses.length === 0 ? undefined : unique(addresses);
  }
  const [port = '', protocol = ''] = rest;
  if (rest.length !== 2 || !port.startsWith('_') || !protocol.startsWith('_')) return undefined;
  const records = serviceRecords(service, backends, full, { port: port.slice(1), protocol: protocol.slice(1) });
  return records.length === 0 ? undefined : records;
}

interface Backend {
  /** Its name below the Service: its hostname, or its address with dashes. */
  label: string;
  address: string;
  ports: NonNullable<EndpointSlice['ports']>;
}

function backendsOf(slices: readonly EndpointSlice[]): Backend[] {
  return slices.flatMap((slice) =>
    (slice.endpoints ?? [])
      .filter(isServed)
      .flatMap((endpoint) => endpoint.addresses.map((address) => ({ label: labelOf(endpoint, address), address, ports: slice.ports ?? [] }))),
  );
}

function isServed(endpoint: Endpoint): boolean {
  return endpoint.conditions?.ready !== false;
}

function labelOf(endpoint: Endpoint, address: string): string {
  return endpoint.hostname || address.replaceAll(/[.:]/g, '-');
}

function serviceRecords(service: Service, backends: readonly Backend[], full: string, wanted: { port?: string; protocol: string } | undefined): RecordData[] {
  const matches = (name: string | undefined, protocol: string | undefined): boolean =>
    wanted === undefined || ((protocol ?? 'TCP').toLowerCase() === wanted.protocol && (wanted.port === undefined || name === wanted.port));
  const weigh = (targets: { port: number; target: string }[]): RecordData[] => {
    const weight = Math.max(1, Math.floor(100 / Math.max(1, targets.length)));
    return unique(targets.map(({ port, target }): RecordData => ({ type: 'SRV', priority: 0, weight, port, target })));
  };
  if (service.spec.clusterIP === 'None') {
    return weigh(
      backends.flatMap((backend) =>
        backend.ports
          .filter((port) => port.port !== undefined && matches(port.name, port.protocol))
          .map((port) => ({ port: port.port ?? 0, target: `${backend.label}.${full}` })),
      ),
    );
  }
  return weigh((service.spec.ports ?? []).filter((port) => matches(port.name, port.protocol)).map((port) => ({ port: port.port, target: full })));
}

function clusterIps(service: Service): string[] {
  const all = service.spec.clusterIPs ?? (service.spec.clusterIP ? [service.spec.clusterIP] : []);
  return all.filter((ip) => ip !== '' && ip !== 'None');
}

function addressRecord(address: string): RecordData {
  return { type: address.includes(':') ? 'AAAA' : 'A', address };
}

function unique(records: RecordData[]): RecordData[] {
  return [...new Map(records.map((record) => [JSON.stringify(record), record])).values()];
}

/** The addresses of SRV targets, so that nobody has to ask again. */
function additionalFor(records: readonly RecordData[], view: ZoneView): ResourceRecord[] {
  const targets = new Set(records.flatMap((record) => (record.type === 'SRV' ? [record.target] : [])));
  return [...targets].flatMap((target) =>
    (lookUp(target.toLowerCase(), view) ?? []).filter((data) => data.type === 'A' || data.type === 'AAAA').map((data) => ({ name: target, ttl: TTL, data })),
  );
}

/** The address a reverse name speaks of. */
export function addressOfReverse(name: string): string | undefined {
  if (name.endsWith('.in-addr.arpa')) {
    const parts = name.slice(0, -'.in-addr.arpa'.length).split('.');
    return parts.length === 4 && parts.every((part) => /^\d{1,3}$/.test(part) && Number(part) <= 255) ? parts.toReversed().join('.') : undefined;
  }
  if (!name.endsWith('.ip6.arpa')) return undefined;
  const nibbles = name.slice(0, -'.ip6.arpa'.length).split('.').toReversed();
  if (nibbles.length !== 32 || !nibbles.every((nibble) => /^[0-9a-f]$/.test(nibble))) return undefined;
  return Array.from({ length: 8 }, (_, index) => Number.parseInt(nibbles.slice(index * 4, index * 4 + 4).join(''), 16).toString(16)).join(':');
}

function sameAddress(a: string, b: string): boolean {
  return a === b || (a.includes(':') && b.includes(':') && ipv6Groups(a).join() === ipv6Groups(b).join());
}

function reverseNames(address: string, view: ZoneView): string[] {
  const services = view.servicesWithIp(address).map((service) => `${service.metadata.name}.${service.metadata.namespace}.svc.${view.domain}`);
  if (services.length > 0) return services;
  return view.slicesWithIp(address).flatMap((slice) => {
    const service = slice.metadata.labels?.['kubernetes.io/service-name'];
    if (service === undefined) return [];
    return (slice.endpoints ?? [])
      .filter((endpoint) => isServed(endpoint) && endpoint.addresses.some((other) => sameAddress(other, address)))
      .map((endpoint) => `${labelOf(endpoint, address)}.${service}.${slice.metadata.namespace}.svc.${view.domain}`);
  });
}
