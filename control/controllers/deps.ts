import type { Clock } from '../../base/clock.ts';
import type { KubeApi } from '../../base/kubeapi/types.ts';
import type { Log } from '../../base/log.ts';
import type { Rng } from '../../base/rng.ts';

export interface ControlConfig {
  /** Node pod ranges are cut from it; absent: nodes keep what they have. */
  clusterCIDR?: string;
  serviceCIDR: string;
  /** Without a dot at the end: `cluster.local`. */
  clusterDomain: string;
  /** PEM; what kube-root-ca.crt carries. */
  rootCA: string;
  /** `IP:PORT` of the cluster's DNS server. */
  dnsListen: string;
  /** `IP` or `IP:PORT`. */
  dnsUpstreams: readonly string[];
  /** Where nodes and pods reach this process. */
  advertiseAddress: string;
  allocateNodeCIDRs?: boolean;
}

/** What controllers, scheduler and DNS need from outside; they work against any API server. */
export interface ControlDeps {
  api: KubeApi;
  clock: Clock;
  rng: Rng;
  log: Log;
  signal: AbortSignal;
  config: ControlConfig;
}
