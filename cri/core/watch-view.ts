import { groupLines, runningText, type Paint } from './group-text.ts';
import type { CallGroup } from './pod-groups.ts';
import type { SeenCall } from './seen-calls.ts';

/** What stands above the groups. */
export interface ViewHead {
  /** Where it looks. */
  readonly words: string;
  readonly calls: number;
  readonly failed: number;
  /** Said last: what is lost or not followed. */
  readonly note: string;
  /** Calls that have not ended. */
  readonly running: readonly SeenCall[];
  readonly nowMs: number;
}

/** Lines of the node's group at most: it only says that the node lives. */
const NODE_LINES = 10;
const RUNNING_LINES = 5;
/** A bar that grows by a column each second. */
const MAX_BAR = 30;

/**
 * A window of `rows` lines: the head, the node's calls, then pods, the one that was changed last first. A group that
 * finds no room whole shows its end.
 */
export function viewLines(head: ViewHead, groups: readonly CallGroup[], rows: number, columns: number, paint: Paint): string[] {
  const lines = [
    paint.strong(`${head.words}  ${head.calls} calls${head.failed > 0 ? `, ${head.failed} failed` : ''}`.slice(0, columns)),
    paint.faint(head.note.slice(0, columns)),
  ];
  for (const call of head.running.slice(0, RUNNING_LINES)) {
    const bar = '█'.repeat(Math.min(MAX_BAR, Math.max(0, Math.floor((head.nowMs - call.startMs) / 1000))));
    lines.push(`  ${runningText(call, head.nowMs)}  ${bar}`.slice(0, columns));
  }
  if (head.running.length > RUNNING_LINES) lines.push(`  … ${head.running.length - RUNNING_LINES} more run`);
  const ofNode = groups.find(({ pod }) => pod === '');
  const ofPods = groups.filter(({ pod }) => pod !== '').sort((a, b) => b.changedMs - a.changedMs);
  const put = (group: CallGroup, room: number): void => {
    const all = groupLines(group, columns, paint);
    const [title = '', ...rest] = all;
    lines.push(title, ...rest.slice(Math.max(0, rest.length - (room - 1))));
  };
  if (ofNode !== undefined && rows > 12) put(ofNode, Math.min(NODE_LINES, Math.floor(rows / 3)));
  for (const group of ofPods) {
    const room = rows - lines.length - 1;
    if (room < 3) break;
    lines.push('');
    put(group, room);
  }
  return lines.slice(0, rows);
}
