import type { LoopDelay } from '../../base/loop-delay.ts';
import type { Store } from './store.ts';

/** The few numbers that tell whether this control plane keeps up. */
export function metricsText(store: Store, loopDelay: LoopDelay, inFlight: () => number): string {
  const { objects, changes, watchers } = store.counts();
  const line = (name: string, help: string, value: number): string => `# HELP ${name} ${help}\n# TYPE ${name} gauge\n${name} ${value}\n`;
  return [
    line('apiserver_storage_objects', 'Number of stored objects', objects),
    line('apiserver_watch_cache_events', 'Changes that watches can still start from', changes),
    line('apiserver_registered_watchers', 'Number of currently registered watchers', watchers),
    line('apiserver_current_inflight_requests', 'Requests being carried out', inFlight()),
    line('apiserver_storage_revision', 'Newest version on disk', store.revision),
    line('process_resident_memory_bytes', 'Resident memory size in bytes.', process.memoryUsage.rss()),
    loopDelay.text(),
  ].join('');
}
