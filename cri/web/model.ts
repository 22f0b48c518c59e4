import { matcherOf, NO_FILTER, type CallFilter } from '../core/call-filter.ts';
import { hasFailed, Timeline, withoutAttempt, type Row, type TimelineCall } from '../core/timeline.ts';
import { fromWire, type WebEvent, type WebHello } from '../core/web-wire.ts';

/** Calls that the page holds; the oldest are let go. */
const MAX_CALLS = 250_000;
const LET_GO = 25_000;
const MAX_NOTES = 500;
const MAX_TEXTS = 200_000;

/** What the page knows, what of it is wanted, and what is chosen. Draws nothing. */
export class Model {
  hello: WebHello | null = null;
  whole = false;
  left = 0;
  readonly notes: string[] = [];
  readonly calls = new Map<number, TimelineCall>();
  readonly methods = new Set<string>();
  /** Those that were spoken of, by `namespace/name`. */
  readonly pods = new Set<string>();
  filter: CallFilter = NO_FILTER;
  /** Of those calls that pass the filter. */
  timeline = new Timeline();
  /** Of all calls: the first and the latest moment that are known. */
  startMs = Infinity;
  endMs = -Infinity;
  failed = 0;
  readonly #expanded = new Set<string>();
  selectedRow: string | null = null;
  selectedCall: TimelineCall | null = null;
  #wanted = matcherOf(NO_FILTER);
  #rows: readonly Row[] | null = null;
  #texts = new Map<string, string>();
  /** Counts up with everything that changes what is drawn. */
  changes = 0;

  /** Rows that are open to the eye, from top to bottom. */
  get rows(): readonly Row[] {
    this.#rows ??= this.timeline.rows.flatMap((row) => (this.#expanded.has(row.key) ? [row, ...row.parts] : [row]));
    return this.#rows;
  }

  get selectedIndex(): number {
    return this.rows.findIndex((row) => row.key === this.selectedRow);
  }

  take(event: WebEvent): void {
    if (event.hello !== undefined) this.hello = event.hello;
    if (event.whole === true) this.whole = true;
    this.left += event.left ?? 0;
    for (const note of event.notes ?? []) if (this.notes.length < MAX_NOTES) this.notes.push(note);
    let again = false;
    for (const wire of event.calls ?? []) {
      const known = this.calls.get(wire[0]);
      if (known === undefined) this.#new(fromWire(wire, this.#same));
      else {
        const before = this.#wanted(known);
        const failedBefore = hasFailed(known.outcome);
        Object.assign(known, fromWire(wire, this.#same));
        this.#count(known, failedBefore);
        const after = this.#wanted(known);
        if (before && after && !failedBefore) this.timeline.changed(known);
        else if (after && !before) this.timeline.add(known);
        else if (before && !after) again = true;
      }
    }
    if (this.calls.size > MAX_CALLS) {
      for (const id of this.calls.keys()) {
        if (this.calls.size <= MAX_CALLS - LET_GO) break;
        this.calls.delete(id);
        this.left += 1;
      }
      again = true;
    }
    if (again) this.#lay();
    this.#changed();
  }

  setFilter(filter: CallFilter): void {
    this.filter = filter;
    this.#wanted = matcherOf(filter);
    this.#lay();
    if (this.selectedCall !== null && !this.#wanted(this.selectedCall)) this.selectedCall = null;
    if (this.selectedRow !== null && this.timeline.row(this.selectedRow) === undefined) this.selectedRow = null;
    this.#changed();
  }

  isExpanded(row: Row): boolean {
    return this.#expanded.has(row.key);
  }

  expand(row: Row, open: boolean): void {
    if (row.parts.length === 0 || open === this.#expanded.has(row.key)) return;
    if (open) this.#expanded.add(row.key);
    else {
      this.#expanded.delete(row.key);
      if (this.selectedRow !== null && this.timeline.row(this.selectedRow)?.parent === row) this.selectedRow = row.key;
    }
    this.#changed();
  }

  expandAll(open: boolean): void {
    for (const row of this.timeline.rows) if (open) this.#expanded.add(row.key);
    if (!open) {
      this.#expanded.clear();
      const row = this.selectedRow === null ? undefined : this.timeline.row(this.selectedRow);
      this.selectedRow = (row?.parent ?? row)?.key ?? null;
    }
    this.#changed();
  }

  select(row: Row | null, call: TimelineCall | null): void {
    this.selectedRow = row?.key ?? null;
    this.selectedCall = call;
    this.changes += 1;
  }

  /** A connection that broke begins where it was, but tells of itself again. */
  #new(call: TimelineCall): void {
    this.calls.set(call.id, call);
    this.methods.add(call.method);
    if (call.sandbox !== '' && this.pods.size < MAX_TEXTS) this.pods.add(this.#same(withoutAttempt(call.sandbox)));
    this.startMs = Math.min(this.startMs, call.startMs);
    this.#count(call, false);
    if (this.#wanted(call)) this.timeline.add(call);
  }

  #count(call: TimelineCall, failedBefore: boolean): void {
    this.endMs = Math.max(this.endMs, call.endMs ?? call.startMs);
    if (!failedBefore && hasFailed(call.outcome)) this.failed += 1;
  }

  #lay(): void {
    this.timeline = new Timeline();
    for (const call of this.calls.values()) if (this.#wanted(call)) this.timeline.add(call);
  }

  #changed(): void {
    this.#rows = null;
    this.changes += 1;
  }

  readonly #same = (text: string): string => {
    const known = this.#texts.get(text);
    if (known !== undefined) return known;
    if (this.#texts.size >= MAX_TEXTS) this.#texts.clear();
    this.#texts.set(text, text);
    return text;
  };
}
