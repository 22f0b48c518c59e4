import { rfc3339 } from '../../base/clock.ts';
import { isApiError } from '../../base/kubeapi/errors.ts';
import type { Lease, Node, Pod } from '../../proto/kube/types.ts';
import { freeCidr } from '../core/controllers/node-cidr.ts';
import { DEFAULT_NODE_HEALTH, type NodeAction, nodeCondition, NodeHealth } from '../core/controllers/node-health.ts';
import { keyOf } from '../core/controllers/owners.ts';
import { isPodTerminal, podCondition } from '../core/controllers/pods.ts';
import { evictingTaints, toleratedMs } from '../core/controllers/taint-eviction.ts';
import { semanticEqual } from '../core/controllers/equal.ts';
import { at, LEASES, leaseStore, NODES, nodeStore, podStore, PODS } from './collections.ts';
import { type Controller, runController } from './controller.ts';
import type { ControlDeps } from './deps.ts';
import { createRecorder, type Recorder, subjectOf } from './recorder.ts';
import type { Store, Stores } from './store.ts';

const LOOK_EVERY_MS = 5000;
const ALL = 'all';
const GONE_NODE_GRACE_MS = 40_000;
const NODE_PREFIX_BITS = 24;

/** Watches heartbeats: lost nodes become Unknown, get their taints, and their pods are told. */
export function startNodeLifecycle(deps: ControlDeps, stores: Stores): Controller {
  const nodes = nodeStore(stores);
  const pods = podStore(stores);
  const leases = leaseStore(stores);
  const recorder = createRecorder('node-controller', deps.api, deps.clock, deps.log, stores.signal);
  const health = new NodeHealth(DEFAULT_NODE_HEALTH);
  // The wall clock as it was at the start, going on evenly: when it is set anew, no node has been silent for that.
  const offsetMs = deps.clock.nowMs() - deps.clock.monoMs();
  const steadyMs = (): number => offsetMs + deps.clock.monoMs();

  const sync = async (key: string, signal: AbortSignal): Promise<number | undefined> => {
    if (key !== ALL) {
      const pod = pods.get(key);
      const node = nodes.get(pod?.spec.nodeName ?? '');
      const ready = node === undefined ? undefined : nodeCondition(node, 'Ready')?.status;
      if (pod !== undefined && ready !== undefined && ready !== 'True') await markNotReady(deps, recorder, pods, pod, signal);
      return undefined;
    }
    const now = rfc3339(deps.clock.nowMs());
    const actions = health.tick(nodes.values(), (name) => leases.get(`kube-node-lease/${name}`)?.spec.renewTime, steadyMs(), now);
    const spared = new Set<string>();
    for (const action of actions) {
      const name = action.kind === 'removed' ? action.name : (action.node.metadata.name ?? '');
      if (action.kind === 'lost' && (await leaseMoved(deps, leases, name, signal))) {
        // The copy of the lease is late, not the node.
        health.heard(name, steadyMs());
        spared.add(name);
      }
      if (!spared.has(name)) await act(deps, recorder, nodes, pods, action, signal);
    }
    return LOOK_EVERY_MS;
  };
  const controller = runController(deps, { name: 'node-lifecycle', needs: [nodes, pods, leases] as never[], concurrency: 1, sync });

  nodes.onChange((node, before, type) => {
    if (type !== 'changed' || before === undefined || !sameForHealth(before, node)) controller.add(ALL);
  });
  pods.onChange((pod, before) => {
    if (pod.spec.nodeName && pod.spec.nodeName !== before?.spec.nodeName) controller.add(keyOf(pod));
  });
  return controller;
}

function sameForHealth(before: Node, after: Node): boolean {
  const view = (node: Node): unknown => [node.spec, (node.status?.conditions ?? []).map(({ type, status }) => [type, status]), node.metadata.labels];
  return semanticEqual(view(before), view(after));
}

async function leaseMoved(deps: ControlDeps, leases: Store<Lease>, name: string, signal: AbortSignal): Promise<boolean> {
  try {
    const live = await deps.api.get<Lease>({ ...LEASES, namespace: 'kube-node-lease', name }, {}, signal);
    const known = leases.get(`kube-node-lease/${name}`);
    leases.wrote(live);
    return live.metadata.resourceVersion !== known?.metadata.resourceVersion;
  } catch (error) {
    if (isApiError(error, 404)) return false;
    throw error;
  }
}

async function act(deps: ControlDeps, recorder: Recorder, nodes: Store<Node>, pods: Store<Pod>, action: NodeAction, signal: AbortSignal): Promise<void> {
  switch (action.kind) {
    case 'registered': {
      const name = action.node.metadata.name ?? '';
      recorder.event(nodeSubject(name, action.node.metadata.uid ?? ''), {
        type: 'Normal',
        reason: 'RegisteredNode',
        message: `Node ${name} event: Registered Node ${name} in Controller`,
      });
      return;
    }
    case 'removed':
      recorder.event(nodeSubject(action.name, action.uid), {
        type: 'Normal',
        reason: 'RemovingNode',
        message: `Node ${action.name} event: Removing Node ${action.name} from Controller`,
      });
      return;
    case 'lost': {
      const body: Node = { ...action.node, status: { ...action.node.status, conditions: action.conditions } };
      nodes.wrote(await deps.api.update<Node>(at(NODES, action.node, 'status'), body, {}, signal));
      return;
    }
    case 'notReady': {
      const name = action.node.metadata.name ?? '';
      recorder.event(nodeSubject(name, action.node.metadata.uid ?? ''), {
        type: 'Normal',
        reason: 'NodeNotReady',
        message: `Node ${name} status is now: NodeNotReady`,
      });
      await Promise.all(pods.by('node', name).map((pod) => markNotReady(deps, recorder, pods, pod, signal)));
      return;
    }
    case 'taints': {
      const latest = nodes.get(action.node.metadata.name ?? '');
      if (latest === undefined) return;
      const patch = { metadata: { resourceVersion: latest.metadata.resourceVersion }, spec: { taints: action.taints.length === 0 ? null : action.taints } };
      nodes.wrote(await deps.api.patch<Node>(at(NODES, action.node), 'merge', patch, {}, signal));
      return;
    }
  }
}

function nodeSubject(name: string, uid: string) {
  return { apiVersion: 'v1', kind: 'Node', namespace: '', name, uid };
}

async function markNotReady(deps: ControlDeps, recorder: Recorder, pods: Store<Pod>, pod: Pod, signal: AbortSignal): Promise<void> {
  if (podCondition(pod, 'Ready')?.status !== 'True') return;
  const condition = { type: 'Ready', status: 'False', lastTransitionTime: rfc3339(deps.clock.nowMs()) };
  try {
    pods.wrote(
      await deps.api.patch<Pod>(at(PODS, pod, 'status'), 'strategic', { metadata: { uid: pod.metadata.uid }, status: { conditions: [condition] } }, {}, signal),
    );
  } catch (error) {
    if (isApiError(error, 404) || isApiError(error, 409)) return;
    throw error;
  }
  recorder.event(subjectOf(pod, 'v1', 'Pod'), { type: 'Warning', reason: 'NodeNotReady', message: 'Node is not ready' });
}

/** Deletes pods from nodes with NoExecute taints as soon as their tolerations end. */
export function startTaintEviction(deps: ControlDeps, stores: Stores): Controller {
  const nodes = nodeStore(stores);
  const pods = podStore(stores);
  const recorder = createRecorder('taint-eviction-controller', deps.api, deps.clock, deps.log, stores.signal);
  const since = new Map<string, number>();

  const sync = async (key: string, signal: AbortSignal): Promise<number | undefined> => {
    const pod = pods.get(key);
    if (pod === undefined || pod.metadata.deletionTimestamp || isPodTerminal(pod)) {
      if (pod === undefined || pod.metadata.deletionTimestamp) since.delete(key);
      return undefined;
    }
    const limitMs = toleratedMs(pod, evictingTaints(nodes.get(pod.spec.nodeName ?? '')));
    const subject = { ...subjectOf(pod, 'v1', 'Pod') };
    if (limitMs === 'forever') {
      if (since.delete(key)) recorder.event(subject, { type: 'Normal', reason: 'TaintManagerEviction', message: `Cancelling deletion of Pod ${key}` });
      return undefined;
    }
    const nowMs = deps.clock.monoMs();
    const startMs = since.get(key) ?? nowMs;
    since.set(key, startMs);
    if (nowMs < startMs + limitMs) return startMs + limitMs - nowMs;
    recorder.event(subject, { type: 'Normal', reason: 'TaintManagerEviction', message: `Marking for deletion Pod ${key}` });
    await disruptAndDelete(deps, pods, pod, { reason: 'DeletionByTaintManager', message: 'Taint manager: deleting due to NoExecute taint' }, undefined, signal);
    return undefined;
  };
  const controller = runController(deps, { name: 'taint-eviction', needs: [nodes, pods] as never[], sync });

  nodes.onChange((node, before) => {
    if (before !== undefined && semanticEqual(evictingTaints(before), evictingTaints(node))) return;
    if (before === undefined && evictingTaints(node).length === 0) return;
    for (const pod of pods.by('node', node.metadata.name ?? '')) controller.add(keyOf(pod));
  });
  pods.onChange((pod, before, type) => {
    if (type === 'gone') since.delete(keyOf(pod));
    else if (pod.spec.nodeName && (before?.spec.nodeName !== pod.spec.nodeName || !semanticEqual(before?.spec.tolerations, pod.spec.tolerations)))
      controller.add(keyOf(pod));
  });
  return controller;
}

/** Says in the pod's conditions why it goes, then deletes it. */
async function disruptAndDelete(
  deps: ControlDeps,
  pods: Store<Pod>,
  pod: Pod,
  why: { reason: string; message: string },
  force: { phase: 'Failed' } | undefined,
  signal: AbortSignal,
): Promise<void> {
  const condition = { type: 'DisruptionTarget', status: 'True', ...why, lastTransitionTime: rfc3339(deps.clock.nowMs()) };
  const status = { ...(force === undefined || isPodTerminal(pod) ? {} : force), conditions: [condition] };
  try {
    pods.wrote(await deps.api.patch<Pod>(at(PODS, pod, 'status'), 'strategic', { metadata: { uid: pod.metadata.uid }, status }, {}, signal));
    const options = { preconditions: { uid: pod.metadata.uid ?? '' }, ...(force === undefined ? {} : { gracePeriodSeconds: 0 }) };
    pods.deleting(pod, await deps.api.delete(at(PODS, pod), options, {}, signal));
  } catch (error) {
    if (!isApiError(error, 404) && !isApiError(error, 409)) throw error;
  }
}

/** Removes pods that no kubelet will ever finish: on nodes that are gone, or deleted before they had one. */
export function startPodGc(deps: ControlDeps, stores: Stores): Controller {
  const nodes = nodeStore(stores);
  const pods = podStore(stores);

  const sync = async (key: string, signal: AbortSignal): Promise<void> => {
    const pod = pods.get(key);
    if (pod === undefined) return;
    if (!pod.spec.nodeName) {
      if (pod.metadata.deletionTimestamp) await forceDelete(deps, pods, pod, signal);
      return;
    }
    if (nodes.get(pod.spec.nodeName) !== undefined || !(await isNodeGone(deps, pod.spec.nodeName, signal))) return;
    await disruptAndDelete(deps, pods, pod, { reason: 'DeletionByPodGC', message: 'PodGC: node no longer exists' }, { phase: 'Failed' }, signal);
  };
  const controller = runController(deps, { name: 'podgc', needs: [nodes, pods] as never[], sync });

  nodes.onChange((node, _before, type) => {
    if (type !== 'gone') return;
    for (const pod of pods.by('node', node.metadata.name ?? '')) controller.addAfter(keyOf(pod), GONE_NODE_GRACE_MS);
  });
  pods.onChange((pod, _before, type) => {
    if (type === 'gone') return;
    const isOrphan = pod.spec.nodeName ? nodes.isSynced && nodes.get(pod.spec.nodeName) === undefined : Boolean(pod.metadata.deletionTimestamp);
    if (isOrphan) controller.addAfter(keyOf(pod), GONE_NODE_GRACE_MS);
  });
  // Pods that came before the nodes were listed.
  void nodes.synced.then(() => {
    for (const pod of pods.values()) if (pod.spec.nodeName && nodes.get(pod.spec.nodeName) === undefined) controller.addAfter(keyOf(pod), GONE_NODE_GRACE_MS);
  });
  return controller;
}

async function isNodeGone(deps: ControlDeps, name: string, signal: AbortSignal): Promise<boolean> {
  try {
    await deps.api.get({ ...NODES, name }, {}, signal);
    return false;
  } catch (error) {
    if (isApiError(error, 404)) return true;
    throw error;
  }
}

async function forceDelete(deps: ControlDeps, pods: Store<Pod>, pod: Pod, signal: AbortSignal): Promise<void> {
  try {
    pods.deleting(pod, await deps.api.delete(at(PODS, pod), { gracePeriodSeconds: 0, preconditions: { uid: pod.metadata.uid ?? '' } }, {}, signal));
  } catch (error) {
    if (!isApiError(error, 404) && !isApiError(error, 409)) throw error;
  }
}

/** Gives each node its own range of pod addresses, for good. */
export function startNodeIpam(deps: ControlDeps, stores: Stores): Controller {
  const nodes = nodeStore(stores);
  const recorder = createRecorder('cidrAllocator', deps.api, deps.clock, deps.log, stores.signal);

  const sync = async (name: string, signal: AbortSignal): Promise<void> => {
    const node = nodes.get(name);
    if (node === undefined || node.spec.podCIDR || deps.config.clusterCIDR === undefined) return;
    const used = nodes.values().flatMap((other) => other.spec.podCIDRs ?? other.spec.podCIDR ?? []);
    const cidr = freeCidr(deps.config.clusterCIDR, NODE_PREFIX_BITS, used);
    if (cidr === undefined) {
      recorder.event(nodeSubject(name, node.metadata.uid ?? ''), {
        type: 'Normal',
        reason: 'CIDRNotAvailable',
        message: `Node ${name} status is now: CIDRNotAvailable`,
      });
      return;
    }
    nodes.wrote(
      await deps.api.patch<Node>(at(NODES, node), 'strategic', { metadata: { uid: node.metadata.uid }, spec: { podCIDR: cidr, podCIDRs: [cidr] } }, {}, signal),
    );
  };
  // One at a time: two nodes must not get the same range.
  const controller = runController(deps, { name: 'node-ipam', needs: [nodes] as never[], concurrency: 1, sync });
  nodes.onChange((node, _before, type) => {
    if (type !== 'gone' && !node.spec.podCIDR) controller.add(node.metadata.name ?? '');
  });
  return controller;
}
