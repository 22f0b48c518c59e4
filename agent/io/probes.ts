import { BugError } from '../../base/assert.ts';
import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import type { Rng } from '../../base/rng.ts';
import type { Container, ContainerStatus, Pod, PodStatus } from '../../proto/kube/types.ts';
import { isSidecar } from '../core/containers.ts';
import { counted, isNews, newCounter, nextDelayMs, probeKinds, probeOf, probeTitle, timingOf, type ProbeCounter, type ProbeTiming } from '../core/probe.ts';
import type { ContainerFacts, ContainerProbeResults, ProbeKind, ProbeResults } from '../core/types.ts';
import type { Events, Probes } from '../seams.ts';
import type { ProbeRunner } from './probes-run.ts';

export interface ProbesOptions {
  clock: Clock;
  rng: Rng;
  log: Log;
  events: Events;
  run: ProbeRunner;
  /** For /metrics/probes. */
  onResult?: (labels: ProbeLabels, result: 'successful' | 'failed' | 'unknown', tookMs: number) => void;
  /** `ChangeContainerStatusOnKubeletRestart`: containers of an earlier process are unready until they are asked. */
  forgets?: boolean;
  /** The labels' series end. */
  onGone?: (labels: ProbeLabels) => void;
}

export interface ProbeLabels {
  readonly kind: ProbeKind;
  readonly container: string;
  readonly pod: string;
  readonly namespace: string;
  readonly uid: string;
}

/** All of one container's probes; made anew for each container id. */
interface Watched {
  readonly container: Container;
  readonly facts: ContainerFacts;
  readonly fieldPath: string;
  readonly stop: AbortController;
  readonly probers: Map<ProbeKind, Prober>;
}

interface Prober {
  readonly kind: ProbeKind;
  counter: ProbeCounter;
  readonly stop: AbortController;
  /** Ends the pause before the next run. */
  wake: () => void;
}

interface PodProbes {
  pod: Pod;
  podIP: string;
  terminating: boolean;
  keepsReadiness: boolean;
  readonly containers: Map<string, Watched>;
  /** Of containers that do not run any more: they are not ready. */
  readonly ended: Map<string, ContainerProbeResults>;
}

/** A run that gave no result is tried again at once, this often in all. */
const tries = 3;

/** Probes the containers of all pods, each probe on a loop of its own. */
export function createProbes(options: ProbesOptions): Probes & Disposable {
  const { clock } = options;
  const startedMs = clock.monoMs();
  const pods = new Map<string, PodProbes>();
  const listeners: ((uid: string) => void)[] = [];
  const changed = (uid: string): void => {
    for (const listener of listeners) listener(uid);
  };

  const labelsOf = (state: PodProbes, watched: Watched, kind: ProbeKind): ProbeLabels => {
    const { name = '', namespace = '', uid = '' } = state.pod.metadata;
    return { kind, container: watched.container.name, pod: name, namespace, uid };
  };

  const endProber = (state: PodProbes, watched: Watched, prober: Prober): void => {
    prober.stop.abort();
    watched.probers.delete(prober.kind);
    options.onGone?.(labelsOf(state, watched, prober.kind));
  };

  const endContainer = (state: PodProbes, watched: Watched): void => {
    watched.stop.abort();
    for (const prober of watched.probers.values()) endProber(state, watched, prober);
  };

  const tell = (state: PodProbes, watched: Watched, reason: string, message: string): void => {
    const { name = '', namespace = '', uid = '', resourceVersion } = state.pod.metadata;
    options.events.event(
      { apiVersion: 'v1', kind: 'Pod', namespace, name, uid, ...(resourceVersion === undefined ? {} : { resourceVersion }), fieldPath: watched.fieldPath },
      'Warning',
      reason,
      message,
    );
  };

  /** Null: no result, and none that counts. */
  const runOnce = async (state: PodProbes, watched: Watched, prober: Prober, signal: AbortSignal): Promise<'success' | 'failure' | null> => {
    const probe = probeOf(watched.container, prober.kind);
    if (probe === undefined) return null;
    const title = probeTitle[prober.kind];
    const beganMs = clock.monoMs();
    const request = { pod: state.pod, container: watched.container, containerId: watched.facts.id, podIP: state.podIP, probe };
    let answer = await options.run(request, signal);
    for (let attempt = 1; attempt < tries && answer.result === 'error' && !signal.aborted; attempt++) answer = await options.run(request, signal);
    if (signal.aborted) return null;
    const labels = labelsOf(state, watched, prober.kind);
    const told = (result: 'successful' | 'failed' | 'unknown'): void => options.onResult?.(labels, result, clock.monoMs() - beganMs);
    if (answer.result === 'error') {
      told('unknown');
      tell(state, watched, 'Unhealthy', `${title} probe errored and resulted in unknown state: ${answer.output}`);
      return null;
    }
    if (answer.result === 'failure') {
      told('failed');
      tell(state, watched, 'Unhealthy', `${title} probe failed: ${answer.output}`);
      return 'failure';
    }
    if (answer.result === 'warning') tell(state, watched, 'ProbeWarning', `${title} probe warning: ${answer.output}`);
    told('successful');
    return 'success';
  };

  const startOthers = (watched: Watched): void => {
    for (const other of watched.probers.values()) if (other.kind !== 'startup') other.wake();
  };

  const waitsForStartup = (watched: Watched, kind: ProbeKind): boolean => {
    const startup = watched.probers.get('startup');
    return kind !== 'startup' && startup !== undefined && startup.counter.outcome !== 'success';
  };

  const loop = async (state: PodProbes, watched: Watched, prober: Prober, timing: ProbeTiming, firstDelayMs: number): Promise<void> => {
    const { signal } = prober.stop;
    const uid = state.pod.metadata.uid ?? '';
    // The initial delay holds whatever startup says.
    if (firstDelayMs > 0) await clock.sleep(firstDelayMs, signal).catch(() => undefined);
    let delayMs = 0;
    while (!signal.aborted) {
      await pause(clock, prober, delayMs, signal);
      if (signal.aborted || prober.counter.held || state.keepsReadiness) return;
      if (hasStarted(prober)) return startOthers(watched);
      const beganMs = clock.monoMs();
      if (!waitsForStartup(watched, prober.kind)) {
        const result = await runOnce(state, watched, prober, signal);
        if (signal.aborted) return;
        if (hasStarted(prober)) return startOthers(watched);
        if (result !== null && !state.keepsReadiness) {
          const before = prober.counter.outcome;
          prober.counter = counted(prober.counter, prober.kind, timing, result);
          if (isNews(prober.kind, before, prober.counter.outcome) || prober.counter.held) changed(uid);
        }
        if (hasStarted(prober)) return startOthers(watched);
      }
      const ageMs = clock.nowMs() - watched.facts.startedAtMs;
      delayMs = nextDelayMs(prober.counter, prober.kind, timing, ageMs, clock.monoMs() - beganMs);
    }
  };

  const startContainer = (state: PodProbes, container: Container, facts: ContainerFacts, fieldPath: string): void => {
    const watched: Watched = { container, facts, fieldPath, stop: new AbortController(), probers: new Map() };
    state.containers.set(container.name, watched);
    const known = options.forgets === true ? undefined : statusOf(state.pod.status, container.name, facts.id);
    const kinds = probeKinds.filter((kind) => probeOf(container, kind) !== undefined && !(state.terminating && kind !== 'readiness'));
    for (const kind of kinds) {
      const stop = new AbortController();
      watched.stop.signal.addEventListener('abort', () => stop.abort(), { once: true });
      watched.probers.set(kind, { kind, counter: adopted(kind, known), stop, wake: () => undefined });
    }
    for (const prober of watched.probers.values()) {
      const probe = probeOf(container, prober.kind);
      // What was started under an earlier agent is not asked again whether it has started.
      if (probe === undefined || hasStarted(prober)) continue;
      const timing = timingOf(probe);
      const restMs = facts.startedAtMs + timing.initialDelayMs - clock.nowMs();
      // Only right after the agent's own start: many adopted containers are not to be probed in one moment.
      const jitterMs = known !== undefined && clock.monoMs() - startedMs < timing.periodMs ? options.rng.float() * timing.periodMs : 0;
      void loop(state, watched, prober, timing, Math.max(0, Math.min(restMs, timing.initialDelayMs)) + jitterMs).catch((error: unknown) => {
        if (prober.stop.signal.aborted) return;
        if (error instanceof BugError) throw error;
        options.log.error('A probe ended', {
          pod: `${state.pod.metadata.namespace}/${state.pod.metadata.name}`,
          container: container.name,
          err: messageOf(error),
        });
        throw error;
      });
    }
  };

  return {
    sync(pod, containers, { podIPs, terminating, keepsReadiness = false }) {
      const uid = pod.metadata.uid ?? '';
      const state: PodProbes = pods.get(uid) ?? { pod, podIP: '', terminating, keepsReadiness, containers: new Map(), ended: new Map() };
      pods.set(uid, state);
      state.pod = pod;
      state.podIP = podIPs[0] ?? pod.status?.podIP ?? state.podIP;
      state.terminating = terminating;
      state.keepsReadiness = keepsReadiness;
      for (const { container, fieldPath } of probed(pod)) {
        const running = containers.find((each) => each.name === container.name && each.state === 'running');
        const watched = state.containers.get(container.name);
        if (watched !== undefined && watched.facts.id !== running?.id) {
          endContainer(state, watched);
          state.containers.delete(container.name);
          state.ended.set(container.name, {
            containerId: watched.facts.id,
            ...(container.readinessProbe === undefined ? {} : { readiness: 'failure' as const }),
          });
        }
        if (running === undefined) continue;
        const current = state.containers.get(container.name);
        if (current === undefined) startContainer(state, container, running, fieldPath);
        else recall(current);
        if (current !== undefined && terminating)
          for (const prober of current.probers.values()) if (prober.kind !== 'readiness') endProber(state, current, prober);
      }
    },
    adopt(uid, status) {
      if (options.forgets === true) return;
      for (const [name, watched] of pods.get(uid)?.containers ?? []) {
        const known = statusOf(status, name, watched.facts.id);
        for (const prober of watched.probers.values()) {
          if (prober.counter.outcome !== 'unknown' || prober.counter.last !== null) continue;
          prober.counter = adopted(prober.kind, known);
        }
      }
    },
    remove(uid) {
      const state = pods.get(uid);
      if (state === undefined) return;
      for (const watched of state.containers.values()) endContainer(state, watched);
      pods.delete(uid);
    },
    results(uid) {
      const state = pods.get(uid);
      if (state === undefined) return {};
      const running = [...state.containers].map(([name, watched]): [string, ContainerProbeResults] => [name, resultsOf(watched)]);
      return Object.fromEntries([...state.ended, ...running]) satisfies ProbeResults;
    },
    forget(uid, containerId) {
      for (const watched of pods.get(uid)?.containers.values() ?? []) {
        if (watched.facts.id !== containerId) continue;
        for (const prober of watched.probers.values()) {
          // Its word has been taken: the container is being killed, and is not asked again meanwhile.
          if (prober.kind !== 'readiness') prober.counter = { ...newCounter(), held: prober.counter.held };
        }
      }
    },
    onChange: (callback) => void listeners.push(callback),
    [Symbol.dispose]() {
      for (const state of pods.values()) for (const watched of state.containers.values()) endContainer(state, watched);
      pods.clear();
    },
  };
}

/** A container that still runs after its failure was forgotten has not been killed: the failure counts again. */
function recall(watched: Watched): void {
  for (const prober of watched.probers.values()) {
    if (prober.counter.held && prober.counter.outcome === 'unknown') prober.counter = { ...prober.counter, outcome: 'failure' };
  }
}

async function pause(clock: Clock, prober: Prober, ms: number, signal: AbortSignal): Promise<void> {
  if (ms <= 0) return;
  const woken = new AbortController();
  prober.wake = () => woken.abort();
  await clock.sleep(ms, AbortSignal.any([signal, woken.signal])).catch(() => undefined);
  prober.wake = () => undefined;
}

/** Containers that may have probes: apps and sidecars. */
function probed(pod: Pod): { container: Container; fieldPath: string }[] {
  const sidecars = (pod.spec.initContainers ?? [])
    .filter((container) => isSidecar(container))
    .map((container) => ({ container, fieldPath: `spec.initContainers{${container.name}}` }));
  const apps = pod.spec.containers.map((container) => ({ container, fieldPath: `spec.containers{${container.name}}` }));
  return [...sidecars, ...apps].filter(({ container }) => probeKinds.some((kind) => probeOf(container, kind) !== undefined));
}

/** What was told of this very container before; undefined for one that is new. */
function statusOf(told: PodStatus | undefined, name: string, containerId: string): ContainerStatus | undefined {
  const all = [...(told?.containerStatuses ?? []), ...(told?.initContainerStatuses ?? [])];
  return all.find((status) => status.name === name && status.state?.running !== undefined && status.containerID?.endsWith(`//${containerId}`) === true);
}

function hasStarted({ kind, counter }: Prober): boolean {
  return kind === 'startup' && counter.outcome === 'success';
}

/** A ready container stays ready and an unready one unready until its own probe says otherwise. */
function adopted(kind: ProbeKind, status: ContainerStatus | undefined): ProbeCounter {
  if (status === undefined || kind === 'liveness') return newCounter();
  if (kind === 'startup') return newCounter(status.started === true ? 'success' : 'unknown');
  return newCounter(status.ready ? 'success' : 'failure');
}

function resultsOf(watched: Watched): ContainerProbeResults {
  const outcomes: Partial<Record<ProbeKind, ProbeCounter['outcome']>> = {};
  for (const [kind, { counter }] of watched.probers) outcomes[kind] = counter.outcome;
  return { containerId: watched.facts.id, ...outcomes };
}
