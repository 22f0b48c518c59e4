import { RpcError } from './errors.ts';
import { methodsOf } from './fake-methods.ts';
import { FakeWorld, type EventSink } from './fake-world.ts';
import { fillShape, methodShape } from './shape.ts';
import type { CallOptions, RuntimeCall, Transport } from './transport.ts';

export type { ContainerScript } from './fake-state.ts';

/**
 * containerd in memory: sandboxes and containers with its transitions and refusals, and a process life that a test
 * scripts on a clock. Records the calls it got.
 */
export class FakeRuntime extends FakeWorld implements Transport {
  readonly #methods = methodsOf(this);

  async call(call: RuntimeCall, options: CallOptions): Promise<object> {
    const { requestType, responseType } = methodShape(call.service, call.method);
    const request = fillShape(requestType, call.request) as object;
    if (this.remembers) this.calls.push({ ...call, request });
    // An answer is never there at once.
    await Promise.resolve();
    if (options.signal?.aborted === true) throw new RpcError('Canceled', call.method, 'context canceled');
    if (this.away) throw this.gone(call.method);
    const method = this.#methods[call.method];
    if (method === undefined) throw this.unimplemented(call.method);
    const late = new AbortController();
    using _deadline = Number.isFinite(options.timeoutMs) ? this.clock.after(options.timeoutMs, () => late.abort()) : undefined;
    const signal = options.signal === undefined ? late.signal : AbortSignal.any([options.signal, late.signal]);
    try {
      const answer = await method(request as never, { ...options, signal });
      if (this.away) throw this.gone(call.method);
      return fillShape(responseType, answer) as object;
    } catch (error) {
      if (late.signal.aborted && error instanceof RpcError && error.status === 'Canceled')
        throw new RpcError('DeadlineExceeded', call.method, 'context deadline exceeded');
      throw error;
    }
  }

  async *stream(call: RuntimeCall, { signal }: CallOptions): AsyncGenerator<object> {
    const { responseType } = methodShape(call.service, call.method);
    if (this.remembers) this.calls.push(call);
    await Promise.resolve();
    if (this.away) throw this.gone(call.method);
    if (call.method !== 'GetContainerEvents' || this.version === '1.6') throw this.unimplemented(call.method);
    const queue: object[] = [];
    let ended: RpcError | undefined;
    let wake = (): void => {};
    const sink: EventSink = {
      push: (event) => (queue.push(event), wake()),
      end: (error) => ((ended = error), wake()),
    };
    const stop = (): void => sink.end(new RpcError('Canceled', call.method, 'context canceled'));
    this.sinks.add(sink);
    signal?.addEventListener('abort', stop, { once: true });
    if (signal?.aborted === true) stop();
    try {
      for (;;) {
        const event = queue.shift();
        if (event !== undefined) yield fillShape(responseType, event) as object;
        else if (ended !== undefined) throw ended;
        else await new Promise<void>((resolve) => (wake = resolve));
      }
    } finally {
      this.sinks.delete(sink);
      signal?.removeEventListener('abort', stop);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.goAway();
    for (const { status } of this.containers.values()) if (status.state === 'running') status.exit?.[Symbol.dispose]();
  }
}
