import type { Sys } from '../../base/sys/types.ts';
import { answersOf, attributes, messagesOf, MessageWriter, NLM_F_ACK, NLM_F_CREATE, NLM_F_REQUEST } from '../core/netlink.ts';
import { netfilterSocket } from './socket.ts';

/** Named packet counters of the kernel (linux/netfilter/nfnetlink_acct.h), which iptables rules add to. */
export interface PacketCounters {
  /** Makes counters; false where the kernel has none. */
  ensure(names: readonly string[]): Promise<boolean>;
  /** Packets counted so far; null for a counter that is not there. */
  packets(name: string): Promise<number | null>;
}

const TIMEOUT_MS = 5000;
const SUBSYS_ACCT = 7 << 8;
const ACCT = { new: 0, get: 1 } as const;
const ATTR = { name: 1, packets: 2 } as const;
const EBUSY = 16;
const AFTER_HEADER = 4;

export function createPacketCounters(sys: Sys, options: { netns?: string } = {}): PacketCounters {
  const send = netfilterSocket(sys, options, TIMEOUT_MS);
  const message = (type: number, flags: number, name: string): Uint8Array => {
    const writer = new MessageWriter(128);
    const token = writer.begin(SUBSYS_ACCT | type, NLM_F_REQUEST | flags, 1, 0);
    writer.text(ATTR.name, name);
    writer.end(token);
    return writer.finish();
  };
  return {
    async ensure(names) {
      for (const name of names) {
        const answers = answersOf(await send(message(ACCT.new, NLM_F_ACK | NLM_F_CREATE, name), 1));
        // One that is there already is busy.
        if (!answers.every(({ errno }) => errno === 0 || errno === EBUSY)) return false;
      }
      return true;
    },
    async packets(name) {
      for (const { type, payload } of messagesOf(await send(message(ACCT.get, NLM_F_ACK, name), 1))) {
        if (type !== (SUBSYS_ACCT | ACCT.new)) continue;
        const bytes = attributes(payload, AFTER_HEADER).get(ATTR.packets);
        if (bytes !== undefined) return Number(new DataView(bytes.buffer, bytes.byteOffset, 8).getBigUint64(0));
      }
      return null;
    },
  };
}
