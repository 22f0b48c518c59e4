import type { ContainerStats, CpuUsage, PodSandboxStats } from '../../proto/cri/types.ts';
import { podOf, shortId, type Shown } from './listing.ts';
import { sizeText } from './table.ts';

/** One thing's use of the machine at two moments. */
export interface Sample<T> {
  readonly before: T | undefined;
  readonly now: T;
}

/** Of two lists what is in the second, each with what it was in the first; in the order of the second. */
export function sampled<T>(before: readonly T[], now: readonly T[], idOf: (item: T) => string): Sample<T>[] {
  const earlier = new Map(before.map((item) => [idOf(item), item]));
  return now.map((item) => ({ before: earlier.get(idOf(item)), now: item }));
}

/** Hundredths of one CPU between two moments; `-` when they are one, or there is no number. */
export function cpuPercent(before: CpuUsage | null | undefined, now: CpuUsage | null | undefined): string {
  const usedNs = Number(now?.usageCoreNanoSeconds?.value ?? NaN) - Number(before?.usageCoreNanoSeconds?.value ?? NaN);
  const passedNs = Number(BigInt(now?.timestamp ?? 0) - BigInt(before?.timestamp ?? 0));
  return passedNs > 0 && usedNs >= 0 ? ((usedNs / passedNs) * 100).toFixed(2) : '-';
}

const size = (value: { readonly value: string } | null | undefined): string => (value == null ? '-' : sizeText(Number(value.value), 4));

/** crictl's columns, and the pod. */
export function containerStatsTable(samples: readonly Sample<ContainerStats>[], whole: boolean): Shown {
  return {
    titles: ['CONTAINER', 'NAME', 'CPU %', 'MEM', 'DISK', 'INODES', 'SWAP', 'POD'],
    rows: samples.map(({ before, now }) => {
      const { pod, namespace } = podOf(now.attributes?.labels ?? {});
      const id = now.attributes?.id ?? '';
      return [
        whole ? id : shortId(id),
        now.attributes?.metadata?.name ?? '',
        cpuPercent(before?.cpu, now.cpu),
        size(now.memory?.workingSetBytes),
        size(now.writableLayer?.usedBytes),
        now.writableLayer?.inodesUsed?.value ?? '-',
        size(now.swap?.swapUsageBytes),
        pod === '' ? '' : `${namespace}/${pod}`,
      ];
    }),
  };
}

/** crictl's columns of sandboxes' use. */
export function sandboxStatsTable(samples: readonly Sample<PodSandboxStats>[], whole: boolean): Shown {
  return {
    titles: ['POD', 'POD ID', 'CPU %', 'MEM', 'PIDS'],
    rows: samples.map(({ before, now }) => {
      const id = now.attributes?.id ?? '';
      const { name = '', namespace = '' } = now.attributes?.metadata ?? {};
      return [
        `${namespace}/${name}`,
        whole ? id : shortId(id),
        cpuPercent(before?.linux?.cpu, now.linux?.cpu),
        size(now.linux?.memory?.workingSetBytes),
        now.linux?.process?.processCount?.value ?? '-',
      ];
    }),
  };
}
