import type { Clock } from '../../base/clock.ts';
import { OpError } from '../../base/errors.ts';
import { ArmedRules, methodFits, type FaultRule, type RuleState } from '../core/fault-rules.ts';
import { printRule, ruleFrom } from '../core/fault-text.ts';
import { openActing, type Acting, type Fired } from './acting.ts';
import { clearSocket, type Splice } from './splice.ts';

/** What a tap's rules have come to. */
export interface FaultState {
  readonly rules: readonly (RuleState & { readonly text: string })[];
  /** Callers' connections that rules can meet, and those that came before they were armed. */
  readonly connections: { readonly acting: number; readonly outside: number };
}

/** The fault rules of one tap. */
export interface TapFaults {
  /**
   * Arms these in place of all others; none disarms. Callers are asked to connect anew where that is needed.
   * @param options `add`: beside those that are armed; `keep`: those that were armed before go on counting
   */
  set(rules: readonly FaultRule[], options?: { add?: boolean; keep?: boolean }): Promise<FaultState>;
  list(): FaultState;
}

export interface FaultsOptions {
  /** Where the tap listens and what it stands before. */
  readonly listen: string;
  readonly upstream: string;
  readonly clock: Clock;
  /** Chance: a number in [0, 1). */
  readonly draw: () => number;
  readonly say: (text: string) => void;
  readonly onFired?: (fired: Fired) => void;
}

/** Of each rule so many deeds are told one by one, and then one in so many. */
const TOLD = 20;
const TOLD_EVERY = 100;
/** An endless stream would keep a caller on its old connection for ever: it is cut after that. */
const STREAM_CUT_MS = 2_000;

/** Rules of a request over the control socket. Throws OpError `invalid`. */
export function rulesOf(request: Readonly<Record<string, unknown>>): FaultRule[] {
  const { rules } = request;
  if (!Array.isArray(rules)) throw new OpError('invalid', 'ask the tap', 'fault takes "rules": a list of lines or objects');
  return rules.map(ruleFrom);
}

/** Turns a tap's connections to the proxy that acts while rules are armed, and back when they are not. */
export class FaultSwitch implements TapFaults, AsyncDisposable {
  readonly #options: FaultsOptions;
  #splice: Splice | null = null;
  #armed: ArmedRules;
  #acting: Acting | null = null;
  #isOn = false;
  #turn: Promise<unknown> = Promise.resolve();

  constructor(options: FaultsOptions) {
    this.#options = options;
    this.#armed = new ArmedRules([], options.draw);
  }

  /** The tap's connections; before the first `set`. */
  use(splice: Splice): void {
    this.#splice = splice;
  }

  get #path(): string {
    return `${this.#options.listen}.acting`;
  }

  set(rules: readonly FaultRule[], options: { add?: boolean; keep?: boolean } = {}): Promise<FaultState> {
    const turn = this.#turn.then(() => this.#set(rules, options));
    this.#turn = turn.catch(() => {});
    return turn;
  }

  async #set(given: readonly FaultRule[], { add = false, keep = false }: { add?: boolean; keep?: boolean }): Promise<FaultState> {
    const { clock, draw, upstream } = this.#options;
    const rules = add ? [...this.#armed.states().map(({ rule }) => rule), ...given] : given;
    if (rules.length > 0 && this.#acting === null) {
      await clearSocket(this.#path);
      this.#acting = await openActing({ path: this.#path, upstream, clock, armed: () => this.#armed, onFired: (fired) => this.#fired(fired) });
    }
    this.#armed = new ArmedRules(rules, draw, add || keep ? this.#armed.states() : []);
    const wasOn = this.#isOn;
    this.#isOn = rules.length > 0;
    this.#splice?.route(this.#isOn ? this.#path : null);
    if (this.#isOn && (!wasOn || this.#meetEvents)) this.#splice?.sendAway(false, this.#meetEvents ? STREAM_CUT_MS : null);
    if (wasOn && !this.#isOn) this.#splice?.sendAway(true, null);
    return this.list();
  }

  /** Whether a rule is for the stream that does not end. */
  get #meetEvents(): boolean {
    return this.#armed.states().some(({ rule }) => methodFits(rule.method, 'GetContainerEvents'));
  }

  #fired({ number, rule, method, subject }: Fired): void {
    this.#options.onFired?.({ number, rule, method, subject });
    const { fired = 0 } = this.#armed.states()[number - 1] ?? {};
    if (fired > TOLD && fired % TOLD_EVERY !== 0) return;
    const about = [subject.pod, subject.container].filter((part) => part !== '').join('/') || (subject.images[0] ?? '');
    this.#options.say(`rule ${number} was done to ${method}${about === '' ? '' : ` ${about}`}${fired === 1 ? '' : ` (${fired} times by now)`}`);
  }

  list(): FaultState {
    const acting = this.#acting?.counts.open ?? 0;
    return {
      rules: this.#armed.states().map((state) => ({ ...state, text: printRule(state.rule) })),
      connections: { acting, outside: Math.max(0, (this.#splice?.counts.open ?? 0) - acting) },
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#turn;
    await this.#acting?.[Symbol.asyncDispose]();
  }
}
