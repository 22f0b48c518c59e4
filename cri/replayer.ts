import type { Clock } from '../base/clock.ts';
import { messageOf, OpError } from '../base/errors.ts';
import { plainJson } from './core/plain-json.ts';
import { textAt, type Fields } from './core/playback-world.ts';
import { compareAnswers, isAhead, isStillToCome, stateOf, statusName } from './core/replay-compare.ts';
import type { ReplayStep } from './core/replay-plan.ts';
import type { Needed, Rewriter } from './core/replay-rewrite.ts';
import { withoutDefaults } from './core/without-defaults.ts';
import { RpcError } from './errors.ts';
import { methodShape } from './shape.ts';
import type { Transport } from './transport.ts';
import type { ComparedCall } from './core/replay-text.ts';

/** A call that was made again, and how it compares. */
export interface Replayed extends ComparedCall {
  readonly call: number;
}

interface ReplayerOptions {
  readonly transport: Transport;
  readonly rewriter: Rewriter;
  readonly clock: Clock;
  /** Recorded pauses are divided by this; Infinity: each call as soon as those before it have ended. */
  readonly speed: number;
  /** No further call is made when it is aborted; those under way end. */
  readonly signal: AbortSignal;
  /** Ends calls under way. */
  readonly kill: AbortSignal;
  readonly prepare: (needed: readonly Needed[]) => Promise<void>;
  /** What the image of a container is called here. */
  readonly image: (spec: Fields) => Promise<string>;
  readonly onReplayed: (result: Replayed) => void;
  readonly onSkipped: (step: ReplayStep, why: string) => void;
}

interface Running {
  readonly step: ReplayStep;
  readonly done: Promise<void>;
}

/** Calls read ahead of those that are made. */
const MAX_AHEAD = 2_000;
/** Recorded milliseconds read ahead: a call that took longer than this is made late. */
const MAX_AHEAD_MS = 300_000;
/** Calls under way at once. */
const MAX_AT_ONCE = 64;
const CALL_MS = 240_000;
const PULL_MS = 1_800_000;
/** How long a container that is to end has for it, beyond what it had when it was recorded. */
const SETTLE_MS = 15_000;
const SETTLE_EVERY_MS = 50;

/**
 * Makes recorded calls again. Of one pod a call waits for those that had ended before it began, so that what followed each
 * other does so again and what ran side by side may; calls about the whole runtime wait for all changes before them.
 */
export class Replayer {
  readonly #options: ReplayerOptions;
  readonly #running = new Set<Running>();
  #startedMs: number | null = null;
  /** By id of that time: results about containers that have ended earlier than was recorded. */
  readonly #ahead = new Map<string, Replayed[]>();
  /** Wakes who waits for room. */
  #ended: () => void = () => {};
  #atOnce = 0;
  #failure: { readonly error: unknown } | null = null;
  readonly #turns: (() => void)[] = [];

  constructor(options: ReplayerOptions) {
    this.#options = options;
  }

  /** Takes the next step; resolves when there is room for another. */
  async offer(step: ReplayStep): Promise<void> {
    const { clock, speed, signal } = this.#options;
    this.#startedMs ??= clock.monoMs() - step.startMs / speed;
    while (this.#running.size >= MAX_AHEAD && !signal.aborted) await new Promise<void>((resolve) => (this.#ended = resolve));
    if (Number.isFinite(speed)) {
      const aheadMs = step.startMs - MAX_AHEAD_MS - (clock.monoMs() - this.#startedMs) * speed;
      if (aheadMs > 0) await this.#until(aheadMs / speed);
    }
    if (signal.aborted) return;
    const done = this.#run(step, this.#before(step))
      .catch((error: unknown) => {
        this.#failure ??= { error };
      })
      .finally(() => {
        this.#running.delete(running);
        this.#ended();
      });
    const running: Running = { step, done };
    this.#running.add(running);
  }

  /** Resolves when all calls have ended. Throws what kept a call from being made at all. */
  async end(): Promise<void> {
    while (this.#running.size > 0) await Promise.all([...this.#running].map(({ done }) => done));
    for (const waiting of this.#ahead.values()) for (const one of waiting) this.#options.onReplayed(one);
    this.#ahead.clear();
    if (this.#failure !== null) throw this.#failure.error;
  }

  #before(step: ReplayStep): Promise<void>[] {
    const found: Promise<void>[] = [];
    for (const { step: other, done } of this.#running) {
      if (other.endMs > step.startMs) continue;
      const waits = other.lane === step.lane || (step.lane === '' && other.changes) || (step.method === 'CreateContainer' && other.method === 'PullImage');
      if (waits) found.push(done);
    }
    return found;
  }

  async #until(ms: number): Promise<void> {
    // Being stopped is no failure here: nothing more is made then.
    await this.#options.clock.sleep(ms, this.#options.signal).catch(() => {});
  }

  async #turn(): Promise<void> {
    if (this.#atOnce >= MAX_AT_ONCE) await new Promise<void>((resolve) => this.#turns.push(resolve));
    this.#atOnce += 1;
  }

  async #run(step: ReplayStep, before: readonly Promise<void>[]): Promise<void> {
    const { clock, speed, signal, onSkipped } = this.#options;
    await Promise.all(before);
    if (Number.isFinite(speed)) {
      const waitMs = (this.#startedMs ?? 0) + step.startMs / speed - clock.monoMs();
      if (waitMs > 0) await this.#until(waitMs);
    }
    await this.#turn();
    try {
      if (signal.aborted) onSkipped(step, 'it was stopped');
      else await this.#make(step);
    } finally {
      this.#atOnce -= 1;
      this.#turns.shift()?.();
    }
  }

  /** An id of the recording for which nothing was made here. */
  #missing({ method, request }: ReplayStep): string | null {
    if (method === 'RunPodSandbox') return null;
    for (const id of [
      textAt(request, 'podSandboxId'),
      textAt(request, 'containerId'),
      textAt(request, 'filter', 'id'),
      textAt(request, 'filter', 'podSandboxId'),
    ])
      if (id !== '' && !this.#options.rewriter.ids.has(id)) return id;
    return null;
  }

  async #make(step: ReplayStep): Promise<void> {
    const { clock, rewriter, onSkipped, prepare } = this.#options;
    if (this.#missing(step) !== null) return onSkipped(step, 'what it is about was not made here');
    const image = step.method === 'CreateContainer' ? await this.#options.image(((step.request['config'] as Fields)['image'] ?? {}) as Fields) : '';
    const { request, needed } = rewriter.rewrite(step.method, step.request, () => image);
    if (needed.length > 0) await prepare(needed);
    const startedMs = clock.monoMs();
    const seen = await this.#call(step, request);
    const status = seen.error === null ? 'OK' : seen.error.status;
    const expected = statusName(step.status);
    // Whether defaults are on the wire is the habit of a language, not of a runtime.
    const recorded = withoutDefaults(methodShape(step.service, step.method).responseType, step.response) as Fields;
    const found = status === 'OK' && expected === 'OK' ? compareAnswers(step.method, recorded, seen.answer) : [];
    const result: Replayed = {
      call: step.call,
      method: step.method,
      subject: step.subject,
      recorded: { status: expected, durationMs: step.endMs - step.startMs },
      seen: { status, message: seen.error?.description ?? '', durationMs: seen.tookMs ?? clock.monoMs() - startedMs },
      differences: found,
      matched: status === expected && found.length === 0,
    };
    this.#tell(step, result, isAhead(step.method, stateOf(step.response), stateOf(seen.answer)));
  }

  /**
   * Tells a result. That a container has ended which was recorded running says nothing until the recording sees it end by
   * itself, then it was a matter of when it was asked; or until it is stopped or never spoken of again.
   */
  #tell(step: ReplayStep, result: Replayed, ahead: boolean): void {
    const { onReplayed } = this.#options;
    const id = textAt(step.request, 'containerId');
    const waiting = this.#ahead.get(id) ?? [];
    if (ahead) {
      this.#ahead.set(id, [...waiting, result]);
      return;
    }
    const endedByItself = step.method === 'ContainerStatus' && stateOf(step.response) === 'CONTAINER_EXITED';
    if (waiting.length > 0 && (endedByItself || /^(Stop|Remove)/.test(step.method))) {
      this.#ahead.delete(id);
      for (const one of waiting) onReplayed(endedByItself ? { ...one, differences: [], matched: true } : one);
    }
    onReplayed(result);
  }

  async #call(step: ReplayStep, request: Fields): Promise<{ answer: Fields; error: RpcError | null; tookMs: number }> {
    const { clock, kill, rewriter, transport } = this.#options;
    const { service, method } = step;
    // A caller that gave up is one again, as early.
    const timeoutMs = step.status === null ? step.endMs - step.startMs : method === 'PullImage' ? PULL_MS : CALL_MS;
    const { responseType } = methodShape(service, method);
    let tookMs: number | null = null;
    for (const firstMs = clock.monoMs(); ;) {
      const startedMs = clock.monoMs();
      try {
        const answer = plainJson(withoutDefaults(responseType, await transport.call({ service, method, request }, { timeoutMs, signal: kill }))) as Fields;
        tookMs ??= clock.monoMs() - startedMs;
        for (const name of ['podSandboxId', 'containerId']) rewriter.learn(textAt(step.response, name), textAt(answer, name));
        const early = isStillToCome(method, stateOf(step.response), stateOf(answer)) && clock.monoMs() - firstMs < SETTLE_MS && !this.#options.signal.aborted;
        if (!early) return { answer, error: null, tookMs };
        await this.#until(SETTLE_EVERY_MS);
      } catch (error) {
        if (!(error instanceof RpcError)) throw new OpError('failed', `replay ${method}`, messageOf(error), { cause: error });
        return { answer: {}, error, tookMs: tookMs ?? clock.monoMs() - startedMs };
      }
    }
  }
}
