/** A shim that still runs when no pod is left. */
export interface LeftShim {
  /** The container or sandbox that it was started for. */
  readonly id: string;
  readonly startedAtMs: number;
  /** Whether its directory is there, by which a containerd that starts finds it again. */
  readonly hasDirectory: boolean;
  /** Command names of the processes below it. */
  readonly processes: readonly string[];
}

export interface Kill {
  readonly what: string;
  readonly atMs: number;
}

export interface ShimEvidence {
  /** Whether the runtime lists its container or sandbox now, after all was removed. */
  readonly isListed: boolean;
  /** When a listing showed it last; null: none ever did. */
  readonly listedAtMs: number | null;
  readonly kills: readonly Kill[];
}

/** A sandbox may be in the making, or in its end, for so long when somebody is killed. */
const callMs = 30_000;
/** A program that a killed containerd has started goes on for so long. */
const afterKillMs = 5_000;
const seconds = (ms: number): string => `${(Math.abs(ms) / 1000).toFixed(2)} s`;

/**
 * Why a shim is the runtime's own leftover and not the kubelet's; null: that is not so. A kubelet knows only what the
 * runtime lists or answers. So it is the runtime's where that lists it no more, a kill fell into its making or its end,
 * and nothing runs in it.
 */
export function runtimesOwn({ id, startedAtMs, hasDirectory, processes }: LeftShim, { isListed, listedAtMs, kills }: ShimEvidence): string | null {
  if (isListed || processes.length > 0) return null;
  const near = (ms: number): Kill[] => kills.filter(({ atMs }) => atMs - ms < callMs && ms - atMs < afterKillMs);
  const [making, ending] = [near(startedAtMs), listedAtMs === null ? [] : near(listedAtMs)];
  // Whose call was cut off with the runtime is lost for certain; with the kubelet it is only given up.
  const ofRuntime = (list: readonly Kill[]): Kill | undefined => list.find(({ what }) => what.endsWith('containerd'));
  const kill = ofRuntime(making) ?? ofRuntime(ending) ?? making[0] ?? ending[0];
  if (kill === undefined) return null;
  const when = (ms: number): string => `${seconds(kill.atMs - ms)} ${kill.atMs < ms ? 'after' : 'before'} ${kill.what}`;
  // One that was half made is listed by the next containerd, which does not know of the shim, until the kubelet removes it.
  const listed = listedAtMs === null ? 'never listed' : making.includes(kill) ? 'listed for a while' : `listed until ${when(listedAtMs)}`;
  const started = making.includes(kill) ? `started ${when(startedAtMs)}, ` : '';
  return `shim of ${id}: ${started}${listed}, not listed now, its directory ${hasDirectory ? 'there' : 'gone'}, nothing runs in it`;
}
