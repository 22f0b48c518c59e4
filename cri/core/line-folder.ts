import { PodGroups, type CallRow } from './pod-groups.ts';
import type { SeenCall } from './seen-calls.ts';
import { CHANGES } from './changes.ts';

/** A row that is to be printed, with its pod. */
export interface PodRow {
  readonly pod: string;
  readonly row: CallRow;
}

/** How long looks that say the same are waited for. */
const FOLD_MS = 10_000;

/** Lines of calls as they come: looks wait for their like, and are told before the next change of their pod. */
export class LineFolder {
  /** Of one pod: what has not been printed. */
  readonly #pending = new Map<string, PodGroups>();

  /** Takes a call; answers with rows that are ready. */
  take(call: SeenCall, networkMs: number | null = null): PodRow[] {
    const ready = this.due(call.endMs ?? call.startMs);
    const isLook = call.kind === 'call' && !call.hasFailed && (!CHANGES.has(call.method) || call.method === 'ExecSync');
    if (!isLook) ready.push(...this.#print(call.group));
    let groups = this.#pending.get(call.group);
    if (groups === undefined) this.#pending.set(call.group, (groups = new PodGroups(1)));
    groups.take(call).networkMs = networkMs;
    if (!isLook) ready.push(...this.#print(call.group));
    return ready;
  }

  /** What has waited long enough at that time, in milliseconds since 1970. */
  due(nowMs: number): PodRow[] {
    const ready: PodRow[] = [];
    // Those that have waited longest stand first.
    for (const [pod, { groups }] of this.#pending) {
      if (nowMs - (groups[0]?.startMs ?? nowMs) < FOLD_MS) break;
      ready.push(...this.#print(pod));
    }
    return ready;
  }

  /** All that waits. */
  rest(): PodRow[] {
    return [...this.#pending.keys()].flatMap((pod) => this.#print(pod));
  }

  #print(pod: string): PodRow[] {
    const groups = this.#pending.get(pod)?.groups ?? [];
    this.#pending.delete(pod);
    return groups.flatMap(({ rows }) => rows.map((row) => ({ pod, row })));
  }
}
