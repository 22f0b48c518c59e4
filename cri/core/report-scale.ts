/** A part of a pod's time that is drawn to scale; between two of them nothing was done for a while. */
export interface ScalePart {
  readonly fromMs: number;
  readonly toMs: number;
  readonly x: number;
  readonly width: number;
}

export interface Scale {
  readonly parts: readonly ScalePart[];
  readonly width: number;
  xOf(ms: number): number;
}

/** So long nothing must happen before it is left out. */
const IDLE_MS = 2_000;
/** What stands for time that is left out. */
export const GAP_WIDTH = 46;
const MIN_PART_WIDTH = 24;
const MAX_GAPS = 12;

/**
 * Times drawn in `width`: busy parts to scale, idle ones between them short.
 *
 * @param busy when something was done, by its start
 * @param fromMs where the first part begins
 * @param toMs where the last one ends
 */
export function scaleOf(busy: readonly (readonly [number, number])[], fromMs: number, toMs: number, width: number): Scale {
  const merged: [number, number][] = [[fromMs, fromMs]];
  for (const [start, end] of busy) {
    const last = merged.at(-1) as [number, number];
    if (start - last[1] > IDLE_MS) merged.push([start, end]);
    else last[1] = Math.max(last[1], end);
  }
  const tail = merged.at(-1) as [number, number];
  if (toMs - tail[1] > IDLE_MS) merged.push([toMs, toMs]);
  else tail[1] = Math.max(tail[1], toMs);
  // The longest pauses are left out; shorter ones beyond them are drawn.
  const pauses = merged.slice(1).map(([start], at) => start - (merged[at] as [number, number])[1]);
  const least = pauses.toSorted((a, b) => b - a)[MAX_GAPS - 1] ?? 0;
  const kept: [number, number][] = [];
  for (const [at, part] of merged.entries()) {
    if (at === 0 || (pauses[at - 1] as number) >= least) kept.push([...part]);
    else (kept.at(-1) as [number, number])[1] = part[1];
  }
  const total = kept.reduce((sum, [start, end]) => sum + (end - start), 0);
  const free = Math.max(0, width - (kept.length - 1) * GAP_WIDTH - kept.length * MIN_PART_WIDTH);
  const parts: ScalePart[] = [];
  let x = 0;
  for (const [start, end] of kept) {
    const partWidth = MIN_PART_WIDTH + (total === 0 ? free / kept.length : (free * (end - start)) / total);
    parts.push({ fromMs: start, toMs: end, x, width: partWidth });
    x += partWidth + GAP_WIDTH;
  }
  return { parts, width: x - GAP_WIDTH, xOf: (ms) => xWithin(parts, ms) };
}

function xWithin(parts: readonly ScalePart[], ms: number): number {
  let low = 0;
  let high = parts.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((parts[middle] as ScalePart).fromMs <= ms) low = middle;
    else high = middle - 1;
  }
  const part = parts[low] as ScalePart;
  const lasts = part.toMs - part.fromMs;
  if (ms <= part.toMs) return part.x + (lasts === 0 ? 0 : (part.width * Math.max(0, ms - part.fromMs)) / lasts);
  const next = parts[low + 1];
  if (next === undefined) return part.x + part.width;
  return part.x + part.width + (GAP_WIDTH * (ms - part.toMs)) / (next.fromMs - part.toMs);
}
