import { isFiltering, type CallFilter } from '../core/call-filter.ts';
import { button, byId, input, select } from './elements.ts';
import type { Model } from './model.ts';
import { countText } from './words.ts';

const TYPING_MS = 120;
const MAX_OFFERED = 2_000;

/** The line of filters: what is typed there is applied after a moment. */
export class Filters {
  readonly #text = input('filter-text');
  readonly #pod = input('filter-pod');
  readonly #method = select('filter-method');
  readonly #outcome = select('filter-outcome');
  readonly #slower = input('filter-slower');
  readonly #clear = button('filter-clear');
  readonly #matched = byId('matched');
  #timer: number | undefined;
  #offeredPods = 0;

  constructor(apply: (filter: CallFilter) => void) {
    const now = (): void => {
      clearTimeout(this.#timer);
      this.#timer = undefined;
      apply(this.value);
    };
    const soon = (): void => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(now, TYPING_MS);
    };
    for (const element of [this.#text, this.#pod, this.#slower]) element.addEventListener('input', soon);
    for (const element of [this.#method, this.#outcome]) element.addEventListener('change', now);
    byId('filters').addEventListener('submit', (event) => {
      event.preventDefault();
      now();
    });
    this.#clear.addEventListener('click', () => {
      this.clear();
      now();
      this.focus();
    });
  }

  get value(): CallFilter {
    return {
      text: this.#text.value,
      pod: this.#pod.value,
      method: this.#method.value,
      outcome: this.#outcome.value as CallFilter['outcome'],
      slowerThanMs: Math.max(0, Number(this.#slower.value) || 0),
    };
  }

  clear(): void {
    for (const element of [this.#text, this.#pod, this.#slower]) element.value = '';
    this.#method.value = '';
    this.#outcome.value = 'any';
  }

  focus(): void {
    this.#text.focus();
    this.#text.select();
  }

  /** What can be chosen, and how many calls are. */
  update(model: Model): void {
    if (this.#method.options.length - 1 !== model.methods.size) {
      const chosen = this.#method.value;
      const all = this.#method.options[0] as HTMLOptionElement;
      this.#method.replaceChildren(all, ...[...model.methods].sort().map((method) => new Option(method, method)));
      this.#method.value = chosen;
    }
    const filtering = isFiltering(model.filter);
    this.#clear.hidden = !filtering;
    const words = filtering ? `${model.timeline.count.toLocaleString('en')} of ${countText(model.calls.size, 'call')}` : '';
    if (this.#matched.textContent !== words) this.#matched.textContent = words;
    const pods = filtering ? [] : model.timeline.rows.filter((row) => row.kind === 'pod');
    if (pods.length > this.#offeredPods && this.#offeredPods < MAX_OFFERED) {
      byId('pods').append(...pods.slice(this.#offeredPods, MAX_OFFERED).map((row) => new Option(row.key)));
      this.#offeredPods = pods.length;
    }
  }
}
