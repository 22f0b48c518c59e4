import { eachBarBetween, kindOf, MAX_LANES, toneOf, type Bar, type Row, type Tone } from '../core/timeline.ts';
import type { Model } from './model.ts';
import type { Palette } from './palette.ts';
import type { TimeWindow } from './window.ts';
import { callDuration, markText, stepFor } from './words.ts';

/** As `--row` in page.css. */
export const ROW_PX = 24;
const PAD_PX = 4;
const LEAST_BAR_PX = 2;
/** A bar that long has its method in it. */
const LABEL_PX = 54;
const MARK_PX = 92;
/** Shorter ones beside each other are drawn as one. */
const TOLD_APART_PX = 6;

interface Span {
  from: number;
  to: number;
  tone: Tone | null;
}

/** Where a lane of a row begins and how high it is, from the row's top. */
function laneAt(row: Row, lane: number): { top: number; height: number } {
  const height = (ROW_PX - 2 * PAD_PX) / row.lanes;
  return { top: PAD_PX + lane * height, height: row.lanes === 1 ? height : height - 1 };
}

export interface Painted {
  readonly model: Model;
  readonly time: TimeWindow;
  readonly palette: Palette;
  readonly nowMs: number;
}

/** Draws the rows that are seen; how much it draws depends on the pixels, not on the calls. */
export class BarPainter {
  readonly #context: CanvasRenderingContext2D;
  readonly #what: Painted;
  readonly #spans: readonly Span[] = Array.from({ length: MAX_LANES }, () => ({ from: 0, to: 0, tone: null }));

  constructor(context: CanvasRenderingContext2D, what: Painted) {
    this.#context = context;
    this.#what = what;
  }

  rows(scrollTop: number, width: number, height: number): void {
    const { model, palette } = this.#what;
    const context = this.#context;
    context.fillStyle = palette.back;
    context.fillRect(0, 0, width, height);
    const first = Math.max(0, Math.floor(scrollTop / ROW_PX));
    const last = Math.min(model.rows.length - 1, Math.floor((scrollTop + height) / ROW_PX));
    for (let index = first; index <= last; index += 1) {
      const row = model.rows[index] as Row;
      const top = index * ROW_PX - scrollTop;
      if (row.key === model.selectedRow) this.#fill(palette.selected, 0, top, width, ROW_PX);
      else if (row.kind !== 'part') this.#fill(palette.stripe, 0, top, width, ROW_PX);
    }
    this.#grid(width, height);
    for (let index = first; index <= last; index += 1) this.#row(model.rows[index] as Row, index * ROW_PX - scrollTop);
  }

  #fill(colour: string, x: number, y: number, width: number, height: number): void {
    this.#context.fillStyle = colour;
    this.#context.fillRect(x, y, width, height);
  }

  #grid(width: number, height: number): void {
    const { time, palette } = this.#what;
    const step = stepFor(time.msPerPx * MARK_PX);
    this.#context.fillStyle = palette.line;
    for (let ms = Math.ceil(time.fromMs / step) * step; ms < time.toMs; ms += step) {
      const x = Math.round(time.x(ms));
      if (x >= 0 && x < width) this.#context.fillRect(x, 0, 1, height);
    }
  }

  #row(row: Row, top: number): void {
    const { model, time, palette, nowMs } = this.#what;
    const failed: Bar[] = [];
    const labels: Bar[] = [];
    let selected: Bar | null = null;
    for (const span of this.#spans) span.tone = null;
    eachBarBetween(row, time.fromMs, time.toMs, (bar) => {
      const { call } = bar;
      const tone = toneOf(call);
      if (call === model.selectedCall) selected = bar;
      if (tone === 'failed') failed.push(bar);
      const wide = ((call.endMs ?? nowMs) - call.startMs) / time.msPerPx;
      if (wide >= LABEL_PX) labels.push(bar);
      if (tone === 'open') this.#open(row, bar, top);
      else this.#span(row, bar, tone, top, Math.floor(time.x(call.startMs)), Math.ceil(time.x(call.startMs) + Math.max(wide, LEAST_BAR_PX)));
    });
    for (const [lane, span] of this.#spans.entries()) this.#flush(row, lane, span, top);
    this.#marks(row, failed, top);
    for (const bar of labels) this.#label(row, bar, top);
    if (selected !== null) this.#frame(row, selected, top, palette);
  }

  /** Bars that would cover each other are drawn as one. */
  #span(row: Row, bar: Bar, tone: Tone, top: number, from: number, to: number): void {
    const span = this.#spans[bar.lane] as Span;
    if (span.tone === tone && from <= span.to && (to - from < TOLD_APART_PX || to <= span.to)) {
      span.to = Math.max(span.to, to);
      return;
    }
    // What is wholly behind another colour cannot be seen; a failure is drawn again, on top.
    if (span.tone !== null && to <= span.to && tone !== 'failed') return;
    this.#flush(row, bar.lane, span, top);
    span.from = from;
    span.to = to;
    span.tone = tone;
  }

  #flush(row: Row, lane: number, span: Span, top: number): void {
    if (span.tone === null) return;
    const at = laneAt(row, lane);
    const from = Math.max(span.from, -4);
    const to = Math.min(span.to, this.#what.time.widthPx + 4);
    // A hairline between neighbours that are long enough to be told apart.
    this.#fill(this.#what.palette.tones[span.tone], from, top + at.top, Math.max(to - from - (to - from >= TOLD_APART_PX ? 1 : 0), 1), at.height);
  }

  #open(row: Row, { call, lane }: Bar, top: number): void {
    const { time, palette, nowMs } = this.#what;
    const at = laneAt(row, lane);
    const context = this.#context;
    const from = Math.max(time.x(call.startMs), -4);
    const to = Math.min(Math.max(time.x(nowMs), from + 6), time.widthPx + 4);
    context.strokeStyle = palette.tones.open;
    context.setLineDash([4, 3]);
    context.strokeRect(Math.round(from) + 0.5, Math.round(top + at.top) + 0.5, Math.round(to - from), Math.max(1, Math.round(at.height) - 1));
    context.setLineDash([]);
  }

  /** A triangle below each failure, so that it is seen without its colour. */
  #marks(row: Row, bars: readonly Bar[], top: number): void {
    const { time, palette } = this.#what;
    const context = this.#context;
    let last = -Infinity;
    context.fillStyle = palette.tones.failed;
    for (const { call, lane } of bars) {
      const x = time.x(call.startMs);
      const wide = Math.max(LEAST_BAR_PX, ((call.endMs ?? call.startMs) - call.startMs) / time.msPerPx);
      const at = laneAt(row, lane);
      if (x - last >= 1 || wide > LEAST_BAR_PX) context.fillRect(x, top + at.top, wide, at.height);
      if (x - last < 6) continue;
      last = x;
      context.beginPath();
      context.moveTo(x - 3.5, top + ROW_PX);
      context.lineTo(x + 4.5, top + ROW_PX);
      context.lineTo(x + 0.5, top + ROW_PX - 7);
      context.fill();
    }
  }

  #label(row: Row, { call, lane }: Bar, top: number): void {
    const { time, palette, nowMs } = this.#what;
    const at = laneAt(row, lane);
    if (at.height < 10) return;
    const from = Math.max(time.x(call.startMs), 0);
    const room = Math.min(time.x(call.endMs ?? nowMs), time.widthPx) - from - 8;
    if (room < LABEL_PX - 10) return;
    const context = this.#context;
    context.font = '11px system-ui, "Liberation Sans", sans-serif';
    context.textBaseline = 'middle';
    const whole = `${call.method}  ${callDuration(call)}`;
    const text = context.measureText(whole).width <= room ? whole : call.method;
    context.save();
    context.beginPath();
    context.rect(from, top, room + 6, ROW_PX);
    context.clip();
    context.fillStyle =
      call.endMs === null || (kindOf(call.method) === 'read' && toneOf(call) === 'read' && palette.onBar === '#ffffff') ? palette.text : palette.onBar;
    context.fillText(text, from + 5, top + at.top + at.height / 2 + 0.5);
    context.restore();
  }

  #frame(row: Row, { call, lane }: Bar, top: number, palette: Palette): void {
    const { time, nowMs } = this.#what;
    const at = laneAt(row, lane);
    const from = Math.max(time.x(call.startMs), -6);
    const to = Math.min(Math.max(time.x(call.endMs ?? nowMs), from + LEAST_BAR_PX), time.widthPx + 6);
    const context = this.#context;
    context.lineWidth = 2;
    context.strokeStyle = palette.text;
    context.strokeRect(from - 2, top + at.top - 2, to - from + 4, at.height + 4);
    context.lineWidth = 1;
  }
}

/** The axis above the rows. */
export function paintAxis(context: CanvasRenderingContext2D, { time, palette }: Painted, width: number, height: number): void {
  context.fillStyle = palette.back;
  context.fillRect(0, 0, width, height);
  context.font = '11px system-ui, "Liberation Sans", sans-serif';
  context.textBaseline = 'middle';
  const step = stepFor(time.msPerPx * MARK_PX);
  for (let ms = Math.floor(time.fromMs / step) * step; ms < time.toMs; ms += step) {
    const x = Math.round(time.x(ms));
    context.fillStyle = palette.line;
    context.fillRect(x, 0, 1, height);
    context.fillStyle = palette.dim;
    context.fillText(markText(ms, step), x + 4, height / 2 + 1);
  }
}

/** The bar of a row at a pixel: the shortest of those within reach, failures first. */
export function barAt(row: Row, time: TimeWindow, x: number, y: number, nowMs: number): Bar | null {
  const reach = 4;
  let best: Bar | null = null;
  let bestScore = Infinity;
  eachBarBetween(row, time.at(x - reach), time.at(x + reach), (bar) => {
    const { call, lane } = bar;
    const from = time.x(call.startMs);
    const to = Math.max(time.x(call.endMs ?? nowMs), from + LEAST_BAR_PX);
    if (x < from - reach || x > to + reach) return;
    const at = laneAt(row, lane);
    const besides = y < at.top - 1 || y > at.top + at.height + 1 ? 1_000 : 0;
    const away = Math.max(0, from - x, x - to) * 100;
    const score = besides + away + Math.min(to - from, 500) - (toneOf(call) === 'failed' ? 50 : 0);
    if (score < bestScore) {
      best = bar;
      bestScore = score;
    }
  });
  return best;
}
