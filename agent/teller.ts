import type { Clock } from '../base/clock.ts';
import type { Pod, PodStatus } from '../proto/kube/types.ts';
import { isUp, keyOf, podText, specContainers } from './core/containers.ts';
import type { PodLife } from './core/phase.ts';
import { lastStatus, podIPsOf, statusOf } from './core/status.ts';
import { isTerminalPhase } from './core/status-phase.ts';
import type { Plan } from './core/step.ts';
import type { ContainerFacts, EventText, PodFacts, PodKey } from './core/types.ts';
import type { PodCgroupValues } from './core/resize/moves.ts';
import type { Grants } from './grants.ts';
import type { CsiHealth } from './io/csi/health.ts';
import type { DraClaims } from './io/dra/claims.ts';
import type { PodMetrics } from './io/pod-metrics.ts';
import type { Resizes } from './resizes.ts';
import type { EventTarget, Events, NodeInfo, Probes, StatusWriter } from './seams.ts';

export interface TellerDeps {
  readonly clock: Clock;
  readonly probes: Probes;
  readonly statuses: StatusWriter;
  readonly events: Events;
  readonly node: NodeInfo;
  /** As in `containerd://…`. */
  readonly runtimeName: () => string;
  readonly recursiveReadOnly: () => boolean;
  /** `ImageVolumeWithDigest`. */
  readonly imageDigests?: boolean;
  /** `ContainerStopSignals`. */
  readonly stopSignals?: boolean;
  readonly resizes: Resizes;
  readonly metrics?: Pick<PodMetrics, 'told'>;
  /** Whether and how devices are told of; absent: they are not. */
  readonly grants?: Grants;
  /** The same of devices that pods have by claims. */
  readonly claims?: Pick<DraClaims, 'withHealth'>;
  /** The same of volumes of CSI drivers. */
  readonly volumeHealth?: Pick<CsiHealth, 'withHealth'> | undefined;
}

/** The fourth part of a worker's round: what one pod is, for the API server and for people. */
export class Teller {
  readonly #deps: TellerDeps;
  readonly #key: PodKey;
  /** Why containers wait, by name; without a prototype, for `constructor` is a name too. */
  readonly waiting = Object.create(null) as Record<string, { reason: string; message: string } | undefined>;
  /** The pod's cgroup when it was last looked at: what it has, until somebody looks again, is not what it was promised. */
  cgroup: PodCgroupValues | null = null;
  /** Whether it may have changed since. */
  cgroupIsOld = true;
  /** Back-offs that an Event has told of. */
  readonly #heldSaid = Object.create(null) as Record<string, string | undefined>;

  constructor(deps: TellerDeps, key: PodKey) {
    this.#deps = deps;
    this.#key = key;
  }

  /** What the last process said of waiting containers stands until something new is known. */
  adopt(pod: Pod): void {
    for (const told of [...(pod.status?.initContainerStatuses ?? []), ...(pod.status?.containerStatuses ?? [])]) {
      const { reason = '', message = '' } = told.state?.waiting ?? {};
      if (reason !== '' && reason !== 'ContainerCreating' && reason !== 'PodInitializing') this.waiting[told.name] = { reason, message };
    }
  }

  /** Tells the status that follows from `facts`; `stopped`: nothing runs, and nothing will. */
  tell(pod: Pod, facts: PodFacts, life: PodLife, stopped: boolean): PodStatus {
    const { statuses, probes, node, clock, resizes } = this.#deps;
    const { uid } = this.#key;
    const old = this.#old(pod);
    const end = life.phase === 'terminating' || life.phase === 'terminated' ? life.end : null;
    const plain = statusOf({
      pod: resizes.allocatedPod(pod),
      old,
      facts,
      probes: probes.results(uid),
      waiting: this.waiting,
      runtimeName: this.#deps.runtimeName(),
      recursiveReadOnly: this.#deps.recursiveReadOnly(),
      imageDigests: this.#deps.imageDigests ?? false,
      stopSignals: this.#deps.stopSignals ?? false,
      stopped,
      verdict: stopped ? (end?.verdict ?? null) : null,
      hostIPs: node.hostIPs(),
      nowMs: clock.nowMs(),
      actuated: resizes.actuated(uid),
      resizing: resizes.conditions(uid),
      cgroup: this.cgroup,
    });
    const withDevices = this.#deps.grants?.withHealth(uid, plain) ?? plain;
    const withClaims = this.#deps.claims?.withHealth(pod, withDevices) ?? withDevices;
    const seen = this.#deps.volumeHealth?.withHealth(uid, withClaims) ?? withClaims;
    const wasOver = isTerminalPhase(pod.status?.phase);
    // An earlier process told the end; what there is to add is told once, when it is known that nothing runs.
    if (wasOver && !stopped && !isUp(facts)) return seen;
    const status = wasOver && stopped ? lastStatus(pod, seen) : seen;
    // A terminal phase is told only when nothing can run any more: others take it as leave to use what the pod held.
    if (!stopped && isTerminalPhase(status.phase) && !isTerminalPhase(old.phase)) return status;
    this.#deps.metrics?.told(old, status);
    statuses.set(pod, status);
    return status;
  }

  /** What was told last; of what an earlier process told apart from the pod's own object: since when it is so. */
  #old(pod: Pod): PodStatus {
    const { statuses, probes } = this.#deps;
    const told = statuses.current(this.#key.uid) ?? pod.status ?? {};
    const earlier = statuses.earlier?.(this.#key.uid);
    if (earlier === undefined) return told;
    probes.adopt?.(this.#key.uid, earlier);
    const { startTime, conditions } = earlier;
    return { ...told, ...(startTime === undefined ? {} : { startTime }), ...(conditions === undefined ? {} : { conditions }) };
  }

  /** Keeps the probers in step with what runs. */
  probe(pod: Pod, facts: PodFacts, terminating: boolean, keepsReadiness = false): void {
    const running = facts.containers.filter((container): container is ContainerFacts => container.state === 'running');
    this.#deps.probes.sync(pod, running, { podIPs: podIPsOf(pod, facts.sandboxes[0]?.ips ?? [], this.#deps.node.hostIPs()), terminating, keepsReadiness });
  }

  /** Back-offs become waiting reasons. */
  hold(plan: Plan): void {
    for (const held of plan.held) this.waiting[held.name] = { reason: held.reason, message: held.message };
  }

  /** Each back-off is told of once by an Event. */
  backOffs(pod: Pod, plan: Plan): void {
    for (const held of plan.held) {
      if (this.#heldSaid[held.name] === held.message) continue;
      this.#heldSaid[held.name] = held.message;
      this.event(pod, {
        type: 'Warning',
        reason: 'BackOff',
        message: `Back-off restarting failed container ${held.name} in pod ${podText(this.#key)}`,
        container: held.name,
      });
    }
  }

  event(pod: Pod, event: EventText): void {
    const target: EventTarget = {
      apiVersion: 'v1',
      kind: 'Pod',
      ...keyOf(pod),
      ...(pod.metadata.resourceVersion === undefined ? {} : { resourceVersion: pod.metadata.resourceVersion }),
      ...(event.container === undefined ? {} : { fieldPath: fieldPath(pod, event.container) }),
    };
    this.#deps.events.event(target, event.type, event.reason, event.message);
  }
}

/** `spec.containers{web}`, as Events point at a container. */
function fieldPath(pod: Pod, name: string): string {
  const place = specContainers(pod.spec).find((each) => each.container.name === name);
  const list = place?.kind === 'app' ? 'containers' : place?.kind === 'ephemeral' ? 'ephemeralContainers' : 'initContainers';
  return `spec.${list}{${name}}`;
}
