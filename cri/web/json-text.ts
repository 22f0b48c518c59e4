import { made } from './elements.ts';

/** What is drawn at once; the rest comes by a button. */
const FIRST_LINES = 3_000;
const WITHHELD = '"(withheld)"';
const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)/g;

function coloured(line: string): DocumentFragment {
  const out = document.createDocumentFragment();
  if (line.startsWith('//')) {
    out.append(made('span', 'c', line));
    return out;
  }
  let last = 0;
  for (const found of line.matchAll(TOKEN)) {
    if (found.index > last) out.append(line.slice(last, found.index));
    const [whole, text, colon, other] = found;
    if (text === undefined) out.append(made('span', 'n', other ?? ''));
    else {
      out.append(made('span', colon !== undefined ? 'k' : text === WITHHELD ? 'w' : 's', text));
      if (colon !== undefined) out.append(colon);
    }
    last = found.index + whole.length;
  }
  out.append(line.slice(last));
  return out;
}

/** Shows text of JSON with colours; a very long one in parts. */
export function showJson(place: HTMLElement, text: string): void {
  place.replaceChildren();
  place.scrollTop = 0;
  const lines = text.split('\n');
  const more = (from: number): void => {
    const part = document.createDocumentFragment();
    for (const line of lines.slice(from, from + FIRST_LINES)) part.append(coloured(line), '\n');
    place.append(part);
    const next = from + FIRST_LINES;
    if (next >= lines.length) return;
    const button = made('button', '', `${(lines.length - next).toLocaleString('en')} more lines`);
    button.addEventListener('click', () => {
      button.remove();
      more(next);
    });
    place.append(button);
  };
  more(0);
}
