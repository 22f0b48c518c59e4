import { durationText } from './duration-text.ts';
import { isLook, type ReportCall, type ReportPod } from './report-calls.ts';
import { shown } from './shown.ts';
import { hasFailed } from './timeline.ts';

/** A pause that is worth a note. */
const PAUSE_MS = 1_000;
const LINE_LENGTH = 80;

/** Probes come again and again, as looks do. */
function isFolded({ method, outcome }: ReportCall): boolean {
  return (isLook(method) || method === 'ExecSync') && !hasFailed(outcome);
}

/** Mermaid reads `;` and a line's end as the end of a statement, `#` as the begin of a character's name, `%%` as a comment. */
function escaped(text: string): string {
  const plain = shown(text)
    .replaceAll(/[#;<>%&"]/g, (character) => `#${character.charCodeAt(0)};`)
    .replaceAll(/\s+/g, ' ');
  const lines: string[] = [];
  let line = '';
  for (const word of plain.split(' ')) {
    if (line !== '' && line.length + word.length >= LINE_LENGTH) {
      lines.push(line);
      line = word;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  return [...lines, line].join('<br/>');
}

function about({ container, attempt, detail, other }: ReportCall): string {
  const name = container !== '' ? container.replace(/#0$/, '') : attempt !== null && attempt > 0 ? `#${attempt}` : other;
  return [name, detail === name ? '' : detail].filter((part) => part !== '').join(', ');
}

function titleOf(call: ReportCall): string {
  const what = about(call);
  return what === '' ? call.method : `${call.method} ${what}`;
}

function took({ startMs, endMs }: ReportCall): string {
  return endMs === null ? 'still open' : durationText(endMs - startMs);
}

function asked(call: ReportCall): string {
  return `  kubelet->>runtime: ${escaped(titleOf(call))}`;
}

/** @param named whether other calls stand between question and answer, so that the answer says whose it is */
function answered(call: ReportCall, named: boolean): string {
  const whose = named ? `${call.method} ${about({ ...call, detail: '' })}`.trim() + ': ' : '';
  if (call.endMs === null) return `  Note over runtime: ${escaped(`${titleOf(call)} had not ended`)}`;
  if (!hasFailed(call.outcome) && call.outcome === 'OK') return `  runtime-->>kubelet: ${escaped(`${whose}OK, ${took(call)}`)}`;
  const why = call.message === '' ? call.outcome : `${call.outcome}: ${call.message}`;
  return `  runtime--xkubelet: ${escaped(`${whose}${why} (${took(call)})`)}`;
}

/** Looks and probes between two changes: those that say the same are one. */
function foldedLooks(calls: readonly ReportCall[]): string[] {
  const groups = Map.groupBy(calls, (call) => `${titleOf(call)} ${call.outcome} ${call.message}`);
  return [...groups.values()].flatMap((same) => {
    const [first] = same;
    if (first === undefined) return [];
    const lines = [asked(first), answered(first, false)];
    if (same.length === 1) return lines;
    const longest = same.reduce((a, b) => ((b.endMs ?? 0) - b.startMs > (a.endMs ?? 0) - a.startMs ? b : a));
    const lasted = (same.at(-1)?.startMs ?? first.startMs) - first.startMs;
    return [
      `  loop ${same.length} times in ${escaped(durationText(lasted))}`,
      `  ${asked(first)}`,
      `  ${answered(longest, false).replace(/, ([\d.]+ m?s)$/, ', $1 at most')}`,
      '  end',
    ];
  });
}

interface Moment {
  readonly atMs: number;
  readonly call: ReportCall;
  readonly end: boolean;
}

/** A Mermaid sequence diagram of one pod: calls and answers in order, failures in full, looks and probes folded. */
export function mermaidOf({ pod, calls }: ReportPod): string {
  const first = calls[0]?.startMs ?? 0;
  const lines = ['sequenceDiagram', '  participant kubelet', '  participant runtime', `  Note over kubelet,runtime: ${escaped(pod?.key ?? 'the node')}`];
  const changes = calls.filter((call) => !isFolded(call));
  const moments = changes
    .flatMap((call): Moment[] => [{ atMs: call.startMs, call, end: false }, ...(call.endMs === null ? [] : [{ atMs: call.endMs, call, end: true }])])
    .sort((a, b) => a.atMs - b.atMs || Number(b.end) - Number(a.end));
  const looks = calls.filter(isFolded);
  let look = 0;
  const looksUntil = (ms: number): void => {
    let end = look;
    while (end < looks.length && (looks[end] as ReportCall).startMs < ms) end += 1;
    lines.push(...foldedLooks(looks.slice(look, end)));
    look = end;
  };
  /** Open calls, and how long the diagram was when they were asked. */
  const open = new Map<ReportCall, number>();
  let last = first;
  for (const { atMs, call, end } of moments) {
    if (end) {
      const askedAt = open.get(call);
      open.delete(call);
      // What was looked at while it ran stands before its answer.
      if (open.size === 0) looksUntil(atMs);
      lines.push(answered(call, lines.length !== askedAt));
    } else {
      looksUntil(atMs);
      if (atMs - last >= PAUSE_MS) lines.push(`  Note over kubelet,runtime: ${escaped(`${durationText(atMs - first)} after the first call`)}`);
      lines.push(asked(call));
      if (call.endMs === null) lines.push(answered(call, false));
      else open.set(call, lines.length);
    }
    last = atMs;
  }
  looksUntil(Infinity);
  return `${lines.join('\n')}\n`;
}
