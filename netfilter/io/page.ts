import { messageOf } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import { buildInfoText, processText } from '../../base/process-metrics.ts';
import type { Metrics } from './metrics.ts';

export interface PageOptions {
  readonly metrics: Metrics;
  /** Calls to the API server. */
  readonly requests: { text(): string };
  readonly loopDelay: { text(): string };
  readonly startedSeconds: number;
  /** Asks the kernel for what it counts. */
  readonly readCounters: () => Promise<void>;
  readonly log: Log;
}

/** All that /metrics shows: the proxy's own, its calls to the API server, and what every process and component has. */
export function metricsPage({ metrics, requests, loopDelay, startedSeconds, readCounters, log }: PageOptions): { text(): Promise<string> } {
  return {
    async text() {
      await readCounters().catch((error: unknown) => log.debug(1, 'The counters of the kernel cannot be read', { error: messageOf(error) }));
      return [metrics.text(), requests.text(), buildInfoText(), await processText(startedSeconds), loopDelay.text()].join('');
    },
  };
}
