import type { Clock } from '../base/clock.ts';
import { ArmedRules, faultWords, type FaultRule, type RuleState } from './core/fault-rules.ts';
import { SubjectBook } from './core/fault-subjects.ts';
import { ruleFrom } from './core/fault-text.ts';
import { listFields } from './core/methods.ts';
import { RpcError } from './errors.ts';
import type { CallOptions, Interceptor, RuntimeCall, Transport } from './transport.ts';

export interface FaultInterceptor extends Interceptor {
  /** Arms these in place of all others; none disarms. Throws OpError `invalid`. */
  set(rules: readonly (string | FaultRule)[]): void;
  list(): readonly RuleState[];
}

export interface InterceptorOptions {
  readonly clock: Clock;
  /** Chance: a number in [0, 1). */
  readonly draw: () => number;
  /** What a caller's user agent is taken for. */
  readonly agent?: string;
}

/** What a client in Go sees of a connection that breaks under its call, and of a reset. */
const BROKEN = ['Unavailable', 'error reading from server: EOF'] as const;
const RESET = ['Internal', 'stream terminated by RST_STREAM with error code: INTERNAL_ERROR'] as const;

/**
 * The tap's fault rules within a program: between a client and any transport. Waits by the clock; what it fails, fails
 * with the errors that the client would have seen. Throws OpError `invalid` for a rule that is none.
 */
export function faultInterceptor(rules: readonly (string | FaultRule)[], { clock, draw, agent = '' }: InterceptorOptions): FaultInterceptor {
  let armed = new ArmedRules(rules.map(ruleFrom), draw);
  const book = new SubjectBook();

  const wait = async (ms: number, { method }: RuntimeCall, { signal, timeoutMs }: CallOptions): Promise<void> => {
    try {
      await clock.sleep(Math.min(ms, timeoutMs), signal);
    } catch (cause) {
      throw new RpcError('Canceled', method, 'context canceled', { cause });
    }
    if (ms >= timeoutMs) throw new RpcError('DeadlineExceeded', method, 'context deadline exceeded');
  };
  const never = async (call: RuntimeCall, options: CallOptions): Promise<never> => {
    if (Number.isFinite(options.timeoutMs)) await wait(options.timeoutMs, call, options);
    await new Promise<void>((resolve) => {
      if (options.signal?.aborted === true) resolve();
      options.signal?.addEventListener('abort', () => resolve(), { once: true });
    });
    throw new RpcError('Canceled', call.method, 'context canceled');
  };
  /** Ends a call as its rule says; returns when it says nothing of an end. */
  const end = async (rule: FaultRule, call: RuntimeCall, options: CallOptions): Promise<void> => {
    if (rule.error !== undefined) throw new RpcError(rule.error, call.method, faultWords(rule));
    if (rule.drop !== undefined) throw new RpcError(...(rule.drop === 'connection' ? asError(BROKEN, call) : asError(RESET, call)));
    if (rule.hang === true) await never(call, options);
  };
  const learn = async (next: Transport['call']): Promise<void> => {
    for (const method of ['ListPodSandbox', 'ListContainers']) {
      try {
        book.learn(method, {}, await next({ service: 'RuntimeService', method, request: {} }, { timeoutMs: 5_000 }));
      } catch {
        // What is not known is taken for something that no rule names.
      }
    }
  };
  const due = async (call: RuntimeCall, ask: Transport['call'] | null): Promise<FaultRule | null> => {
    const { method, request } = call;
    const needs = armed.needs(method, agent);
    if (needs === 'nothing') return null;
    if (needs === 'message' && book.lacks(request)) {
      if (ask !== null) await learn(ask);
      if (book.lacks(request)) book.giveUp(request);
    }
    return armed.decide({ method, agent, subject: book.of(method, request) })?.rule ?? null;
  };

  return {
    set: (next) => {
      armed = new ArmedRules(next.map(ruleFrom), draw);
    },
    list: () => armed.states(),
    async call(call, options, next) {
      const rule = await due(call, next);
      if (rule !== null && rule.after !== true) {
        if (rule.delayMs !== undefined) await wait(rule.delayMs, call, options);
        await end(rule, call, options);
      }
      const answer = await next(call, options);
      book.learn(call.method, call.request, answer);
      if (rule?.after === true) {
        if (rule.delayMs !== undefined) await wait(rule.delayMs, call, options);
        await end(rule, call, options);
      }
      if (rule?.hide === undefined) return answer;
      if (rule.hide.pod !== undefined) await learn(next);
      return without(answer, call.method, rule, armed, book);
    },
    async *stream(call, options, next) {
      const rule = await due(call, null);
      if (rule === null) return yield* next(call, options);
      if (rule.after !== true) {
        if (rule.delayMs !== undefined) await wait(rule.delayMs, call, options);
        if (rule.truncate === undefined) await end(rule, call, options);
      }
      const fate = armed.eventsOf(rule);
      let passed = 0;
      const isCut = (): boolean => {
        if (rule.truncate === undefined || passed < rule.truncate) return false;
        if (rule.end === true) return true;
        throw rule.error === undefined ? new RpcError(...asError(RESET, call)) : new RpcError(rule.error, call.method, faultWords(rule));
      };
      if (isCut()) return;
      for await (const message of next(call, options)) {
        if (rule.events === undefined) yield rule.hide === undefined ? message : without(message, call.method, rule, armed, book);
        else {
          const { copies, delayMs } = fate(book.event(message));
          if (delayMs > 0) await wait(delayMs, call, options);
          for (let copy = 0; copy < copies; copy++) yield message;
        }
        passed += 1;
        if (isCut()) return;
      }
      if (rule.after === true) {
        if (rule.delayMs !== undefined) await wait(rule.delayMs, call, options);
        await end(rule, call, options);
      }
    },
  };
}

function asError([status, words]: typeof BROKEN | typeof RESET, { method }: RuntimeCall): ConstructorParameters<typeof RpcError> {
  return [status, method, words];
}

function without(answer: object, method: string, rule: FaultRule, armed: ArmedRules, book: SubjectBook): object {
  const field = listFields[method];
  if (field === undefined) return answer;
  const subjects = book.items(method, answer);
  const items = (answer as Readonly<Record<string, readonly unknown[]>>)[field] ?? [];
  return {
    ...answer,
    [field]: items.filter((_item, at) => {
      const subject = subjects[at];
      return subject === undefined || !armed.hides(rule, subject);
    }),
  };
}
