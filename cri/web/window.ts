/** Narrowest and widest: a hundredth of a millisecond a pixel, ten minutes a pixel. */
const LEAST_MS_PER_PX = 0.01;
const MOST_MS_PER_PX = 600_000;
/** How much of a followed window lies behind the latest call. */
const AHEAD = 0.04;
/** What is shown of a live feed at first. */
const LIVE_SPAN_MS = 60_000;

/** Which span of time is seen, and whether it moves along. */
export class TimeWindow {
  fromMs = 0;
  msPerPx = 1;
  widthPx = 1;
  following = false;
  /** Whether the user has moved it: it is not fitted again. */
  touched = false;

  get spanMs(): number {
    return this.widthPx * this.msPerPx;
  }

  get toMs(): number {
    return this.fromMs + this.spanMs;
  }

  x(ms: number): number {
    return (ms - this.fromMs) / this.msPerPx;
  }

  at(x: number): number {
    return this.fromMs + x * this.msPerPx;
  }

  /** Shows a span with some air around it. */
  show(fromMs: number, toMs: number): void {
    if (!Number.isFinite(fromMs) || !Number.isFinite(toMs)) return;
    const span = Math.max(toMs - fromMs, 1);
    this.msPerPx = limited((span * 1.05) / this.widthPx);
    this.fromMs = (fromMs + toMs) / 2 - this.spanMs / 2;
  }

  resize(widthPx: number): void {
    const span = this.spanMs;
    const first = this.widthPx === 1;
    this.widthPx = Math.max(1, widthPx);
    if (!first) this.msPerPx = limited(span / this.widthPx);
  }

  /** @param factor below 1 for a narrower span; what is at `x` stays there */
  zoom(factor: number, x = this.widthPx / 2): void {
    const anchor = this.at(x);
    this.msPerPx = limited(this.msPerPx * factor);
    this.fromMs = anchor - x * this.msPerPx;
    this.touched = true;
  }

  pan(px: number): void {
    this.fromMs += px * this.msPerPx;
    this.following = false;
    this.touched = true;
  }

  follow(nowMs: number): void {
    if (!this.touched) this.msPerPx = LIVE_SPAN_MS / this.widthPx;
    this.fromMs = nowMs - this.spanMs * (1 - AHEAD);
  }

  /** Moves so far that a moment is inside, with some distance from the edges. */
  reveal(fromMs: number, toMs: number): void {
    const margin = this.spanMs * 0.1;
    if (fromMs >= this.fromMs + margin / 4 && Math.min(toMs, fromMs + this.spanMs / 2) <= this.toMs - margin / 4) return;
    this.following = false;
    this.touched = true;
    this.fromMs = toMs - fromMs > this.spanMs * 0.8 ? fromMs - margin : (fromMs + toMs) / 2 - this.spanMs / 2;
  }
}

function limited(msPerPx: number): number {
  return Math.min(MOST_MS_PER_PX, Math.max(LEAST_MS_PER_PX, msPerPx));
}
