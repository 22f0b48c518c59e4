import { hasFailed, type Bar, type Timeline } from '../core/timeline.ts';
import { sized } from './elements.ts';
import type { Model } from './model.ts';
import type { Painted } from './paint.ts';

const OVERVIEW_PX = 34;
/** What has changed is counted again so often. */
export const RECOUNT_MS = 300;

interface Histogram {
  readonly timeline: Timeline;
  readonly count: number;
  readonly fromMs: number;
  readonly msPerPx: number;
  readonly counts: Uint32Array;
  readonly failed: Uint32Array;
  readonly most: number;
}

/** The strip above the axis: how many calls there were at each time, failures in red, and which span is seen. */
export class Overview {
  readonly #canvas: HTMLCanvasElement;
  #histogram: Histogram | null = null;
  #countedAtMs = -Infinity;

  constructor(canvas: HTMLCanvasElement) {
    this.#canvas = canvas;
  }

  /** Whether it is time to count again; with -Infinity whether it will be. */
  isStale(model: Model, frameMs: number): boolean {
    const { timeline } = model;
    const stale = this.#histogram?.timeline !== timeline || this.#histogram.count !== timeline.count;
    return stale && (frameMs === -Infinity || frameMs - this.#countedAtMs > RECOUNT_MS);
  }

  /** @param frameMs the frame's time */
  paint(what: Painted, frameMs: number): void {
    const { model, time, palette } = what;
    const width = time.widthPx;
    const context = sized(this.#canvas, width, OVERVIEW_PX);
    context.fillStyle = palette.back;
    context.fillRect(0, 0, width, OVERVIEW_PX);
    if (model.timeline.count === 0) return;
    if (this.isStale(model, frameMs) || this.#histogram?.counts.length !== Math.ceil(width)) {
      this.#histogram = histogramOf(model, width);
      this.#countedAtMs = frameMs;
    }
    const { counts, failed, most } = this.#histogram;
    const heightOf = (n: number): number => (n === 0 ? 0 : Math.max(2, (Math.log1p(n) / Math.log1p(most)) * (OVERVIEW_PX - 6)));
    context.fillStyle = palette.tones.read;
    for (const [x, n] of counts.entries()) if (n > 0) context.fillRect(x, OVERVIEW_PX - heightOf(n), 1, heightOf(n));
    context.fillStyle = palette.tones.failed;
    for (const [x, n] of failed.entries()) if (n > 0) context.fillRect(x - 0.5, OVERVIEW_PX - heightOf(n), 2, heightOf(n));
    const from = this.#x(time.fromMs);
    const to = Math.max(this.#x(time.toMs), from + 3);
    context.globalAlpha = 0.16;
    context.fillStyle = palette.focus;
    context.fillRect(from, 0, to - from, OVERVIEW_PX);
    context.globalAlpha = 1;
    context.strokeStyle = palette.focus;
    context.strokeRect(Math.max(from, 0) + 0.5, 0.5, Math.min(to, width) - Math.max(from, 0) - 1, OVERVIEW_PX - 1);
  }

  /** Which moment is at a pixel. */
  at(x: number): number | null {
    return this.#histogram === null ? null : this.#histogram.fromMs + x * this.#histogram.msPerPx;
  }

  #x(ms: number): number {
    return this.#histogram === null ? 0 : (ms - this.#histogram.fromMs) / this.#histogram.msPerPx;
  }
}

/** Over the time of all calls; counted are those that pass the filter. */
function histogramOf({ timeline, startMs, endMs }: Model, width: number): Histogram {
  const fromMs = startMs;
  const msPerPx = Math.max(endMs - fromMs, 1) / width;
  const counts = new Uint32Array(Math.ceil(width));
  const failed = new Uint32Array(counts.length);
  let most = 1;
  const take = ({ call }: Bar): void => {
    const x = Math.min(counts.length - 1, Math.max(0, Math.floor((call.startMs - fromMs) / msPerPx)));
    const n = (counts[x] ?? 0) + 1;
    counts[x] = n;
    if (n > most) most = n;
    if (hasFailed(call.outcome)) failed[x] = (failed[x] ?? 0) + 1;
  };
  for (const row of timeline.rows) {
    for (const bar of row.bars) take(bar);
    for (const bar of row.long) take(bar);
  }
  return { timeline, count: timeline.count, fromMs, msPerPx, counts, failed, most };
}
