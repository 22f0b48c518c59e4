import { untilAborted } from '../../base/abort.ts';
import { OpError } from '../../base/errors.ts';
import type { KubeApi } from '../../base/kubeapi/types.ts';
import type { Log } from '../../base/log.ts';
import type { KubeletConfiguration } from '../core/config.ts';
import { createEventsApi } from './events-api.ts';
import type { EventsApi, EventsApiOptions } from './events-api.ts';

/*
 * Standalone mode: no --kubeconfig, so no API server. Pods come from files and a URL; nothing is registered and no
 * status is written. What asks the API server all the same is told that there is none; what watches it sees an empty one.
 */

/** Stands in for an API server that there is none of. */
export function absentApi(): KubeApi {
  const none = (): Promise<never> => Promise.reject(new OpError('unavailable', 'ask the API server', 'there is none: the agent runs without --kubeconfig'));
  return {
    get: none,
    list: none,
    create: none,
    update: none,
    patch: none,
    delete: none,
    raw: none,
    reflect(_ref, _selector, handler, signal) {
      handler.replaced([]);
      return untilAborted(signal);
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

/** Events, told to the API server where there is one. */
export function openEvents({
  isAlone,
  config,
  ...options
}: EventsApiOptions & { readonly isAlone: boolean; readonly config: Pick<KubeletConfiguration, 'eventRecordQPS' | 'eventBurst'> }): EventsApi {
  return isAlone ? loggedEvents(options.log) : createEventsApi({ ...options, qps: config.eventRecordQPS, burst: config.eventBurst });
}

/** Events of a node that nobody asks: lines of the log. */
export function loggedEvents(log: Log): EventsApi {
  return {
    event(target, type, reason, message) {
      const where = target.namespace === undefined ? target.name : `${target.namespace}/${target.name}`;
      const fields = { object: where, kind: target.kind, type, reason, message };
      if (type === 'Warning') log.warn('Event occurred', fields);
      else log.info('Event occurred', fields);
    },
    run: untilAborted,
    waiting: 0,
    dropped: 0,
  };
}

/** Why a configuration cannot do without an API server; null: it can. */
export function standaloneProblem(
  config: Pick<KubeletConfiguration, 'enableServer' | 'authentication' | 'authorization' | 'serverTLSBootstrap'>,
): string | null {
  if (!config.enableServer) return null;
  if (config.authentication.webhook.enabled) return 'no client provided, cannot use webhook authentication';
  if (config.authorization.mode === 'Webhook') return 'no client provided, cannot use webhook authorization';
  return config.serverTLSBootstrap ? 'serverTLSBootstrap needs an API server' : null;
}
