import type { RpcStatus } from './status.ts';

/** Which of the calls (or events) that match: counted from 1, since the rule was armed. */
export interface Which {
  readonly nth?: number;
  readonly every?: number;
  readonly first?: number;
  /** In (0, 1]. */
  readonly chance?: number;
}

/** Globs of `*` and `?`. */
interface About {
  /** `namespace/name`, or a name in any namespace. */
  readonly pod?: string;
  readonly container?: string;
  readonly image?: string;
}

export type EventType = 'created' | 'started' | 'stopped' | 'deleted';

/** One fault, as it is written in JSON; `fault-text.ts` says what goes together. */
export interface FaultRule extends About, Which {
  /** Globs of method names, with commas between. */
  readonly method: string;
  /** Of the caller's user agent. */
  readonly agent?: string;
  /** The runtime does the call first; only what it answered well is spoilt. */
  readonly after?: true;
  readonly delayMs?: number;
  readonly error?: RpcStatus;
  readonly words?: string;
  readonly drop?: 'call' | 'connection';
  readonly hang?: true;
  /** A stream ends after that many messages: reset, or as `error` says, or as if that were all. */
  readonly truncate?: number;
  readonly end?: true;
  /** What is left out of a list. */
  readonly hide?: About & Pick<Which, 'chance'>;
  /** What happens to events of a stream, counted anew for each stream. */
  readonly events?: About & Which & { readonly do: 'drop' | 'duplicate' | 'delay'; readonly delayMs?: number; readonly type?: EventType };
}

/** What a call, an item of a list or an event is about. */
export interface Subject {
  /** `namespace/name`; empty when it is about none, or not known. */
  readonly pod: string;
  readonly container: string;
  /** Every name that is known of its image. */
  readonly images: readonly string[];
}

export interface CallFacts {
  readonly method: string;
  readonly agent: string;
  readonly subject: Subject;
}

export interface RuleState {
  readonly rule: FaultRule;
  /** Calls that it fits. */
  readonly matched: number;
  /** Calls that it was done to. */
  readonly fired: number;
}

/** What the caller is told with an error: the rule's own words, or what gRPC for Go says itself. */
export function faultWords({ words, error }: FaultRule): string {
  if (words !== undefined) return words;
  return error === 'DeadlineExceeded' ? 'context deadline exceeded' : error === 'Canceled' ? 'context canceled' : 'a fault rule of nodelet cri';
}

function globbed(glob: string, text: string): boolean {
  const pattern = glob
    .replaceAll(/[.+^${}()|[\]\\]/g, String.raw`\$&`)
    .replaceAll('*', '.*')
    .replaceAll('?', '.');
  return new RegExp(`^${pattern}$`, 's').test(text);
}

export function methodFits(globs: string, method: string): boolean {
  return globs.split(',').some((glob) => globbed(glob, method));
}

function podFits(glob: string, pod: string): boolean {
  if (pod === '') return false;
  const [namespace = '', name = ''] = pod.split('/');
  const [first = '', second] = glob.split('/');
  return second === undefined ? globbed(first, name) : globbed(first, namespace) && globbed(second, name);
}

/** `docker.io/library/busybox:1.36@sha256:…` goes by its short names too: `busybox:1.36`, `busybox`. */
function imageFits(glob: string, images: readonly string[]): boolean {
  return images.some((image) => {
    const tagged = image.replace(/@.*$/, '');
    const whole = [image, tagged, tagged.replace(/:[^/:]*$/, '')];
    return whole.some((name) => globbed(glob, name) || globbed(glob, name.slice(name.lastIndexOf('/') + 1)));
  });
}

/** Whether it is about what the globs say. */
export function isAbout({ pod, container, image }: About, subject: Subject): boolean {
  if (pod !== undefined && !podFits(pod, subject.pod)) return false;
  if (container !== undefined && (subject.container === '' || !globbed(container, subject.container))) return false;
  return image === undefined || imageFits(image, subject.images);
}

/** Whether the `count`-th is one of them. @param draw a number in [0, 1) */
function chosen({ nth, every, first, chance }: Which, count: number, draw: () => number): boolean {
  if (nth !== undefined && count !== nth) return false;
  if (every !== undefined && count % every !== 0) return false;
  if (first !== undefined && count > first) return false;
  return chance === undefined || draw() < chance;
}

/** Rules that are armed, and how often each has met a call. The first that is due for a call is done to it, alone. */
export class ArmedRules {
  readonly #states: { rule: FaultRule; matched: number; fired: number }[];
  readonly #draw: () => number;

  /**
   * @param draw chance: a number in [0, 1)
   * @param before what rules that are among these have met already
   */
  constructor(rules: readonly FaultRule[], draw: () => number, before: readonly RuleState[] = []) {
    const left = [...before];
    this.#states = rules.map((rule) => {
      const at = left.findIndex((state) => JSON.stringify(state.rule) === JSON.stringify(rule));
      const [known] = at === -1 ? [] : left.splice(at, 1);
      return { rule, matched: known?.matched ?? 0, fired: known?.fired ?? 0 };
    });
    this.#draw = draw;
  }

  /** What must be known before `decide` can be asked: nothing of a call that no rule can meet, or its message too. */
  needs(method: string, agent: string): 'nothing' | 'head' | 'message' {
    const rules = this.#states.filter(({ rule }) => methodFits(rule.method, method) && (rule.agent === undefined || globbed(rule.agent, agent)));
    if (rules.length === 0) return 'nothing';
    return rules.some(({ rule: { pod, container, image } }) => pod !== undefined || container !== undefined || image !== undefined) ? 'message' : 'head';
  }

  /** What to do to this call; counts it. */
  decide({ method, agent, subject }: CallFacts): { number: number; rule: FaultRule } | null {
    let found: { number: number; rule: FaultRule } | null = null;
    for (const [index, state] of this.#states.entries()) {
      const { rule } = state;
      if (!methodFits(rule.method, method) || (rule.agent !== undefined && !globbed(rule.agent, agent)) || !isAbout(rule, subject)) continue;
      state.matched += 1;
      if (found !== null || !chosen(rule, state.matched, this.#draw)) continue;
      state.fired += 1;
      found = { number: index + 1, rule };
    }
    return found;
  }

  /** Whether that item of a list is to be left out. */
  hides(rule: FaultRule, item: Subject): boolean {
    return rule.hide !== undefined && isAbout(rule.hide, item) && chosen(rule.hide, 1, this.#draw);
  }

  /** Says of each event of one stream in turn what becomes of it. */
  eventsOf(rule: FaultRule): (event: Subject & { type: EventType }) => { copies: 0 | 1 | 2; delayMs: number } {
    let count = 0;
    return (event) => {
      const { events } = rule;
      const fits = events !== undefined && isAbout(events, event) && (events.type === undefined || events.type === event.type);
      if (!fits || !chosen(events, ++count, this.#draw)) return { copies: 1, delayMs: 0 };
      return { copies: events.do === 'drop' ? 0 : events.do === 'duplicate' ? 2 : 1, delayMs: events.delayMs ?? 0 };
    };
  }

  states(): readonly RuleState[] {
    return this.#states.map((state) => ({ ...state }));
  }
}
