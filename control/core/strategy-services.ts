import { Failure, internal } from './failure.ts';
import type { Cause } from './failure.ts';
import type { Obj } from './json.ts';
import { duplicate, forbiddenField, nameProblems, portNameProblems, required, unsupported, wrong } from './names.ts';
import type { Strategy, Surroundings } from './strategy.ts';
import { portProblem } from './validate-pod.ts';

const NODE_PORT_FIRST = 30_000;
const NODE_PORT_LAST = 32_767;

const toNumber = (ip: string): number => ip.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);
const toAddress = (value: number): string => [24, 16, 8, 0].map((shift) => Math.floor(value / 2 ** shift) % 256).join('.');
const isIpv4 = (text: string): boolean => /^(\d{1,3}\.){3}\d{1,3}$/.test(text) && text.split('.').every((part) => Number(part) < 256);

export interface AddressRange {
  /** The network's own address as a number. */
  base: number;
  size: number;
}

export function rangeOf(cidr: string): AddressRange {
  const [address = '', bits = '32'] = cidr.split('/');
  const size = 2 ** (32 - Number(bits));
  return { base: Math.floor(toNumber(address) / size) * size, size };
}

/** The nth address of a range: `.1` is the API server's, `.10` the DNS Service's. */
export const addressAt = (cidr: string, at: number): string => toAddress(rangeOf(cidr).base + at);

const usesClusterIp = (service: Obj): boolean => service['spec'].type !== 'ExternalName';
const wantsNodePorts = (service: Obj): boolean =>
  service['spec'].type === 'NodePort' || (service['spec'].type === 'LoadBalancer' && service['spec'].allocateLoadBalancerNodePorts !== false);
const isHeadless = (service: Obj): boolean => service['spec'].clusterIP === 'None';

function defaults(service: Obj): void {
  const spec: Obj = (service['spec'] ??= {});
  spec['type'] ??= 'ClusterIP';
  spec['sessionAffinity'] ??= 'None';
  if (spec['sessionAffinity'] === 'None') delete spec['sessionAffinityConfig'];
  else if (spec['sessionAffinityConfig']?.clientIP?.timeoutSeconds === undefined) spec['sessionAffinityConfig'] = { clientIP: { timeoutSeconds: 10_800 } };
  for (const port of spec['ports'] ?? []) {
    port['protocol'] ??= 'TCP';
    if (port['targetPort'] === undefined || port['targetPort'] === 0 || port['targetPort'] === '') port['targetPort'] = port['port'];
  }
  const isExternal = spec['type'] === 'NodePort' || spec['type'] === 'LoadBalancer' || (spec['type'] === 'ClusterIP' && (spec['externalIPs'] ?? []).length > 0);
  if (isExternal) spec['externalTrafficPolicy'] ??= 'Cluster';
  if (spec['type'] !== 'ExternalName') spec['internalTrafficPolicy'] ??= 'Cluster';
  if (spec['type'] === 'LoadBalancer') spec['allocateLoadBalancerNodePorts'] ??= true;
}

/** Other services' use of an address or port, read from the services themselves: nothing else has to be kept or repaired. */
function others(service: Obj, around: Surroundings): Obj[] {
  return [...around.view.list('', 'services')].filter((other) => other['metadata'].uid !== service['metadata'].uid);
}

function allocateAddress(service: Obj, around: Surroundings): void {
  const spec: Obj = service['spec'];
  const taken = new Set(others(service, around).flatMap((other) => other['spec']?.clusterIPs ?? []));
  const { base, size } = rangeOf(around.serviceCidr);
  const asked: string = spec['clusterIP'] ?? spec['clusterIPs']?.[0] ?? '';
  let address = asked;
  if (asked === '') {
    // The lower part of the range is left to addresses that are asked for by number, as upstream does.
    const reserved = Math.min(Math.max(16, Math.floor(size / 16)), 256);
    const free = (from: number, to: number): string | undefined => {
      const start = around.int(to - from);
      for (let step = 0; step < to - from; step++) {
        const candidate = toAddress(base + from + ((start + step) % (to - from)));
        if (!taken.has(candidate)) return candidate;
      }
      return undefined;
    };
    const low = Math.min(reserved, size - 2);
    const found = (low + 1 < size - 1 ? free(low + 1, size - 1) : undefined) ?? free(1, low + 1);
    if (found === undefined) throw internal(`failed to allocate a serviceIP: range is full`);
    address = found;
  } else checkAsked(service, asked, taken, base, size);
  spec['clusterIP'] = address;
  spec['clusterIPs'] = [address];
}

function checkAsked(service: Obj, asked: string, taken: ReadonlySet<string>, base: number, size: number): void {
  const fail = (why: string): Failure =>
    new Failure(
      422,
      'Invalid',
      `Service "${service['metadata'].name}" is invalid: spec.clusterIPs: Invalid value: ["${asked}"]: failed to allocate IP ${asked}: ${why}`,
      {
        name: service['metadata'].name,
        kind: 'Service',
        causes: [{ reason: 'FieldValueInvalid', message: `Invalid value: ["${asked}"]: failed to allocate IP ${asked}: ${why}`, field: 'spec.clusterIPs' }],
      },
    );
  if (!isIpv4(asked)) throw fail('not a valid IP address');
  const at = toNumber(asked) - base;
  if (at < 1 || at >= size - 1) throw fail('the provided network does not match the current range');
  if (taken.has(asked)) throw fail('provided IP is already allocated');
}

function allocatePorts(service: Obj, around: Surroundings): void {
  const used = new Set(others(service, around).flatMap((other) => (other['spec']?.ports ?? []).map((port: Obj) => `${port['protocol']}/${port['nodePort']}`)));
  const own = new Set<string>();
  (service['spec'].ports ?? []).forEach((port: Obj, at: number) => {
    const key = (number: number): string => `${port['protocol']}/${number}`;
    if ((port['nodePort'] ?? 0) === 0) {
      const span = NODE_PORT_LAST - NODE_PORT_FIRST + 1;
      const start = around.int(span);
      for (let step = 0; step < span && (port['nodePort'] ?? 0) === 0; step++) {
        const candidate = NODE_PORT_FIRST + ((start + step) % span);
        if (!used.has(key(candidate)) && !own.has(key(candidate))) port['nodePort'] = candidate;
      }
      if ((port['nodePort'] ?? 0) === 0) throw internal('failed to allocate a nodePort: range is full');
    } else {
      const asked: number = port['nodePort'];
      const problem =
        asked < NODE_PORT_FIRST || asked > NODE_PORT_LAST
          ? `provided port is not in the valid range. The range of valid ports is ${NODE_PORT_FIRST}-${NODE_PORT_LAST}`
          : used.has(key(asked))
            ? 'provided port is already allocated'
            : '';
      if (problem !== '') {
        throw new Failure(422, 'Invalid', `Service "${service['metadata'].name}" is invalid: spec.ports[${at}].nodePort: Invalid value: ${asked}: ${problem}`, {
          name: service['metadata'].name,
          kind: 'Service',
          causes: [{ reason: 'FieldValueInvalid', message: `Invalid value: ${asked}: ${problem}`, field: `spec.ports[${at}].nodePort` }],
        });
      }
    }
    own.add(key(port['nodePort']));
  });
}

function allocate(service: Obj, around: Surroundings): void {
  const spec: Obj = service['spec'];
  if (usesClusterIp(service)) {
    if (spec['clusterIP'] === undefined && spec['clusterIPs']?.[0] !== undefined) spec['clusterIP'] = spec['clusterIPs'][0];
    if (isHeadless(service)) spec['clusterIPs'] = ['None'];
    else allocateAddress(service, around);
    spec['ipFamilyPolicy'] ??= isHeadless(service) && spec['selector'] === undefined ? 'RequireDualStack' : 'SingleStack';
    if (isHeadless(service) && spec['selector'] === undefined) spec['ipFamilies'] ??= ['IPv4', 'IPv6'];
    else spec['ipFamilies'] ??= ['IPv4'];
  }
  if (wantsNodePorts(service)) allocatePorts(service, around);
  if (spec['type'] === 'LoadBalancer' && spec['externalTrafficPolicy'] === 'Local' && (spec['healthCheckNodePort'] ?? 0) === 0) {
    const used = new Set(
      others(service, around).flatMap((other) => [other['spec']?.healthCheckNodePort, ...(other['spec']?.ports ?? []).map((port: Obj) => port['nodePort'])]),
    );
    let port = NODE_PORT_FIRST + around.int(NODE_PORT_LAST - NODE_PORT_FIRST);
    while (used.has(port)) port = port === NODE_PORT_LAST ? NODE_PORT_FIRST : port + 1;
    spec['healthCheckNodePort'] = port;
  }
}

function prepareUpdate(service: Obj, old: Obj, around: Surroundings): void {
  const spec: Obj = service['spec'];
  const had: Obj = old['spec'];
  if (usesClusterIp(service) && usesClusterIp(old)) {
    // A client that leaves out what was allocated means to keep it.
    if ((spec['clusterIP'] ?? '') === '') spec['clusterIP'] = had['clusterIP'];
    spec['clusterIPs'] ??= had['clusterIPs'];
    if (spec['clusterIP'] !== spec['clusterIPs']?.[0] && spec['clusterIPs']?.[0] === had['clusterIPs']?.[0]) spec['clusterIPs'] = [spec['clusterIP']];
    spec['ipFamilies'] ??= had['ipFamilies'];
    spec['ipFamilyPolicy'] ??= had['ipFamilyPolicy'];
    if (spec['clusterIP'] === undefined) {
      delete spec['clusterIP'];
      delete spec['clusterIPs'];
    }
  }
  if (!usesClusterIp(service)) for (const key of ['clusterIP', 'clusterIPs', 'ipFamilies', 'ipFamilyPolicy', 'internalTrafficPolicy']) delete spec[key];
  if (wantsNodePorts(service)) {
    for (const port of spec['ports'] ?? []) {
      if ((port['nodePort'] ?? 0) !== 0) continue;
      const before = (had['ports'] ?? []).find((other: Obj) => other['port'] === port['port'] && other['protocol'] === port['protocol']);
      if (before?.nodePort !== undefined && !(spec['ports'] ?? []).some((other: Obj) => other['nodePort'] === before.nodePort))
        port['nodePort'] = before.nodePort;
    }
  } else if (wantsNodePorts(old)) {
    for (const port of spec['ports'] ?? []) {
      const before = (had['ports'] ?? []).find((other: Obj) => other['port'] === port['port'] && other['protocol'] === port['protocol']);
      if (before?.nodePort === port['nodePort']) delete port['nodePort'];
    }
    delete spec['allocateLoadBalancerNodePorts'];
    if (spec['externalTrafficPolicy'] === had['externalTrafficPolicy'] && (spec['externalIPs'] ?? []).length === 0) delete spec['externalTrafficPolicy'];
  }
  if (checkFixed(service, old).length === 0 && validate(service, undefined).length === 0) allocate(service, around);
}

function checkFixed(service: Obj, old: Obj): Cause[] {
  const had: string | undefined = old['spec'].clusterIP;
  const has: string | undefined = service['spec'].clusterIP;
  if (usesClusterIp(service) && usesClusterIp(old) && (had ?? '') !== '' && has !== had)
    return [wrong('spec.clusterIPs[0]', [has ?? ''], 'may not change once set')];
  return [];
}

function validate(service: Obj, old: Obj | undefined): Cause[] {
  const out: Cause[] = old === undefined ? [] : checkFixed(service, old);
  const spec: Obj = service['spec'];
  const ports: Obj[] = spec['ports'] ?? [];
  if (ports.length === 0 && !isHeadless(service) && usesClusterIp(service)) out.push(required('spec.ports'));
  if (spec['type'] === 'ExternalName') {
    if ((spec['externalName'] ?? '') === '') out.push(required('spec.externalName'));
    else
      out.push(
        ...nameProblems('subdomain', String(spec['externalName']).replace(/\.$/, '')).map((problem) =>
          wrong('spec.externalName', spec['externalName'], problem),
        ),
      );
    if ((spec['clusterIP'] ?? '') !== '') out.push(forbiddenField('spec.clusterIPs', `may not be set for ExternalName services`));
  }
  if (isHeadless(service) && ['NodePort', 'LoadBalancer'].includes(spec['type']))
    out.push(wrong('spec.clusterIPs[0]', 'None', `may not be set to 'None' for ${spec['type']} services`));
  const names = new Set<string>();
  const pairs = new Set<string>();
  ports.forEach((port, at) => {
    const path = `spec.ports[${at}]`;
    const name: string = port['name'] ?? '';
    if (name === '' && ports.length > 1) out.push(required(`${path}.name`));
    if (name !== '') out.push(...nameProblems('label', name).map((problem) => wrong(`${path}.name`, name, problem)));
    if (name !== '' && names.has(name)) out.push(duplicate(`${path}.name`, name));
    names.add(name);
    out.push(...portProblem(`${path}.port`, port['port']));
    if (typeof port['targetPort'] === 'number') out.push(...portProblem(`${path}.targetPort`, port['targetPort']));
    else out.push(...portNameProblems(String(port['targetPort'])).map((problem) => wrong(`${path}.targetPort`, port['targetPort'], problem)));
    if (!['TCP', 'UDP', 'SCTP'].includes(port['protocol'])) out.push(unsupported(`${path}.protocol`, port['protocol'], ['SCTP', 'TCP', 'UDP']));
    if (!wantsNodePorts(service) && spec['type'] !== 'LoadBalancer' && (port['nodePort'] ?? 0) !== 0)
      out.push(forbiddenField(`${path}.nodePort`, "may not be used when `type` is 'ClusterIP'"));
    const pair = `${port['protocol']}/${port['port']}`;
    if (pairs.has(pair)) out.push(duplicate(path, { port: port['port'], protocol: port['protocol'] }));
    pairs.add(pair);
  });
  if (!['ClusterIP', 'NodePort', 'LoadBalancer', 'ExternalName'].includes(spec['type']))
    out.push(unsupported('spec.type', spec['type'], ['ClusterIP', 'ExternalName', 'LoadBalancer', 'NodePort']));
  if (!['None', 'ClientIP'].includes(spec['sessionAffinity'])) out.push(unsupported('spec.sessionAffinity', spec['sessionAffinity'], ['ClientIP', 'None']));
  for (const [at, ip] of (spec['externalIPs'] ?? []).entries())
    if (!isIpv4(ip) && !String(ip).includes(':'))
      out.push(wrong(`spec.externalIPs[${at}]`, ip, 'must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)'));
  return out;
}

export const SERVICES: Strategy = {
  nameRule: 'label',
  hasGeneration: false,
  returnsDeleted: true,
  defaults,
  prepareCreate(service, around) {
    service['status'] = { loadBalancer: {} };
    if (validate(service, undefined).length === 0) allocate(service, around);
  },
  prepareUpdate,
  validate,
  fields: (service) => ({ 'spec.clusterIP': service['spec']?.clusterIP ?? '', 'spec.type': service['spec']?.type ?? '' }),
};
