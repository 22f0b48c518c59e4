import type { UpdatePodSandboxResourcesRequest } from '../../../proto/cri/types.ts';
import type { Pod } from '../../../proto/kube/types.ts';
import type { ConfigContext } from '../config-context.ts';
import { linuxResources, quotaOf, sharesOf } from '../container-config.ts';
import { milliValueOf, valueOf } from '../quantity.ts';
import type { PodCgroupValues } from './moves.ts';

/** What the runtime is told of a pod's new size: its cgroup without the overhead, and the overhead. */
export function sandboxResources(context: ConfigContext, pod: Pod, values: PodCgroupValues): Pick<UpdatePodSandboxResourcesRequest, 'overhead' | 'resources'> {
  const { overhead } = pod.spec;
  const [milli, bytes] = [milliValueOf(overhead?.['cpu']), valueOf(overhead?.['memory'])];
  const { cpuShares, cpuQuotaUs, cpuPeriodUs, memoryBytes } = values;
  return {
    overhead: overhead === undefined ? {} : linuxResources(context, milli, milli, bytes),
    resources: {
      cpuShares: String(milli === 0n ? cpuShares : cpuShares - sharesOf(milli)),
      cpuPeriod: String(cpuPeriodUs),
      ...(cpuQuotaUs === null ? {} : { cpuQuota: String(cpuQuotaUs - quotaOf(milli, cpuPeriodUs)) }),
      ...(memoryBytes === null ? {} : { memoryLimitInBytes: String(memoryBytes - bytes) }),
    },
  };
}
