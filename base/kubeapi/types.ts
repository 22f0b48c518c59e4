import type { ObjectMeta, OwnerReference } from '../../proto/kube/types.ts';

/** The seam to an API server. Which server stands behind it is not known on this side. */

export interface ResourceRef {
  /** '' is the core group. */
  group: string;
  version: string;
  /** Plural, lower case: `pods`. */
  resource: string;
  namespace?: string;
  name?: string;
  subresource?: string;
}

export interface KubeObject {
  apiVersion?: string;
  kind?: string;
  metadata: ObjectMeta;
}

export type { ObjectMeta, OwnerReference };

export interface KubeList<T> {
  apiVersion?: string;
  kind?: string;
  metadata: { resourceVersion?: string; continue?: string; remainingItemCount?: number };
  items: T[];
}

export interface ListOptions {
  labelSelector?: string;
  fieldSelector?: string;
  limit?: number;
  continue?: string;
  resourceVersion?: string;
  resourceVersionMatch?: string;
}

/** Which HTTP/2 sessions carry a request: leases and node status never wait behind anything else. */
export type Lane = 'requests' | 'heartbeat';

export interface CallOptions {
  lane?: Lane;
  timeoutMs?: number;
  /** Query parameters beside those the verb sets (fieldManager, dryRun, …). */
  query?: Record<string, string>;
}

export type PatchType = 'json' | 'merge' | 'strategic' | 'apply';

export interface DeleteOptions {
  gracePeriodSeconds?: number;
  propagationPolicy?: 'Foreground' | 'Background' | 'Orphan';
  preconditions?: { uid?: string; resourceVersion?: string };
}

export interface KubeApi extends AsyncDisposable {
  /** All throw ApiError for an answer with a Status, OpError `unavailable` | `deadline` | `aborted` otherwise. */
  get<T extends KubeObject>(ref: ResourceRef, options?: CallOptions, signal?: AbortSignal): Promise<T>;
  list<T extends KubeObject>(ref: ResourceRef, list?: ListOptions, options?: CallOptions, signal?: AbortSignal): Promise<KubeList<T>>;
  // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- a body may lack what only a server fills in
  create<T extends KubeObject, B = T>(ref: ResourceRef, body: B, options?: CallOptions, signal?: AbortSignal): Promise<T>;
  update<T extends KubeObject>(ref: ResourceRef, body: T, options?: CallOptions, signal?: AbortSignal): Promise<T>;
  patch<T extends KubeObject>(ref: ResourceRef, type: PatchType, body: unknown, options?: CallOptions & { force?: boolean }, signal?: AbortSignal): Promise<T>;
  delete(ref: ResourceRef, body?: DeleteOptions, options?: CallOptions, signal?: AbortSignal): Promise<KubeObject>;
  /** Anything else; the body is JSON when it is an object. The answer is not judged by its status. */
  raw(
    method: string,
    path: string,
    options?: CallOptions & { body?: unknown; headers?: Record<string, string> },
    signal?: AbortSignal,
  ): Promise<{ status: number; headers: Record<string, string>; body: Uint8Array }>;

  /**
   * Keeps a copy of a collection: list (streaming where the server can), then watch; after a cut the watch goes on
   * from the last version; a new list only on 410. Returns when `signal` is aborted. Waits out 429 and dead
   * servers with growing, jittered pauses. `handler` is called in order and never concurrently.
   */
  reflect<T extends KubeObject>(
    ref: ResourceRef,
    selector: Pick<ListOptions, 'labelSelector' | 'fieldSelector'>,
    handler: ReflectHandler<T>,
    signal: AbortSignal,
  ): Promise<void>;
}

export interface ReflectHandler<T> {
  /** The whole collection, after each list. What is not in it is gone. */
  replaced(items: readonly T[]): void;
  /** One change. */
  changed(type: 'ADDED' | 'MODIFIED' | 'DELETED', object: T): void;
  /** Cuts and refusals, for logs and health; the loop goes on by itself. */
  trouble?(error: unknown): void;
  /** Keeps only what is needed of each object, before it is stored. */
  trim?(object: T): T;
}
