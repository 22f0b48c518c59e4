import type { ResourceInfo, Schema } from '../../proto/kube/schema-types.ts';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { Rng } from '../../base/rng.ts';
import { rfc3339 } from '../../base/clock.ts';
import type { User, View } from '../core/authorize.ts';
import { createRegistry, createTypes } from '../core/schema.ts';
import type { Registry, Types } from '../core/schema.ts';
import type { RequestInfo } from '../core/request.ts';
import type { Strategy, Surroundings } from '../core/strategy.ts';
import { strategyOf } from '../core/strategies.ts';
import type { Entry, Store } from './store.ts';
import resources from '../../proto/kube/resources.json' with { type: 'json' };
import wire from '../../proto/kube/wire.json' with { type: 'json' };
import schema from '../../proto/kube/schema.json' with { type: 'json' };

export interface ControlConfig {
  serviceCidr: string;
  clusterCidr: string;
  advertiseAddress: string;
  securePort: number;
  kubeletPort: number;
  /** Where the cluster's DNS listens: address and port. */
  dnsAddress: string;
  dnsPort: number;
  dnsUpstreams: readonly string[];
  clusterDomain: string;
}

/** What every part of the request path works with. */
export interface Kernel {
  store: Store;
  types: Types;
  schema: Schema;
  registry: Registry;
  view: View;
  clock: Clock;
  rng: Rng;
  log: Log;
  config: ControlConfig;
  strategy(info: ResourceInfo): Strategy;
  surroundings(): Surroundings;
}

/** One request, whoever sent it. */
export interface Call {
  info: RequestInfo;
  method: string;
  query: URLSearchParams;
  user: User;
  /** Already parsed when it comes from inside the process. */
  body: Body;
  contentType: string;
  accept: string;
  userAgent: string;
  signal: AbortSignal;
}

export type Body = { kind: 'none' } | { kind: 'text'; text: string } | { kind: 'bytes'; bytes: Buffer } | { kind: 'object'; value: unknown };

/** What goes back. Objects stay objects until the last moment: in-process callers never see text. */
export type Answer = { status: number; headers?: Record<string, string>; warnings?: string[] } & (
  | { kind: 'object'; object: unknown }
  | { kind: 'list'; resource: ResourceInfo; entries: readonly Entry[]; metadata: Record<string, unknown> }
  | { kind: 'text'; text: string | Buffer; type: string }
  | { kind: 'watch'; start(sink: Sink): Disposable }
);

/** Where a watch writes to. */
export interface Sink {
  /** False once the peer is too slow: the watch ends, the client comes back with its last version. */
  write(line: Buffer): boolean;
  end(): void;
}

/** Where a resource's objects are kept: two groups may serve one collection. */
export function collectionOf(info: { group: string; resource: string }): string {
  return info.group === 'events.k8s.io' ? '/events' : `${info.group}/${info.resource}`;
}

export function createKernel(options: { store: Store; clock: Clock; rng: Rng; log: Log; config: ControlConfig }): Kernel {
  const { store } = options;
  const definitions = schema as unknown as Schema;
  const view: View = {
    get: (group, resource, namespace, name) => store.get(`${group}/${resource}`, namespace, name)?.object,
    list: (group, resource, namespace = '') => store.list(`${group}/${resource}`, namespace).map((entry) => entry.object),
  };
  return {
    ...options,
    schema: definitions,
    types: createTypes(definitions, wire),
    registry: createRegistry(resources),
    view,
    strategy: (info) => strategyOf(collectionOf(info)),
    surroundings: () => ({
      view,
      now: rfc3339(options.clock.nowMs()),
      int: (below) => options.rng.int(below),
      suffix: (length) => options.rng.suffix(length),
      serviceCidr: options.config.serviceCidr,
    }),
  };
}
