import { bitsOf, firstOf, type Address, type Cidr } from './address.ts';
import type { Bandwidth, NetConf, Route } from './config.ts';
import type { Given } from './ipam.ts';
import { ROUTE_PROTOCOL, type LinkOp, type VethEnd } from './link-ops.ts';
import { hostLinkName, linkIndex, macOf } from './names.ts';
import type { Result } from './result.ts';

/** ADD as operations: a link between pod and node, addresses without a network of their own, and routes to a single address each. */

export interface Who {
  readonly containerId: string;
  readonly ifname: string;
  readonly netns: string;
}

export interface AttachPlan {
  readonly hostLink: string;
  /** In the pod's namespace, first. */
  readonly inside: readonly LinkOp[];
  /** In the node's, once the link is there. */
  readonly outside: readonly LinkOp[];
  readonly result: Result;
}

/** Interface numbers are chosen, so that one run of messages can make a link and use it: first and how many. Above what the kernel hands out. */
const POD_NUMBERS = [100, 900] as const;
const HOST_NUMBERS = [0x10000, 0xf0000] as const;

/** `pid` is a process in the node's network namespace, `salt` another choice of interface numbers when one was taken. */
export function planAttach(conf: NetConf, who: Who, given: readonly Given[], facts: { mtu: number; pid: number; salt: number }): AttachPlan {
  const seed = `${conf.name}\n${who.containerId}\n${who.ifname}`;
  const hostLink = hostLinkName(conf.dataDir, conf.name, who.containerId, who.ifname);
  const end: VethEnd = { name: who.ifname, index: linkIndex(`pod\n${seed}`, facts.salt, ...POD_NUMBERS), mac: conf.mac ?? macOf(`pod\n${seed}`) };
  const peer: VethEnd = { name: hostLink, index: linkIndex(`host\n${seed}`, facts.salt, ...HOST_NUMBERS), mac: macOf(`host\n${seed}`) };
  const routes = routesOf(conf, given);
  const hostRoute = (address: Address): Cidr => ({ family: address.family, value: address.value, prefix: bitsOf(address.family) });
  const inside: LinkOp[] = [{ op: 'add-veth', end, peer, pid: facts.pid, mtu: facts.mtu }];
  const outside: LinkOp[] = [{ op: 'set-up', link: hostLink }];
  for (const { address, gateway } of given) {
    inside.push(
      { op: 'add-address', link: end.index, address },
      { op: 'add-route', dst: hostRoute(gateway), gateway: null, link: end.index, protocol: ROUTE_PROTOCOL.boot },
      { op: 'add-route', dst: { ...address, value: firstOf(address) }, gateway, link: end.index, protocol: ROUTE_PROTOCOL.boot },
    );
    outside.push(
      { op: 'add-address', link: peer.index, address: hostRoute(gateway) },
      { op: 'replace-route', dst: hostRoute(address), gateway: null, link: peer.index, protocol: ROUTE_PROTOCOL.boot },
    );
  }
  for (const route of routes) {
    const gateway = route.gw ?? given.find((one) => one.address.family === route.dst.family)?.gateway;
    if (gateway === undefined) continue;
    inside.push({
      op: 'replace-route',
      dst: route.dst,
      gateway,
      link: end.index,
      protocol: ROUTE_PROTOCOL.boot,
      ...(route.mtu === undefined ? {} : { mtu: route.mtu }),
    });
  }
  const limits = limitsOf(conf.bandwidth);
  if (limits.egress !== null) inside.push({ op: 'limit', link: end.index, ...limits.egress });
  if (limits.ingress !== null) outside.push({ op: 'limit', link: peer.index, ...limits.ingress });
  return {
    hostLink,
    inside,
    outside,
    result: {
      links: [
        { name: hostLink, mac: peer.mac, mtu: facts.mtu, sandbox: '' },
        { name: who.ifname, mac: end.mac, mtu: facts.mtu, sandbox: who.netns },
      ],
      ips: given.map(({ address, gateway }) => ({ address, gateway, link: 1 })),
      routes,
      dns: conf.dns,
    },
  };
}

/** Those of the configuration; without any, everything goes to the node. */
function routesOf(conf: NetConf, given: readonly Given[]): Route[] {
  if (conf.routes.length > 0) return [...conf.routes];
  return given.map(({ address }) => ({ dst: { family: address.family, value: 0n, prefix: 0 }, gw: null }));
}

interface Limit {
  readonly rateBytes: number;
  readonly burstBytes: number;
}

/** A burst below this lets no large packet through. */
const LEAST_BURST_BYTES = 16_384;

/** What leaves the pod is held back at its own end of the link: an egress limit of the kernel needs no second device then. */
function limitsOf(bandwidth: Bandwidth | null): { ingress: Limit | null; egress: Limit | null } {
  const limit = (rateBits: number, burstBits: number): Limit | null =>
    rateBits < 8 ? null : { rateBytes: Math.floor(rateBits / 8), burstBytes: Math.max(LEAST_BURST_BYTES, Math.floor(burstBits / 8)) };
  if (bandwidth === null) return { ingress: null, egress: null };
  return { ingress: limit(bandwidth.ingressRate, bandwidth.ingressBurst), egress: limit(bandwidth.egressRate, bandwidth.egressBurst) };
}

/** For a pod that only wants its own loopback. */
export function loopbackResult(netns: string): Result {
  return {
    links: [{ name: 'lo', mac: '00:00:00:00:00:00', mtu: 0, sandbox: netns }],
    ips: [
      { address: { family: 4, value: 0x7f000001n, prefix: 8 }, gateway: null, link: 0 },
      { address: { family: 6, value: 1n, prefix: 128 }, gateway: null, link: 0 },
    ],
    routes: [],
    dns: {},
  };
}
