import { rfc3339Micro, type Clock } from '../../base/clock.ts';
import type { KubeApi } from '../../base/kubeapi/types.ts';
import * as refs from '../../base/kubeapi/refs.ts';
import type { Log } from '../../base/log.ts';
import type { Rng } from '../../base/rng.ts';
import type { Event } from '../../proto/kube/types.ts';

export interface StartEvent {
  type: 'Normal' | 'Warning';
  reason: 'Starting' | 'KubeProxyDefaultMode';
  note?: string;
}

export const DEFAULT_MODE_NOTE =
  'No proxy mode is given, which means iptables until Kubernetes 1.40 makes nftables the default; set mode (--proxy-mode) to keep either.';

/** The only objects the proxy writes: Events about its start on this node. */
export async function announceStart(
  api: KubeApi,
  event: StartEvent,
  facts: { nodeName: string; clock: Clock; rng: Rng; log: Log },
  signal: AbortSignal,
): Promise<void> {
  const { nodeName, clock, rng, log } = facts;
  const body = {
    apiVersion: 'events.k8s.io/v1',
    kind: 'Event',
    metadata: { name: `${nodeName}.${rng.uuid().replaceAll('-', '').slice(0, 16)}`, namespace: 'default' },
    eventTime: rfc3339Micro(clock.nowMs()),
    reportingController: 'kube-proxy',
    reportingInstance: `kube-proxy-${nodeName}`,
    action: 'StartKubeProxy',
    reason: event.reason,
    ...(event.note === undefined ? {} : { note: event.note }),
    regarding: { kind: 'Node', name: nodeName, uid: nodeName },
    type: event.type,
  };
  try {
    await api.create<Event, object>(refs.events('default'), body, {}, signal);
  } catch (error) {
    log.debug(2, 'The start could not be recorded as an Event', { error });
  }
}
