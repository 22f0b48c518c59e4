import { byId, made } from './elements.ts';

export type KeyAction =
  | 'up'
  | 'down'
  | 'page-up'
  | 'page-down'
  | 'before'
  | 'after'
  | 'first'
  | 'last'
  | 'failed-after'
  | 'failed-before'
  | 'open'
  | 'toggle'
  | 'close'
  | 'filter'
  | 'help'
  | 'zoom-in'
  | 'zoom-out'
  | 'pan-left'
  | 'pan-right'
  | 'fit'
  | 'follow'
  | 'expand'
  | 'break';

/** What a key does, and how it is shown in the help. */
const KEYS: readonly (readonly [action: KeyAction, keys: readonly string[], shown: string, words: string])[] = [
  ['up', ['ArrowUp', 'k'], '↑  ↓', 'row above, row below'],
  ['down', ['ArrowDown', 'j'], '', ''],
  ['before', ['ArrowLeft', 'h'], '←  →', 'call before, next call of the row'],
  ['after', ['ArrowRight', 'l'], '', ''],
  ['first', ['Home'], 'Home  End', 'first, last call of the row'],
  ['last', ['End'], '', ''],
  ['failed-after', ['n'], 'n  N', 'next failure, failure before'],
  ['failed-before', ['N'], '', ''],
  ['page-up', ['PageUp'], 'PgUp  PgDn', 'a screen of rows'],
  ['page-down', ['PageDown'], '', ''],
  ['open', ['Enter'], 'Enter', 'show both messages of the call'],
  ['toggle', [' '], 'Space', 'open or close the row'],
  ['expand', ['e'], 'e', 'open or close all rows'],
  ['close', ['Escape'], 'Esc', 'close the messages; then clear the filter'],
  ['filter', ['/'], '/', 'go to the filter'],
  ['zoom-in', ['+', '='], '+  −', 'zoom in, zoom out'],
  ['zoom-out', ['-', '_'], '', ''],
  ['pan-left', ['['], '[  ]', 'earlier, later'],
  ['pan-right', [']'], '', ''],
  ['fit', ['f'], 'f', 'show everything'],
  ['follow', ['p'], 'p', 'follow what happens, or pause'],
  ['break', ['b'], 'b', 'break calls like the chosen one'],
  ['help', ['?'], '?', 'this help'],
];

/** Those that act wherever the focus is, as long as it takes no text. */
const ANYWHERE = new Set<KeyAction>([
  'filter',
  'help',
  'close',
  'zoom-in',
  'zoom-out',
  'pan-left',
  'pan-right',
  'fit',
  'follow',
  'expand',
  'failed-after',
  'failed-before',
  'break',
]);

export function fillKeys(list: HTMLElement): void {
  for (const [, , shown, words] of KEYS) {
    if (shown === '') continue;
    const keys = made('dt');
    keys.append(...shown.split('  ').flatMap((key, at) => (at === 0 ? [made('kbd', '', key)] : [' ', made('kbd', '', key)])));
    list.append(keys, made('dd', '', words));
  }
}

function takesText(element: Element | null): boolean {
  return element instanceof HTMLInputElement || element instanceof HTMLSelectElement || element instanceof HTMLTextAreaElement;
}

/** @param act whether it did something: then the browser does nothing of its own */
export function listenToKeys(act: (action: KeyAction) => boolean): void {
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]') !== null) return;
    const found = KEYS.find(([, keys]) => keys.includes(event.key));
    if (found === undefined) return;
    const [action] = found;
    const focus = document.activeElement;
    if (takesText(focus)) {
      if (action !== 'close' && !(action === 'down' && focus?.id === 'filter-text')) return;
    } else if (!ANYWHERE.has(action) && !onRows(focus, action)) return;
    if (act(action)) event.preventDefault();
  });
}

/** The rows take all keys; the panel takes those that go from call to call, so that one can read on. */
function onRows(focus: Element | null, action: KeyAction): boolean {
  if (focus === byId('scroll') || focus === document.body || focus === null) return true;
  return focus === byId('detail') && action !== 'open';
}
