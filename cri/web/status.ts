import { button, byId, dialog, made } from './elements.ts';
import type { Model } from './model.ts';
import type { TimeWindow } from './window.ts';
import { countText, dateText } from './words.ts';

/** What is said around the rows: where it comes from, whether it goes on, how much there is. */
export class Status {
  /** The server does not answer. */
  broken = false;
  readonly #model: Model;
  readonly #time: TimeWindow;
  #shown = '';
  #pausedAt = 0;

  constructor(model: Model, time: TimeWindow) {
    this.#model = model;
    this.#time = time;
    button('notes').addEventListener('click', () => {
      byId('notes-list').replaceChildren(...this.#notes().map((note) => made('li', '', note)));
      dialog('notes-dialog').showModal();
    });
  }

  update(): void {
    const { hello, whole, calls, failed, timeline, rows } = this.#model;
    const { following } = this.#time;
    if (following) this.#pausedAt = calls.size;
    const live = hello?.live === true;
    const state = this.broken ? 'lost' : live ? (following ? 'live' : 'paused') : whole ? 'whole' : 'loading';
    const fresh = calls.size - this.#pausedAt;
    const notes = this.#notes();
    const shown = [state, fresh, calls.size, failed, notes.length, rows.length, timeline.count, dateText(this.#time.fromMs)].join();
    if (shown === this.#shown) return;
    this.#shown = shown;
    const chip = byId('state');
    chip.dataset['state'] = state;
    chip.textContent = {
      lost: 'not connected: is nodelet cri web still running?',
      live: 'live',
      paused: fresh > 0 ? `paused, ${countText(fresh, 'new call')}` : 'paused',
      whole: 'recording',
      loading: 'reading…',
    }[state];
    if (hello !== null) {
      byId('source').textContent = live ? `${hello.name} → ${hello.upstream}` : hello.name;
      byId('source').title = byId('source').textContent ?? '';
    }
    const follow = button('follow');
    follow.hidden = !live;
    follow.textContent = following ? 'Pause' : 'Follow';
    follow.setAttribute('aria-pressed', String(following));
    byId('totals').textContent = `${countText(calls.size, 'call')}, ${failed.toLocaleString('en')} failed, ${countText(this.#model.pods.size, 'pod')}`;
    button('notes').hidden = notes.length === 0;
    button('notes').textContent = countText(notes.length, 'note');
    byId('corner-text').textContent = `${dateText(this.#time.fromMs)} UTC`;
    const empty = byId('empty');
    empty.hidden = rows.length > 0;
    empty.textContent = calls.size > 0 ? 'No call passes the filter. Esc clears it.' : live || !whole ? 'No calls yet.' : 'The recording has no calls.';
  }

  #notes(): readonly string[] {
    const { left, notes } = this.#model;
    return left > 0 ? [`${countText(left, 'older call')} not shown: the page holds the latest`, ...notes] : notes;
  }
}
