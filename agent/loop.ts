/**
 * START HERE. Something about a pod may have changed: a source, the runtime's listing, a probe, a ConfigMap, a timer.
 * All of it ends in the same way: the pod's UID goes into a queue, and its worker (worker.ts) reads what is wanted and
 * what is, plans (core/plan.ts), does (io/steps.ts) and tells (core/status.ts). Events carry keys, never the truth, so
 * a lost or doubled one costs time and nothing else. A pod waits for nobody but itself: every UID may be worked on at
 * once, and no UID twice.
 */
import { atMost, orAborted } from '../base/abort.ts';
import { BugError } from '../base/assert.ts';
import type { Clock } from '../base/clock.ts';
import { messageOf } from '../base/errors.ts';
import type { Log } from '../base/log.ts';
import { createKeyedQueue } from '../base/queue.ts';
import type { Pod, PodStatus } from '../proto/kube/types.ts';
import { isUp } from './core/containers.ts';
import { mayRun, mayStart } from './core/phase.ts';
import { isMadeFromStatic } from './core/static-pod.ts';
import type { PodFacts, PodKey, PodView } from './core/types.ts';
import type { AgentMetrics } from './io/metrics.ts';
import { createPleg } from './io/pleg.ts';
import type { PodCounts } from './io/pod-metrics.ts';
import { noTracer, type Tracer } from './io/tracer.ts';
import type { RunningPleg } from './io/pleg.ts';
import type { PodSourceReader, Pods } from './seams.ts';
import { PodWorker } from './worker.ts';
import type { WorkerDeps } from './worker-deps.ts';

export interface LoopOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly sources: readonly PodSourceReader[];
  readonly worker: WorkerDeps;
  /** A defect of ours: the process must end and start again from what it re-reads. */
  readonly onBug: (error: unknown) => void;
  readonly metrics?: Pick<AgentMetrics, 'podWorked' | 'podStarted' | 'lives'> & Partial<Pick<AgentMetrics, 'pleg'>>;
  readonly tracer?: Tracer;
}

export interface Loop extends Pods {
  readonly pleg: RunningPleg;
  /** Whether the pod was admitted and has not ended: what it asked for is taken. */
  holdsResources(uid: string): boolean;
  /** Whether it has ended, and its volumes are still there. */
  holdsDisk(uid: string): boolean;
  /** Called with the UIDs of which a listing of the runtime showed something new. */
  onRuntimeChange(callback: (uids: readonly string[]) => void): void;
  /** The pods that are worked on, as metrics tell of them. */
  working(): PodCounts['workers'];
  /** Works until `signal` is aborted; the sources are run by the caller. */
  run(signal: AbortSignal): Promise<void>;
  /** Resolves when no pod is being worked on; for tests. */
  idle(): Promise<void>;
}

/** A change seen in the runtime while a pod is being worked on for so long is told without waiting for the end of the work. */
const impatienceMs = 1500;
/** Pods that began together are not all looked at in the same moment: each look is a millisecond or two of the loop. */
const apartMs = 10;
const apartMax = 32;
const partingMs = 5000;

export function createLoop(options: LoopOptions): Loop {
  const { clock, log, sources } = options;
  const workers = new Map<string, PodWorker>();
  const busySinceMs = new Map<string, number>();
  let waiting = 0;
  let came = 0;
  const runtimeListeners: ((uids: readonly string[]) => void)[] = [];
  /** Pods that came new and do not run yet: for how long a start takes. */
  const newSinceMs = new Map<string, number>();
  /** Why a pod is looked at, where a source has told something of it. */
  const news = new Map<string, 'create' | 'update'>();

  const viewOf = (uid: string): PodView | undefined => {
    for (const source of sources) {
      const view = source.get(uid);
      if (view !== undefined) return view;
    }
    return undefined;
  };
  const synced = (): boolean => sources.every((source) => source.synced());
  /** Whether a pod that no source has may be ended. One from a file needs no API server: another of its name waits for its end. */
  const mayAdopt = (facts: PodFacts): boolean =>
    synced() || (isMadeFromStatic(facts.sandboxes) && sources.every((source) => source.source !== 'static' || source.synced()));

  /** The worker of a UID, made when there is something to do for it. */
  const workerOf = (uid: string, key: PodKey | undefined): PodWorker | undefined => {
    const present = workers.get(uid);
    if (present !== undefined) return present;
    const view = viewOf(uid);
    const facts = pleg.facts().get(uid);
    if (view === undefined && (facts === undefined || !mayAdopt(facts))) return undefined;
    const worker = new PodWorker(options.worker, view?.key ?? key ?? { uid, namespace: facts?.namespace ?? '', name: facts?.name ?? '' }, came++);
    workers.set(uid, worker);
    if (view === undefined) options.metrics?.lives.orphaned();
    else if (facts === undefined) {
      newSinceMs.set(uid, clock.monoMs());
      options.metrics?.lives.appeared(view.pod);
    }
    return worker;
  };

  const queue = createKeyedQueue({
    clock,
    concurrency: Number.POSITIVE_INFINITY,
    async work(uid, signal) {
      const worker = workerOf(uid, undefined);
      if (worker === undefined) return;
      worker.wish(viewOf(uid));
      const beganMs = clock.monoMs();
      const cause = news.get(uid) ?? 'sync';
      // What comes from now on is for the next look.
      news.delete(uid);
      busySinceMs.set(uid, beganMs);
      const was = worker.life.phase;
      const result = await tracedSync(options.tracer ?? noTracer, worker, signal);
      busySinceMs.delete(uid);
      const ended = !isOver(was) && isOver(worker.life.phase);
      options.metrics?.podWorked(ended ? 'terminated' : cause, clock.monoMs() - beganMs);
      const newMs = newSinceMs.get(uid);
      if (newMs !== undefined && was === 'waiting' && mayStart(worker.life) && worker.life.phase !== 'waiting' && worker.pod !== undefined)
        options.metrics?.lives.taken(worker.pod, beganMs - newMs);
      if (newMs !== undefined && worker.life.phase !== 'waiting' && worker.life.phase !== 'starting') {
        newSinceMs.delete(uid);
        if (worker.life.phase === 'running') options.metrics?.podStarted(clock.monoMs() - newMs);
      }
      if (result.gone) {
        workers.delete(uid);
        newSinceMs.delete(uid);
        options.metrics?.lives.gone(uid);
      }
      // A pod of the same UID may have come back (a static pod put back): it gets a new worker.
      const again = result.gone ? viewOf(uid) : undefined;
      if (again !== undefined) {
        options.metrics?.lives.cameBack(again.pod);
        queue.add(uid);
      } else if (result.again === 'now') queue.add(uid);
      else if (result.again !== null) queue.addAfter(uid, result.again);
    },
    onError(uid, error) {
      busySinceMs.delete(uid);
      if (error instanceof BugError) options.onBug(error);
      else {
        log.error('Pod worker failed', { podUID: uid, err: messageOf(error) });
        queue.addAfter(uid, 1000);
      }
    },
  });

  const kick = (uid: string): void => {
    const worker = workerOf(uid, undefined);
    if (worker === undefined) return;
    worker.wish(viewOf(uid));
    queue.add(uid);
  };

  const pleg = createPleg({
    cri: options.worker.steps.cri,
    clock,
    log: log.child('pleg'),
    list: (signal) => options.worker.facts.list(signal),
    metrics: options.metrics?.pleg,
    isEnding: (uid) => {
      const phase = workers.get(uid)?.life.phase;
      return phase === 'terminated' || (phase === 'terminating' && busySinceMs.has(uid));
    },
    onRelist(tookMs) {
      options.metrics?.pleg?.relisted(tookMs);
      // Not only when a source tells of something: the last pod may have been removed while nobody looked.
      adoptOrphans();
    },
    onChange(uids) {
      for (const tell of runtimeListeners) tell(uids);
      for (const uid of uids) {
        const sinceMs = busySinceMs.get(uid);
        const worker = workers.get(uid);
        worker?.listed(pleg.facts().get(uid));
        // What the worker has just read itself is no news.
        if (worker !== undefined && sinceMs === undefined && worker.knows(pleg.facts().get(uid))) continue;
        kick(uid);
        if (sinceMs === undefined || worker === undefined) continue;
        clock.after(Math.max(0, sinceMs + impatienceMs - clock.monoMs()) + apartMs * (waiting++ % apartMax), () => {
          if (busySinceMs.get(uid) === sinceMs) void worker.observe();
        });
      }
    },
  });

  /** Pods that only the runtime knows; found when the sources are complete. */
  const adoptOrphans = (): void => {
    for (const [uid, facts] of pleg.facts()) if (!workers.has(uid) && viewOf(uid) === undefined && mayAdopt(facts)) kick(uid);
  };

  for (const source of sources) {
    source.onUpdate((key, change) => {
      const view = viewOf(key.uid);
      if (view !== undefined) options.metrics?.lives.watched(view.pod);
      if (change === 'status') return workers.get(key.uid)?.reconcile(view);
      // First, so that what is told of the new spec says what becomes of its new size.
      options.worker.resizes.wished(key.uid);
      if (view !== undefined) news.set(key.uid, workers.has(key.uid) ? 'update' : 'create');
      kick(key.uid);
      adoptOrphans();
    });
  }
  options.worker.probes.onChange((uid) => {
    workers.get(uid)?.retell();
    if (workers.has(uid)) queue.add(uid);
  });
  options.worker.sources.onChange(kick);

  /** What was made of a pod and what is told of it: the same again while both are, so that who looks often need not compare. */
  const made = new WeakMap<Pod, { readonly status: PodStatus; readonly pod: Pod }>();
  const filled = (pod: Pod): Pod => {
    const status = options.worker.statuses.current(pod.metadata.uid ?? '');
    if (status === undefined) return pod;
    const before = made.get(pod);
    if (before?.status === status) return before.pod;
    const own = new Set((status.conditions ?? []).map((condition) => condition.type));
    const others = (pod.status?.conditions ?? []).filter((condition) => !own.has(condition.type));
    const full = { ...pod, status: { ...pod.status, ...status, conditions: [...others, ...(status.conditions ?? [])] } };
    made.set(pod, { status, pod: full });
    return full;
  };
  const podOf = (uid: string): Pod | undefined => viewOf(uid)?.pod ?? workers.get(uid)?.pod;
  const list = (): Pod[] => sources.flatMap((source) => source.list()).map((view) => filled(view.pod));

  return {
    pleg,
    working: () =>
      [...workers].map(([uid, { life, pod }]) => ({ uid, pod, phase: mayStart(life) ? 'sync' : life.phase === 'terminating' ? 'terminating' : 'terminated' })),
    async run(signal) {
      try {
        await Promise.all([pleg.run(signal), options.worker.resizes.run(signal)]);
      } finally {
        // What cannot be cut off (a sandbox half made) gets a moment; the next process finds what came of it.
        await atMost(clock, queue[Symbol.asyncDispose](), partingMs);
      }
    },
    idle: () => queue.idle(),
    list,
    byName: (namespace, name) => {
      const all = list().filter((pod) => pod.metadata.namespace === namespace && pod.metadata.name === name);
      // Of two of one name the one that is not on its way out.
      return all.find((pod) => pod.metadata.deletionTimestamp === undefined) ?? all[0];
    },
    byUid: (uid) => {
      const pod = podOf(uid);
      return pod === undefined ? undefined : filled(pod);
    },
    // What a worker has just read or done is newer than the last listing.
    facts: (uid) => workers.get(uid)?.facts ?? pleg.facts().get(uid),
    allFacts: (): readonly PodFacts[] => [...pleg.facts().values()],
    mayRun: (uid) => {
      const worker = workers.get(uid);
      return worker === undefined ? viewOf(uid) !== undefined || !synced() : mayRun(worker.life);
    },
    holdsResources: (uid) => {
      const phase = workers.get(uid)?.life.phase;
      // Not looked at yet by this process: an earlier one that took the pod has told its start time.
      if (phase === undefined || phase === 'waiting') return viewOf(uid)?.pod.status?.startTime !== undefined;
      // What the runtime still lists of a pod that no source has may be its dead sandbox alone.
      const facts = workers.get(uid)?.facts ?? pleg.facts().get(uid);
      if (phase === 'terminating' && viewOf(uid) === undefined) return facts !== undefined && isUp(facts);
      return phase === 'starting' || phase === 'running' || phase === 'terminating';
    },
    holdsDisk: (uid) => {
      const life = workers.get(uid)?.life;
      return life?.phase === 'terminated' && !life.cleaned;
    },
    onRuntimeChange: (callback) => void runtimeListeners.push(callback),
    isKnown: (uid) => workers.has(uid) || viewOf(uid) !== undefined || !synced(),
    synced,
    kick,
    async evict(uid, eviction, signal) {
      const worker = workers.get(uid);
      if (worker === undefined) return;
      const stopped = worker.evict({
        graceMs: eviction.graceMs,
        verdict: { reason: eviction.reason, message: eviction.message, ...(eviction.condition === undefined ? {} : { condition: eviction.condition }) },
      });
      queue.add(uid);
      await orAborted(stopped, signal, 'evict a pod');
    },
  };
}

const isOver = (phase: PodWorker['life']['phase']): boolean => phase === 'terminated' || phase === 'gone';

/** One look at a pod as upstream's span of it. */
function tracedSync(tracer: Tracer, worker: PodWorker, signal: AbortSignal): ReturnType<PodWorker['sync']> {
  const { phase } = worker.life;
  const name = phase === 'terminated' ? 'syncTerminatedPod' : phase === 'terminating' ? 'syncTerminatingPod' : 'syncPod';
  const { uid, namespace, name: podName } = worker.key;
  const attributes = { 'k8s.pod.uid': uid, 'k8s.pod': `${namespace}/${podName}`, 'k8s.pod.name': podName, 'k8s.namespace.name': namespace };
  return tracer.span(name, { attributes }, () => worker.sync(signal));
}
