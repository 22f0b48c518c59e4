import { withoutAttempt, type TimelineCall } from '../core/timeline.ts';
import type { WebFault } from '../core/web-wire.ts';
import { button, byId, dialog, input, made, say, select } from './elements.ts';
import { countText } from './words.ts';

/** Those that runtimes answer with, the likeliest first. */
const ERRORS = [
  'Unavailable',
  'DeadlineExceeded',
  'Unknown',
  'NotFound',
  'AlreadyExists',
  'FailedPrecondition',
  'ResourceExhausted',
  'Internal',
  'Unimplemented',
];
/** How often armed rules are counted again while they are looked at. */
const COUNT_MS = 1_000;

async function ask(body?: object): Promise<readonly WebFault[]> {
  const options = body === undefined ? {} : { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) };
  const response = await fetch('faults', options);
  if (!response.ok) throw new Error((await response.text()).trim());
  return (await response.json()) as WebFault[];
}

function word(key: string, value: string): string {
  const text = value.trim();
  if (text === '') return '';
  return `${key}=${/\s|"/.test(text) ? JSON.stringify(text) : text}`;
}

/** The dialog that lists, arms and disarms fault rules. */
export class Faults {
  readonly #dialog = dialog('faults-dialog');
  readonly #text = input('rule-text');
  readonly #error = byId('rule-error-text');
  #timer: number | undefined;

  constructor() {
    const action = select('rule-action');
    select('rule-error').append(...ERRORS.map((name) => new Option(name)));
    for (const element of byId('rule-form').querySelectorAll('fieldset input, fieldset select')) element.addEventListener('input', () => this.#compose());
    action.addEventListener('change', () => this.#compose());
    byId('rule-form').addEventListener('submit', (event) => {
      event.preventDefault();
      void this.#change({ arm: this.#text.value }, 'armed');
    });
    button('faults').addEventListener('click', () => this.open(null));
    this.#dialog.addEventListener('close', () => clearInterval(this.#timer));
  }

  /** Shows the button, and what is armed already. */
  start(methods: readonly string[]): void {
    button('faults').hidden = false;
    this.offer(methods);
    void this.refresh();
  }

  offer(methods: readonly string[]): void {
    byId('methods').replaceChildren(...methods.map((method) => new Option(method)));
  }

  /** @param call the new rule is filled in for calls like it */
  open(call: TimelineCall | null): void {
    if (call !== null) {
      input('rule-method').value = call.method;
      input('rule-pod').value = withoutAttempt(call.sandbox);
      input('rule-container').value = withoutAttempt(call.container);
    }
    this.#compose();
    this.#error.hidden = true;
    this.#dialog.showModal();
    (call === null ? input('rule-method') : select('rule-action')).focus();
    void this.refresh();
    clearInterval(this.#timer);
    this.#timer = setInterval(() => void this.refresh(), COUNT_MS);
  }

  async refresh(): Promise<void> {
    try {
      this.#show(await ask());
    } catch (error) {
      this.#fail(error);
    }
  }

  #compose(): void {
    const action = select('rule-action').value;
    byId('rule-error-label').hidden = action !== 'error';
    byId('rule-delay-label').hidden = action !== 'delay';
    byId('rule-after-label').hidden = action === 'delay';
    const method = input('rule-method').value.trim();
    const after = action !== 'delay' && input('rule-after').checked ? 'after' : '';
    const how = action === 'error' ? `error ${select('rule-error').value}` : action === 'delay' ? `delay ${input('rule-delay').value.trim()}` : action;
    const which = select('rule-which').value;
    const parts = [method, word('pod', input('rule-pod').value), word('container', input('rule-container').value), which, after, how];
    this.#text.value = method === '' ? '' : parts.filter((part) => part !== '').join(' ');
  }

  async #change(body: object, done: string): Promise<void> {
    this.#error.hidden = true;
    try {
      this.#show(await ask(body));
      say(`Rule ${done}`);
    } catch (error) {
      this.#fail(error);
    }
  }

  #fail(error: unknown): void {
    this.#error.hidden = false;
    this.#error.textContent = error instanceof Error ? error.message : String(error);
  }

  #show(faults: readonly WebFault[]): void {
    const count = byId('fault-count');
    count.hidden = faults.length === 0;
    count.textContent = String(faults.length);
    button('faults').setAttribute('aria-label', `Faults, ${countText(faults.length, 'rule')} armed`);
    byId('armed').hidden = faults.length === 0;
    byId('armed-none').hidden = faults.length > 0;
    const body = byId('armed').querySelector('tbody') as HTMLTableSectionElement;
    const shown = JSON.stringify(faults);
    if (body.dataset['shown'] === shown) return;
    body.dataset['shown'] = shown;
    const focused = body.contains(document.activeElement);
    body.replaceChildren(
      ...faults.map((fault) => {
        const row = made('tr');
        const rule = made('td');
        rule.append(made('code', '', fault.text));
        const last = made('td');
        const disarm = made('button', '', 'Disarm');
        disarm.type = 'button';
        disarm.setAttribute('aria-label', `Disarm ${fault.text}`);
        disarm.addEventListener('click', () => void this.#change({ disarm: fault.number }, 'disarmed'));
        last.append(disarm);
        row.append(rule, made('td', '', String(fault.matched)), made('td', '', String(fault.fired)), last);
        return row;
      }),
    );
    if (focused) (body.querySelector('button') ?? this.#text).focus();
  }
}
