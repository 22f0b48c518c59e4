import type { Log } from '../../base/log.ts';
import { RpcError, type CallOptions, type RuntimeCall, type Transport } from '../../cri/mod.ts';

/** Lists that a runtime can answer in parts: with what, and under which name each way has its items. */
const streamed: ReadonlyMap<string, { readonly method: string; readonly items: string; readonly answer: string }> = new Map([
  ['ListPodSandbox', { method: 'StreamPodSandboxes', items: 'podSandboxes', answer: 'items' }],
  ['ListContainers', { method: 'StreamContainers', items: 'containers', answer: 'containers' }],
  ['ListContainerStats', { method: 'StreamContainerStats', items: 'containerStats', answer: 'stats' }],
  ['ListPodSandboxStats', { method: 'StreamPodSandboxStats', items: 'podSandboxStats', answer: 'stats' }],
  ['ListPodSandboxMetrics', { method: 'StreamPodSandboxMetrics', items: 'podSandboxMetrics', answer: 'podMetrics' }],
  ['ListImages', { method: 'StreamImages', items: 'images', answer: 'images' }],
]);

/**
 * `CRIListStreaming` (KEP-5825): lists come as streams, so that none is too large for one message. A runtime that
 * does not know one of them is asked for whole lists from then on, service by service, as upstream does. For whoever
 * calls nothing changes, names of metrics included.
 */
export function withListStreams(transport: Transport, log: Log): Transport {
  const without = new Set<string>();
  const collect = async (call: RuntimeCall, options: CallOptions): Promise<object> => {
    const as = streamed.get(call.method);
    if (as === undefined || without.has(call.service)) return await transport.call(call, options);
    const items: unknown[] = [];
    try {
      for await (const part of transport.stream({ ...call, method: as.method }, options)) items.push(...((part as Record<string, unknown[]>)[as.items] ?? []));
    } catch (error) {
      if (!(error instanceof RpcError) || error.status !== 'Unimplemented') throw error;
      log.info(`${as.method} not implemented, falling back to ${call.method}`);
      without.add(call.service);
      return await transport.call(call, options);
    }
    return { [as.answer]: items };
  };
  return { call: collect, stream: (call, options) => transport.stream(call, options), [Symbol.asyncDispose]: () => transport[Symbol.asyncDispose]() };
}
