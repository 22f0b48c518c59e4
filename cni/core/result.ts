import { addressText, cidrText, type Address, type Cidr } from './address.ts';
import { VERSIONS, type CniVersion, type Route } from './config.ts';

/** What ADD answers, in the shape of each version of the spec. */

export interface Link {
  readonly name: string;
  readonly mac: string;
  readonly mtu: number;
  /** Path of its namespace; empty for the node's. */
  readonly sandbox: string;
}

export interface Addressed {
  readonly address: Cidr;
  readonly gateway: Address | null;
  /** Index into `links`. */
  readonly link: number;
}

export interface Result {
  readonly links: readonly Link[];
  readonly ips: readonly Addressed[];
  readonly routes: readonly Route[];
  readonly dns: Readonly<Record<string, unknown>>;
}

/** The result object for standard output. */
export function resultJson(result: Result, version: CniVersion): Record<string, unknown> {
  const isOld = version === '0.3.1' || version === '0.4.0';
  const isNew = version === '1.1.0';
  return {
    cniVersion: version,
    interfaces: result.links.map((link) => ({
      name: link.name,
      mac: link.mac,
      ...(isNew && link.mtu > 0 ? { mtu: link.mtu } : {}),
      ...(link.sandbox === '' ? {} : { sandbox: link.sandbox }),
    })),
    ips: result.ips.map((ip) => ({
      ...(isOld ? { version: String(ip.address.family) } : {}),
      interface: ip.link,
      address: cidrText(ip.address),
      ...(ip.gateway === null ? {} : { gateway: addressText(ip.gateway) }),
    })),
    ...(result.routes.length === 0
      ? {}
      : {
          routes: result.routes.map((route) => ({
            dst: cidrText(route.dst),
            ...(route.gw === null ? {} : { gw: addressText(route.gw) }),
            ...(isNew && route.mtu !== undefined ? { mtu: route.mtu } : {}),
          })),
        }),
    dns: result.dns,
  };
}

/** The answer to VERSION. */
export function versionJson(version: string): Record<string, unknown> {
  return { cniVersion: version, supportedVersions: [...VERSIONS] };
}
