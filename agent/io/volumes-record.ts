import type { Pod } from '../../proto/kube/types.ts';
import type { CsiVolume } from '../core/csi/volume.ts';
import type { ClaimPlace } from '../core/volumes-mounts.ts';
import type { WriterState } from '../core/volumes-writer.ts';
import type { MeasuredVolume } from './volume-stats.ts';

/** What is known to lie on disk for one pod. */
export interface PodRecord {
  /** Monotonic: since when this process knows of its volumes. */
  readonly sinceMs: number;
  /** As it was last given to us. */
  pod: Pod;
  existed: boolean;
  mounted: ReadonlySet<string>;
  /** Something failed half way: what lies on disk is looked at again before the next attempt. */
  isStale: boolean;
  /** Volumes that are set up. */
  readonly done: Set<string>;
  readonly written: Map<string, { digest: string; state: WriterState }>;
  readonly claims: Map<string, ClaimPlace>;
  /** Plugins of the volumes behind claims, once these are understood. */
  readonly plugins: Map<string, string>;
  /** Groups that the volumes behind claims belong to. */
  readonly groups: Map<string, number>;
  /** CSI volumes that are not set up yet. */
  readonly coming: Map<string, CsiVolume>;
  /** A CSI driver may have been asked for something. */
  usesCsi: boolean;
  readonly measured: Map<string, Omit<MeasuredVolume, 'uid' | 'name'>>;
  /** When a failure of a volume is told again; upstream's retries have the same distances. */
  readonly told: Map<string, { message: string; nextMs: number; waitMs: number }>;
  /** Monotonic: since when something is waited for, or was told last to be. */
  waitingSinceMs: number | null;
}

/** Nothing is set up yet; `mounted` is what lies there of an earlier process. */
export function newRecord(pod: Pod, existed: boolean, mounted: ReadonlySet<string>, sinceMs: number): PodRecord {
  return {
    sinceMs,
    pod,
    existed,
    mounted,
    isStale: false,
    done: new Set(),
    written: new Map(),
    claims: new Map(),
    plugins: new Map(),
    groups: new Map(),
    coming: new Map(),
    measured: new Map(),
    usesCsi: false,
    told: new Map(),
    waitingSinceMs: null,
  };
}
