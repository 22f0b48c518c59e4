import { configzOf, type KubeletConfiguration } from './config.ts';

/** Words that YAML readers take for something else than text. */
const otherwise = /^(?:y|n|yes|no|on|off|true|false|null)$/i;

/**
 * The whole configuration as YAML, for the log at the start as upstream writes it: names in order, and nothing that
 * headers for static pods carry. Written by hand, since most agents never load the YAML package.
 */
export function configurationText(config: KubeletConfiguration): string {
  const headers = Object.keys(config.staticPodURLHeader);
  return lines(configzOf({ ...config, staticPodURLHeader: Object.fromEntries(headers.map((name) => [name, ['<masked>']])) }), '');
}

function lines(fields: object, indent: string): string {
  return Object.entries(fields)
    .toSorted(([left], [right]) => (left < right ? -1 : 1))
    .map(([name, value]) => `${indent}${scalar(name)}:${valueText(value, indent)}`)
    .join('');
}

function valueText(value: unknown, indent: string): string {
  if (value === null || typeof value !== 'object') return ` ${scalar(value)}\n`;
  if (!Array.isArray(value)) return Object.keys(value).length === 0 ? ' {}\n' : `\n${lines(value, `${indent}  `)}`;
  if (value.length === 0) return ' []\n';
  // JSON is YAML too: what is no plain value in a list is written so.
  return `\n${value.map((each: unknown) => `${indent}- ${scalar(each)}\n`).join('')}`;
}

function scalar(value: unknown): string {
  return typeof value === 'string' && /^[A-Za-z/][\w./-]*$/.test(value) && !otherwise.test(value) ? value : JSON.stringify(value);
}
