import { callBeside, hasFailed, type Bar, type Row, type TimelineCall } from '../core/timeline.ts';
import { Detail } from './detail.ts';
import { button, byId, canvas, dialog, say, sized } from './elements.ts';
import { Faults } from './faults.ts';
import { Filters } from './filters.ts';
import { fillKeys, listenToKeys, type KeyAction } from './keys.ts';
import { Labels } from './labels.ts';
import { Model } from './model.ts';
import { Overview, RECOUNT_MS } from './overview.ts';
import { BarPainter, paintAxis, ROW_PX } from './paint.ts';
import { fillLegend, readPalette, startTheme } from './palette.ts';
import { Pointer } from './pointer.ts';
import { readEvents } from './source.ts';
import { Status } from './status.ts';
import { TimeWindow } from './window.ts';
import { callDuration, subjectText } from './words.ts';

const AXIS_PX = 20;
/** A window that moves along is drawn when it has moved by a pixel, but not more and not less often than that. */
const FOLLOW_MS = { least: 50, most: 500 };
const ZOOM_STEP = 1.5;

const model = new Model();
const time = new TimeWindow();
const detail = new Detail();
const faults = new Faults();
const status = new Status(model, time);
const labels = new Labels(byId('names'));
const overview = new Overview(canvas('overview'));
const scroll = byId('scroll');
const bars = canvas('bars');
let palette = readPalette();
let drawn = false;
let heightPx = 0;
/** The server's clock beside this one: what is open ends now. */
let aheadMs = -Infinity;

function nowMs(): number {
  if (model.hello?.live !== true) return model.endMs;
  return Number.isFinite(aheadMs) ? Date.now() + aheadMs : model.endMs;
}

function redraw(): void {
  if (drawn) return;
  drawn = true;
  requestAnimationFrame(draw);
}

function measure(): void {
  const width = scroll.clientWidth - byId('labels').offsetWidth;
  heightPx = scroll.clientHeight;
  byId('view').style.height = `${heightPx}px`;
  time.resize(Math.max(50, width));
  redraw();
}

let fitted = 0;
/** Shows everything, as long as nobody has moved the window. */
function fitOnce(): void {
  if (time.touched || time.following || model.calls.size === fitted) return;
  fitted = model.calls.size;
  time.show(model.timeline.startMs, model.timeline.endMs);
}

let follower: number | undefined;
let timesDrawn = '';
function draw(frameMs: number): void {
  drawn = false;
  if (time.following) {
    time.follow(nowMs());
    clearTimeout(follower);
    follower = setTimeout(redraw, Math.min(FOLLOW_MS.most, Math.max(FOLLOW_MS.least, time.msPerPx)));
  } else if (model.hello?.live !== true) fitOnce();
  const height = `${model.rows.length * ROW_PX}px`;
  if (byId('spacer').style.height !== height) byId('spacer').style.height = height;
  const { scrollTop } = scroll;
  const what = { model, time, palette, nowMs: nowMs() };
  labels.paint(model, scrollTop, heightPx);
  const context = sized(bars, time.widthPx, heightPx);
  new BarPainter(context, what).rows(scrollTop, time.widthPx, heightPx);
  if (pointer.span !== null) {
    context.globalAlpha = 0.2;
    context.fillStyle = palette.focus;
    context.fillRect(pointer.span.from, 0, pointer.span.to - pointer.span.from, heightPx);
    context.globalAlpha = 1;
  }
  const times = [time.fromMs, time.msPerPx, time.widthPx, model.changes, palette.back, devicePixelRatio, overview.isStale(model, frameMs)].join();
  if (times !== timesDrawn) {
    timesDrawn = times;
    paintAxis(sized(canvas('axis'), time.widthPx, AXIS_PX), what, time.widthPx, AXIS_PX);
    overview.paint(what, frameMs);
    if (overview.isStale(model, -Infinity)) setTimeout(redraw, RECOUNT_MS);
  }
  const index = model.selectedIndex;
  if (index < 0) scroll.removeAttribute('aria-activedescendant');
  else scroll.setAttribute('aria-activedescendant', labels.idOf(index));
  status.update();
  filters.update(model);
}

function revealRow(): void {
  const index = model.selectedIndex;
  if (index < 0) return;
  const top = index * ROW_PX;
  if (top < scroll.scrollTop) scroll.scrollTop = top;
  else if (top + ROW_PX > scroll.scrollTop + heightPx) scroll.scrollTop = top + ROW_PX - heightPx;
}

function choose(row: Row, call: TimelineCall | null, options: { open: boolean; reveal: boolean }): void {
  model.select(row, call);
  if (options.reveal) {
    // A key that was pressed on a button leads back to the rows: Enter is for the call now.
    if (document.activeElement?.closest('header') != null) scroll.focus({ preventScroll: true });
    revealRow();
    if (call !== null) time.reveal(call.startMs, call.endMs ?? nowMs());
  }
  if (call !== null) {
    if (options.open || detail.isOpen) void detail.show(call);
    const words = [call.method, subjectText(call), callDuration(call), call.outcome, call.message];
    say(words.filter((word) => word !== '').join(', '));
  } else if (detail.isOpen) detail.close();
  // The panel may have come or gone, and the rows with it.
  measure();
  if (options.reveal) revealRow();
}

function selectedRow(): Row | undefined {
  return model.rows[model.selectedIndex] ?? model.rows[0];
}

function moveRow(step: number): void {
  const index = model.selectedIndex;
  const next = index < 0 ? 0 : Math.min(model.rows.length - 1, Math.max(0, index + step));
  const row = model.rows[next];
  if (row === undefined) return;
  model.select(row, null);
  say(`${row.prefix}${row.name}`);
  revealRow();
  redraw();
}

/** The call to begin with: the first that is seen, or the row's first. */
function moveCall(step: 1 | -1, wanted: (call: TimelineCall) => boolean = () => true): void {
  const row = selectedRow();
  if (row === undefined) return;
  let from = model.selectedCall;
  if (from === null) {
    let seen = callBeside(row, null, step, (call) => wanted(call) && call.startMs >= time.fromMs && call.startMs <= time.toMs);
    seen ??= callBeside(row, null, step, wanted);
    if (seen !== null) choose(row, seen, { open: false, reveal: true });
    return;
  }
  from = callBeside(row, from, step, wanted);
  if (from === null) say(step > 0 ? 'No later call in this row' : 'No earlier call in this row');
  else choose(row, from, { open: false, reveal: true });
}

/** Goes on in the next rows when a row has no more failures. */
function moveFailed(step: 1 | -1): void {
  const failed = (call: TimelineCall): boolean => hasFailed(call.outcome);
  const { rows } = model;
  const start = Math.max(0, model.selectedIndex);
  for (let at = 0; at <= rows.length; at += 1) {
    const row = rows[(start + at * step + rows.length * 2) % rows.length];
    if (row === undefined || row.failed === 0 || (at > 0 && model.isExpanded(row))) continue;
    const found = callBeside(row, at === 0 ? model.selectedCall : null, step, failed);
    if (found !== null) return choose(row, found, { open: false, reveal: true });
  }
  say('No failures');
}

function end(step: 1 | -1): void {
  const row = selectedRow();
  const call = row === undefined ? null : callBeside(row, null, step);
  if (row !== undefined && call !== null) choose(row, call, { open: false, reveal: true });
}

function toggle(row: Row | undefined): boolean {
  const target = row?.parent ?? row;
  if (target === undefined) return false;
  model.expand(target, !model.isExpanded(target));
  redraw();
  return true;
}

let allOpen = false;
function toggleAll(): void {
  allOpen = !allOpen;
  model.expandAll(allOpen);
  button('expand').textContent = allOpen ? 'Close all' : 'Open all';
  button('expand').setAttribute('aria-pressed', String(allOpen));
  revealRow();
  redraw();
}

function setFollowing(following: boolean): void {
  if (model.hello?.live !== true) return;
  time.following = following;
  redraw();
}

function fit(): void {
  time.following = false;
  time.touched = true;
  time.show(model.timeline.startMs, model.timeline.endMs);
  redraw();
}

function zoom(factor: number): void {
  // What is looked at stays where it is.
  const chosen = model.selectedCall === null ? -1 : time.x(model.selectedCall.startMs);
  const middle = chosen >= 0 && chosen <= time.widthPx ? chosen : time.widthPx / 2;
  time.zoom(factor, time.following ? time.widthPx : middle);
  redraw();
}

function closeDetail(): void {
  detail.close();
  measure();
  scroll.focus();
}

function breakChosen(): boolean {
  if (model.hello?.canBreak !== true || model.selectedCall === null) return false;
  faults.offer([...model.methods].sort());
  faults.open(model.selectedCall);
  return true;
}

function escape(): boolean {
  if (detail.isOpen) closeDetail();
  else if (document.activeElement?.closest('#filters') !== null && document.activeElement !== null) scroll.focus();
  else {
    filters.clear();
    model.setFilter(filters.value);
    redraw();
  }
  return true;
}

const ACTIONS: Readonly<Record<KeyAction, () => boolean | void>> = {
  up: () => moveRow(-1),
  down: () => (document.activeElement === scroll || document.activeElement === byId('detail') ? moveRow(1) : scroll.focus()),
  'page-up': () => moveRow(1 - Math.floor(heightPx / ROW_PX)),
  'page-down': () => moveRow(Math.floor(heightPx / ROW_PX) - 1),
  before: () => moveCall(-1),
  after: () => moveCall(1),
  first: () => end(1),
  last: () => end(-1),
  'failed-after': () => moveFailed(1),
  'failed-before': () => moveFailed(-1),
  open: () => {
    const row = selectedRow();
    if (row === undefined || model.selectedCall === null) return toggle(row);
    choose(row, model.selectedCall, { open: true, reveal: true });
    detail.focus();
    return true;
  },
  toggle: () => toggle(selectedRow()),
  close: escape,
  filter: () => filters.focus(),
  help: () => dialog('help-dialog').showModal(),
  'zoom-in': () => zoom(1 / ZOOM_STEP),
  'zoom-out': () => zoom(ZOOM_STEP),
  'pan-left': () => (time.pan(-time.widthPx / 4), redraw()),
  'pan-right': () => (time.pan(time.widthPx / 4), redraw()),
  fit,
  follow: () => setFollowing(!time.following),
  expand: toggleAll,
  break: breakChosen,
};

const filters = new Filters((filter) => {
  model.setFilter(filter);
  scroll.scrollTop = Math.min(scroll.scrollTop, Math.max(0, model.rows.length * ROW_PX - heightPx));
  revealRow();
  redraw();
});
const pointer = new Pointer({
  model,
  time,
  nowMs,
  redraw,
  choose: (row: Row, bar: Bar | null) => choose(row, bar?.call ?? null, { open: true, reveal: false }),
  toggle: (row: Row) => void toggle(row),
  goTo: (x) => {
    const ms = overview.at(x);
    if (ms === null) return;
    time.pan((ms - time.fromMs) / time.msPerPx - time.widthPx / 2);
    redraw();
  },
});

fillLegend(byId('legend'));
fillLegend(byId('legend-long'));
fillKeys(byId('keys'));
startTheme(button('theme'), () => {
  palette = readPalette();
  redraw();
});
listenToKeys((action) => ACTIONS[action]() !== false);
for (const [id, action] of [
  ['help', 'help'],
  ['follow', 'follow'],
  ['zoom-in', 'zoom-in'],
  ['zoom-out', 'zoom-out'],
  ['fit', 'fit'],
  ['expand', 'expand'],
  ['detail-before', 'before'],
  ['detail-after', 'after'],
  ['detail-break', 'break'],
] as const)
  button(id).addEventListener('click', () => void ACTIONS[action]());
button('detail-close').addEventListener('click', closeDetail);
for (const close of document.querySelectorAll('[data-close]')) close.addEventListener('click', () => close.closest('dialog')?.close());
scroll.addEventListener('scroll', () => {
  pointer.hideTip();
  redraw();
});
new ResizeObserver(measure).observe(scroll);
measure();
scroll.focus();

readEvents(
  (event) => {
    const before = model.hello;
    model.take(event);
    status.broken = false;
    if (before === null && model.hello !== null) {
      document.title = `${model.hello.name} · CRI calls`;
      button('detail-break').hidden = !model.hello.canBreak;
      if (model.hello.canBreak) faults.start([]);
      if (model.hello.live) setFollowing(true);
    }
    if (model.hello?.live === true && Number.isFinite(model.endMs)) aheadMs = Math.max(aheadMs, model.endMs - Date.now());
    const shown = detail.call;
    if (shown !== null && event.calls?.some(([id]) => id === shown.id) === true) detail.head(shown);
    redraw();
  },
  () => {
    status.broken = true;
    redraw();
  },
);
