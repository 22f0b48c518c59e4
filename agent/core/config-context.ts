import type { MemoryQos } from './memory-qos.ts';

/** What of the node's settings and of the machine goes into what the runtime is asked for. */
export interface ConfigContext {
  readonly podLogsDir: string;
  readonly rootDir: string;
  readonly cpuCFSQuota: boolean;
  readonly cpuCFSQuotaPeriodUs: number;
  readonly seccompDefault: boolean;
  readonly cgroupVersion: 1 | 2;
  readonly singleProcessOOMKill: boolean | null;
  readonly memoryCapacityBytes: bigint;
  /** The least oom_score_adj that the kernel grants here; null or left out: any. */
  readonly leastOomScoreAdj?: number | null;
  /** Page sizes the kernel knows, as cgroups name them (`2MB`): each gets a limit of 0 unless asked for. */
  readonly hugePageSizes: readonly string[];
  readonly swapControllerAvailable: boolean;
  /** Left out: no container swaps. */
  readonly swap?: { readonly behavior: 'NoSwap' | 'LimitedSwap'; readonly capacityBytes: bigint };
  /** Null: the gate is off; left out: on, with its defaults. */
  readonly memoryQos?: MemoryQos | null;
  /** Whether the kernel labels files: only then is a runtime asked to. */
  readonly hasSelinux: boolean;
  readonly maskedPaths: readonly string[];
  readonly nodeName: string;
  /** Sysctls of pods that do not name them; absent: none. */
  readonly defaultPodSysctls?: Readonly<Record<string, string>>;
}
