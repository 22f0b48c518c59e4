import type { Node, NodeCondition, Taint } from '../../../proto/kube/types.ts';
import { semanticEqual } from './equal.ts';
import { timeMs } from './pods.ts';

export interface NodeHealthSettings {
  /** Without a heartbeat for so long a node counts as lost. */
  graceMs: number;
  /** The same for a node whose kubelet never said anything. */
  startupGraceMs: number;
  /** At most one node of a zone starts to be evicted in this time. */
  evictionIntervalMs: number;
}

export const DEFAULT_NODE_HEALTH: NodeHealthSettings = { graceMs: 50_000, startupGraceMs: 60_000, evictionIntervalMs: 10_000 };

export type NodeAction =
  | { kind: 'registered'; node: Node }
  | { kind: 'removed'; name: string; uid: string }
  /** The node's conditions become these; check its lease once more before. */
  | { kind: 'lost'; node: Node; conditions: NodeCondition[] }
  /** The node stopped being ready: its pods are told. */
  | { kind: 'notReady'; node: Node }
  | { kind: 'taints'; node: Node; taints: Taint[] };

interface Health {
  uid: string;
  heardMs: number;
  heartbeat: string;
  renewed: string;
  wasReady: boolean;
}

interface Seen {
  node: Node;
  ready: 'True' | 'False' | 'Unknown' | undefined;
}

const NOT_READY = 'node.kubernetes.io/not-ready';
const UNREACHABLE = 'node.kubernetes.io/unreachable';
const LOST_CONDITIONS = ['Ready', 'MemoryPressure', 'DiskPressure', 'PIDPressure'];
const EXCLUDED_LABEL = 'node.kubernetes.io/exclude-disruption';
const CONDITION_TAINTS: readonly { type: string; status: string; key: string }[] = [
  { type: 'Ready', status: 'False', key: NOT_READY },
  { type: 'Ready', status: 'Unknown', key: UNREACHABLE },
  { type: 'MemoryPressure', status: 'True', key: 'node.kubernetes.io/memory-pressure' },
  { type: 'DiskPressure', status: 'True', key: 'node.kubernetes.io/disk-pressure' },
  { type: 'NetworkUnavailable', status: 'True', key: 'node.kubernetes.io/network-unavailable' },
  { type: 'PIDPressure', status: 'True', key: 'node.kubernetes.io/pid-pressure' },
];
const NO_SCHEDULE_KEYS = new Set([...CONDITION_TAINTS.map((entry) => entry.key), 'node.kubernetes.io/unschedulable']);

export function nodeCondition(node: Node, type: string): NodeCondition | undefined {
  return node.status?.conditions?.find((condition) => condition.type === type);
}

/**
 * Remembers when each node was last heard of and says what follows. Heartbeats are compared with what was seen before,
 * never with this machine's clock, so clocks that differ do no harm.
 */
export class NodeHealth {
  readonly #settings: NodeHealthSettings;
  readonly #health = new Map<string, Health>();
  readonly #nextEvictionMs = new Map<string, number>();
  #allWereLost = false;

  constructor(settings: NodeHealthSettings) {
    this.#settings = settings;
  }

  /** The lease turned out to be newer than the copy of it. */
  heard(name: string, nowMs: number): void {
    const health = this.#health.get(name);
    if (health !== undefined) health.heardMs = nowMs;
  }

  tick(nodes: readonly Node[], renewTimeOf: (name: string) => string | undefined, nowMs: number, now: string): NodeAction[] {
    const actions: NodeAction[] = this.#arrivals(nodes, nowMs);
    const seen = nodes.map((node) => this.#look(node, renewTimeOf(node.metadata.name ?? ''), nowMs, now, actions));
    const allLost = this.#noteDisruption(seen, nowMs);
    for (const one of seen) {
      const taints = this.#taintsOf(one, allLost, seen, nowMs, now);
      if (!semanticEqual(taints, one.node.spec.taints)) actions.push({ kind: 'taints', node: one.node, taints });
    }
    return actions;
  }

  #arrivals(nodes: readonly Node[], nowMs: number): NodeAction[] {
    const actions: NodeAction[] = [];
    const names = new Set(nodes.map((node) => node.metadata.name ?? ''));
    for (const node of nodes) {
      const name = node.metadata.name ?? '';
      if (this.#health.has(name)) continue;
      const ready = nodeCondition(node, 'Ready');
      const heardMs = ready === undefined ? timeMs(node.metadata.creationTimestamp) : nowMs;
      this.#health.set(name, {
        uid: node.metadata.uid ?? '',
        heardMs,
        heartbeat: ready?.lastHeartbeatTime ?? '',
        renewed: '',
        wasReady: ready?.status === 'True',
      });
      actions.push({ kind: 'registered', node });
    }
    for (const [name, health] of this.#health) {
      if (names.has(name)) continue;
      this.#health.delete(name);
      actions.push({ kind: 'removed', name, uid: health.uid });
    }
    return actions;
  }

  #look(node: Node, renewed: string | undefined, nowMs: number, now: string, actions: NodeAction[]): Seen {
    const health = this.#health.get(node.metadata.name ?? '');
    const ready = nodeCondition(node, 'Ready');
    if (health === undefined) return { node, ready: undefined };
    const heartbeat = ready?.lastHeartbeatTime ?? '';
    if (heartbeat !== health.heartbeat || (renewed ?? health.renewed) !== health.renewed) health.heardMs = nowMs;
    health.heartbeat = heartbeat;
    health.renewed = renewed ?? health.renewed;
    const graceMs = ready === undefined ? this.#settings.startupGraceMs : this.#settings.graceMs;
    const isLost = nowMs > health.heardMs + graceMs;
    const conditions = isLost ? lostConditions(node, now) : undefined;
    if (conditions !== undefined) actions.push({ kind: 'lost', node, conditions });
    const status = isLost ? 'Unknown' : (ready?.status as Seen['ready']);
    if (health.wasReady && status !== 'True') actions.push({ kind: 'notReady', node });
    health.wasReady = status === 'True';
    return { node, ready: status };
  }

  /** Whether nobody answers: then the trouble is more likely here, and nobody is evicted. */
  #noteDisruption(seen: readonly Seen[], nowMs: number): boolean {
    const counted = seen.filter(({ node }) => node.metadata.labels?.[EXCLUDED_LABEL] === undefined);
    const allLost = counted.length > 0 && counted.every(({ ready }) => ready !== 'True');
    if (this.#allWereLost && !allLost) {
      for (const health of this.#health.values()) health.heardMs = nowMs;
      this.#nextEvictionMs.clear();
    }
    this.#allWereLost = allLost;
    return allLost;
  }

  #taintsOf({ node, ready }: Seen, allLost: boolean, seen: readonly Seen[], nowMs: number, now: string): Taint[] {
    const present = node.spec.taints ?? [];
    const wanted = new Set(
      CONDITION_TAINTS.filter(({ type, status }) => (type === 'Ready' ? ready : nodeCondition(node, type)?.status) === status).map(({ key }) => key),
    );
    if (node.spec.unschedulable === true) wanted.add('node.kubernetes.io/unschedulable');
    const kept = present.filter((taint) => !(taint.effect === 'NoSchedule' && NO_SCHEDULE_KEYS.has(taint.key) && !wanted.has(taint.key)));
    const missing = [...wanted].filter((key) => !kept.some((taint) => taint.key === key && taint.effect === 'NoSchedule'));
    const taints = [...kept, ...missing.map((key): Taint => ({ key, effect: 'NoSchedule', timeAdded: now }))];
    return this.#withNoExecute(node, taints, ready, allLost, seen, nowMs, now);
  }

  #withNoExecute(node: Node, taints: Taint[], ready: Seen['ready'], allLost: boolean, seen: readonly Seen[], nowMs: number, now: string): Taint[] {
    const isEvicting = (taint: Taint): boolean => taint.effect === 'NoExecute' && (taint.key === NOT_READY || taint.key === UNREACHABLE);
    const rest = taints.filter((taint) => !isEvicting(taint));
    if (ready === undefined) return taints;
    if (ready === 'True' || allLost) return rest;
    const key = ready === 'Unknown' ? UNREACHABLE : NOT_READY;
    if (taints.some((taint) => isEvicting(taint) && taint.key === key)) return taints.filter((taint) => !isEvicting(taint) || taint.key === key);
    const swaps = taints.some(isEvicting);
    if (!swaps && !this.#mayEvict(node, seen, nowMs)) return taints;
    return [...rest, { key, effect: 'NoExecute', timeAdded: now }];
  }

  #mayEvict(node: Node, seen: readonly Seen[], nowMs: number): boolean {
    const zone = zoneOf(node);
    const inZone = seen.filter((one) => zoneOf(one.node) === zone);
    const down = inZone.filter((one) => one.ready !== 'True').length;
    const isPartial = down < inZone.length && down > 2 && down / inZone.length >= 0.55;
    if (isPartial && inZone.length <= 50) return false;
    const next = this.#nextEvictionMs.get(zone) ?? 0;
    if (nowMs < next) return false;
    this.#nextEvictionMs.set(zone, nowMs + this.#settings.evictionIntervalMs * (isPartial ? 10 : 1));
    return true;
  }
}

function zoneOf(node: Node): string {
  const { labels } = node.metadata;
  return `${labels?.['topology.kubernetes.io/region'] ?? ''}:${labels?.['topology.kubernetes.io/zone'] ?? ''}`;
}

/** The conditions a node has when it is lost; undefined when they say so already. */
function lostConditions(node: Node, now: string): NodeCondition[] | undefined {
  const present = node.status?.conditions ?? [];
  const changed = present.map((condition) =>
    LOST_CONDITIONS.includes(condition.type) && condition.status !== 'Unknown'
      ? { ...condition, status: 'Unknown', reason: 'NodeStatusUnknown', message: 'Kubelet stopped posting node status.', lastTransitionTime: now }
      : condition,
  );
  const absent = LOST_CONDITIONS.filter((type) => !present.some((condition) => condition.type === type)).map((type): NodeCondition => ({
    type,
    status: 'Unknown',
    reason: 'NodeStatusNeverUpdated',
    message: 'Kubelet never posted node status.',
    lastHeartbeatTime: node.metadata.creationTimestamp ?? now,
    lastTransitionTime: now,
  }));
  const conditions = [...changed, ...absent];
  return semanticEqual(conditions, present) ? undefined : conditions;
}
