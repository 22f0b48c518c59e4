import { encodeFlowDeletes } from '../../base/conntrack.ts';
import { bytesToIp, type Family } from './ip.ts';
import { attributes, messagesOf, MessageWriter, NLM_F_DUMP, NLM_F_REQUEST, readU16 } from './netlink.ts';
import type { UdpPort } from './world.ts';

/** Connection-tracking entries of UDP flows: read, judge, delete (linux/netfilter/nfnetlink_conntrack.h). */

const NFNL_SUBSYS_CTNETLINK = 1;
const CT = { new: 0, get: 1 } as const;
const CTA = { tupleOrig: 1, tupleReply: 2, id: 12, zone: 18, filter: 25 } as const;
const FILTER_ORIG_FLAGS = 1;
const FILTER_PROTOCOL = 1 << 3;
const UDP = 17;
const AFTER_FAMILY = 4;
const AF: Record<Family, number> = { ip: 2, ip6: 10 };

export interface Flow {
  origDst: string;
  origDstPort: number;
  replySrc: string;
  replySrcPort: number;
  /** As the kernel sent them, for naming the entry again. */
  origTuple: Uint8Array;
  id: Uint8Array | undefined;
  zone: Uint8Array | undefined;
}

function type(message: number): number {
  return (NFNL_SUBSYS_CTNETLINK << 8) | message;
}

/** Asks for the UDP entries of one family; `filtered` lets the kernel (5.8 and later) leave out other protocols. */
export function encodeUdpDump(family: Family, filtered: boolean): Uint8Array {
  const writer = new MessageWriter(128);
  const token = writer.begin(type(CT.get), NLM_F_REQUEST | NLM_F_DUMP, 1, AF[family]);
  if (filtered) {
    const tuple = writer.nest(CTA.tupleOrig);
    const protocol = writer.nest(2);
    writer.u8(1, UDP);
    writer.unnest(protocol);
    writer.unnest(tuple);
    const filter = writer.nest(CTA.filter);
    // The one number here in the machine's own byte order.
    writer.bytes(FILTER_ORIG_FLAGS, Uint8Array.of(FILTER_PROTOCOL, 0, 0, 0));
    writer.unnest(filter);
  }
  writer.end(token);
  return writer.finish();
}

interface Tuple {
  src: string;
  dst: string;
  protocol: number;
  srcPort: number;
  dstPort: number;
}

function decodeTuple(bytes: Uint8Array | undefined): Tuple | null {
  if (bytes === undefined) return null;
  const parts = attributes(bytes);
  const ip = attributes(parts.get(1) ?? new Uint8Array());
  const proto = attributes(parts.get(2) ?? new Uint8Array());
  const src = ip.get(1) ?? ip.get(3);
  const dst = ip.get(2) ?? ip.get(4);
  if (src === undefined || dst === undefined) return null;
  return { src: bytesToIp(src), dst: bytesToIp(dst), protocol: proto.get(1)?.[0] ?? 0, srcPort: readU16(proto.get(2)), dstPort: readU16(proto.get(3)) };
}

export function decodeUdpFlows(datagrams: readonly Uint8Array[]): Flow[] {
  const flows: Flow[] = [];
  for (const { type: messageType, payload } of messagesOf(datagrams)) {
    if (messageType !== type(CT.new)) continue;
    const found = attributes(payload, AFTER_FAMILY);
    const orig = decodeTuple(found.get(CTA.tupleOrig));
    const reply = decodeTuple(found.get(CTA.tupleReply));
    if (orig === null || reply === null || orig.protocol !== UDP) continue;
    flows.push({
      origDst: orig.dst,
      origDstPort: orig.dstPort,
      replySrc: reply.src,
      replySrcPort: reply.srcPort,
      origTuple: found.get(CTA.tupleOrig)!,
      id: found.get(CTA.id),
      zone: found.get(CTA.zone),
    });
  }
  return flows;
}

/**
 * Flows to a Service that do not rest on one of its serving endpoints. A node port is told from another Service's
 * port of the same number by its address: `nodeAddresses` are those that take node ports.
 */
export function staleFlows(flows: readonly Flow[], ports: readonly UdpPort[], nodeAddresses: ReadonlySet<string>): Flow[] {
  const byAddress = new Map<string, UdpPort>();
  const byNodePort = new Map<number, UdpPort>();
  for (const port of ports) {
    for (const address of port.addresses) byAddress.set(`${address} ${port.port}`, port);
    if (port.nodePort !== 0) byNodePort.set(port.nodePort, port);
  }
  return flows.filter((flow) => {
    const port = byAddress.get(`${flow.origDst} ${flow.origDstPort}`) ?? (nodeAddresses.has(flow.origDst) ? byNodePort.get(flow.origDstPort) : undefined);
    return port !== undefined && !port.endpoints.has(`${flow.replySrc} ${flow.replySrcPort}`);
  });
}

/** One deletion for each flow, each acknowledged with its number (from 1). */
export function encodeDeletes(family: Family, flows: readonly Flow[]): Uint8Array {
  return encodeFlowDeletes(flows.map(({ origTuple, id, zone }) => ({ family: family === 'ip' ? 4 : 6, tuple: origTuple, id, zone })));
}
