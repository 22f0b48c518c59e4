import { attributes, messagesOf, MessageWriter, NLM_F_DUMP, NLM_F_REQUEST, readU16 } from '../../base/netlink.ts';
import { addressOf, addressText } from './address.ts';
import type { HostPort } from './ports.ts';

/** UDP flows that the kernel remembers (linux/netfilter/nfnetlink_conntrack.h): a sender that never pauses stays with a pod that is gone. */

const SUBSYS = 1;
const CT = { new: 0, get: 1 } as const;
const CTA = { orig: 1, reply: 2, id: 12, zone: 18 } as const;
const UDP = 17;
const AFTER_FAMILY = 4;
const AF: Readonly<Record<4 | 6, number>> = { 4: 2, 6: 10 };

export interface Flow {
  readonly family: 4 | 6;
  readonly dst: string;
  readonly dstPort: number;
  readonly answers: string;
  readonly orig: Uint8Array;
  readonly id: Uint8Array | undefined;
  readonly zone: Uint8Array | undefined;
}

export function encodeFlowDump(family: 4 | 6): Uint8Array {
  const writer = new MessageWriter(32);
  writer.end(writer.begin((SUBSYS << 8) | CT.get, NLM_F_REQUEST | NLM_F_DUMP, 1, AF[family]));
  return writer.finish();
}

function tuple(bytes: Uint8Array | undefined): { src: string; dst: string; protocol: number; dstPort: number } | null {
  const parts = attributes(bytes ?? new Uint8Array());
  const ip = attributes(parts.get(1) ?? new Uint8Array());
  const proto = attributes(parts.get(2) ?? new Uint8Array());
  const src = addressOf(ip.get(1) ?? ip.get(3) ?? new Uint8Array());
  const dst = addressOf(ip.get(2) ?? ip.get(4) ?? new Uint8Array());
  if (src === null || dst === null) return null;
  return { src: addressText(src), dst: addressText(dst), protocol: proto.get(1)?.[0] ?? 0, dstPort: readU16(proto.get(3)) };
}

export function decodeFlows(family: 4 | 6, datagrams: Iterable<Uint8Array>): Flow[] {
  const flows: Flow[] = [];
  for (const { type, payload } of messagesOf(datagrams)) {
    if (type !== ((SUBSYS << 8) | CT.new)) continue;
    const found = attributes(payload, AFTER_FAMILY);
    const orig = tuple(found.get(CTA.orig));
    const reply = tuple(found.get(CTA.reply));
    if (orig === null || reply === null || orig.protocol !== UDP) continue;
    flows.push({
      family,
      dst: orig.dst,
      dstPort: orig.dstPort,
      answers: reply.src,
      orig: found.get(CTA.orig)!,
      id: found.get(CTA.id),
      zone: found.get(CTA.zone),
    });
  }
  return flows;
}

/**
 * Flows to these host ports that go where they should no more: `added`, to an address of the node and to anything but
 * the pod; `removed`, to the pod.
 */
export function staleFlows(flows: readonly Flow[], ports: readonly HostPort[], what: 'added' | 'removed', nodeAddresses: ReadonlySet<string>): Flow[] {
  const byPort = new Map(ports.filter((port) => port.protocol === 'udp').map((port) => [`${port.podIp.family} ${port.hostPort}`, port]));
  return flows.filter((flow) => {
    const port = byPort.get(`${flow.family} ${flow.dstPort}`);
    if (port === undefined || (port.hostIp !== null && addressText(port.hostIp) !== flow.dst)) return false;
    const isPods = flow.answers === addressText(port.podIp);
    return what === 'removed' ? isPods : !isPods && nodeAddresses.has(flow.dst);
  });
}
