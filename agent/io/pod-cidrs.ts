import { messageOf } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import type { NodeInfo } from '../seams.ts';
import type { Cri } from './cri.ts';

export interface PodCidrsOptions {
  readonly node: Pick<NodeInfo, 'node' | 'onChange'>;
  readonly runtime: Pick<Cri['runtime'], 'updateRuntimeConfig'>;
  readonly log: Log;
  readonly timeoutMs: number;
  /** `podCIDR` of a node without an API server; else ''. */
  readonly own: string;
}

/** The pods' addresses go to the runtime, which may make its network's configuration from them (CRI's UpdateRuntimeConfig). */
export function tellPodCidrs({ node, runtime, log, timeoutMs, own }: PodCidrsOptions): void {
  let told = '';
  const tell = (podCidr: string): void => {
    if (podCidr === '' || podCidr === told) return;
    told = podCidr;
    runtime.updateRuntimeConfig({ runtimeConfig: { networkConfig: { podCidr } } }, { timeoutMs }).catch((error: unknown) => {
      // Told again at the next change of the Node, which is soon.
      told = '';
      log.error('Failed to update pod CIDR', { podCIDR: podCidr, err: messageOf(error) });
    });
  };
  tell(own);
  node.onChange(() => {
    const { podCIDRs = [], podCIDR = '' } = node.node()?.spec ?? {};
    tell(podCIDRs.length > 0 ? podCIDRs.join(',') : podCIDR);
  });
}
