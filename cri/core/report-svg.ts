import { durationText } from './duration-text.ts';
import { isLook, isWatch, type ReportCall, type ReportPod } from './report-calls.ts';
import { GAP_WIDTH, scaleOf, type Scale } from './report-scale.ts';
import { hasFailed, toneOf, withoutAttempt } from './timeline.ts';

const LABEL_WIDTH = 150;
const PLOT_WIDTH = 850;
const BAR = 16;
const LANE = 20;
const AXIS = 26;
const LETTER = 6.6;

/** Text for HTML and SVG, inside of elements and attributes. */
export function escapeHtml(text: string): string {
  return text.replaceAll(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

interface SvgRow {
  readonly name: string;
  readonly bars: { readonly x: number; readonly width: number; readonly lane: number; readonly call: ReportCall }[];
  /** When each is free again. */
  readonly lanesMs: number[];
}

function rowOf(call: ReportCall): string {
  if (call.container !== '') return withoutAttempt(call.container);
  return /Image/.test(call.method) ? 'images' : 'sandbox';
}

function shortened(text: string, width: number): string {
  const letters = Math.floor(width / LETTER);
  return text.length <= letters ? text : `${text.slice(0, Math.max(0, letters - 1))}…`;
}

function tooltip(call: ReportCall, zeroMs: number): string {
  const took = call.endMs === null ? 'not ended' : durationText(call.endMs - call.startMs);
  const what = [call.method, call.container, call.detail || call.other].filter((part) => part !== '').join(' ');
  return escapeHtml(`${what}\n+${durationText(call.startMs - zeroMs)}, ${took}\n${[call.outcome, call.message].filter((part) => part !== '').join(': ')}`);
}

/** Ticks at round times of the widest part, and where each part begins. */
function axis(scale: Scale, zeroMs: number, height: number): string {
  let out = '';
  let labelledTo = -Infinity;
  const tick = (ms: number, x: number): void => {
    out += `<path class="grid" d="M${x.toFixed(1)} ${AXIS - 6}V${height}"/>`;
    const text = ms === zeroMs ? '0' : `+${durationText(ms - zeroMs)}`;
    const from = Math.min(x + 3, PLOT_WIDTH + 8 - text.length * LETTER);
    if (from < labelledTo) return;
    out += `<text class="time" x="${from.toFixed(1)}" y="${AXIS - 10}">${text}</text>`;
    labelledTo = from + (text.length + 1) * LETTER;
  };
  for (const [at, part] of scale.parts.entries()) {
    tick(part.fromMs, part.x);
    const lasts = part.toMs - part.fromMs;
    const about = lasts / Math.max(1, part.width / 110);
    const power = 10 ** Math.floor(Math.log10(Math.max(about, 0.001)));
    const step = ([1, 2, 5, 10].find((each) => each * power >= about) ?? 10) * power;
    for (let ms = part.fromMs + step; ms < part.toMs; ms += step) tick(ms, scale.xOf(ms));
    const next = scale.parts[at + 1];
    if (next === undefined) continue;
    const x = part.x + part.width;
    const idle = durationText(next.fromMs - part.toMs);
    out += `<rect class="gap" x="${x.toFixed(1)}" y="${AXIS - 6}" width="${GAP_WIDTH}" height="${height - AXIS + 6}"/><text class="idle" x="${(x + GAP_WIDTH / 2).toFixed(1)}" y="${height + 12}">${idle}</text>`;
  }
  return out;
}

/** A pod's calls as bars on one axis: a row for the sandbox, each container, the images, and one for looks. */
export function podSvg({ calls, pod }: ReportPod, lastMs: number): string {
  const zeroMs = calls[0]?.startMs ?? 0;
  const endOf = (call: ReportCall): number => call.endMs ?? Math.max(lastMs, call.startMs);
  const drawn = calls.filter((call) => !isLook(call.method) || hasFailed(call.outcome));
  const looks = calls.filter((call) => isLook(call.method) && !hasFailed(call.outcome) && !isWatch(call.method));
  const chosen = drawn.length > 0 ? drawn : looks;
  const busy = chosen.filter(({ method }) => !isWatch(method)).map((call): [number, number] => [call.startMs, endOf(call)]);
  let end = zeroMs;
  for (const call of calls) end = Math.max(end, isWatch(call.method) ? call.startMs : endOf(call));
  const scale = scaleOf(busy, zeroMs, end, PLOT_WIDTH);
  const rows = new Map<string, SvgRow>();
  for (const call of drawn) {
    const name = rowOf(call);
    let row = rows.get(name);
    if (row === undefined) rows.set(name, (row = { name, bars: [], lanesMs: [] }));
    const x = scale.xOf(call.startMs);
    const width = Math.max(2.5, scale.xOf(endOf(call)) - x);
    let lane = row.lanesMs.findIndex((freeAtMs) => freeAtMs <= call.startMs);
    if (lane < 0) lane = row.lanesMs.length;
    row.lanesMs[lane] = endOf(call);
    row.bars.push({ x, width, lane, call });
  }
  let y = AXIS;
  let body = '';
  for (const { name, bars, lanesMs } of rows.values()) {
    body += `<text class="row" x="-8" y="${y + 13}">${escapeHtml(shortened(name, LABEL_WIDTH - 12))}</text>`;
    for (const { x, width, lane, call } of bars) {
      const tone = toneOf({ ...call, id: 0, sandbox: '', connection: 0, sizeBytes: 0, answers: 0 });
      body += `<rect class="${tone}" x="${x.toFixed(1)}" y="${y + lane * LANE + 2}" width="${width.toFixed(1)}" height="${BAR}" rx="2"><title>${tooltip(call, zeroMs)}</title></rect>`;
      if (width > call.method.length * LETTER + 8)
        body += `<text class="in" x="${(x + 5).toFixed(1)}" y="${y + lane * LANE + 14}">${escapeHtml(call.method)}</text>`;
    }
    y += lanesMs.length * LANE;
  }
  if (looks.length > 0) {
    // Bars one pixel wide, all in one path, those at the same place once.
    const places = new Set(looks.map((call) => Math.round(scale.xOf(call.startMs) * 2) / 2));
    body += `<text class="row" x="-8" y="${y + 13}">looks ×${looks.length}</text><path class="looks" d="${[...places].map((x) => `M${x} ${y + 4}v12`).join('')}"/>`;
    y += LANE;
  }
  const name = escapeHtml(`Calls about ${pod?.key ?? 'the node'} over time`);
  return `<svg viewBox="${-LABEL_WIDTH} 0 ${LABEL_WIDTH + PLOT_WIDTH + 10} ${y + 18}" role="img" aria-label="${name}">${axis(scale, zeroMs, y)}${body}</svg>`;
}
