import { rfc3339, type Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import { isApiError } from '../../base/kubeapi/errors.ts';
import type { KubeApi, ResourceRef } from '../../base/kubeapi/types.ts';
import type { Log } from '../../base/log.ts';
import type { Rng } from '../../base/rng.ts';
import type { Node } from '../../proto/kube/types.ts';
import {
  metadataPatch,
  resetPatch,
  newNode,
  nodeEvents,
  nodeStatus,
  statusDiffers,
  statusPatch,
  strayedLabels,
  type NodeFacts,
  type NodeSettings,
} from '../core/node-status.ts';
import type { EventTarget, Events, NodeInfo } from '../seams.ts';
import type { StartupMetrics } from './startup-metrics.ts';
import { keepLease } from './node-lease.ts';

export interface NodeApiOptions {
  clock: Clock;
  rng: Rng;
  log: Log;
  api: KubeApi;
  events: Events;
  settings: NodeSettings;
  /** `registerNode`; without it the Node must come from elsewhere. */
  register: boolean;
  /** There is no API server: the Node is made up here, for pods that ask what it has. */
  standalone?: boolean;
  /** Wish: a Node that somebody deleted is made again. */
  registerAgain?: boolean;
  leaseDurationSeconds: number;
  statusUpdateMs: number;
  statusReportMs: number;
  /** `KubeletRegistrationGetOnExistsOnly`: a Node that may not be made is not looked for. */
  getOnExistsOnly?: boolean;
  /** How long it takes to become a node. */
  startup?: Pick<StartupMetrics, 'tries' | 'registered' | 'ready'>;
  /** What goes into the status now; must answer quickly. */
  facts: () => Promise<NodeFacts>;
}

export interface NodeApi extends NodeInfo {
  /** Registers, renews the Lease and reports status until `signal` is aborted. */
  run(signal: AbortSignal): Promise<void>;
  /** Looks at the facts now: the runtime's health, a pressure or an address may have changed. */
  kick(): void;
  /** The Node as the target of Events; its UID is empty until the Node is known. */
  readonly target: EventTarget;
}

const heartbeat = { lane: 'heartbeat', timeoutMs: 10_000 } as const;
const updateTries = 5;
/** Until the node was ready once, its state is looked at this often. */
const startPeriodMs = 100;

export function createNodeApi(options: NodeApiOptions): NodeApi {
  const { clock, rng, log, api, events, settings } = options;
  const nodes: ResourceRef = { group: '', version: 'v1', resource: 'nodes' };
  const ref: ResourceRef = { ...nodes, name: settings.nodeName };
  let firstUid = '';
  const target: EventTarget = {
    apiVersion: 'v1',
    kind: 'Node',
    name: settings.nodeName,
    get uid() {
      return firstUid;
    },
  };
  const listeners: (() => void)[] = [];
  const waiters: (() => void)[] = [];
  let current: Node | undefined;
  let addresses: readonly string[] = [];
  let reportedMs: number | undefined;
  /** Spreads the reports of many nodes that changed at once. */
  let reportJitterMs = 0;
  let wasReady = false;
  let wake: () => void = () => undefined;

  const learn = (node: Node | undefined): void => {
    const known = current;
    // A watch can be behind what our own write returned.
    if (node !== undefined && known !== undefined && known.metadata.uid === node.metadata.uid && older(node, known)) return;
    current = node;
    if (firstUid === '') firstUid = node?.metadata.uid ?? '';
    if (known !== undefined && node !== undefined && (known.spec.unschedulable ?? false) !== (node.spec.unschedulable ?? false)) {
      const reason = node.spec.unschedulable === true ? 'NodeNotSchedulable' : 'NodeSchedulable';
      events.event(target, 'Normal', reason, `Node ${settings.nodeName} status is now: ${reason}`);
    }
    if (node !== undefined) for (const waiter of waiters.splice(0)) waiter();
    for (const listener of listeners) listener();
  };

  const registerOnce = async (signal: AbortSignal): Promise<void> => {
    const facts = await options.facts();
    addresses = internalIPs(facts);
    options.startup?.tries();
    if (!options.register) return learn(await api.get<Node>(ref, heartbeat, signal));
    try {
      const created = await api.create<Node>(nodes, newNode(settings, facts, rfc3339(clock.nowMs())), heartbeat, signal);
      learn(created);
      options.startup?.registered();
      for (const { type, reason, message } of nodeEvents(settings.nodeName, undefined, created.status ?? {})) events.event(target, type, reason, message);
      reportedMs = clock.monoMs();
      return;
    } catch (error) {
      // Who may not make it may find it made by others.
      const mayBeThere = isApiError(error, 409) || (isApiError(error, 403) && options.getOnExistsOnly !== true);
      if (!mayBeThere) throw error;
    }
    const existing = await api.get<Node>(ref, heartbeat, signal);
    log.info('Node was previously registered', { node: settings.nodeName });
    const patch = metadataPatch(existing, settings, facts.machine);
    learn(patch === null ? existing : await api.patch<Node>(ref, 'strategic', patch, heartbeat, signal));
    const reset = facts.devices?.reset === true ? resetPatch(existing) : null;
    if (reset !== null) learn(await api.patch<Node>({ ...ref, subresource: 'status' }, 'strategic', reset, heartbeat, signal));
  };

  const register = async (signal: AbortSignal): Promise<void> => {
    log.info('Attempting to register node', { node: settings.nodeName });
    for (let stepMs = 100; !signal.aborted; stepMs = Math.min(stepMs * 2, 7_000)) {
      try {
        await registerOnce(signal);
        log.info('Successfully registered node', { node: settings.nodeName });
        return;
      } catch (error) {
        if (signal.aborted) return;
        log.error('Unable to register node with API server', { err: messageOf(error), node: settings.nodeName });
        await clock.sleep(stepMs, signal).catch(() => undefined);
      }
    }
  };

  const update = async (attempt: number, signal: AbortSignal): Promise<void> => {
    // The copy from the watch serves at first; a failed try reads the truth.
    const node = attempt === 0 && current !== undefined ? current : await api.get<Node>(ref, heartbeat, signal);
    const facts = await options.facts();
    addresses = internalIPs(facts);
    const next = nodeStatus(settings, facts, node.status, rfc3339(clock.nowMs()));
    const strayed = strayedLabels(node, facts.machine);
    const changed = strayed !== null || statusDiffers(node.status, next);
    const due = reportedMs === undefined || clock.monoMs() - reportedMs >= options.statusReportMs + reportJitterMs;
    if (changed || due) {
      const patch = { ...(strayed === null ? {} : { metadata: { labels: strayed } }), ...statusPatch(node.status, next) };
      const updated = await api.patch<Node>({ ...ref, subresource: 'status' }, 'strategic', patch, heartbeat, signal);
      for (const { type, reason, message } of nodeEvents(settings.nodeName, node.status, next)) events.event(target, type, reason, message);
      reportedMs = clock.monoMs();
      reportJitterMs = changed ? (rng.float() - 0.5) * options.statusReportMs : 0;
      learn(updated);
    }
    if (isReady(next)) options.startup?.ready();
    wasReady ||= isReady(next);
  };

  /** False when the API server was not reached or has no such Node. */
  const updateWithRetries = async (signal: AbortSignal): Promise<boolean> => {
    for (let attempt = 0; attempt < updateTries && !signal.aborted; attempt++) {
      try {
        await update(attempt, signal);
        return true;
      } catch (error) {
        if (signal.aborted) return false;
        log.error('Error updating node status, will retry', { err: messageOf(error) });
        if (!isApiError(error, 404)) continue;
        learn(undefined);
        return false;
      }
    }
    log.error('Unable to update node status', { err: 'update node status exceeds retry count' });
    return false;
  };

  const reportStatus = async (signal: AbortSignal): Promise<void> => {
    while (!signal.aborted) {
      const kicked = new Promise<void>((resolve) => (wake = resolve));
      const reached = await updateWithRetries(signal);
      const rest = new AbortController();
      const periodMs = wasReady || !reached ? options.statusUpdateMs * (1 + 0.04 * rng.float()) : startPeriodMs;
      const timer = clock.sleep(periodMs, AbortSignal.any([signal, rest.signal])).catch(() => undefined);
      await Promise.race([timer, kicked]);
      rest.abort();
    }
  };

  /** Also tells when the Node is deleted: then nothing is written for it until somebody makes it anew. */
  const follow = (signal: AbortSignal): Promise<void> =>
    api.reflect<Node>(
      nodes,
      { fieldSelector: `metadata.name=${settings.nodeName}` },
      {
        replaced: (items) => learn(items.find(({ metadata }) => metadata.name === settings.nodeName)),
        changed: (type, node) => learn(type === 'DELETED' ? undefined : node),
        trouble: (error) => log.debug(2, 'Watching the node', { err: messageOf(error) }),
      },
      signal,
    );

  /** Looks when something is told of the Node, and now and then: what the status was refused for is no event. */
  const registerAgain = async (signal: AbortSignal): Promise<void> => {
    let tell: () => void = () => undefined;
    listeners.push(() => tell());
    while (!signal.aborted) {
      const told = new AbortController();
      tell = () => told.abort();
      await clock.sleep(options.statusUpdateMs, AbortSignal.any([signal, told.signal])).catch(() => undefined);
      if (current !== undefined || signal.aborted) continue;
      log.info('The Node was deleted; it is registered again', { node: settings.nodeName });
      await register(signal);
      wake();
    }
  };

  const keepToItself = async (signal: AbortSignal): Promise<void> => {
    log.info('No API server defined - no node status update will be sent');
    while (!signal.aborted) {
      const kicked = new Promise<void>((resolve) => (wake = resolve));
      const facts = await options.facts();
      addresses = internalIPs(facts);
      const now = rfc3339(clock.nowMs());
      learn({ ...newNode(settings, facts, now), status: nodeStatus(settings, facts, current?.status, now) });
      const rest = new AbortController();
      const timer = clock.sleep(options.statusUpdateMs, AbortSignal.any([signal, rest.signal])).catch(() => undefined);
      await Promise.race([timer, kicked]);
      rest.abort();
    }
  };

  const nodeUid = async (signal: AbortSignal): Promise<string | undefined> => {
    if (current !== undefined) return current.metadata.uid;
    try {
      const node = await api.get<Node>(ref, heartbeat, signal);
      learn(node);
      return node.metadata.uid;
    } catch (error) {
      if (isApiError(error, 404)) return undefined;
      throw error;
    }
  };

  return {
    name: settings.nodeName,
    target,
    node: () => current,
    // Where a cloud's controller says which addresses the node has, pods are told those.
    hostIPs: () => (settings.cloud === undefined ? addresses : (toldIPs(current) ?? addresses)),
    onChange: (callback) => void listeners.push(callback),
    kick: () => wake(),
    async ready(signal) {
      for (;;) {
        const known = current;
        if (known !== undefined) return known;
        signal.throwIfAborted();
        await new Promise<void>((resolve, reject) => {
          const stopped = (): void => reject(signal.reason as Error);
          signal.addEventListener('abort', stopped, { once: true });
          waiters.push(() => {
            signal.removeEventListener('abort', stopped);
            resolve();
          });
        });
      }
    },
    async run(signal) {
      if (options.standalone === true) return keepToItself(signal);
      await register(signal);
      if (signal.aborted) return;
      const lease = keepLease({ clock, rng, log, api, nodeName: settings.nodeName, durationSeconds: options.leaseDurationSeconds, nodeUid }, signal);
      await Promise.all([lease, reportStatus(signal), follow(signal), options.registerAgain === true && options.register ? registerAgain(signal) : null]);
    },
  };
}

/** Whether a status that is told says that the node is ready. */
function isReady(status: NonNullable<Node['status']>): boolean {
  return status.conditions?.some(({ type, status: state }) => type === 'Ready' && state === 'True') ?? false;
}

function toldIPs(node: Node | undefined): string[] | undefined {
  const told = (node?.status?.addresses ?? []).filter(({ type }) => type === 'InternalIP').map(({ address }) => address);
  return told.length === 0 ? undefined : told;
}

function internalIPs(facts: NodeFacts): string[] {
  return facts.addresses.filter(({ type }) => type === 'InternalIP').map(({ address }) => address);
}

/** Resource versions of one object may be compared as numbers since 1.35 (KEP-5504); what is no number never counts as older. */
function older(left: Node, right: Node): boolean {
  const [a, b] = [Number(left.metadata.resourceVersion), Number(right.metadata.resourceVersion)];
  return Number.isFinite(a) && Number.isFinite(b) && a < b;
}
