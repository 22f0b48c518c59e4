import type { Tone } from '../core/timeline.ts';
import { made } from './elements.ts';

export const TONES: Readonly<Record<Tone, string>> = {
  make: 'makes or changes',
  end: 'stops or removes',
  image: 'images',
  run: 'runs inside',
  watch: 'streams',
  read: 'asks',
  failed: 'failed',
  cut: 'given up or cut off',
  open: 'has not ended',
};

export interface Palette {
  readonly tones: Readonly<Record<Tone, string>>;
  readonly back: string;
  readonly stripe: string;
  readonly line: string;
  readonly text: string;
  readonly dim: string;
  readonly selected: string;
  readonly focus: string;
  readonly onBar: string;
}

/** The colours of page.css as they are now. */
export function readPalette(): Palette {
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  return {
    tones: Object.fromEntries(Object.keys(TONES).map((tone) => [tone, colour(tone)])) as Record<Tone, string>,
    back: colour('back'),
    stripe: colour('stripe'),
    line: colour('line'),
    text: colour('text'),
    dim: colour('dim'),
    selected: colour('selected'),
    focus: colour('focus'),
    onBar: colour('on-bar'),
  };
}

export function fillLegend(element: HTMLElement): void {
  for (const [tone, text] of Object.entries(TONES)) {
    const entry = made('span');
    const mark = made('i');
    mark.dataset['tone'] = tone;
    entry.append(mark, text);
    element.append(entry);
  }
}

const KEPT = 'nodelet-cri-web-theme';

/** Light or dark as the system says, until it is changed here. */
export function startTheme(toggle: HTMLButtonElement, changed: () => void): void {
  const system = matchMedia('(prefers-color-scheme: dark)');
  let chosen: string | null = null;
  try {
    chosen = localStorage.getItem(KEPT);
  } catch {
    // A browser that keeps nothing goes by the system.
  }
  const apply = (): void => {
    const dark = chosen === null ? system.matches : chosen === 'dark';
    document.documentElement.dataset['theme'] = dark ? 'dark' : 'light';
    changed();
  };
  system.addEventListener('change', apply);
  toggle.addEventListener('click', () => {
    chosen = document.documentElement.dataset['theme'] === 'dark' ? 'light' : 'dark';
    try {
      localStorage.setItem(KEPT, chosen);
    } catch {
      // Then it holds until the page is closed.
    }
    apply();
  });
  apply();
}
