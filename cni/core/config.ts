import { bitsOf, contains, firstOf, lastOf, parseAddress, parseAddressPrefix, parseCidr, type Address, type Cidr } from './address.ts';
import { CniError, CODE } from './errors.ts';

/** The network configuration that a runtime hands over (CNI spec 1.1, section 1) and the call's environment (section 2). */

export const VERSIONS = ['0.3.1', '0.4.0', '1.0.0', '1.1.0'] as const;
export type CniVersion = (typeof VERSIONS)[number];

export type Command = 'ADD' | 'DEL' | 'CHECK' | 'STATUS' | 'GC' | 'VERSION';

export interface Range {
  readonly subnet: Cidr;
  readonly first: bigint;
  readonly last: bigint;
  readonly gateway: Address;
}

export interface Route {
  readonly dst: Cidr;
  readonly gw: Address | null;
  readonly mtu?: number;
}

export type Protocol = 'tcp' | 'udp' | 'sctp';

export interface PortMapping {
  readonly hostPort: number;
  readonly containerPort: number;
  readonly protocol: Protocol;
  /** Null: every address of the node. */
  readonly hostIp: Address | null;
}

/** Bits a second and bits; 0 is no limit. */
export interface Bandwidth {
  readonly ingressRate: number;
  readonly ingressBurst: number;
  readonly egressRate: number;
  readonly egressBurst: number;
}

export interface NetConf {
  readonly version: CniVersion;
  readonly name: string;
  readonly type: string;
  /** Each set gives a pod one address. */
  readonly rangeSets: readonly (readonly Range[])[];
  readonly routes: readonly Route[];
  readonly masquerade: boolean;
  /** Destinations whose packets keep the pod's address. */
  readonly notMasqueraded: readonly Cidr[];
  /** 0: that of the uplink. */
  readonly mtu: number;
  readonly dataDir: string;
  readonly ports: readonly PortMapping[];
  readonly bandwidth: Bandwidth | null;
  /** Addresses that were asked for. */
  readonly wanted: readonly Address[];
  readonly mac: string | null;
  readonly dns: Readonly<Record<string, unknown>>;
  /** Of GC; null when the runtime gave none. */
  readonly valid: readonly Attachment[] | null;
  readonly prevResult: Readonly<Record<string, unknown>> | null;
}

export interface Attachment {
  readonly containerId: string;
  readonly ifname: string;
}

export interface Call extends Attachment {
  readonly command: Command;
  /** Path of the pod's network namespace; may be empty on DEL. */
  readonly netns: string;
  readonly args: ReadonlyMap<string, string>;
}

export const DATA_DIR = '/run/nodelet/cni';
const COMMANDS: readonly string[] = ['ADD', 'DEL', 'CHECK', 'STATUS', 'GC', 'VERSION'];
const NEEDS_CONTAINER: readonly string[] = ['ADD', 'DEL', 'CHECK'];
const NAME = /^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/;
/** What the kernel takes as an interface's name. */
const IFNAME = /^[^\s/:]{1,15}$/;

type Json = Readonly<Record<string, unknown>>;

const isObject = (value: unknown): value is Json => typeof value === 'object' && value !== null && !Array.isArray(value);
/** A field as Go reads it, whatever its letters' case: some runtimes write `HostPort`. */
function field(object: Json, name: string): unknown {
  if (Object.hasOwn(object, name)) return object[name];
  const lower = name.toLowerCase();
  const key = Object.keys(object).find((one) => one.toLowerCase() === lower);
  return key === undefined ? undefined : object[key];
}
/** Text as it is; what is no text becomes something that no address or name looks like. */
const textOf = (value: unknown): string => (typeof value === 'string' ? value : value === undefined || value === null ? '' : JSON.stringify(value));
const objectOf = (value: unknown): Json => (isObject(value) ? value : {});
const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? (value as unknown[]) : []);

function invalid(what: string): CniError {
  return new CniError(CODE.invalidConfig, `invalid network configuration: ${what}`);
}

/** Reads the environment; throws CniError 4 for what is missing or wrong. */
export function readCall(env: Readonly<Record<string, string | undefined>>): Call {
  const command = env['CNI_COMMAND'] ?? '';
  if (!COMMANDS.includes(command)) throw new CniError(CODE.invalidEnvironment, command === '' ? 'CNI_COMMAND is not set' : `unknown CNI_COMMAND ${command}`);
  // A call that is about no pod waits for none, whatever is left of an earlier call in the environment.
  const containerId = NEEDS_CONTAINER.includes(command) ? (env['CNI_CONTAINERID'] ?? '') : '';
  const ifname = env['CNI_IFNAME'] ?? '';
  const netns = env['CNI_NETNS'] ?? '';
  if (NEEDS_CONTAINER.includes(command)) {
    const missing = [containerId === '' ? 'CNI_CONTAINERID' : '', ifname === '' ? 'CNI_IFNAME' : '', netns === '' && command !== 'DEL' ? 'CNI_NETNS' : ''];
    const names = missing.filter((name) => name !== '');
    if (names.length > 0) throw new CniError(CODE.invalidEnvironment, `required environment is missing: ${names.join(', ')}`);
    if (!NAME.test(containerId)) throw new CniError(CODE.invalidEnvironment, `CNI_CONTAINERID ${JSON.stringify(containerId)} is no id`);
    if (!IFNAME.test(ifname) || ifname === '.' || ifname === '..')
      throw new CniError(CODE.invalidEnvironment, `CNI_IFNAME ${JSON.stringify(ifname)} is no interface name`);
  }
  const args = new Map((env['CNI_ARGS'] ?? '').split(';').map((pair) => [pair.split('=')[0] ?? '', pair.slice(pair.indexOf('=') + 1)] as const));
  return { command: command as Command, containerId, ifname, netns, args };
}

/** The version that an answer to this input has: the input's own where that is one of ours. */
export function versionOf(input: unknown): CniVersion {
  const wanted = objectOf(input)['cniVersion'];
  return VERSIONS.find((version) => version === wanted) ?? '1.1.0';
}

/** Reads standard input. Throws CniError 6 for what is no JSON object. */
export function readInput(text: string): Json {
  let input: unknown;
  try {
    input = JSON.parse(text);
  } catch (error) {
    throw new CniError(CODE.decode, 'the network configuration is no JSON', (error as Error).message);
  }
  if (!isObject(input)) throw new CniError(CODE.decode, 'the network configuration is no JSON object');
  return input;
}

/** Checks and completes a network configuration; throws CniError 1 or 7. */
export function readNetConf(input: Json, call: Call): NetConf {
  const version = VERSIONS.find((known) => known === input['cniVersion']);
  if (version === undefined)
    throw new CniError(
      CODE.incompatibleVersion,
      `CNI version ${JSON.stringify(input['cniVersion'] ?? '')} is not spoken here`,
      `these are: ${VERSIONS.join(', ')}`,
    );
  const name = input['name'];
  if (typeof name !== 'string' || !NAME.test(name)) throw invalid('"name" is missing or no name');
  const ipam = objectOf(input['ipam']);
  if (ipam['type'] !== undefined && ipam['type'] !== 'nodelet' && ipam['type'] !== 'host-local')
    throw new CniError(
      CODE.unsupportedField,
      `"ipam.type" ${JSON.stringify(ipam['type'])}: this plugin gives addresses itself`,
      'leave it out, or name "nodelet"',
    );
  const runtime = objectOf(input['runtimeConfig']);
  const given = listOf(runtime['ipRanges']);
  const rangeSets = readRangeSets(given.length > 0 ? given : listOf(ipam['ranges']));
  return {
    version,
    name,
    type: typeof input['type'] === 'string' ? input['type'] : '',
    rangeSets,
    routes: listOf(ipam['routes']).map(readRoute),
    masquerade: input['ipMasq'] === true,
    notMasqueraded: listOf(input['nonMasqueradeCIDRs']).map(
      (text) => parseCidr(textOf(text)) ?? fail(`"nonMasqueradeCIDRs" has ${JSON.stringify(text)}, which is no CIDR`),
    ),
    mtu: integer(input['mtu'] ?? 0, 'mtu', 0, 65_535),
    dataDir: typeof ipam['dataDir'] === 'string' ? ipam['dataDir'] : DATA_DIR,
    ports: listOf(runtime['portMappings']).flatMap(readPort),
    bandwidth: readBandwidth(runtime['bandwidth'] ?? input['bandwidth']),
    wanted: readWanted(input, runtime, call),
    mac: readMac(runtime['mac'] ?? objectOf(objectOf(input['args'])['cni'])['mac']),
    dns: objectOf(input['dns']),
    valid: readValid(input),
    prevResult: isObject(input['prevResult']) ? input['prevResult'] : null,
  };
}

function fail(what: string): never {
  throw invalid(what);
}

function integer(value: unknown, what: string, least: number, most: number): number {
  if (typeof value !== 'number' || !Number.isInteger(value) || value < least || value > most) throw invalid(`"${what}" is ${JSON.stringify(value)}`);
  return value;
}

function readRangeSets(sets: readonly unknown[]): Range[][] {
  const read = sets.map((set) => {
    const ranges = listOf(set).map(readRange);
    if (ranges.length === 0) throw invalid('a set of "ranges" is empty');
    if (ranges.some((range) => range.subnet.family !== ranges[0]!.subnet.family)) throw invalid('a set of "ranges" mixes IPv4 and IPv6');
    return ranges;
  });
  const all = read.flat();
  for (const [at, range] of all.entries()) {
    const other = all.slice(0, at).find((before) => before.subnet.family === range.subnet.family && before.first <= range.last && range.first <= before.last);
    if (other !== undefined) throw invalid('two of "ranges" share addresses');
  }
  return read;
}

function readRange(value: unknown): Range {
  const range = objectOf(value);
  const subnet = parseCidr(textOf(field(range, 'subnet') ?? ''));
  if (subnet === null) throw invalid(`"subnet" is ${JSON.stringify(field(range, 'subnet') ?? null)}`);
  // The first address is the network's and the last one broadcast; of IPv6 the first is the routers' own.
  const bits = bitsOf(subnet.family) - subnet.prefix;
  if (bits < 2) throw invalid(`subnet ${textOf(field(range, 'subnet'))} has no room for a pod`);
  const inside = (key: string, usual: bigint): bigint => {
    if (field(range, key) === undefined || field(range, key) === '') return usual;
    const address = parseAddress(textOf(field(range, key)));
    if (address === null || !contains(subnet, address))
      throw invalid(`"${key}" ${JSON.stringify(field(range, key))} is not in ${textOf(field(range, 'subnet'))}`);
    return address.value;
  };
  const first = inside('rangeStart', firstOf(subnet) + 1n);
  const last = inside('rangeEnd', lastOf(subnet) - (subnet.family === 4 ? 1n : 0n));
  if (first > last) throw invalid('"rangeStart" is behind "rangeEnd"');
  return { subnet, first, last, gateway: { family: subnet.family, value: inside('gateway', firstOf(subnet) + 1n) } };
}

function readRoute(value: unknown): Route {
  const route = objectOf(value);
  const dst = parseCidr(textOf(field(route, 'dst') ?? ''));
  if (dst === null) throw invalid(`a route's "dst" is ${JSON.stringify(field(route, 'dst') ?? null)}`);
  const gw = field(route, 'gw') === undefined ? null : parseAddress(textOf(field(route, 'gw')));
  if (field(route, 'gw') !== undefined && (gw === null || gw.family !== dst.family)) throw invalid(`a route's "gw" is ${JSON.stringify(field(route, 'gw'))}`);
  return { dst, gw, ...(field(route, 'mtu') === undefined ? {} : { mtu: integer(field(route, 'mtu'), 'mtu of a route', 0, 65_535) }) };
}

function readPort(value: unknown): PortMapping[] {
  const port = objectOf(value);
  const protocol = textOf(field(port, 'protocol') ?? 'tcp').toLowerCase();
  if (protocol !== 'tcp' && protocol !== 'udp' && protocol !== 'sctp') throw invalid(`a port mapping's protocol is ${JSON.stringify(field(port, 'protocol'))}`);
  const hostPort = integer(field(port, 'hostPort') ?? 0, 'hostPort', 0, 65_535);
  if (hostPort === 0) return [];
  const containerPort = integer(field(port, 'containerPort'), 'containerPort', 1, 65_535);
  const text = field(port, 'hostIP');
  const hostIp = text === undefined || text === '' ? null : (parseAddress(textOf(text)) ?? fail(`"hostIP" is ${JSON.stringify(text)}`));
  return [{ hostPort, containerPort, protocol, hostIp }];
}

function readBandwidth(value: unknown): Bandwidth | null {
  if (!isObject(value)) return null;
  const of = (key: string): number => {
    const number = field(value, key) ?? 0;
    if (typeof number !== 'number' || !(number >= 0)) throw invalid(`"${key}" of the bandwidth is ${JSON.stringify(number)}`);
    return Math.floor(number);
  };
  const found = { ingressRate: of('ingressRate'), ingressBurst: of('ingressBurst'), egressRate: of('egressRate'), egressBurst: of('egressBurst') };
  return found.ingressRate === 0 && found.egressRate === 0 ? null : found;
}

function readWanted(input: Json, runtime: Json, call: Call): Address[] {
  const lists = [listOf(runtime['ips']), listOf(objectOf(objectOf(input['args'])['cni'])['ips'])];
  const one = call.args.get('IP');
  const texts = [...lists.flat(), ...(one === undefined || one === '' ? [] : [one])].map(textOf);
  return texts
    .map((text) => parseAddressPrefix(text) ?? parseAddress(text) ?? fail(`${JSON.stringify(text)} was asked for and is no address`))
    .map(({ family, value }) => ({ family, value }));
}

function readMac(value: unknown): string | null {
  if (value === undefined || value === '') return null;
  if (typeof value !== 'string' || !/^[0-9a-f]{2}(:[0-9a-f]{2}){5}$/i.test(value)) throw invalid(`"mac" is ${JSON.stringify(value)}`);
  return value.toLowerCase();
}

function readValid(input: Json): Attachment[] | null {
  const value = input['cni.dev/valid-attachments'] ?? input['cni.dev/attachments'];
  if (!Array.isArray(value)) return null;
  return value.map((entry) => {
    const one = objectOf(entry);
    return { containerId: textOf(field(one, 'containerID') ?? ''), ifname: textOf(field(one, 'ifname') ?? '') };
  });
}

/** Addresses that a previous result tells of; what is none in it is left out. */
export function toldAddresses(result: Json | null): string[] {
  return listOf(result?.['ips']).flatMap((ip) => {
    const address = textOf(field(objectOf(ip), 'address')).split('/')[0] ?? '';
    return address === '' ? [] : [address];
  });
}
