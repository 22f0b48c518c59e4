import { MessageWriter, NLM_F_ACK, NLM_F_CREATE, NLM_F_REQUEST } from '../../base/netlink.ts';
import { addressText, bytesOf, cidrText, parseCidr, type Address, type Cidr } from './address.ts';
import type { PortMapping, Protocol } from './config.ts';
import type { Given } from './ipam.ts';
import { hashHex, linkPrefix } from './names.ts';

/**
 * Host ports, masquerading and whose addresses a pod may send by: one table a family, written whole as text when a daemon starts, and elements of its
 * maps as netlink messages for each pod. A pod without host ports costs nothing here.
 */

export interface HostPort {
  /** Null: every address of the node. */
  readonly hostIp: Address | null;
  readonly protocol: Protocol;
  readonly hostPort: number;
  readonly podIp: Address;
  readonly containerPort: number;
}

/** What of a network leaves by the node's address. */
export interface Masquerade {
  readonly from: readonly Cidr[];
  readonly except: readonly Cidr[];
}

const PROTOCOL: Readonly<Record<Protocol, number>> = { tcp: 6, udp: 17, sctp: 132 };
const NFPROTO: Readonly<Record<4 | 6, number>> = { 4: 2, 6: 10 };
/** Nobody answers these from outside by unicast. */
const MULTICAST: Readonly<Record<4 | 6, string>> = { 4: '224.0.0.0/4', 6: 'ff00::/8' };
/** Before the service proxy's chains (-100): a host port wins over a node port of the same number, always. */
const BEFORE_SERVICES = -110;
const AT_SOURCE_NAT = 100;
/** After connection tracking, before anything is translated. */
const BEFORE_NAT = -150;

/** The table of a data folder; the usual folder has the plain name. */
export function tableName(dataDir: string, usualDir: string): string {
  return dataDir === usualDir ? 'nodelet-cni' : `nodelet-cni-${hashHex(dataDir).slice(0, 3)}`;
}

/** A pod's addresses behind the node's ports; of each mapping those of its address' family. */
export function hostPortsOf(mappings: readonly PortMapping[], given: readonly Given[]): HostPort[] {
  return mappings.flatMap(({ hostIp, protocol, hostPort, containerPort }) =>
    given
      .filter(({ address }) => hostIp === null || hostIp.family === address.family)
      .map(({ address }) => ({
        hostIp: hostIp === null || hostIp.value === 0n ? null : hostIp,
        protocol,
        hostPort,
        podIp: { family: address.family, value: address.value },
        containerPort,
      })),
  );
}

const LOOPBACK = parseCidr('127.0.0.0/8')!;

/** Whether a port is reached at 127.0.0.1, so that the kernel must route such packets to the pod. */
export function isForLocalhost(port: HostPort): boolean {
  return port.podIp.family === 4 && (port.hostIp === null || port.hostIp.value >> 24n === LOOPBACK.value >> 24n);
}

function elementText(port: HostPort): { set: string; text: string } {
  const target = `${addressText(port.podIp)} . ${port.containerPort}`;
  const key = `${port.protocol} . ${port.hostPort}`;
  return port.hostIp === null
    ? { set: 'host-ports', text: `${key} : ${target}` }
    : { set: 'host-ports-at', text: `${addressText(port.hostIp)} . ${key} : ${target}` };
}

/** Both tables as `nft -f` takes them: made, emptied and filled in one transaction. */
export function tableText(
  table: string,
  dataDir: string,
  families: readonly (4 | 6)[],
  ports: readonly HostPort[],
  masquerades: readonly Masquerade[],
): string {
  return families.map((family) => familyText(table, dataDir, family, ports, masquerades)).join('');
}

function familyText(table: string, dataDir: string, family: 4 | 6, ports: readonly HostPort[], masquerades: readonly Masquerade[]): string {
  const ip = family === 4 ? 'ip' : 'ip6';
  const type = family === 4 ? 'ipv4_addr' : 'ipv6_addr';
  const own = ports.filter((port) => port.podIp.family === family);
  const list = (set: string): string[] => [...new Set(own.map(elementText).flatMap((element) => (element.set === set ? [element.text] : [])))];
  const cidrs = (all: readonly Cidr[]): string[] => [...new Set(all.filter((cidr) => cidr.family === family).map(cidrText))];
  const from = cidrs(masquerades.flatMap((one) => one.from));
  const except = cidrs(masquerades.flatMap((one) => [...one.from, ...one.except]));
  const hairpin = [...new Set(own.map((port) => addressText(port.podIp)))].map((pod) => `${pod} . ${pod}`);
  const elements = (items: readonly string[]): string => (items.length === 0 ? '' : ` elements = { ${items.join(', ')} };`);
  // Deleting needs something that is there, on kernels and tools that do not know "destroy" yet.
  return [
    `table ${ip} ${table} { }`,
    `delete table ${ip} ${table}`,
    `table ${ip} ${table} {`,
    `  map host-ports { type inet_proto . inet_service : ${type} . inet_service;${elements(list('host-ports'))} }`,
    `  map host-ports-at { type ${type} . inet_proto . inet_service : ${type} . inet_service;${elements(list('host-ports-at'))} }`,
    `  set hairpin { type ${type} . ${type};${elements(hairpin)} }`,
    `  set pods { type ${type}; flags interval; auto-merge;${elements(from)} }`,
    `  set not-masqueraded { type ${type}; flags interval; auto-merge;${elements([...except, MULTICAST[family]])} }`,
    '  chain host-ports {',
    `    dnat ${ip} addr . port to ${ip} daddr . meta l4proto . th dport map @host-ports-at`,
    `    dnat ${ip} addr . port to meta l4proto . th dport map @host-ports`,
    '  }',
    // A pod speaks by its own addresses only: policies, here and on other nodes, know it by them. And the node's loopback is no
    // pod's, though a link with host ports lets the kernel route to it.
    `  chain sources { type filter hook prerouting priority ${BEFORE_NAT}; policy accept;`,
    `    iifname "${linkPrefix(dataDir)}*" fib saddr . iif oif missing drop`,
    ...(family === 4 ? [`    iifname "${linkPrefix(dataDir)}*" ip daddr 127.0.0.0/8 drop`] : []),
    '  }',
    `  chain prerouting { type nat hook prerouting priority ${BEFORE_SERVICES}; policy accept; fib daddr type local jump host-ports; }`,
    `  chain output { type nat hook output priority ${BEFORE_SERVICES}; policy accept; fib daddr type local jump host-ports; }`,
    `  chain postrouting { type nat hook postrouting priority ${AT_SOURCE_NAT}; policy accept;`,
    `    ct status dnat ${ip} saddr . ${ip} daddr @hairpin masquerade fully-random`,
    ...(family === 4 ? [`    oifname "${linkPrefix(dataDir)}*" ip saddr 127.0.0.0/8 ct status dnat masquerade fully-random`] : []),
    `    ${ip} saddr @pods ${ip} daddr != @not-masqueraded masquerade fully-random`,
    '  }',
    '}',
    '',
  ].join('\n');
}

const NFNL_SUBSYS_NFTABLES = 10;
const BATCH_BEGIN = 0x10;
const BATCH_END = 0x11;
const NEW_ELEMENT = (NFNL_SUBSYS_NFTABLES << 8) | 12;
const DELETE_ELEMENT = (NFNL_SUBSYS_NFTABLES << 8) | 14;

/** Bytes of values one behind the other, each in whole 4-byte registers. */
function concatenated(parts: readonly Uint8Array[]): Uint8Array {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + ((part.length + 3) & ~3), 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += (part.length + 3) & ~3;
  }
  return bytes;
}

const portBytes = (port: number): Uint8Array => Uint8Array.of(port >> 8, port & 0xff);

interface Element {
  readonly family: 4 | 6;
  readonly set: string;
  readonly key: Uint8Array;
  readonly value: Uint8Array | null;
}

function elementsOf(ports: readonly HostPort[]): Element[] {
  const elements = ports.map((port): Element => {
    const value = concatenated([bytesOf(port.podIp), portBytes(port.containerPort)]);
    const key = [Uint8Array.of(PROTOCOL[port.protocol]), portBytes(port.hostPort)];
    const { family } = port.podIp;
    return port.hostIp === null
      ? { family, set: 'host-ports', key: concatenated(key), value }
      : { family, set: 'host-ports-at', key: concatenated([bytesOf(port.hostIp), ...key]), value };
  });
  const pods = new Map(ports.map((port) => [addressText(port.podIp), port.podIp]));
  for (const pod of pods.values()) elements.push({ family: pod.family, set: 'hairpin', key: concatenated([bytesOf(pod), bytesOf(pod)]), value: null });
  return elements;
}

/**
 * One transaction. `add` fails with EEXIST where another pod's address stands; `replace` takes that away first;
 * `remove` succeeds also when nothing is there, and fails with EEXIST, untouched, where another pod's address stands.
 */
export function encodePorts(table: string, what: 'add' | 'replace' | 'remove', ports: readonly HostPort[]): Uint8Array {
  const writer = new MessageWriter(1024);
  let seq = 0;
  let last = 0;
  const put = (type: number, flags: number, element: Element, withValue: boolean): void => {
    seq += 1;
    last = writer.begin(type, NLM_F_REQUEST | flags, seq, NFPROTO[element.family]);
    writer.text(1, table);
    writer.text(2, element.set);
    const list = writer.nest(3);
    const item = writer.nest(1);
    const key = writer.nest(1);
    writer.bytes(1, element.key);
    writer.unnest(key);
    if (withValue && element.value !== null) {
      const value = writer.nest(2);
      writer.bytes(1, element.value);
      writer.unnest(value);
    }
    writer.unnest(item);
    writer.unnest(list);
    writer.end(last);
  };
  writer.end(writer.begin(BATCH_BEGIN, NLM_F_REQUEST, 0, 0, NFNL_SUBSYS_NFTABLES));
  for (const element of elementsOf(ports)) {
    if (what === 'replace') put(DELETE_ELEMENT, 0, element, false);
    put(NEW_ELEMENT, NLM_F_CREATE, element, true);
    if (what === 'remove') put(DELETE_ELEMENT, 0, element, false);
  }
  writer.addFlags(last, NLM_F_ACK);
  writer.end(writer.begin(BATCH_END, NLM_F_REQUEST, seq + 1, 0, NFNL_SUBSYS_NFTABLES));
  return writer.finish();
}
