import { NEEDED, type Standing } from './results.ts';

const lengthOf = (text: string): number => Array.from(text).length;

/** A table as the formatter of this project writes it: cells padded to the widest of their column. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string[] {
  const cells = [head, ...rows].map((row) => row.map((cell) => cell.replaceAll('|', '\\|')));
  const widths = head.map((_, at) => Math.max(3, ...cells.map((row) => lengthOf(row[at] ?? ''))));
  const line = (row: readonly string[]): string => `| ${row.map((cell, at) => cell + ' '.repeat((widths[at] ?? 0) - lengthOf(cell))).join(' | ')} |`;
  const [first = [], ...others] = cells;
  return [line(first), `| ${widths.map((width) => '-'.repeat(width)).join(' | ')} |`, ...others.map(line)];
}

/** Text that Markdown shows as it is. */
export const plain = (text: string): string => text.replaceAll(/[\\`*_<>[\]#~$]/g, '\\$&');

/** What one side's cell of a list says. */
export function cell(stands: Standing | undefined): string {
  if (stands === undefined) return 'not run';
  const { result, reason, flake, place, runs } = stands;
  return [
    result,
    ...(place === undefined ? [] : ['in the cgroup v2 machine']),
    ...(flake === undefined ? [] : [`(flaky: ${flake.failed} of ${flake.of} failed)`]),
    ...(runs < NEEDED ? [`(${runs} of ${NEEDED} runs)`] : []),
    ...(reason === undefined ? [] : [`– ${plain(reason)}`]),
  ].join(' ');
}
