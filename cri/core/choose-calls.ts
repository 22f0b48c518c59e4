import { OpError } from '../../base/errors.ts';
import { methodNames } from './methods.ts';
import { nearest } from './nearest.ts';
import { rpcStatuses } from './status.ts';

/** What of a call decides whether it is wanted. */
export interface Choosable {
  /** `namespace/name`; empty for what is about no pod. */
  readonly pod: string;
  /** `name#attempt`; empty when it is about no container. */
  readonly container: string;
  readonly method: string;
  readonly outcome: string;
  readonly hasFailed: boolean;
  /** Milliseconds since 1970. */
  readonly startMs: number;
  readonly endMs: number | null;
}

/** Which calls are wanted; what is absent wants all. */
export interface Choice {
  /** `namespace/name`; a part may be `*`. */
  readonly pod?: string | undefined;
  readonly container?: string | undefined;
  /** A method's name, or several separated by commas. */
  readonly method?: string | undefined;
  /** `ok`, `failed`, `open`, or a status’ name. */
  readonly outcome?: string | undefined;
  /** Milliseconds. */
  readonly slowerThan?: number | undefined;
}

function pattern(text: string): RegExp {
  return new RegExp(
    `^${text
      .split('*')
      .map((part) => part.replaceAll(/[\\^$.+?()[\]{}|]/g, String.raw`\$&`))
      .join('.*')}$`,
  );
}

function podTest(text: string): (call: Choosable) => boolean {
  // kubectl's way to name one, too.
  const name = text.replace(/^pods?\//, '');
  if (!/^[^/\s]+\/[^/\s]+$/.test(name))
    throw new OpError('invalid', 'choosing a pod', `"${text}" is no pod`, { advice: 'write NAMESPACE/NAME; either may have a * in it' });
  const named = pattern(name);
  return (call) => call.pod !== '' && named.test(call.pod);
}

/** `message` is a piece of a stream, `event` an event of one, `cut` what a connection's end ended. */
const OUTCOMES = ['ok', 'failed', 'open', 'cut', 'event', 'message', ...rpcStatuses];

/** What is no name of these wants nothing for ever, and nobody would know why. */
function known(what: string, name: string, names: readonly string[]): string {
  const plain = name.toLowerCase();
  if (!names.some((each) => each.toLowerCase() === plain))
    throw new OpError('invalid', `choosing by ${what}`, `there is no ${what} "${name}"`, { advice: `the nearest are ${nearest(name, names, 3).join(', ')}` });
  return plain;
}

/** Decides whether a call is wanted. Throws OpError `invalid` for a choice that cannot be. */
export function choosing(choice: Choice): (call: Choosable) => boolean {
  const { pod, container, method, outcome, slowerThan } = choice;
  const tests: ((call: Choosable) => boolean)[] = [];
  if (pod !== undefined) tests.push(podTest(pod));
  if (container !== undefined) {
    // With the attempt, or any of that name.
    const named = pattern(container.includes('#') ? container : `${container}#*`);
    tests.push((call) => named.test(call.container));
  }
  if (method !== undefined) {
    const names = new Set(
      method
        .split(/[\s,]+/)
        .filter((name) => name !== '')
        .map((name) => known('method', name, methodNames)),
    );
    tests.push((call) => names.has(call.method.toLowerCase()));
  }
  if (outcome !== undefined) {
    const wanted = known('outcome', outcome, OUTCOMES);
    tests.push((call) => (wanted === 'failed' ? call.hasFailed : call.outcome.toLowerCase() === wanted));
  }
  if (slowerThan !== undefined) tests.push((call) => call.endMs !== null && call.endMs - call.startMs > slowerThan);
  return (call) => tests.every((test) => test(call));
}
