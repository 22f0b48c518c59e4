/** An element that page.html has, of that kind. */
export function elementOf<T extends HTMLElement>(kind: new () => T, id: string): T {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`page.html has no ${kind.name} #${id}`);
  return found;
}

export const byId = (id: string): HTMLElement => elementOf(HTMLElement, id);
export const button = (id: string): HTMLButtonElement => elementOf(HTMLButtonElement, id);
export const input = (id: string): HTMLInputElement => elementOf(HTMLInputElement, id);
export const select = (id: string): HTMLSelectElement => elementOf(HTMLSelectElement, id);
export const dialog = (id: string): HTMLDialogElement => elementOf(HTMLDialogElement, id);
export const canvas = (id: string): HTMLCanvasElement => elementOf(HTMLCanvasElement, id);

/** A new element with text and a class. */
export function made<K extends keyof HTMLElementTagNameMap>(tag: K, className = '', text = ''): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (className !== '') element.className = className;
  if (text !== '') element.textContent = text;
  return element;
}

/** What a screen reader says next. */
export function say(text: string): void {
  byId('said').textContent = text;
}

/** Makes a canvas as large as its place in device pixels; returns its context scaled to CSS pixels. */
export function sized(element: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const scale = window.devicePixelRatio;
  const wide = Math.max(1, Math.round(width * scale));
  const high = Math.max(1, Math.round(height * scale));
  if (element.width !== wide || element.height !== high) {
    element.width = wide;
    element.height = high;
    element.style.width = `${width}px`;
    element.style.height = `${height}px`;
  }
  const context = element.getContext('2d', { alpha: false });
  if (context === null) throw new Error('this browser draws nothing');
  context.setTransform(scale, 0, 0, scale, 0, 0);
  return context;
}
