import { readFile } from 'node:fs/promises';
import { messageOf, OpError } from '../../base/errors.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { missingClusterDnsEvent, parseResolvConf, podDns, resolvConfProblem } from '../core/dns.ts';
import type { DnsConfig } from '../core/dns.ts';
import type { EventText } from '../core/types.ts';
import type { Dns } from '../seams.ts';

export interface PodDnsOptions {
  /** resolvConf: '' is "no look-ups". Read anew for each sandbox: DHCP clients rewrite it. */
  readonly resolvConf: string;
  readonly clusterDNS: readonly string[];
  readonly clusterDomain: string;
  readonly nodeIPs: () => readonly string[];
  /** Said of the node, not of a pod. */
  readonly tellNode: (event: EventText) => void;
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
    const dns = podDns(pod, { host, clusterDNS, clusterDomain, nodeIPs: this.#options.nodeIPs() });
    if (dns.events.some(({ reason }) => reason === missingClusterDnsEvent.reason)) this.#options.tellNode(missingClusterDnsEvent);
    return dns;
  }

  /** Tells the node of a resolv.conf that cannot be read or that pods cannot be given whole. */
  async checkLimits(): Promise<void> {
    const { resolvConf, clusterDomain, tellNode } = this.#options;
    if (resolvConf === '') return;
    const problem = await this.#read(resolvConf).then((text) => resolvConfProblem(resolvConf, parseResolvConf(text), clusterDomain), messageOf);
    if (problem !== null) tellNode({ type: 'Warning', reason: 'CheckLimitsForResolvConf', message: problem });
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
