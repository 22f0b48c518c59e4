/** What a node holds for pods, as names: each kind must be empty, or as before, when no pod is left. */
export type Footprint = Readonly<Record<string, readonly string[]>>;

/** Names that were not there before, by kind; kinds without any are left out. */
export function added(before: Footprint, after: Footprint): Record<string, string[]> {
  const out: Record<string, string[]> = {};
  for (const [kind, names] of Object.entries(after)) {
    const left = [...(before[kind] ?? [])];
    const more = names.filter((name) => {
      const at = left.indexOf(name);
      if (at < 0) return true;
      left.splice(at, 1);
      return false;
    });
    if (more.length > 0) out[kind] = more;
  }
  return out;
}

/** A process' or the agent's own figures. */
export type Figures = Readonly<Record<string, number>>;

/** How much of a figure may be more after the same work again, as a factor and an amount that does not count. */
const bounds: Readonly<Record<string, readonly [factor: number, free: number]>> = {
  // Memory that is kept for the next work; a leak of some kilobytes a pod shows over hundreds of pods.
  rssBytes: [1.25, 16 << 20],
  heapBytes: [1.25, 6 << 20],
  descriptors: [1, 6],
  timers: [1, 6],
  threads: [1.25, 8],
};

/** What grew beyond its bound. */
export function growth(before: Figures, after: Figures): string[] {
  return Object.entries(bounds).flatMap(([name, [factor, free]]) => {
    const [was, is] = [before[name], after[name]];
    if (was === undefined || is === undefined || is <= was * factor + free) return [];
    return [`${name}: ${was} -> ${is}`];
  });
}

/** Figures from the agent's /metrics. */
export function figuresOf(metrics: string): Figures {
  const value = (pattern: RegExp): number => [...metrics.matchAll(pattern)].reduce((sum, match) => sum + Number(match[1]), 0);
  return {
    rssBytes: value(/^process_resident_memory_bytes (\S+)/gm),
    descriptors: value(/^process_open_fds (\S+)/gm),
    heapBytes: value(/^nodejs_heap_size_used_bytes (\S+)/gm),
    timers: value(/^nodejs_active_resources\{type="Timeout"\} (\S+)/gm),
  };
}
