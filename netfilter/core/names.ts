import { hostPort } from './ip.ts';
import { base32, sha256, utf8 } from './sha256.ts';

/** Names on the wire. They are kube-proxy's own, so that either program cleans up after the other. */

export type Protocol = 'tcp' | 'udp' | 'sctp';

/** One port of one Service. `port` is the port's name, empty when it has none. */
export interface PortId {
  namespace: string;
  name: string;
  port: string;
  protocol: Protocol;
}

/** Kernel limits: object names of at most 255 bytes, comments of at most 128. */
const BASE_MAX = 240;
export const COMMENT_MAX = 128;

function hash(text: string, length: number): string {
  return base32(sha256(utf8(text)), length);
}

/** A unique key for maps of our own: `namespace/name:port/protocol`. */
export function portKey(id: PortId): string {
  return `${id.namespace}/${id.name}:${id.port}/${id.protocol}`;
}

/** `namespace/name:port`, or `namespace/name` for a port without a name. */
export function portLabel(id: PortId): string {
  return id.port === '' ? `${id.namespace}/${id.name}` : `${id.namespace}/${id.name}:${id.port}`;
}

/** A comment the kernel takes. */
export function commentText(text: string): string {
  return text.length > COMMENT_MAX ? text.slice(0, COMMENT_MAX) : text;
}

function hashed(readable: string): string {
  const name = `${hash(readable, 8)}-${readable}`;
  return name.length > BASE_MAX ? `${name.slice(0, BASE_MAX - 3)}...` : name;
}

export interface NftNames {
  readonly cluster: string;
  readonly local: string;
  readonly external: string;
  readonly firewall: string;
}

/** Most ports have but the first of these chains. */
class ChainNames implements NftNames {
  readonly #base: string;
  readonly cluster: string;

  constructor(id: PortId) {
    this.#base = hashed(`${id.namespace}/${id.name}/${id.protocol}/${id.port}`);
    this.cluster = `service-${this.#base}`;
  }

  get local(): string {
    return `local-${this.#base}`;
  }

  get external(): string {
    return `external-${this.#base}`;
  }

  get firewall(): string {
    return `firewall-${this.#base}`;
  }
}

export function nftNames(id: PortId): NftNames {
  return new ChainNames(id);
}

export function nftEndpointNames(id: PortId, address: string, port: number): { chain: string; affinity: string } {
  const base = hashed(`${id.namespace}/${id.name}/${id.protocol}/${id.port}__${address.replaceAll(':', '.')}/${port}`);
  return { chain: `endpoint-${base}`, affinity: `affinity-${base}` };
}

export interface IptablesNames {
  cluster: string;
  local: string;
  external: string;
  firewall: string;
}

export function iptablesNames(id: PortId): IptablesNames {
  const suffix = hash(portLabel(id) + id.protocol, 16);
  return { cluster: `KUBE-SVC-${suffix}`, local: `KUBE-SVL-${suffix}`, external: `KUBE-EXT-${suffix}`, firewall: `KUBE-FW-${suffix}` };
}

export function iptablesEndpointName(id: PortId, address: string, port: number): string {
  return `KUBE-SEP-${hash(portLabel(id) + id.protocol + hostPort(address, port), 16)}`;
}
