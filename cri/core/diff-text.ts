import type { CallSide, ComparedCall, ComparedPod } from './compare-pods.ts';
import type { Finding } from './diff-findings.ts';
import { durationText } from './duration-text.ts';

/** A line and what it is: `-` only in the first, `+` only in the second, `~` differs, `=` known, `.` by nature. */
export interface DiffLine {
  readonly mark: '-' | '+' | '~' | '=' | '.' | ' ';
  readonly text: string;
}

const NAME_WIDTH = 40;
const MAX_VALUE = 120;

function shown(value: unknown): string {
  if (value === undefined) return 'absent';
  const text = JSON.stringify(value);
  return text.length <= MAX_VALUE ? text : `${text.slice(0, MAX_VALUE)}… (${text.length} characters)`;
}

function column(side: CallSide | null): string {
  if (side === null) return '–'.padStart(12).padEnd(26);
  const took = side.durationMs === null ? 'open' : durationText(side.durationMs);
  return `${(side.offsetMs === 0 ? '0' : `+${durationText(side.offsetMs)}`).padStart(12)} ${took.padStart(10)}   `;
}

function times(side: CallSide | null): string {
  return side === null ? '–' : `×${side.count}`;
}

function lineOf(call: ComparedCall, looks: boolean): string {
  const name = call.name.padEnd(NAME_WIDTH);
  if (looks) return `${name} ${times(call.a).padStart(12).padEnd(26)}${times(call.b).padStart(12)}`;
  return `${name} ${column(call.a)}${column(call.b)}`.trimEnd();
}

function findingLine(finding: Finding): DiffLine {
  const field = finding.call === '' ? finding.path : finding.path.slice(finding.call.length + 1);
  const why = finding.reason === null ? '' : `   (${finding.reason})`;
  return { mark: finding.byNature ? '.' : finding.reason === null ? '~' : '=', text: `    ${field}: ${shown(finding.a)} → ${shown(finding.b)}${why}` };
}

/** A pod whose differences are shown, and the pods that differ in just the same. */
export interface ShownPod {
  readonly pod: ComparedPod;
  readonly findings: readonly Finding[];
  readonly alike: readonly string[];
}

function headOf({ pod, alike }: ShownPod): string {
  const other = pod.a !== null && pod.b !== null && pod.a !== pod.b ? ` (${pod.a} | ${pod.b})` : '';
  const names = [...new Set(alike)];
  const more = alike.length === 0 ? '' : `, and ${alike.length} more alike: ${names.slice(0, 5).join(', ')}${names.length > 5 ? ' …' : ''}`;
  return `${pod.name}${other}${more}`;
}

/** A pod as text: its calls side by side with their times, below each what differs. */
export function podLines(shownPod: ShownPod): DiffLine[] {
  const { pod, findings } = shownPod;
  const lines: DiffLine[] = [{ mark: ' ', text: headOf(shownPod) }];
  if (pod.a === null || pod.b === null) {
    for (const { reason } of findings)
      lines.push({
        mark: reason !== null ? '=' : pod.a === null ? '+' : '-',
        text: `  only in ${pod.a === null ? 'B' : 'A'}${reason === null ? '' : `   (${reason})`}`,
      });
    return lines;
  }
  const byCall = Map.groupBy(findings, ({ call }) => call);
  for (const finding of byCall.get('') ?? []) lines.push({ ...findingLine(finding), text: findingLine(finding).text.slice(2) });
  const add = (calls: readonly ComparedCall[], looks: boolean): void => {
    for (const call of calls) {
      const found = byCall.get(call.name) ?? [];
      const alone = call.a === null || call.b === null;
      // Looking again and again says little where both do it.
      if (looks && found.length === 0) continue;
      if (alone && found.length === 0) continue;
      const known = alone ? found[0]?.reason : null;
      const mark = !alone ? ' ' : typeof known === 'string' ? '=' : call.a === null ? '+' : '-';
      lines.push({ mark, text: `  ${lineOf(call, looks)}${typeof known === 'string' ? `   (${known})` : ''}` });
      if (!alone) for (const finding of found) lines.push(findingLine(finding));
    }
  };
  add(pod.calls, false);
  add(pod.looks, true);
  return lines;
}

/** Gathers pods that differ in just the same, in the order of the first of each. */
export class AlikePods {
  readonly #groups = new Map<string, { pod: ComparedPod; findings: readonly Finding[]; alike: string[] }>();

  add(pod: ComparedPod, findings: readonly Finding[]): void {
    const key = JSON.stringify(findings.map(({ path, a, b, reason, byNature }) => [path, a, b, reason, byNature]));
    const group = this.#groups.get(key);
    if (group === undefined) this.#groups.set(key, { pod, findings, alike: [] });
    else group.alike.push(pod.name);
  }

  get pods(): readonly ShownPod[] {
    return [...this.#groups.values()];
  }
}
