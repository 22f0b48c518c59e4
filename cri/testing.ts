import { realClock, type Clock } from '../base/clock.ts';
import { realRng, seededRng } from '../base/rng.ts';
import type { FaultRule, RuleState } from './core/fault-rules.ts';
import { ruleFrom } from './core/fault-text.ts';
import { faultInterceptor, type FaultInterceptor } from './fault-interceptor.ts';

export { parseRule, printRule } from './core/fault-text.ts';
export { compose } from './transport.ts';
export type { FaultRule, RuleState };

interface Chance {
  /** For rules that leave something to chance: the same seed, the same calls. */
  readonly seed?: number;
  readonly clock?: Clock;
}

function drawing({ seed }: Chance): () => number {
  const rng = seed === undefined ? realRng : seededRng(seed);
  return () => rng.float();
}

/**
 * Fault rules before a transport: `compose(connectRuntime(socket), interceptor(['RunPodSandbox nth=1 after error deadline']))`.
 * Throws OpError `invalid` for a rule that is none.
 */
export function interceptor(rules: readonly (string | FaultRule)[], options: Chance = {}): FaultInterceptor {
  return faultInterceptor(rules, { clock: options.clock ?? realClock, draw: drawing(options) });
}

/** A tap whose rules a test changes as it goes. */
export interface FaultTap extends AsyncDisposable {
  /** Arms these in place of all others, and counts anew; none disarms. Throws OpError `invalid`. */
  set(rules: readonly (string | FaultRule)[]): Promise<void>;
  list(): readonly RuleState[];
}

/**
 * A tap between any kubelet or client and any runtime, with fault rules. Disposing removes its socket.
 * @param options sockets as paths or `unix://`; `record` is a file that must not be there yet
 */
export async function openFaultTap(
  options: Chance & {
    readonly listen: string;
    readonly upstream: string;
    readonly rules?: readonly (string | FaultRule)[];
    readonly record?: string;
    readonly say?: (text: string) => void;
  },
): Promise<FaultTap> {
  const { openTap } = await import('./io/tap.ts');
  const { listen, upstream, rules = [], record, say = () => {}, clock = realClock } = options;
  const tap = await openTap({
    ...{ listen, upstream, clock, say, recorder: 'a test' },
    rules: rules.map(ruleFrom),
    draw: drawing(options),
    record: record === undefined ? undefined : { path: record, maxBytes: 1024 ** 3, append: false },
  });
  return {
    set: async (next) => void (await tap.faults.set(next.map(ruleFrom))),
    list: () => tap.faults.list().rules,
    [Symbol.asyncDispose]: async () => void (await tap.stop()),
  };
}
