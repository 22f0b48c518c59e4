import type { Bar, Row } from '../core/timeline.ts';
import { byId, canvas, made } from './elements.ts';
import type { Model } from './model.ts';
import { barAt, ROW_PX } from './paint.ts';
import type { TimeWindow } from './window.ts';
import { callDuration, subjectText, timeText } from './words.ts';

/** Movement that makes a click a drag. */
const DRAG_PX = 4;
const LINE_PX = 16;
/** A wheel's notch (100 px) changes the span by a fifth. */
const ZOOM_PER_PX = 0.002;

export interface PointerActions {
  readonly model: Model;
  readonly time: TimeWindow;
  readonly nowMs: () => number;
  readonly redraw: () => void;
  readonly choose: (row: Row, bar: Bar | null) => void;
  readonly toggle: (row: Row) => void;
  readonly goTo: (overviewX: number) => void;
}

/** Mouse, pen and touch: wheel, drags, clicks and what a bar is. */
export class Pointer {
  readonly #actions: PointerActions;
  readonly #scroll = byId('scroll');
  readonly #bars = canvas('bars');
  readonly #tip = byId('tip');
  #span: { from: number; to: number } | null = null;

  constructor(actions: PointerActions) {
    this.#actions = actions;
    this.#scroll.addEventListener('wheel', (event) => this.#wheel(event), { passive: false });
    byId('times').addEventListener('wheel', (event) => this.#wheel(event), { passive: false });
    this.#drags(this.#bars, (event) => this.#click(event));
    this.#drags(byId('axis'), () => {});
    this.#strip(byId('overview'));
    this.#bars.addEventListener('pointermove', (event) => this.#hover(event));
    this.#bars.addEventListener('pointerleave', () => this.hideTip());
    byId('labels').addEventListener('click', (event) => this.#label(event));
  }

  /** The span that is being chosen with Shift, in pixels of the canvas. */
  get span(): { from: number; to: number } | null {
    return this.#span;
  }

  hideTip(): void {
    this.#tip.hidden = true;
  }

  #x(event: MouseEvent): number {
    return event.clientX - this.#bars.getBoundingClientRect().left;
  }

  #rowAt(event: MouseEvent): { row: Row; y: number } | null {
    const y = event.clientY - this.#scroll.getBoundingClientRect().top + this.#scroll.scrollTop;
    const row = this.#actions.model.rows[Math.floor(y / ROW_PX)];
    return row === undefined ? null : { row, y: y % ROW_PX };
  }

  #wheel(event: WheelEvent): void {
    const { time, redraw } = this.#actions;
    const unit = event.deltaMode === 0 ? 1 : event.deltaMode === 1 ? LINE_PX : 400;
    const sideways = event.shiftKey && event.deltaX === 0 ? event.deltaY : event.deltaX;
    this.hideTip();
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      time.zoom(Math.exp(event.deltaY * unit * ZOOM_PER_PX), Math.max(0, this.#x(event)));
    } else if (sideways !== 0 && (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))) {
      event.preventDefault();
      time.pan(sideways * unit);
    } else return;
    redraw();
  }

  #drags(element: HTMLElement, click: (event: PointerEvent) => void): void {
    const { time, redraw } = this.#actions;
    element.addEventListener('pointerdown', (down) => {
      if (down.button !== 0) return;
      element.setPointerCapture(down.pointerId);
      const choosing = down.shiftKey;
      let last = down.clientX;
      let dragged = false;
      const move = (event: PointerEvent): void => {
        if (!dragged && Math.abs(event.clientX - down.clientX) < DRAG_PX) return;
        dragged = true;
        this.hideTip();
        if (choosing) this.#span = { from: this.#x(down), to: this.#x(event) };
        else time.pan(last - event.clientX);
        last = event.clientX;
        redraw();
      };
      const done = (event: PointerEvent): void => {
        element.removeEventListener('pointermove', move);
        const span = this.#span;
        this.#span = null;
        if (!dragged && event.type === 'pointerup') click(event);
        if (span === null) return;
        time.following = false;
        time.touched = true;
        time.show(time.at(Math.min(span.from, span.to)), time.at(Math.max(span.from, span.to)));
        redraw();
      };
      element.addEventListener('pointermove', move);
      element.addEventListener('pointerup', done, { once: true });
      element.addEventListener('pointercancel', done, { once: true });
    });
  }

  #strip(element: HTMLElement): void {
    const go = (event: PointerEvent): void => this.#actions.goTo(this.#x(event));
    element.addEventListener('pointerdown', (down) => {
      if (down.button !== 0) return;
      element.setPointerCapture(down.pointerId);
      go(down);
      element.addEventListener('pointermove', go);
      const done = (): void => element.removeEventListener('pointermove', go);
      element.addEventListener('pointerup', done, { once: true });
      element.addEventListener('pointercancel', done, { once: true });
    });
  }

  #click(event: PointerEvent): void {
    const at = this.#rowAt(event);
    if (at === null) return;
    this.#scroll.focus({ preventScroll: true });
    const { model, time, nowMs, choose } = this.#actions;
    choose(at.row, barAt(at.row, time, this.#x(event), at.y, nowMs()));
    if (model.selectedCall === null) this.hideTip();
  }

  #label(event: MouseEvent): void {
    const element = (event.target as Element).closest<HTMLElement>('.row');
    const row = this.#actions.model.rows[Number(element?.dataset['index'] ?? -1)];
    if (row === undefined) return;
    const { choose, toggle } = this.#actions;
    this.#scroll.focus({ preventScroll: true });
    choose(row, null);
    if (row.kind !== 'part' && ((event.target as Element).closest('.twist') !== null || event.detail === 2)) toggle(row);
  }

  #hover(event: PointerEvent): void {
    if (event.buttons !== 0 || event.pointerType === 'touch') return;
    const at = this.#rowAt(event);
    const { time, nowMs } = this.#actions;
    const bar = at === null ? null : barAt(at.row, time, this.#x(event), at.y, nowMs());
    this.#bars.style.cursor = bar === null ? 'default' : 'pointer';
    if (bar === null) return this.hideTip();
    const { call } = bar;
    const end = made('div', call.message === '' ? '' : 'bad', call.message === '' ? call.outcome : `${call.outcome}: ${call.message.slice(0, 300)}`);
    const head = made('div');
    head.append(made('b', '', call.method), `  ${callDuration(call)}`);
    this.#tip.replaceChildren(head, made('div', '', subjectText(call)), made('div', 'dim', `${timeText(call.startMs)} UTC`), end);
    this.#tip.hidden = false;
    const place = (this.#tip.offsetParent ?? document.body).getBoundingClientRect();
    const { offsetWidth, offsetHeight } = this.#tip;
    const left = Math.min(event.clientX - place.left + 14, place.width - offsetWidth - 6);
    const below = event.clientY - place.top + 18;
    const top = below + offsetHeight > place.height ? event.clientY - place.top - offsetHeight - 10 : below;
    this.#tip.style.left = `${Math.max(4, left)}px`;
    this.#tip.style.top = `${Math.max(4, top)}px`;
  }
}
