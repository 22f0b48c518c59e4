import { CHANGES } from './changes.ts';
import { Histogram } from './histogram.ts';
import { isCri, partsOf, type SeenCall } from './seen-calls.ts';

/** One call, or calls that say the same and stand for each other. */
export interface CallRow {
  readonly key: string;
  readonly method: string;
  readonly container: string;
  readonly kind: SeenCall['kind'];
  readonly startMs: number;
  /** Of the last of them. */
  endMs: number | null;
  count: number;
  readonly durations: Histogram;
  readonly outcome: string;
  /** Of the last of them. */
  message: string;
  readonly hasFailed: boolean;
  /** What the last of them says. */
  parts: readonly string[];
  /** Time in the network plugin, of one call, where the runtime told it; else null. */
  networkMs: number | null;
}

/** Calls about one pod (or about none) that lie together in time. */
export interface CallGroup {
  /** `namespace/name`; empty for calls about the node as a whole. */
  readonly pod: string;
  readonly startMs: number;
  lastMs: number;
  /** The end of the last call that changed something; the beginning before there was one. */
  changedMs: number;
  readonly rows: CallRow[];
  /** Rows that were too many. */
  omitted: number;
  /** Calls in all rows. */
  calls: number;
  failed: number;
}

/** A pod of which nothing was changed for so long begins a group anew when something is: its bars have an axis of their own. */
const GAP_MS = 30_000;
/** Of one group; what comes then takes the oldest one's place. */
const MAX_ROWS = 200;
/** Rows since the last change that a look may still be folded into. */
const LOOK_BACK = 30;

function isLook(call: SeenCall): boolean {
  return call.kind === 'call' && (!CHANGES.has(call.method) || call.method === 'ExecSync');
}

/** Calls with the same key say the same: they are one row. */
function keyOf(call: SeenCall, parts: readonly string[]): string {
  // Of what is not CRI only numbers are told: cAdvisor asks containerd for every cgroup of the machine.
  if (!isCri(call)) return `${call.method} ${call.hasFailed}`;
  const asked = call.method === 'ExecSync' ? (parts[0] ?? '') : call.method.startsWith('List') ? filterOf(parts) : '';
  return [call.method, call.container, call.outcome, call.message, asked, call.other].join('\n');
}

/** What a list was asked for, without what it found. */
function filterOf(parts: readonly string[]): string {
  return parts.filter((part) => /^(of|in|only) /.test(part)).join(' ');
}

/** Puts calls together by pod, and folds looks that say the same. */
export class PodGroups {
  readonly #maxGroups: number;
  /** By pod, the group that takes its next call; in the order in which they were first spoken of. */
  readonly #current = new Map<string, CallGroup>();
  readonly #closed: CallGroup[] = [];
  /** Groups that were too many to keep. */
  dropped = 0;

  /** @param maxGroups how many are kept; of more the oldest is dropped */
  constructor(maxGroups: number) {
    this.#maxGroups = maxGroups;
  }

  /** In the order of their beginnings. */
  get groups(): CallGroup[] {
    return [...this.#closed, ...this.#current.values()].sort((a, b) => a.startMs - b.startMs);
  }

  take(call: SeenCall): CallRow {
    const group = this.#groupOf(call);
    const parts = partsOf(call);
    const key = keyOf(call, parts);
    if (changes(call)) group.changedMs = Math.max(group.changedMs, call.endMs ?? call.startMs);
    const durationMs = call.endMs === null ? null : call.endMs - call.startMs;
    group.calls += 1;
    if (call.hasFailed) group.failed += 1;
    group.lastMs = Math.max(group.lastMs, call.endMs ?? call.startMs);
    if (isLook(call)) {
      const known = this.#lookBefore(group, key, call.pod === '');
      if (known !== undefined) {
        known.count += 1;
        known.message = call.message;
        known.endMs = call.endMs;
        known.parts = parts;
        if (durationMs !== null) known.durations.add(durationMs);
        return known;
      }
    }
    const row: CallRow = {
      ...{
        key,
        method: call.method,
        container: call.container,
        kind: call.kind,
        startMs: call.startMs,
        endMs: call.endMs,
        count: 1,
        durations: new Histogram(),
      },
      ...{ outcome: call.outcome, message: call.message, hasFailed: call.hasFailed, parts, networkMs: null },
    };
    if (durationMs !== null) row.durations.add(durationMs);
    group.rows.push(row);
    if (group.rows.length > MAX_ROWS) {
      group.rows.shift();
      group.omitted += 1;
    }
    return row;
  }

  /** Of a pod a look folds into one that came since the last change, so that the order still says what followed what. */
  #lookBefore(group: CallGroup, key: string, ofNode: boolean): CallRow | undefined {
    for (let at = group.rows.length - 1; at >= 0 && at >= group.rows.length - LOOK_BACK; at--) {
      const row = group.rows[at];
      if (row === undefined || (!ofNode && row.kind === 'call' && CHANGES.has(row.method) && row.method !== 'ExecSync')) return undefined;
      if (row.key === key) return row;
    }
    return undefined;
  }

  #groupOf(call: SeenCall): CallGroup {
    const known = this.#current.get(call.group);
    if (known !== undefined && (call.group === '' || call.startMs - known.changedMs < GAP_MS || !changes(call))) return known;
    if (known !== undefined) {
      this.#closed.push(known);
      this.#current.delete(call.group);
    }
    const group: CallGroup = {
      pod: call.group,
      startMs: call.startMs,
      lastMs: call.startMs,
      changedMs: call.startMs,
      rows: [],
      omitted: 0,
      calls: 0,
      failed: 0,
    };
    this.#current.set(call.group, group);
    if (this.#closed.length + this.#current.size > this.#maxGroups) this.#drop();
    return group;
  }

  #drop(): void {
    this.dropped += 1;
    if (this.#closed.shift() !== undefined) return;
    for (const key of this.#current.keys()) {
      if (key === '') continue;
      this.#current.delete(key);
      return;
    }
  }
}

function changes(call: SeenCall): boolean {
  return CHANGES.has(call.method) && call.method !== 'ExecSync';
}
