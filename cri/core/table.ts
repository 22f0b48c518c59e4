import { shown } from './shown.ts';

/** Columns under their titles, as wide as what stands in them; the last one is not filled up. Names are made printable. Ends with a newline. */
export function tableText(titles: readonly string[], given: readonly (readonly string[])[]): string {
  const rows = given.map((cells) => cells.map(shown));
  const widths = titles.map((title, column) => Math.max(title.length, ...rows.map((row) => row[column]?.length ?? 0)));
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, column) => (column === cells.length - 1 ? cell : cell.padEnd((widths[column] ?? 0) + 2)))
      .join('')
      .trimEnd();
  return [titles, ...rows].map((cells) => `${line(cells)}\n`).join('');
}

const UNITS: readonly [seconds: number, name: string][] = [
  [365 * 86_400, 'years'],
  [30 * 86_400, 'months'],
  [7 * 86_400, 'weeks'],
  [86_400, 'days'],
  [3_600, 'hours'],
  [60, 'minutes'],
];

/** `5 minutes ago`: the largest unit of which there are two, so that what is told is right to a half. Of milliseconds. */
export function agoText(ms: number): string {
  const seconds = Math.floor(ms / 1000);
  if (seconds < 1) return 'Less than a second ago';
  if (seconds < 60) return `${seconds} second${seconds === 1 ? '' : 's'} ago`;
  for (const [size, name] of UNITS) {
    const count = Math.floor(seconds / size);
    if (count >= 2) return `${count} ${name} ago`;
    if (count === 1 && size <= 3_600) return size === 60 ? 'About a minute ago' : 'About an hour ago';
  }
  return '';
}

/** Some digits and a decimal unit, as image sizes are told: `53.7MB`. */
export function sizeText(bytes: number, digits = 3): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  let size = bytes;
  let unit = 0;
  while (size >= 1000 && unit < units.length - 1) {
    size /= 1000;
    unit++;
  }
  return `${Number(size.toPrecision(digits))}${units[unit]}`;
}
