import { BugError } from '../base/assert.ts';
import type { Clock } from '../base/clock.ts';
import { OpError } from '../base/errors.ts';
import { statusNamed, type RpcStatus } from './core/status.ts';
import { RpcError } from './errors.ts';
import type { CallOptions, Interceptor, RuntimeCall } from './transport.ts';

/*
 * `2*error(unavailable)->off`: terms in a row, each for as many calls as its count says (one when it says none),
 * then the next; after the last, nothing. The language and its meaning are containerd's failpoints', with `after`
 * added: the call is done, and its answer lost.
 */
type Term =
  | { kind: 'off'; left: number }
  | { kind: 'error' | 'after'; left: number; status: RpcStatus; text: string }
  | { kind: 'panic'; left: number; text: string }
  | { kind: 'delay'; left: number; ms: number };

function parseTerm(text: string): Term {
  const match = /^(?:(\d+)\*)?(off|error|after|panic|delay)(?:\((.*)\))?$/s.exec(text.trim());
  if (match === null)
    throw new OpError('invalid', 'parse failpoint', `"${text}" is not a term`, { advice: 'write for instance 2*error(unavailable)->delay(100)->off' });
  const [, count, kind, argument = ''] = match;
  const left = count === undefined ? 1 : Number(count);
  switch (kind) {
    case 'error':
    case 'after': {
      const [name = '', ...rest] = argument.split(':');
      const status = statusNamed(name);
      // Without a status's name the whole is the message, as in containerd.
      return status === undefined ? { kind, left, status: 'Unknown', text: argument } : { kind, left, status, text: rest.join(':').trim() || 'failpoint' };
    }
    case 'panic':
      return { kind, left, text: argument };
    case 'delay': {
      const ms = Number(argument);
      if (!Number.isFinite(ms) || ms < 0 || argument === '') throw new OpError('invalid', 'parse failpoint', `delay(${argument}): milliseconds expected`);
      return { kind, left, ms };
    }
    default:
      return { kind: 'off', left };
  }
}

/** The terms of one failpoint. Throws OpError `invalid`. */
class Failpoint {
  readonly #terms: Term[];

  constructor(text: string) {
    this.#terms = text.split('->').map(parseTerm);
  }

  /** What the call that comes now meets. */
  next(): Term | undefined {
    const term = this.#terms.find(({ left }) => left > 0);
    if (term !== undefined) term.left--;
    return term;
  }
}

export interface Failpoints extends Interceptor {
  /** Arms a method (`*` is every one) from now on, in place of what it had; '' disarms it. */
  set(method: string, text: string): void;
}

/**
 * Makes calls fail as told: `{ RunPodSandbox: '1*error(unavailable)', PullImage: 'delay(500)->error(not-found: gone)' }`.
 * A stream meets its failpoint when it is opened.
 */
export function failpoints(clock: Clock, points: Readonly<Record<string, string>> = {}): Failpoints {
  const armed = new Map(Object.entries(points).map(([method, text]) => [method, new Failpoint(text)]));

  const before = async (term: Term | undefined, call: RuntimeCall, { signal, timeoutMs }: CallOptions): Promise<void> => {
    if (term?.kind === 'delay') {
      try {
        await clock.sleep(Math.min(term.ms, timeoutMs), signal);
      } catch (cause) {
        throw new RpcError('Canceled', call.method, 'context canceled', { cause });
      }
      if (term.ms >= timeoutMs) throw new RpcError('DeadlineExceeded', call.method, 'context deadline exceeded');
    }
    if (term?.kind === 'error') throw new RpcError(term.status, call.method, term.text);
    if (term?.kind === 'panic') throw new BugError(`failpoint ${call.method}: ${term.text}`);
  };
  const termFor = (call: RuntimeCall): Term | undefined => (armed.get(call.method) ?? armed.get('*'))?.next();

  return {
    set(method, text) {
      if (text === '') armed.delete(method);
      else armed.set(method, new Failpoint(text));
    },
    async call(call, options, next) {
      const term = termFor(call);
      await before(term, call, options);
      const answer = await next(call, options);
      if (term?.kind === 'after') throw new RpcError(term.status, call.method, term.text);
      return answer;
    },
    async *stream(call, options, next) {
      const term = termFor(call);
      await before(term, call, options);
      yield* next(call, options);
      if (term?.kind === 'after') throw new RpcError(term.status, call.method, term.text);
    },
  };
}
