import { MessageWriter, NLM_F_ACK, NLM_F_REQUEST } from './netlink.ts';

/** What names one entry of the kernel's connection tracking (linux/netfilter/nfnetlink_conntrack.h), as the kernel sent it. */
export interface TrackedFlow {
  readonly family: 4 | 6;
  /** CTA_TUPLE_ORIG. */
  readonly tuple: Uint8Array;
  readonly id: Uint8Array | undefined;
  readonly zone: Uint8Array | undefined;
}

const SUBSYSTEM = 1;
const DELETE = 2;
const ATTRIBUTE = { tuple: 1 | 0x8000, id: 12, zone: 18 } as const;
const AF: Readonly<Record<4 | 6, number>> = { 4: 2, 6: 10 };

/** One deletion for each flow, each acknowledged with its number (from 1). */
export function encodeFlowDeletes(flows: readonly TrackedFlow[]): Uint8Array {
  const writer = new MessageWriter(flows.length * 128 + 64);
  for (const [at, { family, tuple, id, zone }] of flows.entries()) {
    const token = writer.begin((SUBSYSTEM << 8) | DELETE, NLM_F_REQUEST | NLM_F_ACK, at + 1, AF[family]);
    writer.bytes(ATTRIBUTE.tuple, tuple);
    // The id keeps a new flow with the same addresses from being cut in place of the old one.
    if (id !== undefined) writer.bytes(ATTRIBUTE.id, id);
    if (zone !== undefined) writer.bytes(ATTRIBUTE.zone, zone);
    writer.end(token);
  }
  return writer.finish();
}
