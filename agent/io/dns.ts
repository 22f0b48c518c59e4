import { readFile } from 'node:fs/promises';
import { messageOf, OpError } from '../../base/errors.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { parseResolvConf, podDns } from '../core/dns.ts';
import type { DnsConfig } from '../core/dns.ts';
import type { EventText } from '../core/types.ts';
import type { Dns } from '../seams.ts';

export interface PodDnsOptions {
  /** resolvConf: '' is "no look-ups". Read anew for each sandbox: DHCP clients rewrite it. */
  readonly resolvConf: string;
  readonly clusterDNS: readonly string[];
  readonly clusterDomain: string;
  readonly nodeIPs: () => readonly string[];
}

const maxFileBytes = 10 << 20;

export class PodDns implements Dns {
  readonly #options: PodDnsOptions;

  constructor(options: PodDnsOptions) {
    this.#options = options;
  }

  /** Throws OpError when the node's resolv.conf cannot be read. */
  async forPod(pod: Pod): Promise<DnsConfig & { events: readonly EventText[] }> {
    const { resolvConf, clusterDNS, clusterDomain } = this.#options;
    const host = resolvConf === '' ? null : parseResolvConf(await this.#read(resolvConf));
    return podDns(pod, { host, clusterDNS, clusterDomain, nodeIPs: this.#options.nodeIPs() });
  }

  async #read(path: string): Promise<string> {
    try {
      return (await readFile(path, 'utf8')).slice(0, maxFileBytes);
    } catch (cause) {
      throw new OpError('not-found', 'read the resolver configuration', messageOf(cause), {
        cause,
        advice: `Set resolvConf in the kubelet configuration to a file that exists, or to "" for none.`,
      });
    }
  }
}
