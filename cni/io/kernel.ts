import { writeFile } from 'node:fs/promises';
import { networkInterfaces } from 'node:os';
import { OpError } from '../../base/errors.ts';
import { errnoName } from '../../base/sys/errno.ts';
import type { Sys } from '../../base/sys/types.ts';
import { answersOf } from '../../base/netlink.ts';
import { readAnswer, readList } from '../../base/netlink-read.ts';
import { encodeFlowDeletes } from '../../base/conntrack.ts';
import { decodeFlows, encodeFlowDump, staleFlows } from '../core/flows.ts';
import {
  decodeAddresses,
  decodeLinks,
  decodeNeighbours,
  decodeRoutes,
  encodeDump,
  encodeGetLink,
  type AddressFact,
  type LinkFact,
  type NeighbourFact,
  type RouteFact,
} from '../core/link-facts.ts';
import { encodeOps, type LinkOp } from '../core/link-ops.ts';
import { encodePorts, type HostPort } from '../core/ports.ts';

/** The operation (from 0) that the kernel refused, and why; null when all was done. Those before it are done. */
export interface Refusal {
  readonly at: number;
  readonly errno: string;
  readonly detail: string;
}

/** The seam to the kernel's network. `netns` is a path; null is the node's own namespace. */
export interface Kernel {
  apply(netns: string | null, ops: readonly LinkOp[]): Promise<Refusal | null>;
  link(netns: string | null, name: string | number): Promise<LinkFact | null>;
  links(netns: string | null): Promise<LinkFact[]>;
  addresses(netns: string | null): Promise<AddressFact[]>;
  routes(netns: string | null): Promise<RouteFact[]>;
  neighbours(what: 'neighbours' | 'forwards'): Promise<NeighbourFact[]>;
  /** Elements of the host ports' maps; errno's name when the kernel refused. */
  ports(table: string, what: 'add' | 'replace' | 'remove', ports: readonly HostPort[]): Promise<string | null>;
  /** A whole table as text. */
  table(text: string): Promise<void>;
  /** Forgets UDP flows that a change of host ports made wrong. */
  forgetFlows(ports: readonly HostPort[], what: 'added' | 'removed'): Promise<void>;
  /** A setting below /proc/sys/net of the node; one that is not there is left. */
  setting(path: string, value: string): Promise<void>;
}

const NETLINK_ROUTE = 0;
const NETLINK_NETFILTER = 12;
const TIMEOUT_MS = 15_000;
const NFT_TIMEOUT_MS = 30_000;
const ENODEV = 19;

/** `netns` is the node's namespace where that is not this process' own; settings and UDP flows are always this process'. */
export function createKernel(sys: Sys, options: { netns?: string } = {}): Kernel {
  const send = (family: number, netns: string | null, messages: Uint8Array, expectAnswers: number): Promise<Uint8Array[]> => {
    const where = netns ?? options.netns;
    return sys.netlink({ family, messages, expectAnswers, timeoutMs: TIMEOUT_MS, ...(where === undefined ? {} : { netns: where }) });
  };

  const dump = async (family: number, netns: string | null, messages: Uint8Array, doing: string): Promise<Uint8Array[]> => {
    const { datagrams, errno } = await readList(() => send(family, netns, messages, 1), doing);
    if (errno !== 0) throw new OpError('failed', doing, errnoName(errno));
    return datagrams;
  };

  return {
    async apply(netns, ops) {
      if (ops.length === 0) return null;
      const answers = answersOf(await send(NETLINK_ROUTE, netns, encodeOps(ops), ops.length));
      const refused = answers.find((answer) => answer.errno !== 0);
      if (refused !== undefined) return { at: refused.seq - 1, errno: errnoName(refused.errno), detail: refused.detail };
      if (answers.length < ops.length) throw new OpError('deadline', 'change links', 'the kernel did not answer');
      return null;
    },
    async link(netns, name) {
      const doing = `read link ${name}`;
      const { datagrams, errno } = await readAnswer(() => send(NETLINK_ROUTE, netns, encodeGetLink(name), 1), doing);
      if (errno !== 0 && errno !== ENODEV) throw new OpError('failed', doing, errnoName(errno));
      return decodeLinks(datagrams)[0] ?? null;
    },
    links: async (netns) => decodeLinks(await dump(NETLINK_ROUTE, netns, encodeDump('links'), 'read links')),
    addresses: async (netns) => decodeAddresses(await dump(NETLINK_ROUTE, netns, encodeDump('addresses'), 'read addresses')),
    routes: async (netns) => decodeRoutes(await dump(NETLINK_ROUTE, netns, encodeDump('routes'), 'read routes')),
    neighbours: async (what) => decodeNeighbours(await dump(NETLINK_ROUTE, null, encodeDump(what), 'read neighbours')),
    async ports(table, what, ports) {
      const answers = answersOf(await send(NETLINK_NETFILTER, null, encodePorts(table, what, ports), 1));
      const refused = answers.find((answer) => answer.errno !== 0);
      if (refused !== undefined) return errnoName(refused.errno);
      if (answers.length === 0) throw new OpError('deadline', 'write host ports', 'the kernel did not answer');
      return null;
    },
    async table(text) {
      const { code, stderr } = await sys.run({ argv: ['nft', '-f', '-'], stdin: text, timeoutMs: NFT_TIMEOUT_MS });
      if (code !== 0)
        throw new OpError('failed', 'write the pod network’s table', Buffer.from(stderr).toString().trim().split('\n')[0] ?? `nft ended with ${code}`, {
          advice: 'host ports and masquerading need the nft program',
        });
    },
    async forgetFlows(ports, what) {
      const families = new Set(ports.filter((port) => port.protocol === 'udp').map((port) => port.podIp.family));
      const own = new Set(Object.values(networkInterfaces()).flatMap((list) => (list ?? []).map((one) => one.address)));
      for (const family of families) {
        const flows = decodeFlows(family, await dump(NETLINK_NETFILTER, null, encodeFlowDump(family), 'read UDP flows'));
        const stale = staleFlows(flows, ports, what, own);
        if (stale.length > 0)
          await send(NETLINK_NETFILTER, null, encodeFlowDeletes(stale.map(({ orig: tuple, ...flow }) => ({ ...flow, tuple }))), stale.length);
      }
    },
    async setting(path, value) {
      await writeFile(`/proc/sys/net/${path}`, value).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== 'ENOENT') throw new OpError('denied', `set net/${path} to ${value}`, error.code ?? error.message);
      });
    },
  };
}
