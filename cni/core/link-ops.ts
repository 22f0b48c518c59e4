import { bytesOf, type Address, type Cidr } from './address.ts';
import { MessageWriter, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST } from '../../base/netlink.ts';

/** What is done to one network namespace, as data, and as rtnetlink messages (linux/rtnetlink.h, if_link.h, pkt_sched.h, neighbour.h). */

export interface VethEnd {
  readonly name: string;
  readonly index: number;
  readonly mac: string;
}

export interface RouteOp {
  readonly dst: Cidr;
  /** Null: on the link itself. */
  readonly gateway: Address | null;
  readonly link: number;
  readonly mtu?: number;
  /** The gateway is on the link though no route says so. */
  readonly onLink?: boolean;
  readonly protocol: number;
}

export type LinkOp =
  /** This end up, the other one not, in the namespace of process `pid`. `mtu` 0 is the kernel's default. */
  | { readonly op: 'add-veth'; readonly end: VethEnd; readonly peer: VethEnd; readonly pid: number; readonly mtu: number }
  | {
      readonly op: 'add-vxlan';
      readonly name: string;
      readonly mac: string;
      readonly mtu: number;
      readonly vni: number;
      readonly port: number;
      readonly local: Address;
    }
  | { readonly op: 'set-up'; readonly link: string }
  | { readonly op: 'delete-link'; readonly link: string }
  /** No route of its own, usable at once (no duplicate address detection). */
  | { readonly op: 'add-address'; readonly link: number; readonly address: Cidr }
  | ({ readonly op: 'add-route' } & RouteOp)
  | ({ readonly op: 'replace-route' } & RouteOp)
  | ({ readonly op: 'delete-route' } & RouteOp)
  /** A token bucket for what leaves by the link; bytes a second and bytes. */
  | { readonly op: 'limit'; readonly link: number; readonly rateBytes: number; readonly burstBytes: number }
  /** Who has `address`, and for vxlan behind which machine `mac` is. */
  | { readonly op: 'set-neighbour' | 'delete-neighbour'; readonly link: number; readonly address: Address; readonly mac: string }
  | { readonly op: 'set-forward' | 'delete-forward'; readonly link: number; readonly mac: string; readonly to: Address };

export const RTM = {
  newLink: 16,
  delLink: 17,
  getLink: 18,
  newAddress: 20,
  getAddress: 22,
  newRoute: 24,
  delRoute: 25,
  getRoute: 26,
  newNeighbour: 28,
  delNeighbour: 29,
  getNeighbour: 30,
  newQdisc: 36,
} as const;

/** Who made a route: the number that nothing registered has (linux/rtnetlink.h). */
export const ROUTE_PROTOCOL = { boot: 3, static: 4, node: 0x9c } as const;

const AF: Record<4 | 6, number> = { 4: 2, 6: 10 };
const AF_BRIDGE = 7;
const IFF_UP = 1;
const IFLA = { address: 1, name: 3, mtu: 4, linkInfo: 18, nsPid: 19, txQueues: 31, rxQueues: 32 } as const;
const INFO = { kind: 1, data: 2 } as const;
const VETH_INFO_PEER = 1;
const VXLAN = { id: 1, local: 4, learning: 7, port: 15, local6: 17 } as const;
const IFA_F_NODAD = 0x02;
const IFA_F_NOPREFIXROUTE = 0x200;
const RT_TABLE_MAIN = 254;
const RTN_UNICAST = 1;
const SCOPE_LINK = 253;
const RTNH_F_ONLINK = 4;
const RTA = { dst: 1, oif: 4, gateway: 5, metrics: 8 } as const;
const RTAX_MTU = 2;
const NUD_PERMANENT = 0x80;
const NUD_NOARP = 0x40;
const NTF_SELF = 2;
const TBF = { parms: 1, rate64: 4, burst: 6 } as const;
const TC_ROOT = 0xffffffff;
const LINKLAYER_ETHERNET = 1;
/** How long a packet may wait in the bucket. */
const LATENCY_S = 0.025;
const MAX_U32 = 0xffffffff;

function header(length: number, fill: (view: DataView) => void): Uint8Array {
  const bytes = new Uint8Array(length);
  fill(new DataView(bytes.buffer));
  return bytes;
}

export function linkHeader(index: number, flags: number): Uint8Array {
  return header(16, (view) => {
    view.setInt32(4, index, true);
    view.setUint32(8, flags, true);
    view.setUint32(12, flags, true);
  });
}

export function macBytes(mac: string): Uint8Array {
  return Uint8Array.from(mac.split(':'), (part) => Number.parseInt(part, 16));
}

/** All operations as one run of messages, each acknowledged with its number from 1. */
export function encodeOps(ops: readonly LinkOp[]): Uint8Array {
  const writer = new MessageWriter(1024);
  for (const [at, op] of ops.entries()) encodeOp(writer, op, at + 1);
  return writer.finish();
}

function encodeOp(writer: MessageWriter, op: LinkOp, seq: number): void {
  const message = (type: number, flags: number, head: Uint8Array, body: () => void): void => {
    const token = writer.open(type, NLM_F_REQUEST | NLM_F_ACK | flags, seq, head);
    body();
    writer.end(token);
  };
  switch (op.op) {
    case 'add-veth':
      return message(RTM.newLink, NLM_F_CREATE | NLM_F_EXCL, linkHeader(op.end.index, IFF_UP), () => {
        putLink(writer, op.end, op.mtu);
        putInfo(writer, 'veth', () => {
          const peer = writer.nest(VETH_INFO_PEER);
          // Not up yet: it has no other end before both are made, and the kernel refuses that.
          writer.raw(linkHeader(op.peer.index, 0));
          putLink(writer, op.peer, op.mtu);
          writer.word(IFLA.nsPid, op.pid);
          writer.unnest(peer);
        });
      });
    case 'add-vxlan':
      return message(RTM.newLink, NLM_F_CREATE | NLM_F_EXCL, linkHeader(0, IFF_UP), () => {
        writer.text(IFLA.name, op.name);
        writer.bytes(IFLA.address, macBytes(op.mac));
        if (op.mtu > 0) writer.word(IFLA.mtu, op.mtu);
        putInfo(writer, 'vxlan', () => {
          writer.word(VXLAN.id, op.vni);
          writer.bytes(op.local.family === 4 ? VXLAN.local : VXLAN.local6, bytesOf(op.local));
          writer.u8(VXLAN.learning, 0);
          writer.u16(VXLAN.port, op.port);
        });
      });
    case 'set-up':
      return message(RTM.newLink, 0, linkHeader(0, IFF_UP), () => writer.text(IFLA.name, op.link));
    case 'delete-link':
      return message(RTM.delLink, 0, linkHeader(0, 0), () => writer.text(IFLA.name, op.link));
    case 'add-address': {
      const { family, prefix } = op.address;
      const head = header(8, (view) => {
        view.setUint8(0, AF[family]);
        view.setUint8(1, prefix);
        view.setUint32(4, op.link, true);
      });
      return message(RTM.newAddress, NLM_F_CREATE | NLM_F_EXCL, head, () => {
        writer.bytes(1, bytesOf(op.address));
        writer.bytes(2, bytesOf(op.address));
        writer.word(8, (family === 6 ? IFA_F_NODAD : 0) | IFA_F_NOPREFIXROUTE);
      });
    }
    case 'add-route':
      return message(RTM.newRoute, NLM_F_CREATE | NLM_F_EXCL, routeHeader(op), () => putRoute(writer, op));
    case 'replace-route':
      return message(RTM.newRoute, NLM_F_CREATE | NLM_F_REPLACE, routeHeader(op), () => putRoute(writer, op));
    case 'delete-route':
      return message(RTM.delRoute, 0, routeHeader(op), () => putRoute(writer, op));
    case 'limit':
      return message(RTM.newQdisc, NLM_F_CREATE | NLM_F_REPLACE, qdiscHeader(op.link), () => putTokenBucket(writer, op));
    case 'set-neighbour':
    case 'delete-neighbour':
      return message(
        op.op === 'set-neighbour' ? RTM.newNeighbour : RTM.delNeighbour,
        op.op === 'set-neighbour' ? NLM_F_CREATE | NLM_F_REPLACE : 0,
        neighbourHeader(AF[op.address.family], op.link, NUD_PERMANENT, 0),
        () => {
          writer.bytes(1, bytesOf(op.address));
          writer.bytes(2, macBytes(op.mac));
        },
      );
    case 'set-forward':
    case 'delete-forward':
      return message(
        op.op === 'set-forward' ? RTM.newNeighbour : RTM.delNeighbour,
        op.op === 'set-forward' ? NLM_F_CREATE | NLM_F_REPLACE : 0,
        neighbourHeader(AF_BRIDGE, op.link, NUD_PERMANENT | NUD_NOARP, NTF_SELF),
        () => {
          writer.bytes(1, bytesOf(op.to));
          writer.bytes(2, macBytes(op.mac));
        },
      );
  }
}

function putLink(writer: MessageWriter, end: VethEnd, mtu: number): void {
  writer.text(IFLA.name, end.name);
  writer.bytes(IFLA.address, macBytes(end.mac));
  if (mtu > 0) writer.word(IFLA.mtu, mtu);
  // One queue each: the default is one for every processor, and a pod's link is made and destroyed often.
  writer.word(IFLA.txQueues, 1);
  writer.word(IFLA.rxQueues, 1);
}

function putInfo(writer: MessageWriter, kind: string, data: () => void): void {
  const info = writer.nest(IFLA.linkInfo);
  writer.text(INFO.kind, kind);
  const nested = writer.nest(INFO.data);
  data();
  writer.unnest(nested);
  writer.unnest(info);
}

function routeHeader(route: RouteOp): Uint8Array {
  return header(12, (view) => {
    view.setUint8(0, AF[route.dst.family]);
    view.setUint8(1, route.dst.prefix);
    view.setUint8(4, RT_TABLE_MAIN);
    view.setUint8(5, route.protocol);
    view.setUint8(6, route.gateway === null && route.dst.family === 4 ? SCOPE_LINK : 0);
    view.setUint8(7, RTN_UNICAST);
    view.setUint32(8, route.onLink === true ? RTNH_F_ONLINK : 0, true);
  });
}

function putRoute(writer: MessageWriter, route: RouteOp): void {
  if (route.dst.prefix > 0) writer.bytes(RTA.dst, bytesOf(route.dst));
  writer.word(RTA.oif, route.link);
  if (route.gateway !== null) writer.bytes(RTA.gateway, bytesOf(route.gateway));
  if (route.mtu === undefined || route.mtu === 0) return;
  const metrics = writer.nest(RTA.metrics);
  writer.word(RTAX_MTU, route.mtu);
  writer.unnest(metrics);
}

function neighbourHeader(family: number, link: number, state: number, flags: number): Uint8Array {
  return header(12, (view) => {
    view.setUint8(0, family);
    view.setInt32(4, link, true);
    view.setUint16(8, state, true);
    view.setUint8(10, flags);
  });
}

function qdiscHeader(link: number): Uint8Array {
  return header(20, (view) => {
    view.setInt32(4, link, true);
    view.setUint32(8, 0x10000, true);
    view.setUint32(12, TC_ROOT, true);
  });
}

function putTokenBucket(writer: MessageWriter, { rateBytes, burstBytes }: { rateBytes: number; burstBytes: number }): void {
  writer.text(1, 'tbf');
  const options = writer.nest(2);
  const parms = header(36, (view) => {
    view.setUint8(1, LINKLAYER_ETHERNET);
    view.setUint32(8, Math.min(rateBytes, MAX_U32), true);
    view.setUint32(24, Math.min(MAX_U32, Math.ceil(rateBytes * LATENCY_S) + burstBytes), true);
  });
  writer.bytes(TBF.parms, parms);
  if (rateBytes > MAX_U32) {
    const rate64 = header(8, (view) => view.setBigUint64(0, BigInt(rateBytes), true));
    writer.bytes(TBF.rate64, rate64);
  }
  writer.word(TBF.burst, Math.min(MAX_U32, burstBytes));
  writer.unnest(options);
}
