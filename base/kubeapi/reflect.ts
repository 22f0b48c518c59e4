import type { Clock } from '../clock.ts';
import { messageOf, OpError } from '../errors.ts';
import type { Log } from '../log.ts';
import { backoffMs } from '../retry.ts';
import type { Rng } from '../rng.ts';
import { ApiError } from './errors.ts';
import { apiErrorFrom } from './sender.ts';
import type { KubeList, KubeObject, ListOptions, ReflectHandler } from './types.ts';

export interface WatchEvent {
  type: string;
  object: KubeObject;
}

/** What reflecting needs of a server; a real one and the fake both have it. */
export interface ReflectSource {
  list(query: Record<string, string>, signal: AbortSignal): Promise<KubeList<KubeObject>>;
  /** Returns when the server ends the watch or `signal` is aborted; throws ApiError when refused, OpError when cut. */
  watch(query: Record<string, string>, onEvent: (event: WatchEvent) => void, signal: AbortSignal): Promise<void>;
}

export interface ReflectDeps {
  source: ReflectSource;
  clock: Clock;
  rng: Rng;
  log: Log;
  /** For logs: `pods`. */
  what: string;
}

/** As client-go: pauses grow from 0.8 s to 30 s, doubled at most by chance, and start anew after two quiet minutes. */
const pauses = { baseMs: 800, maxMs: 30_000, jitter: 1 };
/** A server that was never reached is being started beside us more often than it is in trouble. */
const firstPauses = { baseMs: 100, maxMs: 30_000, jitter: 0.5 };
const pausesForgottenMs = 120_000;
const pageSize = 500;
const minWatchSeconds = 300;
/** A server that knows no streaming lists sends objects but never the mark of their end. */
const streamingSilenceMs = 10_000;
const shortWatchMs = 1_000;
const overtimeMs = 30_000;
const endOfList = 'k8s.io/initial-events-end';

/** Wraps what the handler threw, so that it is not taken for trouble with the server. */
class HandlerFailure {
  readonly cause: unknown;
  constructor(cause: unknown) {
    this.cause = cause;
  }
}

/** Where a copy stands: without a version everything has to be listed. */
type Position = { state: 'unlisted' } | { state: 'watching'; version: string };

class Reflection<T extends KubeObject> {
  readonly #deps: ReflectDeps;
  readonly #selector: Record<string, string>;
  readonly #handler: ReflectHandler<T>;
  #position: Position = { state: 'unlisted' };
  #streaming = true;
  #failures = 0;
  /** Versions that were gone, since the last event: one is met at once, a row of them is not. */
  #expiries = 0;
  #failedAtMs = -Infinity;
  #reached = false;

  constructor(deps: ReflectDeps, selector: Pick<ListOptions, 'labelSelector' | 'fieldSelector'>, handler: ReflectHandler<T>) {
    this.#deps = deps;
    this.#handler = handler;
    this.#selector = {};
    if (selector.labelSelector !== undefined && selector.labelSelector !== '') this.#selector['labelSelector'] = selector.labelSelector;
    if (selector.fieldSelector !== undefined && selector.fieldSelector !== '') this.#selector['fieldSelector'] = selector.fieldSelector;
  }

  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        if (this.#position.state === 'watching') await this.#watch(this.#position.version, signal);
        else if (this.#streaming) await this.#streamList(signal);
        else await this.#pagedList(signal);
      } catch (error) {
        if (error instanceof HandlerFailure) throw error.cause;
        if (!(error instanceof ApiError || error instanceof OpError)) throw error;
        if (signal.aborted) return;
        await this.#pause(error, signal);
      }
    }
  }

  async #pause(error: unknown, signal: AbortSignal): Promise<void> {
    const { clock, rng, log, what } = this.#deps;
    const expired = error instanceof ApiError && (error.code === 410 || error.reason === 'Expired' || error.reason === 'Gone');
    if (expired) this.#position = { state: 'unlisted' };
    this.#call(() => this.#handler.trouble?.(error));
    const nowMs = clock.monoMs();
    if (nowMs - this.#failedAtMs > pausesForgottenMs) this.#failures = 0;
    this.#failedAtMs = nowMs;
    const count = expired ? ++this.#expiries : ++this.#failures;
    const asked = error instanceof ApiError ? error.retryAfterMs : 0;
    const neverReached = !this.#reached && error instanceof OpError && error.code === 'unavailable';
    const pauseMs = Math.max(asked, backoffMs(count, neverReached ? firstPauses : pauses, rng));
    log.debug(2, 'Watch interrupted', { resource: what, err: messageOf(error), pauseMs: Math.round(pauseMs) });
    try {
      await clock.sleep(pauseMs, signal);
    } catch {
      // Only the caller's signal ends a sleep; the loop sees it.
    }
  }

  #call(action: () => void): void {
    try {
      action();
    } catch (cause) {
      throw new HandlerFailure(cause);
    }
  }

  #trim(object: KubeObject): T {
    let trimmed = object as T;
    this.#call(() => (trimmed = this.#handler.trim?.(trimmed) ?? trimmed));
    return trimmed;
  }

  #replaced(items: readonly T[], version: string): void {
    this.#position = { state: 'watching', version };
    this.#failures = 0;
    this.#reached = true;
    this.#call(() => this.#handler.replaced(items));
  }

  async #pagedList(signal: AbortSignal): Promise<void> {
    let items: T[] = [];
    let query: Record<string, string> = { ...this.#selector, limit: String(pageSize) };
    for (;;) {
      let page: KubeList<KubeObject>;
      try {
        page = await this.#deps.source.list(query, signal);
      } catch (error) {
        // The version of the first page is gone: everything at once is the only consistent list left.
        if (!(error instanceof ApiError && error.code === 410 && query['continue'] !== undefined)) throw error;
        items = [];
        query = { ...this.#selector };
        continue;
      }
      for (const item of page.items) items.push(this.#trim(item));
      const next = page.metadata.continue;
      if (next === undefined || next === '') {
        this.#replaced(items, page.metadata.resourceVersion ?? '');
        return;
      }
      query = { ...this.#selector, limit: String(pageSize), continue: next };
    }
  }

  /** A list that arrives as a watch's first events, and goes on as that watch. */
  async #streamList(signal: AbortSignal): Promise<void> {
    const found = new Map<string, T>();
    const silence = new Silence(this.#deps.clock, signal);
    const query = { ...this.#watchQuery(), sendInitialEvents: 'true', resourceVersionMatch: 'NotOlderThan' };
    try {
      await this.#follow(query, silence.signal, (event) => {
        if (this.#position.state === 'watching') return this.#apply(event);
        silence.broken();
        const { metadata } = event.object;
        const key = `${metadata.namespace ?? ''}/${metadata.name ?? ''}`;
        if (event.type === 'ADDED' || event.type === 'MODIFIED') found.set(key, this.#trim(event.object));
        else if (event.type === 'DELETED') found.delete(key);
        else if (event.type === 'BOOKMARK' && metadata.annotations?.[endOfList] === 'true') {
          silence.over();
          this.#replaced([...found.values()], metadata.resourceVersion ?? '');
          found.clear();
        }
      });
    } catch (error) {
      if (
        error instanceof ApiError &&
        this.#position.state === 'unlisted' &&
        (error.code === 400 || error.code === 403 || error.code === 405 || error.code === 422)
      ) {
        this.#noStreaming(messageOf(error));
        return;
      }
      if (silence.tooLong && !signal.aborted && !(error instanceof HandlerFailure)) {
        this.#noStreaming('the end of the list was not marked');
        return;
      }
      throw error;
    } finally {
      silence.over();
    }
    if (silence.tooLong && this.#position.state === 'unlisted') this.#noStreaming('the end of the list was not marked');
    else if (this.#position.state === 'unlisted' && !signal.aborted)
      throw new OpError('unavailable', `list ${this.#deps.what}`, 'the server ended the list before it was complete');
  }

  #noStreaming(why: string): void {
    this.#streaming = false;
    this.#deps.log.debug(2, 'Streaming list refused, using pages', { resource: this.#deps.what, err: why });
  }

  #watchQuery(): Record<string, string> {
    const seconds = minWatchSeconds + this.#deps.rng.int(minWatchSeconds);
    return { ...this.#selector, watch: 'true', allowWatchBookmarks: 'true', timeoutSeconds: String(seconds) };
  }

  async #watch(version: string, signal: AbortSignal): Promise<void> {
    const startedMs = this.#deps.clock.monoMs();
    const events = await this.#follow({ ...this.#watchQuery(), resourceVersion: version }, signal, (event) => this.#apply(event));
    const short = this.#deps.clock.monoMs() - startedMs < shortWatchMs;
    if (events === 0 && short && !signal.aborted) throw new OpError('unavailable', `watch ${this.#deps.what}`, 'the server ended the watch at once');
  }

  #apply(event: WatchEvent): void {
    const version = event.object.metadata.resourceVersion;
    if (version !== undefined) this.#position = { state: 'watching', version };
    this.#failures = 0;
    this.#expiries = 0;
    const { type } = event;
    if (type === 'ADDED' || type === 'MODIFIED' || type === 'DELETED') {
      const object = this.#trim(event.object);
      this.#call(() => this.#handler.changed(type, object));
    }
  }

  /** Runs one watch, gives its events in order, and turns an ERROR event into a throw. Returns how many came. */
  async #follow(query: Record<string, string>, signal: AbortSignal, onEvent: (event: WatchEvent) => void): Promise<number> {
    const stop = new AbortController();
    const forward = (): void => stop.abort(signal.reason);
    if (signal.aborted) forward();
    signal.addEventListener('abort', forward, { once: true });
    // A server that does not end the watch when it said it would is not to be believed any longer.
    using _overtime = this.#deps.clock.after(Number(query['timeoutSeconds']) * 1000 + overtimeMs, () => stop.abort());
    let events = 0;
    let failure: unknown;
    const take = (event: WatchEvent): void => {
      if (failure !== undefined || stop.signal.aborted) return;
      events++;
      try {
        if (event.type === 'ERROR') throw apiErrorFrom(500, JSON.stringify(event.object));
        onEvent(event);
      } catch (error) {
        failure = error;
        stop.abort();
      }
    };
    try {
      await this.#deps.source.watch(query, take, stop.signal);
    } catch (error) {
      if (failure === undefined && !stop.signal.aborted) throw error;
    } finally {
      signal.removeEventListener('abort', forward);
    }
    if (failure !== undefined) throw failure;
    return events;
  }
}

/** Aborts its signal when nothing was heard for too long, until it is over. */
class Silence {
  readonly #clock: Clock;
  readonly #controller = new AbortController();
  #heardAtMs: number;
  #timer: Disposable | undefined;
  tooLong = false;

  constructor(clock: Clock, outer: AbortSignal) {
    this.#clock = clock;
    this.#heardAtMs = clock.monoMs();
    this.#arm(streamingSilenceMs);
    this.signal = AbortSignal.any([outer, this.#controller.signal]);
  }

  readonly signal: AbortSignal;

  broken(): void {
    this.#heardAtMs = this.#clock.monoMs();
  }

  over(): void {
    this.#timer?.[Symbol.dispose]();
    this.#timer = undefined;
  }

  #arm(ms: number): void {
    this.#timer = this.#clock.after(ms, () => {
      const leftMs = this.#heardAtMs + streamingSilenceMs - this.#clock.monoMs();
      if (leftMs > 0) return this.#arm(leftMs);
      this.tooLong = true;
      this.#controller.abort();
    });
  }
}

/** The loop behind KubeApi.reflect; see there. Throws what the handler throws, and bugs. */
export async function reflectLoop<T extends KubeObject>(
  deps: ReflectDeps,
  selector: Pick<ListOptions, 'labelSelector' | 'fieldSelector'>,
  handler: ReflectHandler<T>,
  signal: AbortSignal,
): Promise<void> {
  await new Reflection(deps, selector, handler).run(signal);
}
