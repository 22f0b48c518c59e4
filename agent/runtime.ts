import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import { compose, connectRuntime, createCriClient, type CriClient, type Transport } from '../cri/mod.ts';
import type { KubeletConfiguration } from './core/config.ts';
import { gateEnabled } from '../base/feature-gates.ts';
import { withListStreams } from './io/list-streams.ts';
import { countCalls, type AgentMetrics } from './io/metrics.ts';
import { waitForRuntime } from './io/runtime-start.ts';
import { traceCalls, type Tracer } from './io/tracer.ts';

export interface RuntimeOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly config: Pick<KubeletConfiguration, 'containerRuntimeEndpoint' | 'imageServiceEndpoint' | 'cgroupDriver' | 'featureGates'>;
  readonly metrics: AgentMetrics;
  readonly tracer: Tracer;
}

export interface OpenRuntime extends AsyncDisposable {
  readonly cri: CriClient;
  /** Who owns cgroups, as the runtime says it. */
  readonly driver: 'cgroupfs' | 'systemd';
}

/** The runtime, counted and traced; resolves when it answers. */
export async function openRuntime({ clock, log, config, metrics, tracer }: RuntimeOptions, signal: AbortSignal): Promise<OpenRuntime> {
  await using opened = new AsyncDisposableStack();
  const transportOf = (endpoint: string): Transport => {
    const transport = connectRuntime(endpoint);
    return gateEnabled(config.featureGates, 'CRIListStreaming') ? withListStreams(transport, log.child('cri')) : transport;
  };
  const connect = (endpoint: string): CriClient => opened.use(createCriClient(compose(transportOf(endpoint), countCalls(clock, metrics), traceCalls(tracer))));
  const runtime = connect(config.containerRuntimeEndpoint);
  // Images may be served by a socket of their own.
  const images = config.imageServiceEndpoint === '' ? runtime : connect(config.imageServiceEndpoint);
  const cri: CriClient = { ...runtime, images: images.images };
  const driver = await waitForRuntime({ cri, clock, log, fallback: config.cgroupDriver, onLosing: (version) => metrics.losingSupport(version) }, signal);
  const kept = opened.move();
  return { cri, driver, [Symbol.asyncDispose]: () => kept.disposeAsync() };
}
