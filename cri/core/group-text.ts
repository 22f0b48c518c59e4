import { durationText } from './duration-text.ts';
import type { CallGroup, CallRow } from './pod-groups.ts';
import { partsOf, type SeenCall } from './seen-calls.ts';

/** How a part is shown on a terminal; of plain text all are the same. */
export interface Paint {
  readonly failed: (text: string) => string;
  readonly faint: (text: string) => string;
  readonly strong: (text: string) => string;
}

export const PLAIN: Paint = { failed: (text) => text, faint: (text) => text, strong: (text) => text };

const code =
  (on: number, off: number) =>
  (text: string): string =>
    text === '' ? '' : `\u001b[${on}m${text}\u001b[${off}m`;
export const COLOURS: Paint = { failed: code(31, 39), faint: code(2, 22), strong: code(1, 22) };

const EIGHTHS = ['', '▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
const METHOD_WIDTH = 24;
const TIME_WIDTH = 11;
const CONTAINER_WIDTH = 14;
const OUTCOME_WIDTH = 4;
const BAR_AT = 2 + METHOD_WIDTH + TIME_WIDTH + 2 + OUTCOME_WIDTH + 2;
/** Below this there is no room for bars. */
const MIN_WIDTH = 90;

/** What a bar is drawn on: from, to, and columns. */
export interface Axis {
  readonly fromMs: number;
  readonly toMs: number;
  readonly columns: number;
}

/** A bar from the column in which it begins, as long as it lasts; something even of what takes no time. */
export function barText(axis: Axis, startMs: number, endMs: number): string {
  if (axis.columns === 0) return '';
  const { from, columns, perMs } = placed(axis, startMs);
  const eighths = Math.max(1, Math.round((endMs - startMs) * perMs * 8));
  const whole = Math.min(columns - from, Math.floor(eighths / 8));
  const rest = whole < columns - from ? (EIGHTHS[eighths % 8] ?? '') : '';
  return `${' '.repeat(from)}${'█'.repeat(whole)}${rest}`;
}

/** Dots from the first to the last of calls that are one row. */
export function dotsText(axis: Axis, startMs: number, endMs: number): string {
  if (axis.columns === 0) return '';
  const { from, columns, perMs } = placed(axis, startMs);
  const to = Math.min(columns - 1, Math.max(from, Math.floor((endMs - axis.fromMs) * perMs)));
  return `${' '.repeat(from)}${'·'.repeat(to - from + 1)}`;
}

function placed(axis: Axis, startMs: number): { from: number; columns: number; perMs: number } {
  const { fromMs, toMs, columns } = axis;
  const perMs = toMs > fromMs ? columns / (toMs - fromMs) : 0;
  return { from: Math.min(columns - 1, Math.max(0, Math.floor((startMs - fromMs) * perMs))), columns, perMs };
}

/** `0 … 500 ms … 1 s` above the bars. */
export function axisText(axis: Axis): string {
  const spanMs = axis.toMs - axis.fromMs;
  const end = durationText(spanMs);
  const middle = durationText(spanMs / 2);
  const half = Math.floor(axis.columns / 2);
  if (half + middle.length + end.length + 1 > axis.columns) return `0${end.padStart(axis.columns - 1)}`;
  return `0${' '.repeat(half - 1)}${middle}`.padEnd(axis.columns - end.length) + end;
}

/** `ListContainers ×12` */
function titleOf(row: CallRow): string {
  return row.count === 1 ? row.method : `${row.method} ×${row.count}`;
}

/** `0.8 ms`, or of several `0.8 ms p50`. */
function timeOf(row: CallRow): string {
  if (row.kind === 'event') return 'event';
  if (row.durations.count === 0) return '–';
  return row.count === 1 ? durationText(row.durations.sumMs) : `${durationText(row.durations.quantile(0.5))} p50`;
}

function words(row: CallRow): string {
  const most = row.count > 1 && row.durations.count > 0 ? [`≤ ${durationText(row.durations.maxMs)}`] : [];
  return [...most, ...row.parts].join('  ');
}

function cut(text: string, width: number): string {
  return text.length <= width ? text.padEnd(width) : `${text.slice(0, Math.max(0, width - 1))}…`;
}

/** A message in full, folded to the width. */
function folded(text: string, width: number): string[] {
  const lines: string[] = [];
  for (let rest = text.replaceAll(/\s*\n\s*/g, ' '); rest !== '';) {
    const at = rest.length <= width ? rest.length : Math.max(rest.lastIndexOf(' ', width), Math.floor(width / 2));
    lines.push(rest.slice(0, at).trim());
    rest = rest.slice(at).trim();
  }
  return lines;
}

function outcomeOf(row: CallRow): string {
  if (row.kind === 'event') return '';
  return row.outcome === 'OK' ? 'ok' : row.outcome;
}

/**
 * A group as lines: a title, one line a row with its time, outcome, what matters of it and a bar, and errors in full
 * below theirs. `width` is the terminal's; 0 for a file or a pipe, where nothing is cut.
 */
export function groupLines(group: CallGroup, width: number, paint: Paint): string[] {
  const hasBars = group.pod !== '' && (width === 0 || width >= MIN_WIDTH);
  const columns = hasBars ? Math.min(40, width === 0 ? 40 : Math.floor(width / 3.5)) : 0;
  // Up to the last change: looks go on as long as the pod lives.
  const axis: Axis = { fromMs: group.startMs, toMs: group.changedMs > group.startMs ? group.changedMs : group.lastMs, columns };
  const room = width === 0 ? 0 : Math.max(10, width - BAR_AT - columns - (hasBars ? 2 : 0) - CONTAINER_WIDTH - 1);
  const calls = `${group.calls} call${group.calls === 1 ? '' : 's'}${group.failed > 0 ? `, ${group.failed} failed` : ''}`;
  const title = `${group.pod === '' ? 'the node' : group.pod}  from ${new Date(group.startMs).toISOString().slice(11, 23)}  ${calls}`;
  const lines = [paint.strong(width === 0 ? title : cut(title, width).trimEnd())];
  if (hasBars) lines.push(`${' '.repeat(BAR_AT)}${paint.faint(axisText(axis))}`);
  if (group.omitted > 0) lines.push(paint.faint(`  … ${group.omitted} before these`));
  for (const row of group.rows) {
    const outcome = cut(row.hasFailed ? 'FAIL' : outcomeOf(row), OUTCOME_WIDTH);
    const start = `  ${cut(titleOf(row), METHOD_WIDTH)}${timeOf(row).padStart(TIME_WIDTH)}  `;
    const said = width === 0 ? words(row) : cut(words(row), room).trimEnd();
    const end = row.endMs ?? group.lastMs;
    const isOne = row.count === 1;
    const bar = row.kind === 'event' ? '' : isOne ? barText(axis, row.startMs, end) : dotsText(axis, row.startMs, end);
    const filled = `${bar.padEnd(columns)}  `;
    const container = cut(row.container, CONTAINER_WIDTH);
    const painted = row.hasFailed ? paint.failed : (text: string): string => text;
    lines.push(`${start}${painted(outcome)}  ${hasBars ? painted(isOne ? filled : paint.faint(filled)) : ''}${container} ${paint.faint(said)}`.trimEnd());
    if (row.networkMs !== null) lines.push(`  ${cut('  ↳ network plugin', METHOD_WIDTH)}${durationText(row.networkMs).padStart(TIME_WIDTH)}`);
    if (row.hasFailed)
      for (const line of folded(`${row.outcome}: ${row.message}`, width === 0 ? Infinity : width - 8)) lines.push(`      ${paint.failed(line)}`);
  }
  return lines;
}

/** `  3.2 s …  RunPodSandbox  default/web/main#0`: a call that has not ended. */
export function runningText(call: SeenCall, nowMs: number): string {
  const subject = [call.pod, call.container].filter((part) => part !== '').join('/');
  const time = `${durationText(Math.max(0, nowMs - call.startMs))} …`;
  return [time.padStart(TIME_WIDTH), call.method.padEnd(20), subject, 'runs', ...partsOf(call)].filter((part) => part !== '').join('  ');
}

/** A row as a line of its own: `12:04:01.118  312 ms  RunPodSandbox  default/web  ok  …`. */
export function rowLine(row: CallRow, pod: string, paint: Paint): string {
  const at = new Date(row.startMs).toISOString().slice(11, 23);
  const end = row.hasFailed ? paint.failed(`${row.outcome}: ${row.message}`) : outcomeOf(row);
  const subject = [pod, row.container].filter((part) => part !== '').join('/');
  const parts = [subject, end, row.networkMs === null ? '' : `network plugin ${durationText(row.networkMs)}`, words(row)];
  return `${at} ${timeOf(row).padStart(TIME_WIDTH)}  ${titleOf(row).padEnd(20)} ${parts.filter((part) => part !== '').join('  ')}`.trimEnd();
}
