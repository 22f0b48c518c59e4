import { readList } from '../../base/netlink-read.ts';
import type { Sys } from '../../base/sys/types.ts';
import { decodeUdpFlows, encodeDeletes, encodeUdpDump, staleFlows } from '../core/conntrack.ts';
import type { Family } from '../core/ip.ts';
import { answersOf } from '../core/netlink.ts';
import type { UdpPort } from '../core/world.ts';
import { refusedWith } from './errno.ts';
import { netfilterSocket } from './socket.ts';

const TIMEOUT_MS = 30_000;
const ENOENT = 2;
const EINTR = 4;
const DELETES_AT_ONCE = 500;
const DOING = 'read conntrack entries';

/** The seam to the kernel's connection tracking. */
export interface Conntrack {
  /** Deletes UDP flows that rest on endpoints which are gone. Returns how many. */
  deleteStale(family: Family, ports: readonly UdpPort[], nodeAddresses: ReadonlySet<string>): Promise<number>;
}

export function createConntrack(sys: Sys, options: { netns?: string } = {}): Conntrack {
  const send = netfilterSocket(sys, options, TIMEOUT_MS);

  const dump = async (family: Family): Promise<Uint8Array[]> => {
    for (const filtered of [true, false]) {
      const { datagrams, errno } = await readList(() => send(encodeUdpDump(family, filtered), 1), DOING);
      // A dump that is always overtaken still names true flows; what it misses, the next one finds.
      if (errno === 0 || errno === EINTR) return datagrams;
      if (!filtered) throw refusedWith(errno, DOING);
    }
    return [];
  };

  return {
    async deleteStale(family, ports, nodeAddresses) {
      if (ports.length === 0) return 0;
      const stale = staleFlows(decodeUdpFlows(await dump(family)), ports, nodeAddresses);
      let deleted = 0;
      for (let from = 0; from < stale.length; from += DELETES_AT_ONCE) {
        const some = stale.slice(from, from + DELETES_AT_ONCE);
        const answers = answersOf(await send(encodeDeletes(family, some), some.length));
        deleted += answers.filter((answer) => answer.errno === 0).length;
        const refused = answers.find((answer) => answer.errno !== 0 && answer.errno !== ENOENT);
        if (refused !== undefined) throw refusedWith(refused.errno, 'delete conntrack entries');
      }
      return deleted;
    },
  };
}
