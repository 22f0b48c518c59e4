import { groupLines, type Paint } from './group-text.ts';
import type { CallGroup } from './pod-groups.ts';

/** What stands above the groups. */
export interface ViewHead {
  /** Where it looks. */
  readonly words: string;
  readonly calls: number;
  readonly failed: number;
  /** Said last: what is lost or not followed. */
  readonly note: string;
}

/** Lines of the node's group at most: it only says that the node lives. */
const NODE_LINES = 10;

/**
 * A window of `rows` lines: the head, the node's calls, then pods, the one that was changed last first. A group that
 * finds no room whole shows its end.
 */
export function viewLines(head: ViewHead, groups: readonly CallGroup[], rows: number, columns: number, paint: Paint): string[] {
  const lines = [
    paint.strong(`${head.words}  ${head.calls} calls${head.failed > 0 ? `, ${head.failed} failed` : ''}`.slice(0, columns)),
    paint.faint(head.note.slice(0, columns)),
  ];
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
