import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import { RpcError } from '../../cri/mod.ts';
import podWire from '../../proto/kube/pod-wire.json' with { type: 'json' };
import type { Pod } from '../../proto/kube/types.ts';
import definition from '../../proto/plugins/pods.json' with { type: 'json' };
import type { PodsMethods } from '../../proto/plugins/pods.ts';
import { keyOf } from '../core/containers.ts';
import { PodEncoder } from '../core/pod-wire.ts';
import { RateLimit } from '../core/resources/rate.ts';
import { served, serveGrpc, serviceOf } from './grpc.ts';
import type { ResourceMetrics } from './resource-metrics.ts';

export interface PodsSocketOptions {
  readonly clock: Clock;
  /** `<root>/pods-api`. */
  readonly dir: string;
  readonly metrics: ResourceMetrics;
  /** All pods with their newest status; what has not changed is the same object. */
  readonly pods: () => readonly Pod[];
  readonly synced: () => boolean;
}

const perSecond = 100;
const burst = 10;
/** How soon a watcher is told of a change. Nothing is looked at while nobody watches. */
const lookMs = 250;

/** Tells programs on the node of its pods (PodsAPI, KEP-4188), on `pods-api.sock` in a directory of its own. */
export async function servePods(options: PodsSocketOptions): Promise<AsyncDisposable> {
  const { clock, metrics, dir } = options;
  const path = join(dir, 'pods-api.sock');
  await mkdir(dir, { recursive: true, mode: 0o750 });
  await rm(path, { force: true });
  const limit = new RateLimit(perSecond, burst);
  const encoder = new PodEncoder(podWire);
  const textOf = textsOf();
  const sorted = (): Pod[] => options.pods().toSorted((left, right) => (keyOf(left).uid < keyOf(right).uid ? -1 : 1));
  const count = (method: 'ListPods' | 'GetPod' | 'WatchPods', status: string): void => {
    const labels = { server_api_version: 'v1alpha1', status_code: status };
    metrics.podRequests.add(labels);
    metrics.podRequestsBy[method].add(labels);
  };
  const ready = (method: string): void => {
    if (!options.synced()) throw new RpcError('FailedPrecondition', method, 'Kubelet is initializing');
  };
  const answer = (method: 'ListPods' | 'GetPod', make: () => object): object => {
    // As upstream has it: what the limit refuses is not counted.
    if (!limit.allow(clock.monoMs())) throw new RpcError('ResourceExhausted', method, 'rejected by rate limit');
    try {
      ready(method);
      const made = make();
      count(method, 'OK');
      return made;
    } catch (error) {
      count(method, error instanceof RpcError ? error.status : 'Unknown');
      throw error;
    }
  };
  const service = serviceOf<PodsMethods>(definition, 'v1alpha1.Pods');
  return serveGrpc(path, [
    served(service, {
      ListPods: () => answer('ListPods', () => ({ pods: sorted().map((pod) => encoder.encode(pod)) })),
      GetPod: ({ podUID }) =>
        answer('GetPod', () => {
          const pod = options.pods().find((each) => keyOf(each).uid === podUID);
          if (pod === undefined) throw new RpcError('NotFound', 'GetPod', `pod with UID ${podUID} not found`);
          return { pod: encoder.encode(pod) };
        }),
      async *WatchPods(_, signal) {
        try {
          ready('WatchPods');
          yield* watch(clock, { encoder, sorted, textOf }, signal);
        } catch (error) {
          count('WatchPods', error instanceof RpcError ? error.status : 'Unknown');
          throw error;
        }
        count('WatchPods', 'Canceled');
      },
    }),
  ]);
}

/** For as long as a pod is the same object its text is made once, for however many watchers. */
function textsOf(): (pod: Pod) => string {
  const texts = new WeakMap<Pod, string>();
  return (pod) => {
    const text = texts.get(pod) ?? JSON.stringify(pod);
    texts.set(pod, text);
    return text;
  };
}

interface Watched {
  readonly encoder: PodEncoder;
  readonly sorted: () => readonly Pod[];
  readonly textOf: (pod: Pod) => string;
}

async function* watch(clock: Clock, { encoder, sorted, textOf }: Watched, signal: AbortSignal): AsyncGenerator<object> {
  const told = new Map<string, Pod>();
  for (const pod of sorted()) {
    told.set(keyOf(pod).uid, pod);
    yield { type: 'ADDED', pod: encoder.encode(pod) };
  }
  yield { type: 'INITIAL_SYNC_COMPLETE' };
  for (;;) {
    try {
      await clock.sleep(lookMs, signal);
    } catch {
      return;
    }
    const pods = new Map(sorted().map((pod) => [keyOf(pod).uid, pod]));
    for (const [uid, pod] of pods) {
      const before = told.get(uid);
      if (before === pod) continue;
      told.set(uid, pod);
      if (before !== undefined && textOf(before) === textOf(pod)) continue;
      yield { type: before === undefined ? 'ADDED' : 'MODIFIED', pod: encoder.encode(pod) };
    }
    for (const [uid, pod] of told) {
      if (pods.has(uid)) continue;
      told.delete(uid);
      const { namespace, name } = keyOf(pod);
      yield { type: 'DELETED', pod: encoder.encode({ metadata: { name, namespace, uid }, spec: { containers: [] } }) };
    }
  }
}
