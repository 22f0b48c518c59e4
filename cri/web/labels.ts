import type { Row } from '../core/timeline.ts';
import { made } from './elements.ts';
import type { Model } from './model.ts';
import { ROW_PX } from './paint.ts';
import { countText } from './words.ts';

/** What the rows are called that are no pods. */
const GROUPS: Readonly<Partial<Record<Row['kind'], string>>> = { node: 'the node as a whole', images: 'images', others: 'other services' };
/** Of a long name the end always stays: pods of a deployment differ there. */
const LONG_NAME = 16;
const TAIL = 6;

interface Label {
  readonly element: HTMLDivElement;
  readonly twist: HTMLSpanElement;
  readonly prefix: HTMLSpanElement;
  readonly name: Text;
  readonly tail: HTMLSpanElement;
  readonly bad: HTMLSpanElement;
  readonly calls: HTMLSpanElement;
  /** What it shows, to touch the document only where that changes. */
  shown: string;
}

/** The names of those rows that are seen: as many elements as have room. */
export class Labels {
  readonly #place: HTMLElement;
  readonly #labels: Label[] = [];

  constructor(place: HTMLElement) {
    this.#place = place;
  }

  paint(model: Model, scrollTop: number, height: number): void {
    const { rows } = model;
    const first = Math.max(0, Math.floor(scrollTop / ROW_PX));
    const last = Math.min(rows.length, first + Math.ceil(height / ROW_PX) + 1);
    while (this.#labels.length < Math.ceil(height / ROW_PX) + 2) this.#labels.push(this.#label());
    this.#place.style.transform = `translateY(${-scrollTop}px)`;
    // A row keeps its element while it is seen: scrolling touches only those that come.
    const free = new Set(this.#labels);
    for (let index = first; index < last; index += 1) {
      const label = this.#labels[index % this.#labels.length] as Label;
      free.delete(label);
      this.#fill(label, rows[index] as Row, index, model);
    }
    for (const label of free) {
      if (label.shown === '') continue;
      label.element.hidden = true;
      label.shown = '';
    }
  }

  /** The element of a row, where it is seen: what the tree's `aria-activedescendant` names. */
  idOf(index: number): string {
    return `row-${index}`;
  }

  #fill(label: Label, row: Row, index: number, model: Model): void {
    const calls = row.bars.length + row.long.length;
    const open = model.isExpanded(row);
    const selected = row.key === model.selectedRow;
    const shown = `${index} ${row.key} ${calls} ${row.failed} ${row.parts.length > 0} ${open} ${selected}`;
    if (shown === label.shown) return;
    label.shown = shown;
    const { element, twist, prefix, name, tail, bad } = label;
    element.hidden = false;
    element.style.top = `${index * ROW_PX}px`;
    element.id = this.idOf(index);
    element.dataset['kind'] = row.kind;
    element.dataset['index'] = String(index);
    element.title = `${row.prefix}${row.name}`;
    element.setAttribute('aria-level', row.kind === 'part' ? '2' : '1');
    element.setAttribute('aria-selected', String(selected));
    if (row.kind === 'part') element.removeAttribute('aria-expanded');
    else element.setAttribute('aria-expanded', String(open));
    element.setAttribute('aria-label', `${row.prefix}${row.name}, ${countText(calls, 'call')}${row.failed > 0 ? `, ${row.failed} failed` : ''}`);
    twist.textContent = row.kind === 'part' ? '' : open ? '▼' : '▶';
    prefix.textContent = row.prefix;
    const text = GROUPS[row.kind] ?? row.name;
    const head = GROUPS[row.kind] === undefined && text.length > LONG_NAME ? text.length - TAIL : text.length;
    name.data = text.slice(0, head);
    tail.textContent = text.slice(head);
    bad.textContent = row.failed > 0 ? `▲${row.failed.toLocaleString('en')}` : '';
    label.calls.textContent = calls.toLocaleString('en');
  }

  #label(): Label {
    const element = made('div', 'row');
    element.hidden = true;
    element.setAttribute('role', 'treeitem');
    const twist = made('span', 'twist');
    twist.setAttribute('aria-hidden', 'true');
    const whole = made('span', 'name');
    const prefix = made('span', 'prefix');
    const name = document.createTextNode('');
    whole.append(prefix, name);
    const tail = made('span', 'tail');
    const bad = made('span', 'bad');
    const calls = made('span', 'calls');
    element.append(twist, whole, tail, made('span', 'gap'), bad, calls);
    this.#place.append(element);
    return { element, twist, prefix, name, tail, bad, calls, shown: '' };
  }
}
