/** Which part of a kubelet made a call, as far as the pattern tells; `other` where it does not, and for other callers. */
export type Asker =
  | 'relist'
  | 'sync'
  | 'housekeeping'
  | 'log rotation'
  | 'stats'
  | 'GC'
  | 'image GC'
  | 'status'
  | 'probe'
  | 'hook'
  | 'events'
  | 'start'
  | 'API'
  | 'not CRI'
  | 'other';

/** What of a call tells who asks. */
export interface AskedCall {
  readonly connection: number;
  readonly service: string;
  readonly method: string;
  readonly pod: string;
  readonly request: Readonly<Record<string, unknown>>;
  readonly startMs: number;
  readonly endMs: number | null;
}

/** One earlier call of that method was somebody else's. */
export interface Revision {
  readonly method: string;
  readonly from: Asker;
  readonly to: Asker;
}

/** Calls of one chain follow each other at once. */
const NEXT_MS = 100;
/** The second half of a pair: nothing else would come before it. */
const PAIR_MS = 900;
/** By methods that one part alone uses (seen of kubelet 1.37). */
const BY_METHOD: Readonly<Record<string, Asker>> = {
  RunPodSandbox: 'sync',
  StopPodSandbox: 'sync',
  RemovePodSandbox: 'GC',
  PodSandboxStatus: 'sync',
  CreateContainer: 'sync',
  StartContainer: 'sync',
  StopContainer: 'sync',
  RemoveContainer: 'sync',
  UpdateContainerResources: 'sync',
  UpdatePodSandboxResources: 'sync',
  ReopenContainerLog: 'log rotation',
  Exec: 'API',
  Attach: 'API',
  PortForward: 'API',
  CheckpointContainer: 'API',
  CheckpointPod: 'API',
  RestorePod: 'API',
  ContainerStats: 'stats',
  ListContainerStats: 'stats',
  StreamContainerStats: 'stats',
  PodSandboxStats: 'stats',
  ListPodSandboxStats: 'stats',
  StreamPodSandboxStats: 'stats',
  ListMetricDescriptors: 'stats',
  ListPodSandboxMetrics: 'stats',
  StreamPodSandboxMetrics: 'stats',
  Version: 'status',
  Status: 'status',
  RuntimeConfig: 'start',
  UpdateRuntimeConfig: 'start',
  GetContainerEvents: 'events',
  ImageStatus: 'sync',
  PullImage: 'sync',
  RemoveImage: 'image GC',
  ListImages: 'image GC',
  StreamImages: 'image GC',
  ImageFsInfo: 'stats',
};

interface Step {
  readonly method: string;
  readonly asker: Asker;
  readonly endMs: number;
}

type Scope = 'all' | 'live' | 'pod' | 'one';

/** What a list was asked for. */
function scopeOf(request: Readonly<Record<string, unknown>>): Scope {
  const filter = (request['filter'] ?? {}) as Readonly<Record<string, unknown>>;
  if (typeof filter['id'] === 'string' || typeof filter['podSandboxId'] === 'string') return 'one';
  if (filter['labelSelector'] !== undefined && Object.keys(filter['labelSelector'] as object).length > 0) return 'pod';
  return filter['state'] === undefined || filter['state'] === null ? 'all' : 'live';
}

/** What follows from lists that one connection made one after the other. */
class Caller {
  calls = 0;
  isKubelet = false;
  /** The last list without a filter, or with one for what lives, that is still to be continued. */
  list: Step | null = null;
  /** Looks at containers that belong to a list before them. */
  looks: Step | null = null;
}

/**
 * Tells who asks, call by call in the order in which they ended. The patterns, of kubelet 1.37:
 *
 * | who           | what                                                                                          |
 * | ------------- | --------------------------------------------------------------------------------------------- |
 * | relist        | each second ListPodSandbox, then ListContainers, both of all                                  |
 * | housekeeping  | each 2 s ListPodSandbox and ListContainers of what lives                                      |
 * | log rotation  | each 10 s ListContainers of all with no list of sandboxes before, ContainerStatus of each     |
 * | stats         | each 10 s ImageFsInfo, ListContainers, ListPodSandbox, ListContainerStats                     |
 * | GC            | each minute ListContainers twice, then ListPodSandbox; RemovePodSandbox                       |
 * | image GC      | each 30 s ListImages; each 5 min lists of all and ContainerStatus after it; RemoveImage       |
 * | status        | each 5 s Status, each 10 s Version                                                            |
 * | sync          | lists of one pod, its statuses, and what changes it                                           |
 * | probe, hook   | ExecSync with a timeout, and without                                                          |
 */
export class WhoAsks {
  readonly #callers = new Map<number, Caller>();
  /** What the image service was asked last: it may have a connection of its own. */
  #images: Step | null = null;

  /** Whether that connection is a kubelet's, as far as it has shown. */
  isKubelet(connection: number): boolean {
    return this.#callers.get(connection)?.isKubelet === true;
  }

  closed(connection: number): void {
    this.#callers.delete(connection);
  }

  of(call: AskedCall): { asker: Asker; revision: Revision | null } {
    if (!call.service.startsWith('runtime.v1.')) return { asker: 'not CRI', revision: null };
    let caller = this.#callers.get(call.connection);
    if (caller === undefined) this.#callers.set(call.connection, (caller = new Caller()));
    caller.calls += 1;
    const endMs = call.endMs ?? call.startMs;
    const isNext = (step: Step | null): step is Step => step !== null && call.startMs >= step.endMs - NEXT_MS / 10 && call.startMs - step.endMs < NEXT_MS;
    const done = (asker: Asker, revision: Revision | null = null): { asker: Asker; revision: Revision | null } => ({ asker, revision });
    switch (call.method) {
      case 'RuntimeConfig':
        caller.isKubelet = true;
        return done('start');
      case 'ListPodSandbox':
      case 'ListContainers':
        return this.#listed(caller, call, endMs, isNext);
      case 'ListImages':
      case 'ImageFsInfo': {
        const asker = BY_METHOD[call.method] ?? 'other';
        this.#images = { method: call.method, asker, endMs };
        if (caller.calls > 1) caller.isKubelet = true;
        return done(caller.isKubelet ? asker : 'other');
      }
      case 'ContainerStatus': {
        if (!isNext(caller.looks)) return done(caller.isKubelet ? 'sync' : 'other');
        caller.looks = { ...caller.looks, endMs };
        return done(caller.looks.asker);
      }
      case 'PodSandboxStatus':
        caller.looks = null;
        break;
      case 'ExecSync':
        return done(Number(call.request['timeout'] ?? 0) > 0 ? 'probe' : 'hook');
      default:
    }
    return done(BY_METHOD[call.method] ?? 'other');
  }

  #listed(caller: Caller, call: AskedCall, endMs: number, isNext: (step: Step | null) => step is Step): { asker: Asker; revision: Revision | null } {
    const { method } = call;
    const scope = scopeOf(call.request);
    if (scope === 'pod' || scope === 'one') return { asker: caller.isKubelet ? 'sync' : 'other', revision: null };
    const before = isNext(caller.list) ? caller.list : null;
    const pair = caller.list !== null && call.startMs - caller.list.endMs < PAIR_MS ? caller.list : null;
    const images = isNext(this.#images) ? this.#images : null;
    let asker: Asker = method === 'ListPodSandbox' ? 'relist' : 'log rotation';
    let revision: Revision | null = null;
    if (scope === 'live') asker = 'housekeeping';
    else if (images !== null) {
      asker = images.asker;
      this.#images = null;
    } else if (method === 'ListContainers' && pair?.method === 'ListPodSandbox' && pair.asker !== 'housekeeping') {
      asker = pair.asker;
      if (asker === 'relist') caller.isKubelet = true;
    } else if (method === 'ListContainers' && before?.method === 'ListContainers' && before.asker === 'log rotation') {
      asker = 'GC';
      revision = { method, from: before.asker, to: asker };
    } else if (method === 'ListPodSandbox' && before?.method === 'ListContainers' && (before.asker === 'GC' || before.asker === 'stats')) asker = before.asker;
    caller.list = { method, asker, endMs };
    caller.looks = asker === 'log rotation' || asker === 'image GC' ? caller.list : null;
    return { asker: caller.isKubelet ? asker : 'other', revision: caller.isKubelet ? revision : null };
  }
}
