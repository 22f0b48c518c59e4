import { rfc3339Micro, type Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import { isApiError } from '../../base/kubeapi/errors.ts';
import type { KubeApi, ResourceRef } from '../../base/kubeapi/types.ts';
import type { Log } from '../../base/log.ts';
import type { Rng } from '../../base/rng.ts';
import type { Lease } from '../../proto/kube/types.ts';

export interface NodeLeaseOptions {
  clock: Clock;
  rng: Rng;
  log: Log;
  api: KubeApi;
  nodeName: string;
  /** nodeLeaseDurationSeconds; a quarter of it is the period. */
  durationSeconds: number;
  /** The UID of the Node as the API server has it now; undefined while there is none. */
  nodeUid: (signal: AbortSignal) => Promise<string | undefined>;
}

const tries = 5;

/**
 * Renews kube-node-lease/<node> until `signal` is aborted. A Lease is never written without exactly one owner, the
 * Node that the API server has at that moment: an ownerless one would outlive its Node for ever.
 */
export async function keepLease(options: NodeLeaseOptions, signal: AbortSignal): Promise<void> {
  const { clock, rng, log, durationSeconds } = options;
  const periodMs = durationSeconds * 250;
  let held: Lease | undefined;
  while (!signal.aborted) {
    const startedMs = clock.monoMs();
    try {
      held = await renew(options, held, signal);
    } catch (error) {
      if (signal.aborted) return;
      held = undefined;
      log.error('Failed to update lease', { err: messageOf(error) });
    }
    // The period counts from the start of the renewal, so that a slow answer does not push the next one out.
    const restMs = periodMs * (1 + 0.04 * rng.float()) - (clock.monoMs() - startedMs);
    await clock.sleep(Math.max(restMs, 200), signal).catch(() => undefined);
  }
}

/** One renewal with its retries. Undefined when there is no Node to own the Lease. */
async function renew(options: NodeLeaseOptions, held: Lease | undefined, signal: AbortSignal): Promise<Lease | undefined> {
  const { api, clock, nodeName } = options;
  const ref: ResourceRef = { group: 'coordination.k8s.io', version: 'v1', resource: 'leases', namespace: 'kube-node-lease', name: nodeName };
  // Less than the period, so that a dead connection costs one renewal and not the node.
  const call = { lane: 'heartbeat', timeoutMs: Math.max(options.durationSeconds * 250, 1000) } as const;
  let current = held;
  for (let attempt = 1; ; attempt++) {
    const uid = await options.nodeUid(signal);
    if (uid === undefined) return undefined;
    try {
      current ??= await api.get<Lease>(ref, call, signal).catch((error: unknown) => {
        if (isApiError(error, 404)) return undefined;
        throw error;
      });
      if (current !== undefined) return await api.update<Lease>(ref, renewed(options, current, uid), call, signal);
      const { name: _, ...collection } = ref;
      return await api.create<Lease>(collection, renewed(options, undefined, uid), call, signal);
    } catch (error) {
      if (signal.aborted || attempt >= tries) throw error;
      // A conflict, a Lease that went, or one that came meanwhile: read again. Anything else: wait first.
      current = undefined;
      if (!isApiError(error, 409) && !isApiError(error, 404)) await clock.sleep(200 * 2 ** (attempt - 1), signal);
    }
  }
}

function renewed(options: NodeLeaseOptions, current: Lease | undefined, uid: string): Lease {
  const { nodeName, durationSeconds, clock } = options;
  const owner = { apiVersion: 'v1', kind: 'Node', name: nodeName, uid };
  return {
    apiVersion: 'coordination.k8s.io/v1',
    kind: 'Lease',
    metadata: { ...(current?.metadata ?? { name: nodeName, namespace: 'kube-node-lease' }), ownerReferences: [owner] },
    spec: { ...current?.spec, holderIdentity: nodeName, leaseDurationSeconds: durationSeconds, renewTime: rfc3339Micro(clock.nowMs()) },
  };
}
