import { hasFailed, type TimelineCall } from './timeline.ts';

/** What of a timeline is wanted; empty text and 0 want everything. */
export interface CallFilter {
  /** Part of `namespace/name`. */
  readonly pod: string;
  /** A method's name, or several separated by commas. */
  readonly method: string;
  readonly outcome: 'any' | 'ok' | 'failed' | 'open';
  readonly slowerThanMs: number;
  /** Words, each of which must be found in method, pod, container, image, outcome or error. */
  readonly text: string;
}

export const NO_FILTER: CallFilter = { pod: '', method: '', outcome: 'any', slowerThanMs: 0, text: '' };

export function isFiltering(filter: CallFilter): boolean {
  return filter.pod !== '' || filter.method !== '' || filter.outcome !== 'any' || filter.slowerThanMs > 0 || filter.text.trim() !== '';
}

/** Remembers its answer for each text: there are few different ones among many calls. */
function remembering(decide: (text: string) => boolean): (text: string) => boolean {
  const known = new Map<string, boolean>();
  return (text) => {
    let answer = known.get(text);
    if (answer === undefined) known.set(text, (answer = decide(text.toLowerCase())));
    return answer;
  };
}

/** Compiles a filter. An open call is slower than nothing until it ends. */
export function matcherOf(filter: CallFilter): (call: TimelineCall) => boolean {
  const tests: ((call: TimelineCall) => boolean)[] = [];
  const { outcome, slowerThanMs } = filter;
  if (outcome === 'ok') tests.push((call) => call.endMs !== null && !hasFailed(call.outcome));
  if (outcome === 'failed') tests.push((call) => hasFailed(call.outcome));
  if (outcome === 'open') tests.push((call) => call.endMs === null);
  if (slowerThanMs > 0) tests.push((call) => call.endMs !== null && call.endMs - call.startMs > slowerThanMs);
  if (filter.method.trim() !== '') {
    const names = new Set(
      filter.method
        .toLowerCase()
        .split(/[\s,]+/)
        .filter((name) => name !== ''),
    );
    const named = remembering((method) => names.has(method));
    tests.push((call) => named(call.method));
  }
  if (filter.pod.trim() !== '') {
    const wanted = filter.pod.trim().toLowerCase();
    const named = remembering((sandbox) => sandbox !== '' && sandbox.includes(wanted));
    tests.push((call) => named(call.sandbox));
  }
  for (const word of filter.text.toLowerCase().split(/\s+/)) {
    if (word === '') continue;
    const has = remembering((text) => text.includes(word));
    tests.push((call) => has(call.method) || has(call.sandbox) || has(call.container) || has(call.other) || has(call.outcome) || has(call.message));
  }
  return (call) => tests.every((test) => test(call));
}
