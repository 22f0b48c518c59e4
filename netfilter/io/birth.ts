import { rfc3339Micro, type Clock } from '../../base/clock.ts';
import type { KubeApi } from '../../base/kubeapi/types.ts';
import * as refs from '../../base/kubeapi/refs.ts';
import type { Log } from '../../base/log.ts';
import type { Rng } from '../../base/rng.ts';
import type { Event } from '../../proto/kube/types.ts';

/** A proxy that ends for what it tells of does not wait longer for a server that does not answer. */
const TELL_MS = 5000;

export interface ProxyEvent {
  type: 'Normal' | 'Warning';
  reason: 'Starting' | 'KubeProxyDefaultMode' | 'FailedToStartProxierHealthcheck' | 'FailedToStartMetricServer' | 'FailedToStartServiceHealthcheck';
  /** Default: StartKubeProxy. */
  action?: 'Listen';
  note?: string;
  /** `namespace/name` of the Service that it is about; default: the node. */
  service?: string;
}

export const DEFAULT_MODE_NOTE =
  'No proxy mode is given, which means iptables until Kubernetes 1.40 makes nftables the default; set mode (--proxy-mode) to keep either.';

/** The only objects the proxy writes: Events about its start on this node, and about ports that it cannot open. */
export async function announce(
  api: KubeApi,
  event: ProxyEvent,
  facts: { nodeName: string; clock: Clock; rng: Rng; log: Log },
  signal: AbortSignal,
): Promise<void> {
  const { nodeName, clock, rng, log } = facts;
  const [namespace = 'default', name = nodeName] = event.service?.split('/') ?? [];
  const body = {
    apiVersion: 'events.k8s.io/v1',
    kind: 'Event',
    metadata: { name: `${name}.${rng.uuid().replaceAll('-', '').slice(0, 16)}`, namespace },
    eventTime: rfc3339Micro(clock.nowMs()),
    reportingController: 'kube-proxy',
    reportingInstance: `kube-proxy-${nodeName}`,
    action: event.action ?? 'StartKubeProxy',
    reason: event.reason,
    ...(event.note === undefined ? {} : { note: event.note }),
    regarding: { apiVersion: 'v1', ...(event.service === undefined ? { kind: 'Node' } : { kind: 'Service', namespace }), name },
    type: event.type,
  };
  try {
    await api.create<Event, object>(refs.events(namespace), body, { timeoutMs: TELL_MS }, signal);
  } catch (error) {
    log.debug(2, 'An Event could not be recorded', { reason: event.reason, error });
  }
}
