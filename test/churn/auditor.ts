import { timeMs } from '../../base/time.ts';
import type { ContainerStatus, Pod } from '../../proto/kube/types.ts';

/** A container as a listing of the runtime shows it. Times are milliseconds since 1970. */
export interface SeenContainer {
  readonly id: string;
  readonly uid: string;
  readonly name: string;
  readonly attempt: number;
  readonly running: boolean;
  /** Whether it runs or has run: one that was made and never started has not, and one whose start failed has not. */
  readonly ran: boolean;
  readonly createdAtMs: number;
}

export interface SeenSandbox {
  readonly id: string;
  readonly uid: string;
  readonly ready: boolean;
}

/** One listing: what is in it was true at some moment between `fromMs` and `toMs`. */
export interface Listing {
  readonly fromMs: number;
  readonly toMs: number;
  readonly sandboxes: readonly SeenSandbox[];
  readonly containers: readonly SeenContainer[];
}

export interface Violation {
  readonly atMs: number;
  readonly pod: string;
  readonly rule: string;
  readonly what: string;
}

/** The container that a status names. */
interface Told {
  readonly id: string;
  /** The count with which it was named first. */
  readonly restarts: number;
  /** Those before it. */
  readonly former: ReadonlySet<string>;
  /** One of them was taken away behind the agent's back: until the count goes up it may go by an older one. */
  isLoose: boolean;
}

interface Model {
  readonly name: string;
  phase: string;
  /** By container name. */
  readonly restarts: Map<string, number>;
  readonly told: Map<string, Told>;
  startTime: string | undefined;
  generation: number;
  /** When a terminal phase was seen first; null: not yet. */
  terminalAtMs: number | null;
  deletedAtMs: number | null;
  graceMs: number;
}

const phases = ['', 'Pending', 'Running', 'Succeeded', 'Failed'];
const isTerminal = (phase: string): boolean => phase === 'Succeeded' || phase === 'Failed';
/** Clocks of the runtime and of who looks, and the way of a watch event, may differ by so much. */
const slackMs = 2000;
/** Beyond its grace period a pod may still be seen for so long: one deleted with grace 0 is gone from the API before it stops. */
const afterGoneMs = 10_000;

/** Without the runtime's name before it. */
const bare = (containerID = ''): string => containerID.slice(containerID.indexOf('://') + 3);

/** Whether an init container has still to run or runs. */
function initsRun(pod: Pod): boolean {
  const inits = new Set((pod.spec.initContainers ?? []).filter(({ restartPolicy }) => restartPolicy !== 'Always').map(({ name }) => name));
  return (pod.status?.initContainerStatuses ?? []).some(({ name, state }) => inits.has(name) && state?.terminated === undefined);
}

/**
 * Holds what a cluster shows against a model of its own: it knows nothing of how an agent works, only what may never be
 * seen. Fed with watch events and listings in the order in which they came.
 */
export class Auditor {
  readonly #pods = new Map<string, Model>();
  /** By container name of a pod. */
  readonly #known = new Map<string, Map<string, SeenContainer>>();
  readonly #ran = new Set<string>();
  /** Of those, the ones that a listing has shown. */
  readonly #started = new Set<string>();
  readonly #taken = new Set<string>();
  readonly #told = new Set<string>();
  readonly #slow: number;
  #killedAtMs = Number.NEGATIVE_INFINITY;
  readonly violations: Violation[] = [];
  /** How many events and listings were held against the model. */
  seen = { events: 0, listings: 0, containers: 0 };

  /** @param slow how much slower the runtime may be than one that has the machine for itself: what was asked of it may come so much later */
  constructor(slow = 1) {
    this.#slow = slow;
  }

  /** A pod as the API server shows it now. */
  pod(type: 'ADDED' | 'MODIFIED' | 'DELETED', pod: Pod, atMs: number): void {
    this.seen.events++;
    const { uid = '', name = '' } = pod.metadata;
    const model = this.#pods.get(uid) ?? this.#newPod(uid, name);
    const wrong = (rule: string, what: string): void => this.#wrong(uid, atMs, rule, what);
    if (model.deletedAtMs !== null) wrong('written after it was gone', `${type} after DELETED`);
    if (type === 'DELETED') {
      model.deletedAtMs = atMs;
      return;
    }
    model.graceMs = (pod.spec.terminationGracePeriodSeconds ?? 30) * 1000;
    const phase = pod.status?.phase ?? '';
    // A lost sandbox takes the pod back to its init containers, and upstream tells that as Pending.
    const isBegunAnew = model.phase === 'Running' && phase === 'Pending' && initsRun(pod);
    if (!isBegunAnew && (phases.indexOf(phase) < phases.indexOf(model.phase) || (isTerminal(model.phase) && phase !== model.phase)))
      wrong('a phase goes back', `${model.phase} -> ${phase}`);
    model.phase = phase;
    if (isTerminal(phase)) {
      model.terminalAtMs ??= atMs;
      if (pod.status?.conditions?.some((condition) => condition.type === 'Ready' && condition.status === 'True') === true) wrong('ready at the end', phase);
    }
    const generation = pod.status?.observedGeneration ?? 0;
    if (generation < model.generation) wrong('observedGeneration goes back', `${model.generation} -> ${generation}`);
    model.generation = Math.max(model.generation, generation);
    const startTime = pod.status?.startTime;
    if (model.startTime !== undefined && startTime !== model.startTime) wrong('startTime changes', `${model.startTime} -> ${startTime ?? 'none'}`);
    model.startTime ??= startTime;
    for (const status of [...(pod.status?.initContainerStatuses ?? []), ...(pod.status?.containerStatuses ?? [])]) this.#container(model, status, phase, wrong);
  }

  /** The whole collection after a watch began anew: what is not in it went meanwhile. */
  list(pods: readonly Pod[], atMs: number): void {
    const there = new Set(pods.map((pod) => pod.metadata.uid ?? ''));
    for (const [uid, model] of this.#pods) if (!there.has(uid)) model.deletedAtMs ??= atMs;
    for (const pod of pods) this.pod('MODIFIED', pod, atMs);
  }

  /** The agent or the runtime was killed: what was about to end begins to end anew. */
  killed(atMs: number): void {
    this.#killedAtMs = atMs;
  }

  /** A dead container is taken out of the runtime behind the agent's back: what it knew by it, it cannot know any more. */
  taken({ id, uid, name }: Pick<SeenContainer, 'id' | 'uid' | 'name'>): void {
    this.#taken.add(id);
    const told = this.#pods.get(uid)?.told.get(name);
    if (told !== undefined) told.isLoose = true;
  }

  /** What the runtime has. */
  listing(listing: Listing): void {
    this.seen.listings++;
    this.seen.containers += listing.containers.length;
    const atMs = listing.toMs;
    const live = new Map<string, SeenContainer[]>();
    for (const container of listing.containers) if (container.ran) this.#hasRun(container, listing);
    for (const container of listing.containers) {
      const key = `${container.uid}/${container.name}`;
      if (container.running) live.set(key, [...(live.get(key) ?? []), container]);
      this.#appeared(container, key, listing);
    }
    for (const [key, containers] of live) {
      const [uid = '', name = ''] = key.split('/');
      if (containers.length > 1) this.#wrong(uid, atMs, 'two live containers of one name', `${name}: ${containers.map(({ id }) => id.slice(0, 12)).join(' ')}`);
      const model = this.#pods.get(uid);
      if (
        model?.deletedAtMs !== null &&
        model?.deletedAtMs !== undefined &&
        listing.fromMs > Math.max(model.deletedAtMs, this.#killedAtMs) + model.graceMs + afterGoneMs * this.#slow
      )
        this.#wrong(uid, atMs, 'runs after it was gone', name);
      if (
        model?.terminalAtMs !== null &&
        model?.terminalAtMs !== undefined &&
        listing.fromMs > Math.max(model.terminalAtMs, this.#killedAtMs) + afterGoneMs * this.#slow
      )
        this.#wrong(uid, atMs, 'runs after it ended', name);
    }
    const ready = new Map<string, string[]>();
    for (const sandbox of listing.sandboxes) if (sandbox.ready) ready.set(sandbox.uid, [...(ready.get(sandbox.uid) ?? []), sandbox.id]);
    for (const [uid, ids] of ready) if (ids.length > 1) this.#wrong(uid, atMs, 'two ready sandboxes', ids.map((id) => id.slice(0, 12)).join(' '));
  }

  /** Pods that are not gone. */
  left(): string[] {
    return [...this.#pods.values()].filter(({ deletedAtMs }) => deletedAtMs === null).map(({ name }) => name);
  }

  #newPod(uid: string, name: string): Model {
    const model: Model = {
      name,
      phase: '',
      restarts: new Map(),
      told: new Map(),
      startTime: undefined,
      generation: 0,
      terminalAtMs: null,
      deletedAtMs: null,
      graceMs: 0,
    };
    this.#pods.set(uid, model);
    return model;
  }

  #container(model: Model, status: ContainerStatus, phase: string, wrong: (rule: string, what: string) => void): void {
    const { name, restartCount, state, lastState } = status;
    const before = model.restarts.get(name) ?? 0;
    if (restartCount < before) wrong('restartCount goes back', `${name}: ${before} -> ${restartCount}`);
    model.restarts.set(name, Math.max(before, restartCount));
    const id = bare(status.containerID);
    if (state?.running !== undefined) this.#ran.add(id);
    for (const ended of [state?.terminated, lastState?.terminated]) if (timeMs(ended?.startedAt) > 0) this.#ran.add(bare(ended?.containerID));
    const told = model.told.get(name);
    if (id !== '' && id !== told?.id) {
      const change = `${name}: ${told?.id.slice(0, 12)} -> ${id.slice(0, 12)}`;
      if (told !== undefined && !told.isLoose) {
        if (told.former.has(id)) wrong('an earlier container is told again', change);
        // What never ran was not restarted, and a run that was lost is counted before the next one is named.
        else if (this.#ran.has(told.id) && restartCount <= told.restarts && bare(lastState?.terminated?.containerID) !== told.id)
          wrong('another container and no restart', change);
      }
      const isLoose = this.#taken.has(id) || (told?.isLoose === true && restartCount <= told.restarts);
      model.told.set(name, { id, restarts: restartCount, former: new Set(told === undefined ? [] : [...told.former, told.id]), isLoose });
    }
    if (isTerminal(phase) && status.state?.running !== undefined) wrong('runs in a terminal phase', `${name} in ${phase}`);
  }

  /** The first sign of a container's run. */
  #hasRun(container: SeenContainer, listing: Listing): void {
    const { id, uid, name, createdAtMs } = container;
    if (this.#started.has(id)) return;
    this.#started.add(id);
    this.#ran.add(id);
    const model = this.#pods.get(uid);
    const endMs = model?.terminalAtMs ?? model?.deletedAtMs ?? null;
    if (endMs !== null && createdAtMs > endMs + slackMs * this.#slow)
      this.#wrong(uid, listing.toMs, 'a terminated pod starts again', `${name}, ${createdAtMs - endMs} ms later`);
  }

  /** A container that was not there before. */
  #appeared(container: SeenContainer, key: string, listing: Listing): void {
    const known = this.#known.get(key) ?? new Map<string, SeenContainer>();
    this.#known.set(key, known);
    if (known.has(container.id)) return;
    // The number of one that never ran is free again, and who lost the newest to somebody else counts from an older one.
    const runs = [...known.values()].filter(({ id }) => this.#ran.has(id) && !this.#taken.has(id)).map(({ attempt }) => attempt);
    known.set(container.id, container);
    const most = runs.length === 0 ? undefined : Math.max(...runs);
    // Two that appear in one listing come in any order.
    const isLater =
      most === undefined ||
      container.attempt > most ||
      listing.containers.some(
        (other) =>
          other.id !== container.id && `${other.uid}/${other.name}` === key && other.attempt >= container.attempt && other.createdAtMs >= container.createdAtMs,
      );
    if (!isLater) this.#wrong(container.uid, listing.toMs, 'an attempt does not go up', `${container.name}: ${container.attempt} after ${most}`);
  }

  /** Each thing once: a listing shows what is wrong again and again. */
  #wrong(uid: string, atMs: number, rule: string, what: string): void {
    const key = `${uid} ${rule} ${what}`;
    if (this.#told.has(key)) return;
    this.#told.add(key);
    this.violations.push({ atMs, pod: `${this.#pods.get(uid)?.name ?? '?'} (${uid})`, rule, what });
  }
}
